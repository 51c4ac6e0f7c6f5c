"""Lines of a followed job, one for each change of its verdict, for a person or a program."""

from __future__ import annotations

from datetime import tzinfo
from typing import Any

from rankscope.analysis.live_state import LiveState
from rankscope.analysis.model import Analysis
from rankscope.report.json import SCHEMA, dump_json, finding_json
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


def render_line_json(dataset: Dataset, analysis: Analysis, live: LiveState, time_ns: int) -> bytes:
    """One line of JSON; its form is described in docs/report.md."""
    return dump_json(
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
                for rate in live.rates[:MOST_GROUPS]
            ],
            "culprit_ranks": list(analysis.culprits),
            "ranks": {"seen": len(dataset.seen_ranks), "missing": dataset.unseen_ranks},
            "findings": [finding_json(f) for f in analysis.findings if f.root_cause],
        },
        indented=False,
    )


def render_line_text(analysis: Analysis, live: LiveState, time_ns: int, zone: tzinfo | None = None) -> str:
    """One line: the time, the state, and the verdict."""
    speed = f" {live.per_s:.3g}/s" if live.per_s else ""
    return f"{clock(time_ns, zone, 0)}  {live.state.upper()}{speed}  {plain(analysis.verdict)}\n"
