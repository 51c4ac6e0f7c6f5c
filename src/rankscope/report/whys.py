"""Why a rank is accused, or why not, in words for a person: lines under labels."""

from __future__ import annotations

from rankscope.analysis.model import Reason, Why
from rankscope.report import words

LABELS: dict[str, str] = {
    "rule": "rule", "evidence": "evidence", "waits": "waits", "root": "because", "state": "how far",
    "unlike": "unlike it", "against": "against", "close": "how close", "clears": "clears it", "also": "also",
}  # fmt: skip
"""What is told of a rank, in the order in which it is told."""


def sections(why: Why) -> list[tuple[str, list[str]]]:
    """The lines of an answer by their labels, each line beginning with its place."""
    told = {label: [_line(r) for r in why.lines if r.about == about] for about, label in LABELS.items()}
    return [(label, lines) for label, lines in told.items() if lines]


def _line(reason: Reason) -> str:
    place = words.source(reason.evidence)
    return f"{place}: {reason.evidence.text}" if place else reason.evidence.text
