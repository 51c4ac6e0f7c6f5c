"""Who writes: what stands in front of messages of NCCL, each looked at once."""

from __future__ import annotations

import re
from typing import NamedTuple

from rankscope.parsers.logs import prefixes, timestamps
from rankscope.parsers.logs.log_record import Record, Stamp
from rankscope.parsers.logs.nccl.coll_lines import Operation
from rankscope.parsers.logs.nccl.comm_lives import ProcessTable
from rankscope.parsers.logs.nccl.packed_words import LEVELS, NcclHead, nccl_head
from rankscope.parsers.logs.record_reader import RecordSplitter

MOST_FRONTS = 1 << 16
_TIME = re.compile(rb"\[?(\d{4}-\d\d-\d\d[ T_]\d\d:\d\d:\d\d[.,\d]*Z?)\]? ?")
_ONE = re.compile(rf"NCCL (?:{'|'.join(LEVELS)})|\[rank|\.(?:cpp|hpp|h|cu|cc|py):\d{{1,6}}\]|\d WARN|[\x1b\r]")
"""What another record in the same line would show."""


class LineFront(NamedTuple):
    """One text in front of "NCCL INFO"."""

    process: int
    head: NcclHead
    record: Record
    """Of the line it was first seen in; its text ends in front of the message."""


class GroupFacts(NamedTuple):
    """What the lines of operations of a group say."""

    process: int
    stamp_ns: int
    operation: Operation


class LineFronts:
    """All of a log, with their times taken off."""

    def __init__(self, splitter: RecordSplitter, processes: ProcessTable) -> None:
        self._splitter, self._processes = splitter, processes
        self._known: dict[bytes, LineFront | None] = {}

    def of(self, text: bytes, offset: int) -> LineFront | None:
        """Of a text that ends with a blank, in a line at an offset; None if it is not one head alone."""
        bare, _ = without_time(text)
        if bare not in self._known:
            if len(self._known) >= MOST_FRONTS:
                self._known.clear()
            self._known[bare] = self.read(bare, offset)
        return self._known[bare]

    def read(self, text: bytes, offset: int) -> LineFront | None:
        """As `of`, and not remembered."""
        if b"\r" in text or b"\x1b" in text or text.startswith(b"{"):
            return None
        records = list(self._splitter.records(text + b"NCCL INFO", offset, 0))
        said = nccl_head(records[0].text) if len(records) == 1 else None
        if said is None or said.level != "INFO" or said.message or said.place:
            return None
        process = self._processes.of(said.host, said.pid, records[0], False)
        return None if process is None else LineFront(process, said, records[0])

    def record(self, front: LineFront, text: bytes, message: bytes, place: tuple[int, int]) -> Record | None:
        """The record of a line with a known front; None if there may be more in it than one."""
        words = message.decode("utf-8", "replace")
        if len(message) > 1 << 12 or _ONE.search(words) or prefixes.REPEAT_MARK.search(words):
            return None
        _, stamp = without_time(text)
        said = front.record
        text_ = f"{said.text} {words}"
        return said._replace(offset=place[0], line=place[1], text=text_, stamp=stamp or said.stamp)


def without_time(front: bytes) -> tuple[bytes, Stamp | None]:
    """What stands in front of a message, without a time, which is another on each line, and that."""
    found = _TIME.match(front) if front[:1] in b"[0123456789" else None
    if found is None:
        return front, None
    return front[found.end() :], timestamps.read_stamp(found[1].decode())
