"""The report of TORCH_NCCL_DESYNC_DEBUG: which ranks of a group did not come. Source: torch's TraceUtils.h."""

from __future__ import annotations

import re
from typing import Any

from rankscope.parsers.logs.c10d.event_builder import TEXT_LIMIT, message_event
from rankscope.parsers.logs.log_record import Event, Record

LITERALS = ("Timeout at collective: ",)
LINE_LIMIT = 4096
"""Most lines of one report: one for each sequence number that ranks are at."""
_START = re.compile(r"- \[(\d{1,9})\] Timeout at collective: ([A-Za-z_]{1,64}), #(\d{1,18})")
_LINE = re.compile(r"^\s*(?:- |\[\d|#\d)")
_FINISHED_LINE = re.compile(r"\[([\d, ]+)\] finished collective #(\d{1,18}), but didn't join collective #(\d{1,18})")
_JOINED_LINE = re.compile(r"\[([\d, ]+)\] joined but didn't finish collective #(\d{1,18})")
_LAGGING_LINE = re.compile(r"ranks \[([\d, ]+)\] are the lagging ranks")
_STATE = re.compile(r"#(\d{1,18}) (started|finished) ranks:")
_RANKS = re.compile(r"\[([\d, ]+)\] (started|finished) ([A-Za-z_]{1,64})")


class DesyncReport:
    """Collects one report; values, all in ranks of the group:

    `reporter`, `op`, `seq` of what timed out; `lagging` of rows [rank, what, seq] with what "finished" (it did not join
    the next), "joined" (it did not finish) or "never-joined"; `states` of rows [seq, state, op, ranks].
    """

    patience = 8
    quotes = False
    told_rank = None

    def __init__(self, record: Record, start: re.Match[str]) -> None:
        self._record = record
        self._values: dict[str, Any] = {
            "reporter": int(start[1]), "op": start[2], "seq": int(start[3]), "lagging": [], "states": [],
        }  # fmt: skip
        self._seq: int | None = None
        self._lines = 0

    def consumes(self, record: Record) -> bool:
        """Whether a line belongs to the report; reads it if so."""
        text = record.text[:TEXT_LIMIT]
        if not _LINE.match(text) or _START.search(text) or self._lines >= LINE_LIMIT:
            return False
        self._lines += 1
        lagging, states = self._values["lagging"], self._values["states"]
        if (state := _STATE.search(text)) is not None:
            self._seq = int(state[1])
        elif (ranks := _RANKS.search(text)) is not None and self._seq is not None:
            states.append([self._seq, ranks[2], ranks[3], _numbers(ranks[1])])
        elif (finished := _FINISHED_LINE.search(text)) is not None:
            lagging += [[rank, "finished", int(finished[2])] for rank in _numbers(finished[1])]
        elif (joined := _JOINED_LINE.search(text)) is not None:
            lagging += [[rank, "joined", int(joined[2])] for rank in _numbers(joined[1])]
        elif (never := _LAGGING_LINE.search(text)) is not None:
            lagging += [[rank, "never-joined", 0] for rank in _numbers(never[1])]
        return True

    def result(self) -> list[Event]:
        """The event, at the report's first line."""
        return [message_event("desync", self._record, **self._values)]


def begins(record: Record) -> DesyncReport | None:
    """A report that begins with this record."""
    start = _START.search(record.text[:TEXT_LIMIT])
    return DesyncReport(record, start) if start is not None else None


def _numbers(listed: str) -> list[int]:
    return [int(n) for n in re.findall(r"\d{1,9}", listed)]
