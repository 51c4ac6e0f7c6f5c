"""What following a job says of it on a line of its own, for a person or a program."""

from __future__ import annotations

from datetime import datetime, tzinfo
from typing import Any

from rankscope.analysis.live import Live
from rankscope.analysis.model import Analysis
from rankscope.report.escape import plain
from rankscope.report.json import SCHEMA, dump, finding_json
from rankscope.schema import Dataset

GROUPS = 32
"""Rates of no more groups are told, the fastest first."""


def verdict_key(analysis: Analysis, live: Live) -> tuple[Any, ...]:
    """What is the same as long as nothing else is to be said of a job: whoever is late, not in which of its groups."""
    roots = [f for f in analysis.findings if f.root_cause]
    places = [(f.group and f.group.id, f.seq) if f.kind != "straggler" else () for f in roots]
    causes = tuple((f.kind, f.culprit_ranks, place) for f, place in zip(roots, places, strict=True))
    return live.state, analysis.status, causes


def render_line_json(dataset: Dataset, analysis: Analysis, live: Live, time_ns: int) -> bytes:
    """One line of JSON; its form is described in docs/report.md."""
    return dump(
        {
            "schema": SCHEMA,
            "time_ns": time_ns,
            "state": live.state,
            "status": analysis.status,
            "verdict": analysis.verdict,
            "reason": live.reason,
            "still_s": None if live.still_ns is None else live.still_ns / 1e9,
            "freeze_after_s": live.needed_ns / 1e9,
            "per_s": live.per_s,
            "rates": [
                {"group": rate.group, "description": rate.description, "per_s": rate.per_s}
                for rate in live.rates[:GROUPS]
            ],
            "culprit_ranks": list(analysis.culprits),
            "ranks": {"seen": len(dataset.seen_ranks), "missing": dataset.missing_ranks},
            "findings": [finding_json(f) for f in analysis.findings if f.root_cause],
        },
        indented=False,
    )


def render_line_text(analysis: Analysis, live: Live, time_ns: int, zone: tzinfo | None = None) -> str:
    """One line: the time, the state, and the verdict."""
    clock = datetime.fromtimestamp(time_ns / 1e9, zone).strftime("%H:%M:%S")
    speed = f" {live.per_s:.3g}/s" if live.per_s else ""
    return f"{clock}  {live.state.upper()}{speed}  {plain(analysis.verdict)}\n"
