"""Numbers that a template of torchrun puts in front of lines: ranks only where nothing speaks against it."""

from __future__ import annotations

from pathlib import Path

import pytest

from rankscope.assemble.load import LoadOptions, load
from rankscope.schema import Dataset

FATAL = "Fatal Python error: Segmentation fault\n"
STACK = 'Current thread 0x00007f70b9d0a740 (most recent call first):\n  File "/ws/a.py", line 4 in f\n'


def read(tmp_path: Path, *fronts: str, world: int | None = None, more: str = "") -> Dataset:
    """A log in which each of these stands in front of what a process prints that crashes."""
    text = more + "".join(f"{front}{line}\n" for front in fronts for line in (FATAL + STACK).splitlines())
    (tmp_path / "job.log").write_text(text)
    return load([tmp_path], LoadOptions(world_size=world))


def ranks(dataset: Dataset) -> tuple[list[int | None], list[int | None]]:
    """Of messages and of stacks."""
    said = dataset.messages.filter(dataset.messages["pattern"] == "segfault")
    return sorted(said["rank"].to_list(), key=str), sorted(dataset.threads["rank"].to_list(), key=str)


@pytest.mark.parametrize(
    "fronts",
    [
        ("r12i0n8:0: ", "r12i0n9:3: "), ("node-a.local:0: ", "node-a.local:1: "), ("[n1:4]: ", "[n1:5]: "),
        ("[0]: ", "[1]: "), ("[0]:", "[1]:"), ("n7:12: ", "n7:13: "),
    ],
)  # fmt: skip
def test_host_and_rank(tmp_path: Path, fronts: tuple[str, ...]) -> None:
    numbers = [
        int("".join(c for c in front.rpartition(":")[0].rpartition(":")[2] or front if c.isdigit())) for front in fronts
    ]
    assert ranks(read(tmp_path, *fronts)) == (numbers, numbers)


def test_the_host_is_told_too(tmp_path: Path) -> None:
    found = read(tmp_path, "r12i0n8:0: ", "r12i0n9:3: ").messages
    assert found.filter(found["rank"] == 3)["host"].to_list() == ["r12i0n9"]


def test_numbers_that_begin_anew_on_each_host_are_no_ranks(tmp_path: Path) -> None:
    assert ranks(read(tmp_path, "n1:0: ", "n1:1: ", "n2:0: ", "n2:1: "))[1] == [None] * 4


def test_numbers_of_one_node_of_a_larger_job_are_no_ranks(tmp_path: Path) -> None:
    assert ranks(read(tmp_path, "n1:0: ", "n1:1: ", world=4))[1] == [None, None]


def test_torch_itself_says_a_rank_behind_it(tmp_path: Path) -> None:
    line = "n1:1: [rank5]:[E1125 17:20:33.1 x.cpp:616] [Rank 5] NCCL watchdog thread terminated with exception\n"
    assert ranks(read(tmp_path, "n1:0: ", "n1:1: ", more=line))[1] == [None, None]
    assert ranks(read(tmp_path, "n1:0: ", "n1:5: ", more=line.replace("n1:1", "n1:5")))[1] == [0, 5]


@pytest.mark.parametrize("front", ["train.py:88: ", "http://n1:80: "])
def test_places_in_programs_are_no_prefix(tmp_path: Path, front: str) -> None:
    assert ranks(read(tmp_path, front))[1] in ([], [None])
