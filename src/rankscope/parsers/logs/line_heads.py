"""Texts before messages of NCCL, which name the writer; each distinct one is parsed once."""

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
_SECOND_RECORD = re.compile(
    rf"NCCL (?:{'|'.join(LEVELS)})|\[rank|\.(?:cpp|hpp|h|cu|cc|py):\d{{1,6}}\]|\d WARN|[\x1b\r]"
)
"""Signs of a second record in the same line."""


class LineFront(NamedTuple):
    """A text before "NCCL INFO"."""

    process: int
    head: NcclHead
    record: Record
    """The record of the first line with this text; its own text ends before the message."""


class GroupFacts(NamedTuple):
    """Facts in the lines of operations of a group."""

    process: int
    stamp_ns: int
    operation: Operation


class LineFronts:
    """The texts before messages of a log, without their times."""

    def __init__(self, splitter: RecordSplitter, processes: ProcessTable) -> None:
        self._splitter, self._processes = splitter, processes
        self._known: dict[bytes, LineFront | None] = {}

    def of(self, text: bytes, offset: int) -> LineFront | None:
        """The front that ends with a blank, in a line at an offset; None if it is not exactly one head."""
        bare, _ = without_time(text)
        if bare not in self._known:
            if len(self._known) >= MOST_FRONTS:
                self._known.clear()
            self._known[bare] = self.read(bare, offset)
        return self._known[bare]

    def read(self, text: bytes, offset: int) -> LineFront | None:
        """As `of`, without remembering it."""
        if b"\r" in text or b"\x1b" in text or text.startswith(b"{"):
            return None
        records = list(self._splitter.records(text + b"NCCL INFO", offset, 0))
        said = nccl_head(records[0].text) if len(records) == 1 else None
        if said is None or said.level != "INFO" or said.message or said.place:
            return None
        process = self._processes.of(said.host, said.pid, records[0], False)
        return None if process is None else LineFront(process, said, records[0])

    def record(self, front: LineFront, text: bytes, message: bytes, place: tuple[int, int]) -> Record | None:
        """The record of a line with a known front; None if the line may hold more than one record."""
        words = message.decode("utf-8", "replace")
        if len(message) > 1 << 12 or _SECOND_RECORD.search(words) or prefixes.REPEAT_MARK.search(words):
            return None
        _, stamp = without_time(text)
        said = front.record
        text_ = f"{said.text} {words}"
        return said._replace(offset=place[0], line=place[1], text=text_, stamp=stamp or said.stamp)


def without_time(front: bytes) -> tuple[bytes, Stamp | None]:
    """The text before a message without its time, which differs in each line, and the time."""
    found = _TIME.match(front) if front[:1] in b"[0123456789" else None
    if found is None:
        return front, None
    return front[found.end() :], timestamps.read_stamp(found[1].decode())
