"""Stacks over time of all ranks as one tree, and the rank that differs."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest

from rankscope.analysis import analyse
from rankscope.assemble.load import load
from rankscope.features.stacks.samples.decode import decode_profile
from rankscope.features.stacks.share_text import folded_text, share_section, speedscope_profile
from rankscope.features.stacks.stack_shares import ShareTree, odd_rank, rank_differences, share_tree
from rankscope.report.text import sections_text
from rankscope.schema import Dataset
from rankscope.schema.tables import SAMPLES
from tests.builders import STEP_NS, JobBuilder

MAIN = ("<module>", "train.py", 9)
WAIT = [("wait", "/x/torch/dist.py", 3), ("step", "train.py", 4), MAIN]
LOAD = [("read", "data.py", 8), ("load", "data.py", 7), ("step", "train.py", 5), MAIN]
OTHER = [("run", "monitor.py", 1), ("Thread._bootstrap", "/lib/threading.py", 2)]


def profiled(counts: dict[int, tuple[int, int]], job: JobBuilder | None = None) -> Dataset:
    """A job whose ranks were seen so often in `WAIT` and in `LOAD`, and their monitors always."""
    job = job or JobBuilder(len(counts))
    ids = [job.stacks.setdefault(tuple(stack), len(job.stacks)) for stack in (WAIT, LOAD, OTHER)]
    rows = [
        {"rank": rank, "pid": 1, "thread": "", "thread_id": 1, "stack_id": number, "count": count, "file": 0}
        for rank, seen in counts.items()
        for number, count in zip(ids, (*seen, 100), strict=True) if count
    ]  # fmt: skip
    return replace(job.build(), samples=pl.DataFrame(rows, schema=SAMPLES))


def tree_of(counts: dict[int, tuple[int, int]]) -> ShareTree:
    """The tree of such a job."""
    tree = share_tree(profiled(counts))
    assert tree is not None
    return tree


def tree_text(tree: ShareTree, rank: int | None = None) -> str:
    """The tree as the command prints it."""
    return sections_text([share_section(tree, rank)])


def test_what_the_late_rank_does_that_others_do_not() -> None:
    tree = tree_of({0: (100, 0), 1: (50, 0), 2: (20, 80), 3: (100, 0)})
    assert odd_rank(tree) == 2 and tree.samples == {0: 100, 1: 50, 2: 100, 3: 100}
    more, less = rank_differences(tree, 2)
    assert [frame.function for frame in more.path] == ["<module>", "step", "load", "read"]
    assert (more.own, more.others, less.own, less.others) == (0.8, 0.0, 0.2, 1.0)
    text = tree_text(tree)
    assert (
        "rank 2 is more than the others in\n   share  others  call\n     80%      0%  read data.py:8 < load < step\n"
        in text
    )
    assert any(line.split()[:5] == ["20%", "##", "rank", "2:", "80%"] for line in text.splitlines())


def test_a_healthy_job_has_no_odd_rank() -> None:
    tree = tree_of({0: (95, 5), 1: (98, 2), 2: (94, 6)})
    assert odd_rank(tree) is None and "no rank differs from the others" in tree_text(tree)
    assert "rank 0 does what the others do" in tree_text(tree, 0)


def test_of_two_ranks_the_user_chooses() -> None:
    tree = tree_of({0: (100, 0), 1: (10, 90)})
    assert odd_rank(tree) is None
    assert "rank 1 is more than the others in" in tree_text(tree, 1)


def test_repeated_dumps_are_samples() -> None:
    job = JobBuilder(3)
    for rank in range(3):
        for moment in range(4):
            stack = LOAD if rank == 1 and moment else WAIT
            job.thread(rank, stack, written_ns=moment * STEP_NS)
            job.thread(rank, OTHER, name="mon", written_ns=moment * STEP_NS)
    tree = share_tree(job.build())
    assert tree is not None and odd_rank(tree) == 1
    assert rank_differences(tree, 1)[0].own == 0.75


def test_one_dump_is_no_time() -> None:
    job = JobBuilder(2)
    job.thread(0, WAIT, written_ns=1)
    assert share_tree(job.build()) is None


def test_exports_are_read_again() -> None:
    tree = tree_of({0: (100, 0), 1: (50, 50)})
    folded = decode_profile(b"\n".join(folded_text(tree).splitlines()))
    assert sorted(stack.times for stack in folded.stacks) == [50, 50, 100]
    assert b"rank 1;<module> (train.py:9);step (train.py:5);load (data.py:7);read (data.py:8) 50\n" in folded_text(tree)
    document = json.loads(speedscope_profile(tree, "dumps"))
    assert [(p["name"], p["endValue"]) for p in document["profiles"]] == [("rank 0", 100), ("rank 1", 100)]


def test_names_from_files_harm_no_terminal_and_no_line() -> None:
    job = JobBuilder(1)
    evil = [("a;b\x1b[2J\n", "c\r.py", 1)]
    number = job.stacks.setdefault(tuple(evil), 0)
    row = {"rank": 0, "pid": 1, "thread": "", "thread_id": 1, "stack_id": number, "count": 3, "file": 0}
    tree = share_tree(replace(job.build(), samples=pl.DataFrame([row], schema=SAMPLES)))
    assert tree is not None
    assert "\x1b" not in tree_text(tree) + folded_text(tree).decode() and folded_text(tree).count(b"\n") == 1


def test_the_accused_rank_has_its_call_as_evidence() -> None:
    job = JobBuilder(3)
    for _ in range(4):
        job.collective()
    job.collective(ranks=[0, 2], state="scheduled")
    cause = analyse(profiled({0: (100, 0), 1: (0, 100), 2: (100, 0)}, job)).cause
    assert cause is not None and cause.culprit_ranks == (1,)
    assert cause.evidence[0].text == "stacks over time: 100% of its time in read data.py:8, the others 0%"


def test_a_process_id_is_not_taken_for_the_rank_of_the_same_number() -> None:
    job = JobBuilder(3)
    for _ in range(4):
        job.collective()
    job.collective(ranks=[0, 2], state="scheduled")
    dataset = profiled({0: (100, 0), 1: (0, 100), 2: (100, 0)}, job)
    samples = dataset.samples.with_columns(pid=pl.col("rank"), rank=pl.lit(None, SAMPLES["rank"]))
    cause = analyse(replace(dataset, samples=samples)).cause
    assert cause is not None and cause.culprit_ranks == (1,)
    assert not [evidence for evidence in cause.evidence if "stacks over time" in evidence.text]


@pytest.mark.parametrize(
    ("counts", "words"),
    [
        ({0: (75, 25), 1: (20, 80)}, "ranks 0,1 differ in read data.py:8: 25% and 80% of their time; of two neither"),
        ({0: (99, 1), 1: (20, 80), 2: (99, 1)}, "rank 1 spends 80% of its time in read data.py:8, the others 1%"),
        ({0: (75, 25), 1: (74, 26)}, "rankscope stacks PATH shows what each rank does"),
    ],
)
def test_a_report_on_stacks_over_time_tells_what_differs(
    tmp_path: Path, counts: dict[int, tuple[int, int]], words: str
) -> None:
    for rank, seen in counts.items():
        stacks = (" ".join([";".join(f"{f} ({file}:{line})" for f, file, line in reversed(stack)), str(count)])
                  for stack, count in zip((WAIT, LOAD), seen, strict=True))  # fmt: skip
        (tmp_path / f"pyspy_rank_{rank}.folded").write_text("\n".join(stacks) + "\n")
    analysis = analyse(load([tmp_path]))
    assert analysis.verdict.startswith(f"only stacks over time were found: {words}")
    assert analysis.culprits == () and [f.severity for f in analysis.findings] in ([], ["info"])
