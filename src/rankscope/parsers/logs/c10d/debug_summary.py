"""Who of all ranks did not answer the debug server of torch 2.15, as its files of stacks say at their top.

    PARTIAL DATA: 2/4 workers responded
      Rank 0: TimeoutError:
      Rank 2: ClientOSError: [Errno 104] Connection reset by peer

Source: format_fetch_summary in torch/distributed/debug/_frontend.py.
"""

from __future__ import annotations

import re

from rankscope.parsers.logs.c10d.event_builder import TEXT_LIMIT, message_event
from rankscope.parsers.logs.log_record import Event, Record

LITERALS = ("PARTIAL DATA: ",)
KIND = "no-answer"
RANK_LIMIT = 1 << 16
_HEAD = re.compile(r"^PARTIAL DATA: (\d{1,7})/(\d{1,7}) workers responded$")
_RANK = re.compile(r"^\s{1,4}Rank (\d{1,7}): ?(.{0,300})$")
_NO_HANDLER = re.compile(r"^Handler \S{1,100} not found")


class DebugSummary:
    """Collector of the ranks that did not answer: an event for each, with `reason`, and `size` of the job."""

    patience = 0
    quotes = True
    told_rank = None

    def __init__(self, record: Record, size: int) -> None:
        self._record, self._size = record, size
        self._found: list[tuple[Record, int, str]] = []

    def consumes(self, record: Record) -> bool:
        """Whether a line names a rank; reads it if so."""
        found = _RANK.match(record.text[:TEXT_LIMIT].rstrip())
        if found is None or len(self._found) >= RANK_LIMIT:
            return False
        self._found.append((record, int(found[1]), found[2].strip()))
        return True

    def result(self) -> list[Event]:
        """The events, at the lines of the ranks; none for a process that answered without support."""
        return [
            self._event(record, rank, reason)
            for record, rank, reason in self._found
            if rank < self._size and not _NO_HANDLER.match(reason)
        ]

    def _event(self, record: Record, rank: int, reason: str) -> Event:
        why = f": {reason.rstrip(': ')}" if reason else ""
        made = message_event(
            KIND, record, f"rank {rank} did not answer the debug server{why}", reason=reason, size=self._size
        )
        return made._replace(rank=rank)


def begins(record: Record) -> DebugSummary | None:
    """A summary that begins with this record."""
    found = _HEAD.match(record.text[:TEXT_LIMIT].strip())
    return DebugSummary(record, int(found[2])) if found else None
