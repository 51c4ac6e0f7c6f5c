"""Lines of torchrun: what it or another launcher starts, in its own words, and its summary after the death of a child,
whose "root cause" is only the first child that ended.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from rankscope.features.logs.read.log_record import TEXT_LIMIT, Event, Record, message_event, shown_text
from rankscope.parsers.line_prefixes import read_stamp

LITERALS = (
    "Failures:", "Root Cause", "max_nodes", "nproc_per_node", "group_world_size=", "global_ranks=[", "num_local_procs=",
    "Setting OMP_NUM_THREADS environment variable for each process", "--nnodes", "--standalone",
)  # fmt: skip
MESSAGE_LINES = 200
_SECTION = re.compile(r"^(?:(Failures:|Other Failures:)|(Root Cause(?: \(first observed failure\))?:))\s*$")
_CHILD = re.compile(r"^\[\d{1,6}\]:\s*$")
_ENTRY = re.compile(r"^  (time|host|rank|exitcode|error_file|traceback|msg)\s*: ?(.*)$")
_RULE = re.compile(r"^[=*]{8,}\s*$")
_LINE = re.compile(r"^[-]{8,}\s*$")
_RANK = re.compile(r"(\d{1,9}) \(local_rank: (\d{1,6})\)")
_EXIT = re.compile(r"(-?\d{1,5}) \(pid: (\d{1,10})\)(?:\s+\((SIG\w{1,12})\))?")


class FailureSummary:
    """Collector of the failures of one summary; each is an event with the global rank of the summary.

    Values: `time` and `host` as printed, `local_rank`, `exitcode`, `pid`, `signal` by name, `error_file`, `message`,
    `first`: whether it ended first.
    """

    quotes = False

    def __init__(self, section: re.Match[str]) -> None:
        self._first = section[2] is not None
        self._record: Record | None = None
        self._entries: dict[str, str] = {}
        self._message: list[str] = []
        self._events: list[Event] = []
        self._closed = False

    @property
    def patience(self) -> int:
        """Most lines between: some of other processes inside the summary, none after its end."""
        return 0 if self._closed else 64

    @property
    def named_rank(self) -> int | None:
        """The global rank of the child in the current entries."""
        found = _RANK.match(self._entries.get("rank", ""))
        return int(found[1]) if found else None

    def consumes(self, record: Record) -> bool:
        """Whether a line belongs to it; reads it if so."""
        text = record.text[:TEXT_LIMIT]
        if self._closed:
            return False
        if _RULE.match(text):
            # the older form has another section, which counts as a separate summary
            self._child()
            self._closed = True
        elif (section := _SECTION.match(text)) is not None:
            self._child()
            self._first = section[2] is not None
        elif _CHILD.match(text):
            self._child()
            self._record = record
        elif (entry := _ENTRY.match(text)) is not None and self._record is not None:
            self._entries[entry[1]] = entry[2].strip()
        elif text.startswith("  ") and self._record is not None and "traceback" in self._entries:
            self._message += [text[2:]] if len(self._message) < MESSAGE_LINES else []
        else:
            return bool(_LINE.match(text)) or "NO_OTHER_FAILURES" in text
        return True

    def result(self) -> list[Event]:
        """The failures, in the summary's order."""
        self._child()
        return self._events

    def _child(self) -> None:
        if self._record is not None and self._entries:
            self._events.append(self._event(self._record))
        self._record, self._entries, self._message = None, {}, []

    def _event(self, record: Record) -> Event:
        entries = self._entries
        rank, exit_ = _RANK.match(entries.get("rank", "")), _EXIT.match(entries.get("exitcode", ""))
        message = shown_text("\n".join([entries.get("traceback") or entries.get("msg") or "", *self._message]))
        values: dict[str, Any] = {
            "time": entries.get("time"), "host": entries.get("host"), "local_rank": int(rank[2]) if rank else None,
            "exitcode": int(exit_[1]) if exit_ else None, "pid": int(exit_[2]) if exit_ else None,
            "signal": exit_[3] if exit_ else None, "error_file": entries.get("error_file"), "message": message,
            "first": self._first,
        }  # fmt: skip
        text = f"rank {entries.get('rank', '?')} ended with exit code {entries.get('exitcode', '?')}"
        made = message_event("torchrun-failure", record, text, **values)
        # local time of the agent, in seconds
        return made._replace(
            rank=int(rank[1]) if rank else None, stamp=read_stamp(entries.get("time", "")) or made.stamp
        )


def begins(record: Record) -> FailureSummary | None:
    """A summary that begins with this record."""
    section = _SECTION.match(record.text[:TEXT_LIMIT])
    return FailureSummary(section) if section is not None else None


_NODES = re.compile(
    r"\bmax_nodes {1,24}: (\d{1,6})\s*$|^\s*group_world_size=(\d{1,6})\s*$|\bnnodes=(\d{1,6}), num_local_procs="
    r"|\b(?:torchrun|torch\.distributed\.(?:run|launch)|accelerate launch)\b.{0,2000}?\s--nnodes[= ](\d{1,6})(?:\s|$)"
)
_ONE_NODE = re.compile(r"\b(?:torchrun|torch\.distributed\.run)\b.{0,2000}?\s--standalone\b")
_PER_NODE = re.compile(r"\bnproc_per_node {1,24}: (\d{1,6})\s*$|, num_local_procs=(\d{1,6})\b")
_GLOBAL_RANKS = re.compile(r"^\s*global_ranks=\[([\d, ]{1,4000})\]")
_THREADS = "Setting OMP_NUM_THREADS environment variable for each process"


def events(record: Record) -> Iterator[Event]:
    """The start of processes. Values: `nodes`, `per_node`, `first_rank` of the host; None where the line is silent."""
    text = record.text[:TEXT_LIMIT]
    nodes, per_node, ranks = _NODES.search(text), _PER_NODE.search(text), _GLOBAL_RANKS.match(text)
    count = next(int(number) for number in nodes.groups() if number) if nodes is not None else None
    count = 1 if count is None and _ONE_NODE.search(text) is not None else count
    size = int(per_node[1] or per_node[2]) if per_node is not None else None
    first = int(ranks[1].partition(",")[0]) if ranks is not None and ranks[1].strip(", ") else None
    if record.torn or (count is None and size is None and first is None and _THREADS not in text):
        return
    yield message_event("launch", record, nodes=count, per_node=size, first_rank=first)
