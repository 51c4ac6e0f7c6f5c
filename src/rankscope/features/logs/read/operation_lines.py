"""Rows of communicators from lines of operations, and the writers that the texts before NCCL's messages name."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from typing import NamedTuple

import numpy as np

from rankscope.features.logs.read import coll_lines, log_record
from rankscope.features.logs.read.coll_lines import P2P_OPS, CollRows, LineGroup, Operation, OperationRows
from rankscope.features.logs.read.comm_lives import CommTable, ProcessTable
from rankscope.features.logs.read.log_record import Record, Stamp
from rankscope.features.logs.read.model import IS_CALL, IS_P2P, TORN
from rankscope.features.logs.read.packed_words import LEVELS, Mask, NcclHead, Places, nccl_head
from rankscope.features.logs.read.record_reader import RecordSplitter
from rankscope.parsers.matrices import NULL

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
        if len(message) > 1 << 12 or _SECOND_RECORD.search(words) or log_record.REPEAT_MARK.search(words):
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
    return front[found.end() :], log_record.read_stamp(found[1].decode())


_MOST_GROUPS = 1 << 18
"""Most groups of lines: three communicators and three operations of each of 16,384 ranks are 147,456."""
_MOST_OPS = 4096


class OperationReader:
    """Puts operations into `rows`, with their processes and communicators."""

    def __init__(
        self, processes: ProcessTable, comms: CommTable, rows: OperationRows, fronts: LineFronts, counts: Counter[str]
    ) -> None:
        self._processes, self._comms, self._rows, self._fronts, self._counts = processes, comms, rows, fronts, counts
        self._groups: dict[tuple[bytes, str, str, bytes, bool], GroupFacts | None] = {}
        self.ops: dict[str, int] = {}
        """Numbers of operation names, as used in the rows."""

    def usable_rows(self, rows: CollRows, block: int) -> tuple[Mask, list[GroupFacts | None]]:
        """The usable rows of a block at that offset, and the writer and communicator of each group."""
        known = [self._known(group, block) for group in rows.groups]
        usable = np.array([one is not None for one in known], np.bool_)
        return usable[rows.group], known

    def _known(self, group: LineGroup, block: int) -> GroupFacts | None:
        key = (group.head, group.op, group.pointer, group.nranks, b" globalrank " in group.line)
        if key not in self._groups:
            if len(self._groups) >= _MOST_GROUPS:
                self._groups.clear()
            self._groups[key] = self._read(group, block)
        return self._groups[key]

    def _read(self, group: LineGroup, block: int) -> GroupFacts | None:
        """The facts of a group; None for a damaged line, or one with more than a head before the collective."""
        found = coll_lines.COLL_LINE.search(group.line.decode("utf-8", "replace"))
        operation = coll_lines.coll_operation(found[0], False) if found else None
        front = self._fronts.read(group.head, block + group.start) if operation is not None else None
        if front is None or operation is None:
            return None
        self._processes.issued(front.process, front.head.device)
        stamp = front.record.stamp
        return GroupFacts(front.process, stamp.ns if stamp else NULL, operation)

    def many(self, rows: CollRows, taken: Mask, known: list[GroupFacts | None], at: tuple[int, int]) -> None:
        """Puts the rows of a block that begins `at` an offset and a line to their communicators."""
        offsets, lines = rows.start + at[0], rows.line + at[1]
        comm, torn = self._placed(rows, known, offsets, lines)
        op = np.array([self._op(group.op) for group in rows.groups], np.int64)[rows.group]
        p2p = np.array([group.op in P2P_OPS for group in rows.groups], np.int64)[rows.group]
        stamps = np.array([one.stamp_ns if one else NULL for one in known], np.int64)[rows.group]
        columns = {
            "offset": offsets, "line": lines, "comm": comm, "op": op, "count": rows.count, "datatype": rows.datatype,
            "reduction": rows.reduction, "root": rows.root, "op_count": rows.op_count,
            "stamp_ns": np.where(rows.stamp_ns == NULL, stamps, rows.stamp_ns), "flags": torn * TORN + p2p * IS_P2P,
        }  # fmt: skip
        keep = taken & (comm >= 0)
        if not keep.all():
            columns = {name: column[keep] for name, column in columns.items()}
        self._counts["operations"] += len(columns["offset"])
        self._rows.many(**columns)

    def _placed(
        self, rows: CollRows, known: list[GroupFacts | None], offsets: Places, lines: Places
    ) -> tuple[Places, Places]:
        """The communicator of each row, -1 for none, and whether it can have such a line."""
        keys: dict[tuple[int, str], int] = {}
        of_group = [
            -1 if one is None else keys.setdefault((one.process, group.pointer), len(keys))
            for one, group in zip(known, rows.groups, strict=True)
        ]
        of_key: defaultdict[int, list[int]] = defaultdict(list)
        for i, at in enumerate(of_group):
            of_key[at].append(i)
        key = np.array(of_group, np.int32)[rows.group]
        order = np.argsort(key, kind="stable")
        bounds = np.searchsorted(key[order], np.arange(len(keys) + 1)).tolist()
        comm, torn = np.full(len(key), -1, np.int64), np.zeros(len(key), np.int64)
        for (process, pointer), at in keys.items():
            mine = order[bounds[at] : bounds[at + 1]]
            found = self._comms.of_rows(process, pointer, offsets[mine], lines[mine])
            comm[mine] = found
            self._processes.count(process, len(mine))
            lives = np.unique(found).tolist() if found[0] != found[-1] else [int(found[0])]
            for i in of_key[at]:
                one = known[i]
                if one is not None:
                    for life in lives:
                        if life >= 0 and not self._agrees(life, one.operation):
                            # joined from two cut lines
                            torn[mine[(found == life) & (rows.group[mine] == i)]] = 1
        return comm, torn

    def _agrees(self, at: int, operation: coll_lines.Operation) -> bool:
        """Whether a communicator can have such a line; takes unknown values from it."""
        row = self._comms.rows[at]
        if row.nranks is not None and operation.nranks is not None and row.nranks != operation.nranks:
            return False
        self._comms.update(at, operation.nranks, operation.rank)
        return True

    def _op(self, name: str) -> int:
        return self.ops.setdefault(name, len(self.ops)) if len(self.ops) < _MOST_OPS else self.ops.setdefault("", 0)

    def one(self, process: int, operation: coll_lines.Operation, record: Record, is_call: bool = False) -> None:
        """Adds an operation of a process from one record."""
        place = np.array([record.offset], np.int64), np.array([record.line], np.int64)
        at = int(self._comms.of_rows(process, operation.pointer, *place)[0])
        if at < 0:
            return
        torn = record.torn or not self._agrees(at, operation)
        self._counts["operations"] += 1
        self._rows.one(
            offset=record.offset, line=record.line, comm=at, op=self._op(operation.op), count=operation.elements,
            datatype=operation.datatype, reduction=operation.reduction, root=operation.root,
            op_count=operation.op_count, stamp_ns=record.stamp.ns if record.stamp else NULL,
            flags=torn * TORN + (operation.op in P2P_OPS) * IS_P2P + is_call * IS_CALL,
        )  # fmt: skip
