"""Numbers that launchers put in front of lines: ranks only where nothing speaks against it."""

from __future__ import annotations

from pathlib import Path

import pytest

from rankscope.analysis import analyse
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


TAGS = {
    "Open MPI 4": "[1,{}]<stderr>:", "with a time": "Thu Nov 26 06:50:17 2026[1,{}]<stderr>:",
    "Open MPI 5": "[1,{}]<stderr>: ", "with a time in brackets": "[Thu Nov 26 06:50:17 2026][1,{}]<stderr>: ",
    "the whole name of the job": "[prterun-n7-1234@1,{}]<stderr>: ", "the rank alone": "[{}]<stderr>: ",
    "host and process": "[1,{}][n7:4711]<stderr>: ", "a task of srun": "{}: ",
}  # fmt: skip


@pytest.mark.parametrize("tag", TAGS)
def test_tags_of_mpirun_and_srun_hold_the_rank(tmp_path: Path, tag: str) -> None:
    assert ranks(read(tmp_path, *(TAGS[tag].format(rank) for rank in (0, 3)))) == ([0, 3], [0, 3])


def test_the_detailed_tag_tells_host_and_process(tmp_path: Path) -> None:
    found = read(tmp_path, "[1,3][n7:4711]<stderr>: ").messages
    assert found.select("host", "pid").rows()[0] == ("n7", 4711)


@pytest.mark.parametrize("tag", ["Open MPI 4", "Open MPI 5", "a task of srun"])
@pytest.mark.parametrize(
    "inside",
    [
        "E1126 06:50:17.2 285 torch/x/api.py:1002] failed (exitcode: 1) local_rank: 1 (pid: 9) of binary: python\n",
        f"[rank5]: {FATAL}",
    ],
)
def test_the_number_of_a_node_is_no_rank(tmp_path: Path, tag: str, inside: str) -> None:
    """A torchrun on each node prints behind the tag of its node, and its ranks do."""
    fronts = [TAGS[tag].format(node) for node in (0, 1)]
    assert ranks(read(tmp_path, *fronts, more=f"{fronts[1]}{inside}"))[1] == [None, None]


def test_the_number_of_a_task_is_taken_for_the_rank_with_doubt(tmp_path: Path) -> None:
    text = FATAL.replace("Fatal Python error: ", 'Traceback (most recent call last):\n  File "a.py", line 1, in f\n')
    text = text.replace("Segmentation fault", "ValueError: bad")
    (tmp_path / "job.log").write_text("".join(f"2: {line}\n" for line in text.splitlines()))
    (found,) = analyse(load([tmp_path])).findings[:1]
    assert (found.culprit_ranks, found.confidence) == ((2,), "medium")
    assert any("srun starts one task a rank" in reason for reason in found.confidence_reasons)
