"""Traces that were analysed before, beside dumps that go on: the same is said as of all of it anew."""

from __future__ import annotations

from dataclasses import fields, replace

import polars as pl

from rankscope.analysis import analyse
from rankscope.analysis.analyse import Known
from rankscope.analysis.model import Analysis
from rankscope.analysis.traces.model import TraceAnalysis
from rankscope.schema import Dataset
from rankscope.tui.model import Model, build_model
from tests.analysis.traces.test_recorded import both_of
from tests.traces import MS, training


def shorter(dataset: Dataset, last: int) -> Dataset:
    """A job with the traces of `dataset`, and dumps of its operations up to a number."""
    ops = both_of(dataset)
    return replace(dataset, ops=ops.filter(pl.col("seq") <= last))


def assert_same(known: Analysis, anew: Analysis) -> None:
    assert replace(known, traces=None) == replace(anew, traces=None)
    assert known.traces is not None and anew.traces is not None
    for field in fields(TraceAnalysis):
        one, other = getattr(known.traces, field.name), getattr(anew.traces, field.name)
        assert one.equals(other) if isinstance(one, pl.DataFrame) else one == other, field.name


def test_dumps_that_go_on_leave_what_traces_tell() -> None:
    dataset = training(3, 6, slow_host={1: 30 * MS}).build()
    known = Known()
    for last in (5, 9, 14):
        run = shorter(dataset, last)
        said = analyse(run, known=known)
        assert_same(said, analyse(run))
        assert said.status == "slow" and said.culprits == (1,)
    told = said.traces
    assert told is not None
    again = analyse(shorter(dataset, 16), known=known).traces
    assert again is not None and again.matched is told.matched


def test_traces_that_are_new_are_analysed_anew() -> None:
    known = Known()
    for slow in ({}, {2: 30 * MS}, {0: 30 * MS}):
        run = shorter(training(3, 6, slow_host=slow).build(), 9)
        said = analyse(run, known=known)
        assert_same(said, analyse(run))
        assert said.culprits == tuple(slow)


def test_a_job_that_has_grown_is_told_of_anew() -> None:
    dataset, known = shorter(training(3, 6, slow_host={1: 30 * MS}).build(), 9), Known()
    first = analyse(dataset, known=known).traces
    grown = analyse(replace(dataset, world_size=dataset.world_size + 5), known=known).traces
    assert first is not None and grown is not None and grown.matched is not first.matched


def test_lanes_of_the_same_traces_are_the_same_lanes() -> None:
    dataset, known = training(3, 6, slow_host={1: 30 * MS}).build(), Known()
    models: list[Model] = []
    for last in (5, 9):
        run = shorter(dataset, last)
        models.append(build_model(run, analyse(run, known=known), models[-1] if models else None))
    first, second = (model.traces for model in models)
    assert first is not None and second is not None
    assert second.spans is first.spans and second.cover is first.cover
    assert second.dataset is models[1].dataset and second.analysis is models[1].analysis
    other = training(3, 6, slow_host={2: 30 * MS}).build()
    third = build_model(other, analyse(other, known=known), models[-1]).traces
    assert third is not None and third.spans is not first.spans
