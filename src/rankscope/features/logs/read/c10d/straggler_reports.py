"""Reports of nvidia-resiliency-ext (NVRx) on slow GPUs: its warnings, and its tables of scores from 0 to 1.

A warning names ranks ("Affected ranks: {3}", "[76, 13]"). A table has a title, then the worst and the best ranks, one a
line: `Rank=3 Node=node-a Score=0.61`.

Source: the straggler callback of nvidia_resiliency_ext and of Megatron Bridge. A score is relative to the fastest rank
in the same window, or individual: to the best of the same rank so far.
"""

from __future__ import annotations

import re
from typing import Any

from rankscope.features.logs.read.log_record import TEXT_LIMIT, Event, Record, message_event

LITERALS = ("STRAGGLER DETECTION WARNING: ", "GPU relative performance:", "GPU individual performance:")
TOOL = "NVRx"
SLOW_BELOW = 0.7
"""The threshold of NVRx, if nobody sets another one."""
MOST_SCORES = 64
_WARNING = re.compile(
    r"STRAGGLER DETECTION WARNING: Some GPUs (have worse relative performance|performance dropped)\."
    r"(?: Affected ranks: (.{1,2000}))?"
)
_NAMED = re.compile(r"rank[=:] ?(\d{1,7})", re.IGNORECASE)
_PLAIN = re.compile(r"(?<![\w.\-=])(\d{1,7})(?![\w.\-=])")
_TITLE = re.compile(r"GPU (relative|individual) performance:\s*$")
_PART = re.compile(r"\s*(Worst|Best) performing \d{1,7}/(\d{1,7}) ranks:\s*$")
_SCORE = re.compile(r"\s*Rank=(\d{1,7}) Node=(\S{1,255}) Score=(\d(?:\.\d{1,6})?|nan)\s*$")


class ScoreTable:
    """Collector of one table; values `ranks` with a score below `SLOW_BELOW`, `worst` and `size`: rows [rank, node,
    score] of the worst ranks, and the number of ranks."""

    patience = 2
    quotes = True
    named_rank = None

    def __init__(self, record: Record, measure: str) -> None:
        self._record, self._measure = record, measure
        self._worst: list[tuple[int, str, float]] = []
        self._size: int | None = None
        self._best = False

    def consumes(self, record: Record) -> bool:
        """Whether a line is the next of the table; reads it if so."""
        text = record.text[:TEXT_LIMIT]
        if (part := _PART.match(text)) is not None:
            self._best, self._size = part[1] == "Best", int(part[2])
            return True
        score = _SCORE.match(text)
        if score is None:
            return not text.strip()
        if not self._best and score[3] != "nan" and len(self._worst) < MOST_SCORES:
            self._worst.append((int(score[1]), score[2], float(score[3])))
        return True

    def result(self) -> list[Event]:
        """The event, at the title of the table; nothing without a score."""
        if not self._worst:
            return []
        rank, node, score = min(self._worst, key=lambda row: row[2])
        slow = sorted(rank for rank, _, score in self._worst if score < SLOW_BELOW)
        text = f"{self._record.text.strip()} rank {rank} on {node} has {score:g}"
        worst = [list(row) for row in self._worst]
        values: dict[str, Any] = {
            "tool": TOOL, "what": "slow", "measure": self._measure, "ranks": slow, "worst": worst
        }  # fmt: skip
        return [message_event("analyser-report", self._record, text, **values, size=self._size)]


class Warned:
    """The event of one line that warns of slow ranks."""

    patience = 0
    quotes = True
    named_rank = None

    def __init__(self, record: Record, found: re.Match[str]) -> None:
        self._record, self._found = record, found

    def consumes(self, record: Record) -> bool:
        """Never: it is one line."""
        del record
        return False

    def result(self) -> list[Event]:
        """The event."""
        listed = self._found[2] or ""
        ranks = sorted({int(rank) for rank in _NAMED.findall(listed) or _PLAIN.findall(listed)})
        measure = "individual" if self._found[1] == "performance dropped" else "relative"
        values: dict[str, Any] = {"tool": TOOL, "what": "slow", "measure": measure, "ranks": ranks, "worst": []}
        return [message_event("analyser-report", self._record, **values, size=None)]


def begins(record: Record) -> ScoreTable | Warned | None:
    """A report that begins with this record."""
    text = record.text[:TEXT_LIMIT]
    if (warned := _WARNING.search(text)) is not None:
        return Warned(record, warned)
    title = _TITLE.search(text)
    return None if title is None else ScoreTable(record, title[1])
