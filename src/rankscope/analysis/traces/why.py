"""Answers for one rank where only traces tell of it: how late it was, how long it waited, against who is accused."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from rankscope.analysis.model import Analysis, Evidence, Reason, Why
from rankscope.analysis.traces.judge import ABOVE, FLOOR_SHARE
from rankscope.analysis.traces.model import TraceAnalysis
from rankscope.analysis.wording import plural, short_duration
from rankscope.schema import Dataset

RULE = (
    "it works longer by itself than the others between two collectives, in most steps, by more than chance explains "
    f"(above {100 * FLOOR_SHARE:.0f} % of a step, and {ABOVE} times what the others are late by)"
)
CLEARS = "a trace of more steps in which it is not late, or a program in which it is meant to do more than the others"


def explain_traced(dataset: Dataset, analysis: Analysis, rank: int) -> Why:
    """Why a rank is accused of being late, or not."""
    traces = analysis.traces or TraceAnalysis()
    accusing = next((f for f in analysis.findings if rank in f.culprit_ranks), None)
    if accusing is not None:
        rule = RULE if accusing.kind == "straggler" else accusing.explanation
        return Why(rank, True, accusing.id or None, f"rank {rank} is accused: {accusing.title}", (
            Reason("rule", Evidence(f"{accusing.kind}: {rule}")),
            *(Reason("evidence", e) for e in accusing.evidence),
            *_states(traces, rank),
            *(Reason("against", e) for e in accusing.counter_evidence),
            Reason("clears", Evidence(CLEARS)),
        ))  # fmt: skip
    if rank not in dataset.traces["rank"]:
        return Why(rank, False, None, f"rank {rank} is not accused: there is no trace of it", ())
    root = next((f for f in analysis.findings if f.root_cause), None)
    said = f"{root.id} {root.kind}: {root.title}" if root else f"nobody is accused: {analysis.verdict}"
    lines = [Reason("root", Evidence(said)), *_states(traces, rank)]
    lines += [reason for other in (root.culprit_ranks if root else ()) for reason in _states(traces, other)]
    return Why(rank, False, root.id or None if root else None, f"rank {rank} is not accused: {_short(traces, rank)}",
               tuple(lines))  # fmt: skip


def _short(traces: TraceAnalysis, rank: int) -> str:
    late, waited = _median(traces, rank)
    if late is None:
        return "nothing in its trace was matched to another rank"
    return f"it is {short_duration(late)} late by itself in the median step, and waits {short_duration(waited or 0)}"


def _median(traces: TraceAnalysis, rank: int) -> tuple[int | None, int | None]:
    own = traces.steps.filter(pl.col("rank") == rank).select(pl.col("late_ns", "waited_ns").median().cast(pl.Int64))
    return own.row(0)


def _states(traces: TraceAnalysis, rank: int) -> Iterator[Reason]:
    late, waited = _median(traces, rank)
    if late is not None:
        waits = f"{short_duration(waited or 0)} waiting for others"
        text = f"{short_duration(late)} late by itself in the median step, {waits}"
        yield Reason("state", Evidence(text, rank=rank))
    last = traces.last.filter(pl.col("last") == rank)
    sure = int(last["sure"].sum())
    text = f"last in {last.height} of {plural(traces.last.height, 'collective')}, surely in {sure}"
    yield Reason("state", Evidence(text, rank=rank))
