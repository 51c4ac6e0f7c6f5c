"""Ranks of which there is a file that could not be read: that is said, and accuses nobody."""

from __future__ import annotations

from dataclasses import replace

import polars as pl
import pytest

from rankscope.analysis import analyse
from rankscope.analysis.explanations import explain_rank
from rankscope.assemble.assembly import assemble
from rankscope.assemble.sources import SourceFile
from rankscope.parsers.flight_recorder.decode import decode_dump
from rankscope.report.text import render_text
from rankscope.schema import Dataset
from rankscope.tui.detail.detail_text import compact
from rankscope.tui.detail.operation_index import OpIndex
from rankscope.tui.detail.selection_facts import look_up
from rankscope.tui.marks import REASONS
from rankscope.tui.model import build_model
from rankscope.tui.selection import Selection
from tests.builders import JobBuilder
from tests.parsers.dumps import job, named


def waiting(broken: SourceFile | None, without: tuple[int, ...] = (1,)) -> Dataset:
    """Of four ranks those that left a dump wait in #6."""
    made = job(4)
    for recorder in made:
        for _ in range(5):
            recorder.collective()
        recorder.collective(state="scheduled", retired=False)
    files = [(path, data) for rank, (path, data) in enumerate(named(made).items()) if rank not in without]
    sources = [SourceFile(path, "flight-recorder", len(data), None, None, decode_dump(data)) for path, data in files]
    sources += [broken] if broken is not None else []
    return assemble(sorted(sources, key=lambda source: source.shown), "dumps", None, 4, None)


NAME = "nccl_trace_rank_1"


@pytest.mark.parametrize(("kind", "problem"), [("empty", "empty file"), ("unknown", "not a kind that is known")])
def test_the_reason_stands_in_the_place_of_the_dump(kind: str, problem: str) -> None:
    dataset = waiting(SourceFile(NAME, kind, 0, None, problem))
    assert dataset.unread_dumps == {1: (NAME, problem)}
    first = analyse(dataset).findings[0]
    assert (first.kind, first.culprit_ranks, first.candidates, first.confidence) == ("missing-rank", (), (1,), "low")
    assert first.title.startswith("the dump of rank 1 could not be read, and all_reduce #6")
    assert f"that of rank 1 could not ({problem})." in first.explanation
    assert "no readable dump of rank 1" in render_text(dataset, analyse(dataset))


def test_a_rank_that_left_nothing_is_accused_as_before() -> None:
    first = analyse(waiting(None)).findings[0]
    assert (first.culprit_ranks, first.title.split(",")[0]) == ((1,), "rank 1 left no dump")


def test_both_kinds_are_told_apart() -> None:
    dataset = waiting(SourceFile(NAME, "empty", 0, None, "empty file"), without=(1, 2))
    first = analyse(dataset).findings[0]
    assert (first.culprit_ranks, first.candidates) == ((), (1, 2))
    assert "that of rank 1 could not (empty file); rank 2 left none" in first.explanation


def test_an_empty_file_of_a_rank_whose_other_dump_was_read_is_no_matter() -> None:
    dataset = waiting(SourceFile(f"old/{NAME}", "empty", 0, None, "empty file"), without=())
    assert dataset.unread_dumps == {}


def cut(dataset: Dataset, rank: int, kept: int) -> Dataset:
    """The same where only the first operations of a rank could be read, and no counters."""
    gone = (pl.col("rank") == rank) & (pl.col("seq") > kept)
    problem = pl.when(pl.col("rank") == rank).then(pl.lit("cut off")).otherwise("problem")
    unknown = [
        pl.when(pl.col("rank") == rank).then(None).otherwise(name).alias(name)
        for name in ("last_enqueued", "last_completed", "status_enqueued", "status_completed")
    ]
    return replace(
        dataset, ops=dataset.ops.filter(~gone), files=dataset.files.with_columns(problem=problem),
        frontiers=dataset.frontiers.with_columns(unknown),
    )  # fmt: skip


def test_a_rank_whose_dump_is_cut_off_is_not_said_to_have_issued_nothing_more() -> None:
    builder = JobBuilder(4)
    for _ in range(5):
        builder.collective()
    builder.collective(ranks=[0, 1, 2], state="started")
    whole = builder.build()
    assert analyse(whole).culprits == (3,)
    assert analyse(cut(whole, 1, 3)).culprits == (3,)
    alone = analyse(cut(whole, 3, 3))
    assert alone.culprits == () and alone.status == "hang" and 3 in alone.findings[0].candidates


def test_what_is_lost_of_a_cut_dump_is_shown_as_unknown_and_never_as_missing() -> None:
    builder = JobBuilder(3)
    for _ in range(4):
        builder.collective()
    builder.collective(state="started")
    dataset = cut(builder.build(), 1, 2)
    model = build_model(dataset, analyse(dataset))
    marks = model.items.reason[model.items.row < 0].tolist()
    assert len(marks) == 3 and {REASONS[mark] for mark in marks} == {"unknown"}


def test_of_a_rank_whose_dump_is_cut_off_it_is_not_said_that_it_waits_for_nothing() -> None:
    builder = JobBuilder(2)
    builder.collective()
    builder.collective(ranks=[0], state="started")
    whole = builder.build()
    dataset = cut(whole, 1, 1)
    analysis, index = analyse(dataset), OpIndex(dataset)
    why = explain_rank(dataset, analysis, 1)
    assert why.title.startswith("rank 1 is not accused: it is in question, and nothing proves it: the dump of rank 1 ")
    pane = "\n".join(
        parts.plain for parts in compact(look_up(index, analysis, Selection(1, group=0, seq=2, absence="unknown")), 80)
    )
    assert "not known: its dump was read only in part" in pane and "in no collective" not in pane


def test_a_send_may_stand_in_what_is_lost_of_a_cut_dump() -> None:
    builder = JobBuilder(2)
    builder.p2p("0", 0, 1, "send")
    builder.p2p("0", 1, 0, "recv")
    builder.p2p("0", 1, 0, "recv", state="started")
    whole = builder.build()
    assert analyse(whole).culprits == (0,)
    files = whole.files.with_columns(problem=pl.when(pl.col("rank") == 0).then(pl.lit("cut off")).otherwise("problem"))
    assert analyse(replace(whole, files=files)).culprits == ()
