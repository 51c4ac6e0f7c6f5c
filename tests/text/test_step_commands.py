"""Commands taken out of the text of next steps."""

from __future__ import annotations

import pytest

from rankscope.analysis import places
from rankscope.text.step_commands import ALL_STACKS, command_of, first_command


@pytest.mark.parametrize(
    ("step", "command"),
    [
        ("py-spy dump --pid 4242 (rank 3 on h7) and 17 (rank 5): what does it do?", "py-spy dump --pid 4242"),
        ("Run rankscope report --only memory PATH: it lists", "rankscope report --only memory PATH"),
        ("Run rankscope report --only memory a/b.pickle: it lists", ""),
        ("py-spy dump --native --pid 4711 (rank 3)", "py-spy dump --native --pid 4711"),
        ("py-spy dump --native of the engine", "rankscope stacks -o dumps"),
        ("Take stacks of all its threads: py-spy dump --native, or gdb.", "rankscope stacks -o dumps"),
        ("Check rank 3: nvidia-smi -q -d ECC, nvidia-smi nvlink -s, dmesg.", "nvidia-smi -q -d ECC"),
        ("Give the dumps themselves: rankscope DIRECTORY_OF_DUMPS.", "rankscope DIRECTORY_OF_DUMPS"),
        ("Set TORCH_FR_BUFFER_SIZE=2000 and TORCH_NCCL_DUMP_ON_TIMEOUT=1, and go on.",
         "export TORCH_FR_BUFFER_SIZE=2000 TORCH_NCCL_DUMP_ON_TIMEOUT=1"),
        ("Collect the dumps; rankscope.capture writes down who is in a group.", ""),
        ("Read the end of the log of rank 3, and dmesg of its host.", ""),
        ("py-spy dump --pid 1; rm -rf / (rank 3 on $(evil))", "py-spy dump --pid 1"),
    ],
)  # fmt: skip
def test_only_a_known_program_with_plain_arguments_is_a_command(step: str, command: str) -> None:
    assert command_of(step) == command


def test_the_first_step_with_a_command_counts() -> None:
    assert first_command(["Read the log.", "nvidia-smi -q", "py-spy dump"]) == "nvidia-smi -q"
    assert first_command([]) == ""


def test_the_command_for_all_stacks_is_the_same_in_findings() -> None:
    assert places.ALL_STACKS == ALL_STACKS
