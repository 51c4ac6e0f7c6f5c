"""Ranks, places and people in words."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import polars as pl
import pytest

from rankscope.analysis.model import Analysis, Culprit, Evidence, Finding, GroupRef
from rankscope.report import words
from rankscope.schema import Dataset, Frame
from tests.report import samples

FINDING = Finding(kind="missing-rank", severity="critical", title="", explanation="")


@pytest.mark.parametrize(
    ("culprits", "said"),
    [
        ((Culprit(3, "node07"),), "rank 3 on node07"),
        ((Culprit(3, "node07", device="cuda:1"),), "rank 3 on node07, cuda:1"),
        ((Culprit(1, "a"), Culprit(2, "a"), Culprit(3, "b")), "ranks 1,2 on a; rank 3 on b"),
        ((Culprit(1), Culprit(2)), "ranks 1,2"),
        ((Culprit(None, "a", 77),), "process 77 on a"),
        ((Culprit(None, None, None, "cuda:0"),), "cuda:0"),
        ((Culprit(None),), "unknown"),
    ],
)
def test_who(culprits: tuple[Culprit, ...], said: str) -> None:
    assert words.who(replace(FINDING, culprits=culprits)) == said


@pytest.mark.parametrize(
    ("finding", "said"),
    [
        (FINDING, ""),
        (replace(FINDING, op="send", seq=3, peer=1), "send #3 with rank 1"),
        (
            replace(FINDING, op="send", seq=8, peer=1, never_posted=True),
            "receive from rank 1 (#8), never posted",
        ),
        (replace(FINDING, op="recv", peer=2, never_posted=True), "send to rank 2, never posted"),
        (replace(FINDING, group=GroupRef("7", "", (0, 1))), "group 7, ranks 0,1"),
        (replace(FINDING, op="barrier", group=GroupRef("7", "dp", (0, 1))), "barrier in dp (group 7), ranks 0,1"),
        (replace(FINDING, group=GroupRef("", "", (4,))), "group (unnamed), rank 4"),
    ],
)
def test_place(finding: Finding, said: str) -> None:
    assert words.place(finding) == said


def test_source_of_evidence() -> None:
    assert words.source(Evidence("x", "rank_1.log", 1, None, 12)) == "rank_1.log, line 12"
    assert words.source(Evidence("x", rank=3, record_id=0)) == "rank 3, record 0"
    assert words.source(Evidence("x")) == ""


def test_groups_that_share_a_name_are_not_mixed_up() -> None:
    dataset, _ = samples.hang()
    groups = dataset.groups.with_columns(name=pl.lit("1"))
    assert words.descriptions(replace(dataset, groups=groups)) == {}


def test_a_stack_belongs_to_one_that_waits_where_the_culprit_left_nothing() -> None:
    dataset, analysis = samples.hang()
    finding = analysis.findings[0]
    assert words.stack_title(finding, dataset) == "rank 3, at its last operation"
    assert words.stack_title(replace(finding, kind="size-mismatch"), dataset) == "rank 3"
    gone = replace(dataset, files=dataset.files.filter(pl.col("rank") != 3))
    assert words.stack_title(finding, gone) == "a waiting rank"


TORCH = Frame("all_reduce", "/venv/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py", 3)
PYTHON = Frame("run", "/usr/lib/python3.11/threading.py", 5)
OWN = Frame("forward", "model.py", 1)
OTHER = Frame("step", "/venv/lib/python3.11/site-packages/trainer/step.py", 2)


@pytest.mark.parametrize(
    ("stack", "shown"),
    [
        ((TORCH, OWN, PYTHON, OTHER, PYTHON), ["forward", "run", "step", "(2"]),
        ((OWN,), ["forward"]),
        ((TORCH, PYTHON), ["all_reduce", "run"]),
        ((OWN,) * 30, ["forward"] * words.MOST_FRAMES + ["(10"]),
        ((), []),
    ],
)
def test_frames_of_torch_and_python_at_the_ends_are_left_out(stack: tuple[Frame, ...], shown: list[str]) -> None:
    assert [line.split()[0] for line in words.frames(stack)] == shown


def test_healthy_dumps_say_what_they_do_not_see() -> None:
    dataset, analysis = samples.healthy()
    told = words.unseen(analysis, dataset)
    assert told == "if it hangs anyway, no rank waits in a recorded operation: run py-spy dump on every rank"
    gloo = replace(dataset, ops=dataset.ops.with_columns(library=pl.lit("gloo")))
    assert "(gloo records no send, receive or monitored barrier)" in words.unseen(analysis, gloo)


@pytest.mark.parametrize("sample", [samples.hang, samples.logged, samples.traced])
def test_only_of_healthy_dumps_alone(sample: Callable[[], tuple[Dataset, Analysis]]) -> None:
    dataset, analysis = sample()
    assert words.unseen(analysis, dataset) == ""
