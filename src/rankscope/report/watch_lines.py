"""Lines of a followed job, one for each change of its verdict, for a person or a program."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import tzinfo
from typing import Any, Literal

from rankscope.analysis.job_state import JobState
from rankscope.analysis.live_state import LiveState
from rankscope.analysis.model import Analysis, Status
from rankscope.report.json import (
    SCHEMA,
    Count,
    FindingObject,
    Moment,
    Rank,
    ReportPart,
    dump_json,
    finding_object,
)
from rankscope.schema import Dataset
from rankscope.text.escaping import plain
from rankscope.text.wording import clock

MOST_GROUPS = 32
"""Most groups whose rate is told, the fastest first."""


def verdict_key(analysis: Analysis, live: LiveState) -> tuple[Any, ...]:
    """A key that changes only with the verdict: it holds the late ranks, not the groups in which they are late."""
    roots = [f for f in analysis.findings if f.root_cause]
    places = [(f.group and f.group.id, f.seq) if f.kind != "straggler" else () for f in roots]
    causes = tuple((f.kind, f.culprit_ranks, place) for f, place in zip(roots, places, strict=True))
    return live.state, live.so_far, analysis.status, causes


class SeenObject(ReportPart):
    """Number of ranks that were seen, and the missing ones."""

    seen: Count
    missing: Sequence[Rank]


class RateObject(ReportPart):
    """Collectives a second in a group."""

    group: str
    description: str
    per_s: float


class WatchLine(ReportPart):
    """A line of `rankscope watch --format json`; docs/report.md describes its form."""

    schema: Literal[1]
    time_ns: Moment
    state: JobState
    status: Status
    verdict: str
    reason: str
    still_s: float | None
    freeze_after_s: float
    per_s: float
    rates: Sequence[RateObject]
    culprit_ranks: Sequence[Rank]
    ranks: SeenObject
    findings: Sequence[FindingObject]


def render_line_json(dataset: Dataset, analysis: Analysis, live: LiveState, time_ns: int) -> bytes:
    """One line of JSON."""
    line = WatchLine(
        schema=SCHEMA,
        time_ns=time_ns,
        state=live.state,
        status=analysis.status,
        verdict=analysis.verdict,
        reason=live.reason,
        still_s=None if live.still_ns is None else live.still_ns / 1e9,
        freeze_after_s=live.needed_ns / 1e9,
        per_s=live.per_s,
        rates=list(map(RateObject.of, live.rates[:MOST_GROUPS])),
        culprit_ranks=analysis.culprits,
        ranks=SeenObject(len(dataset.seen_ranks), dataset.unseen_ranks),
        findings=[finding_object(finding) for finding in analysis.findings if finding.root_cause],
    )
    return dump_json(line, indented=False)


def render_line_text(analysis: Analysis, live: LiveState, time_ns: int, zone: tzinfo | None = None) -> str:
    """One line: the time, the state, and the verdict."""
    speed = f" {live.per_s:.3g}/s" if live.per_s else ""
    return f"{clock(time_ns, zone, 0)}  {live.state.upper()}{speed}  {plain(analysis.verdict)}\n"
