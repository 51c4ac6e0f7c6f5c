"""Who came last, where there is too little for a verdict."""

from __future__ import annotations

import pytest

from rankscope.analysis import analyse
from rankscope.analysis.model import Analysis
from rankscope.features.traces.rules.lateness import is_short, last_rank_runs
from rankscope.features.traces.rules.model import TRACE_RESULTS
from rankscope.features.traces.trace_section import last_lines
from rankscope.schema import Dataset
from tests.traces import MS, US, TraceBuilder


def job(delays: list[dict[int, int]], hosts: int = 1) -> tuple[Dataset, Analysis]:
    """One step with a collective for each of `delays`, in which each rank computes so much longer."""
    builder = TraceBuilder(4, hosts=hosts, jitter_ns=0)
    builder.begin_step(1)
    for delay in delays:
        for rank in range(4):
            builder.launch(rank, "gemm", MS + delay.get(rank, 0))
        builder.collective(length_ns=100 * US)
    builder.end_step()
    dataset = builder.build()
    return dataset, analyse(dataset)


def test_each_collective_is_told_and_nobody_is_accused() -> None:
    dataset, analysis = job([{3: 5 * MS}, {3: 4 * MS}, {3: 2 * MS}, {1: 3 * MS, 2: MS}])
    assert analysis.culprits == () and analysis.status == "unknown"
    assert "rank 3 came last in 3 of 4 (#0-2), in 1 step: too few to call a rank late" in analysis.verdict
    lines = last_lines(dataset, TRACE_RESULTS.of(analysis)) if TRACE_RESULTS.find(analysis) else []
    assert len(lines) == 2
    assert lines[0].startswith("default_pg #0-2: rank 3 last, by 2 ms to 5 ms: sure")
    assert lines[1].startswith("default_pg #3: rank 1 last, by 2 ms after rank 2: sure")


def test_a_single_collective_is_told() -> None:
    dataset, analysis = job([{2: 4 * MS}])
    assert analysis.culprits == ()
    assert "rank 2 came last in 1 of 1 (#0)" in analysis.verdict
    assert TRACE_RESULTS.find(analysis) is not None
    assert last_lines(dataset, TRACE_RESULTS.of(analysis))[0].startswith(
        "default_pg #0: rank 2 last, by 4 ms after rank"
    )


@pytest.mark.parametrize(("margin", "said"), [(2, "not sure"), (15, "likely"), (400, "sure")])
def test_it_is_said_how_sure(margin: int, said: str) -> None:
    _, analysis = job([{3: margin * US}])
    assert TRACE_RESULTS.find(analysis) is not None
    error = 10 * US
    last = TRACE_RESULTS.of(analysis).last.with_columns(sure=TRACE_RESULTS.of(analysis).last["margin_ns"] > error)
    told = type(TRACE_RESULTS.of(analysis))(last=last, clock_error_ns=error)
    (line,) = last_lines(job([{3: margin * US}])[0], told)
    assert line.partition(": ")[2].split(": ")[-1].startswith(said)


def test_what_follows_one_another_and_is_alike_is_one_turn() -> None:
    _, analysis = job([{3: 5 * MS}, {1: 4 * MS}, {3: 2 * MS}])
    assert TRACE_RESULTS.find(analysis) is not None and is_short(TRACE_RESULTS.of(analysis).last)
    assert [(turn.rank, turn.seqs) for turn in last_rank_runs(TRACE_RESULTS.of(analysis).last)] == [
        (3, (0,)),
        (1, (1,)),
        (3, (2,)),
    ]


def test_enough_steps_are_counted_not_listed() -> None:
    builder = TraceBuilder(4)
    for step in range(4):
        builder.begin_step(step)
        for rank in range(4):
            builder.launch(rank, "gemm", MS)
        builder.collective()
        builder.end_step()
    analysis = analyse(builder.build())
    assert TRACE_RESULTS.find(analysis) is not None and not is_short(TRACE_RESULTS.of(analysis).last)
