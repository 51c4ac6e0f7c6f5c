"""Lines of NCCL in bulk: operations become rows of communicators, quiet lines only name their writer.

Quiet lines are most of the output before a job begins. They are processed all at once, like COLL lines. Few messages
differ by more than numbers: each distinct one is classified once, and each distinct text before "NCCL INFO" is parsed
once. The lines are only counted, but for the last one of each thread: its text may explain a following error.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from typing import NamedTuple

import numpy as np

from rankscope.features.logs.read import coll_lines
from rankscope.features.logs.read import packed_words as w
from rankscope.features.logs.read.coll_lines import (
    HEAD_BYTES,
    P2P_OPS,
    BlockLines,
    CollRows,
    LineGroup,
    Operation,
    OperationRows,
    stamp_times,
)
from rankscope.features.logs.read.comm_lives import CommTable, ProcessTable
from rankscope.features.logs.read.log_record import REPEAT_MARK, Record
from rankscope.features.logs.read.model import IS_CALL, IS_P2P, TORN
from rankscope.features.logs.read.packed_words import LEVELS, Mask, NcclHead, Places, nccl_head
from rankscope.features.logs.read.record_reader import RecordSplitter
from rankscope.parsers.line_blocks import LEADING_BYTES, PAD_BYTES
from rankscope.parsers.line_prefixes import Stamp, read_stamp
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
        if len(message) > 1 << 12 or _SECOND_RECORD.search(words) or REPEAT_MARK.search(words):
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
    return front[found.end() :], read_stamp(found[1].decode())


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
            -1 if line is None else keys.setdefault((line.process, group.pointer), len(keys))
            for line, group in zip(known, rows.groups, strict=True)
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
            placed = self._comms.of_rows(process, pointer, offsets[mine], lines[mine])
            comm[mine] = placed
            self._processes.count(process, len(mine))
            lives = np.unique(placed).tolist() if placed[0] != placed[-1] else [int(placed[0])]
            for i in of_key[at]:
                line = known[i]
                if line is not None:
                    for life in lives:
                        if life >= 0 and not self._agrees(life, line.operation):
                            # joined from two cut lines
                            torn[mine[(placed == life) & (rows.group[mine] == i)]] = 1
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
            offset=record.offset,
            line=record.line,
            comm=at,
            op=self._op(operation.op),
            count=operation.elements,
            datatype=operation.datatype,
            reduction=operation.reduction,
            root=operation.root,
            op_count=operation.op_count,
            stamp_ns=record.stamp.ns if record.stamp else NULL,
            flags=torn * TORN + (operation.op in P2P_OPS) * IS_P2P + is_call * IS_CALL,
        )


LONGEST_MESSAGE = 1024
"""Longest message without its numbers; the slow way takes longer ones."""
LINE_BYTES = 1 << 14
_TOKENS = 6
"""Most words before "NCCL"."""
_WORDS_BEHIND = 2
_CALL = b": -> "
_OPEN_BRACE = ord("{")


class BulkLines(NamedTuple):
    """The quiet lines of a block."""

    line: Places
    """Index of each line in the block."""
    kind: Places
    """Kind of each line, in `KINDS`."""
    group: Places
    """Index into `fronts` of each line."""
    fronts: list[tuple[bytes, int]]
    """The text before "NCCL INFO", without its time, and the place in the block of a line with it."""
    has_calls: bool
    """Whether the other lines may hold calls of a failure: `init.cc:867 -> 5`."""


def bulk_rows(lines: BlockLines, among: Mask, shapes: MessageShapes) -> BulkLines | None:
    """The quiet lines of a block among some of its lines; None without any."""
    chosen, nccl = _informing(lines, among)
    if not chosen.size:
        return None
    bare, at = _without_numbers(lines, chosen)
    kind = _kinds(lines, chosen, nccl, (bare, at), shapes)
    has_calls = bare.padded.find(_CALL) >= 0
    quiet = kind >= 0
    return _grouped_lines(lines, chosen[quiet], nccl[quiet], kind[quiet], has_calls) if quiet.any() else None


def _informing(lines: BlockLines, among: Mask) -> tuple[Places, Places]:
    """The lines with a message behind "NCCL INFO", and the separator before that of each."""
    chosen = np.flatnonzero(among & (lines.ends - lines.first > _WORDS_BEHIND))
    first, ends = lines.first.take(chosen), lines.ends.take(chosen)
    nccl = np.full(len(chosen), -1, np.int64)
    for token in range(_TOKENS):
        place = first + token
        inside = place + _WORDS_BEHIND < ends
        start = lines.separators.take(np.where(inside, place, first)) + 1
        nccl = np.where((nccl < 0) & inside & w.equal_words(lines.words, start, b"NCCL INF"), place, nccl)
    chosen, nccl = chosen[nccl >= 0], nccl[nccl >= 0]
    start = lines.separators.take(nccl) + 1
    fine = w.equal_words(lines.words, start + 8, b"O ") & (lines.separators.take(nccl + 2) == start + 9)
    fine &= lines.places.take(chosen + 1) - lines.places.take(chosen) <= LINE_BYTES
    return chosen[fine], nccl[fine]


def _kinds(
    lines: BlockLines, chosen: Places, nccl: Places, without: tuple[BlockLines, Places], shapes: MessageShapes
) -> Places:
    """Kinds of the messages of these lines, in `KINDS`; -1 for those that may hold an event."""
    bare, at = without
    begin = bare.separators.take(bare.first.take(at) + (nccl - lines.first.take(chosen)) + 2) + 1
    end = bare.places.take(at + 1)
    end = end - (bare.bytes.take(end - 1) == ord("\r"))
    kind = np.full(len(chosen), -1, np.int64)
    which = np.flatnonzero((end > begin) & (end - begin <= LONGEST_MESSAGE))
    _, index, inverse = np.unique(
        w.ragged_hash(bare.words, begin[which], (end - begin)[which]), return_index=True, return_inverse=True
    )
    some = which[index]
    starts, ends = lines.separators.take(nccl[some] + 2) + 1, lines.places.take(chosen[some] + 1)
    texts = (bytes(lines.padded[a:b]).rstrip(b"\r") for a, b in zip(starts.tolist(), ends.tolist(), strict=True))
    of_shape = np.array([KINDS.get(shapes.kind(text), -1) for text in texts], np.int64)
    kind[which] = of_shape[inverse.reshape(-1)]
    return kind


def _without_numbers(lines: BlockLines, chosen: Places) -> tuple[BlockLines, Places]:
    """The lines without their numbers, and the index of each of some. They have the same separators."""
    starts, ends = lines.places.take(chosen) + 1, lines.places.take(chosen + 1) + 1
    if 2 * int((ends - starts).sum()) > int(lines.places[-1]):
        text, at = bytes(lines.padded[PAD_BYTES : int(lines.places[-1]) + 1]), chosen
    else:
        with memoryview(lines.padded) as view:
            text = b"".join([view[a:b] for a, b in zip(starts.tolist(), ends.tolist(), strict=True)])
        at = np.arange(len(chosen))
    text = message_shape(text)
    return BlockLines(bytearray(LEADING_BYTES + text + LEADING_BYTES), len(text), lines.has_returns), at


def _grouped_lines(lines: BlockLines, chosen: Places, nccl: Places, kind: Places, has_calls: bool) -> BulkLines | None:
    """The lines, grouped by their front."""
    start, end = lines.places.take(chosen) + 1, lines.separators.take(nccl) + 1
    head = start + stamp_times(lines, chosen, start)[1]
    fine = (end - head >= 8) & (end - head <= HEAD_BYTES) & (lines.bytes.take(start) != _OPEN_BRACE)
    if not fine.all():
        chosen, kind, start, head, end = chosen[fine], kind[fine], start[fine], head[fine], end[fine]
    if not chosen.size:
        return None
    _, index, inverse = np.unique(w.text_hash(lines.words, head, end - head), return_index=True, return_inverse=True)
    order = np.argsort(index)
    places = (column[index[order]].tolist() for column in (start, head, end))
    fronts = [(bytes(lines.padded[a:b]), at - PAD_BYTES) for at, a, b in zip(*places, strict=True)]
    return BulkLines(chosen, kind, np.argsort(order)[inverse.reshape(-1)], fronts, has_calls)


MOST_TRANSPORTS = 64
_VIA = re.compile(rb" via ([A-Za-z][A-Za-z0-9/_.]{1,40})")
KINDS = {"channels": 0, "tuning": 1, "other": 2}
MOST_SHAPES = 1 << 16
"""Most remembered shapes; with more, all are dropped."""
_DIGITS = b"0123456789"
_POINTER = re.compile(rb"0x[0-9a-fA-F]+(?:/[0-9a-fA-F]+)?")
"""A pointer, or the two halves of a GID."""
CHANNEL_STARTS = ("Channel ", "Trees ", "Ring ", "Connected ", "threadThresholds", "P2P Chunksize", "Setting affinity")
"""Beginnings of messages about the connection of channels."""
TUNING_SIGN = " Bytes -> Algo "
"""Sign of messages about the algorithm of an operation."""
_CHANNEL, _TUNING = tuple(word.encode() for word in CHANNEL_STARTS), TUNING_SIGN.encode()
_GLUED_SIGNS = (
    *(f"NCCL {level}".encode() for level in LEVELS),
    b"[rank", b".cpp:]", b".hpp:]", b".h:]", b".cu:]", b".cc:]", b".py:]", b" WARN", b"\x1b", b"\r",
)  # fmt: skip
"""Signs of a second record in the same line."""
_EVENT_SIGNS = (
    b"opCount", b"- Init ", b"- Destroy ", b"- Abort ", b"- Finalize ", b"- Revoke ", b" set by environment to ",
    b"CCL version", b"cudaDriverVersion", b"Using network", b"Loaded net plugin", b"Bootstrap : U", b"Bootstrap: U",
    b": -> ", b"NET/Socket : U", b"NET/Socket: U", b"NET/IB : U", b"NET/IB: U", b"NET/IB : No", b"NET/IB: No",
    b"GPU Direct RDMA ", b" coll channels, ",
)  # fmt: skip
"""Signs of operations, lives of communicators, settings, and the calls of a failure."""


class MessageShapes:
    """Test for quiet messages. `words` gives the words of other readers, when they are needed."""

    def __init__(self, words: Callable[[], Iterable[str]]) -> None:
        self._words = words
        self._telling: re.Pattern[bytes] | None = None
        self._glued = _any_of(_GLUED_SIGNS)
        self._known: dict[bytes, str] = {}
        self.transports: dict[str, None] = {}
        """How channels connect ranks: "P2P/CUMEM", "SHM/direct/direct", "NET/IB/GDRDMA"."""

    def kind(self, message: bytes) -> str:
        """ "channels", "tuning" or "other"; "" for a message that may hold an event."""
        bare = message_shape(message)
        found = self._known.get(bare)
        if found is None:
            if len(self._known) >= MOST_SHAPES:
                self._known.clear()
            found = self._known[bare] = self._work_out(message, bare)
        return found

    def _work_out(self, message: bytes, bare: bytes) -> str:
        if self._glued.search(bare):
            return ""
        if message.startswith(_CHANNEL):
            if (via := _VIA.search(message)) is not None and len(self.transports) < MOST_TRANSPORTS:
                kinds = [part for part in via[1].decode().split("/") if not part.isdecimal()]
                # how shared memory is copied matters to nobody
                self.transports.setdefault("SHM" if kinds[0] == "SHM" else "/".join(kinds))
            return "channels"
        if _TUNING in message:
            return "tuning"
        if self._telling is None:
            self._telling = _any_of((*_EVENT_SIGNS, *(word.encode() for word in self._words())))
        return "" if self._telling.search(bare) else "other"


def message_shape(text: bytes) -> bytes:
    """The message without the digits of pointers and numbers. It has the same blanks and line ends."""
    return (_POINTER.sub(b"0x", text) if b"0x" in text else text).translate(None, _DIGITS)


def _any_of(signs: Iterable[bytes]) -> re.Pattern[bytes]:
    found = sorted({sign.translate(None, _DIGITS) for sign in signs})
    return re.compile(b"|".join(map(re.escape, found)))


MOST_THREADS = 256
_OTHER_KIND = KINDS["other"]


class InfoLine(NamedTuple):
    """A quiet line."""

    text: bytes
    offset: int
    number: int


class UnheardLines:
    """Takes quiet lines from the others, many at once or one by one."""

    def __init__(
        self, shapes: MessageShapes, fronts: LineFronts, processes: ProcessTable, counts: Counter[str]
    ) -> None:
        self._shapes, self._fronts, self._processes, self._counts = shapes, fronts, processes, counts
        self._last: defaultdict[int, dict[bytes, InfoLine]] = defaultdict(dict)
        """For each process, the last quiet line of each thread."""

    def many(self, lines: BlockLines, slow: Mask, place: tuple[int, int]) -> list[tuple[int, bytes, InfoLine]]:
        """Takes lines of a block at an offset and a line number from the `slow` ones.

        Returns process, front and line of the last ones, for `keep` after the other lines.
        """
        found = bulk_rows(lines, slow, self._shapes)
        if found is None:
            return []
        if found.has_calls:
            # a later line of the block may need the last line of a thread
            found = _selected_lines(found, found.kind != _OTHER_KIND)
        known = [self._fronts.of(text, place[0] + at) for text, at in found.fronts]
        taken: Mask = np.array([front is not None for front in known], np.bool_)[found.group]
        for front, count in zip(known, np.bincount(found.group, minlength=len(known)).tolist(), strict=True):
            if front is not None:
                self._processes.count(front.process, count)
        for name, kind in KINDS.items():
            self._count(name, int((taken & (found.kind == kind)).sum()))
        slow[found.line[taken]] = False
        return [
            (front.process, found.fronts[group][0], _info_line(lines, line, place))
            for group, line in _last_lines(_selected_lines(found, found.kind == _OTHER_KIND))
            if (front := known[group]) is not None
        ]

    def keep(self, said: list[tuple[int, bytes, InfoLine]]) -> None:
        """Keeps the last lines of the threads of a block."""
        for process, front, line in said:
            self._keep(process, front, line)

    def one(self, kind: str, process: int, front: bytes, line: InfoLine) -> None:
        """Takes a single line of one of `KINDS`."""
        self._processes.count(process, 1)
        self._count(kind, 1)
        if kind == "other":
            self._keep(process, without_time(front)[0], line)

    def drain(self, process: int) -> list[InfoLine]:
        """Returns the last lines of the threads of a process, and drops them."""
        return list(self._last.pop(process, {}).values())

    def _count(self, kind: str, lines: int) -> None:
        for name in ("records", "INFO", kind) if lines else ():
            self._counts[name] += lines

    def _keep(self, process: int, front: bytes, line: InfoLine) -> None:
        threads = self._last[process]
        known = threads.get(front)
        if known is None and len(threads) >= MOST_THREADS:
            threads.clear()
        if known is None or known.offset < line.offset:
            threads[front] = line


def _selected_lines(found: BulkLines, which: Mask) -> BulkLines:
    return found._replace(line=found.line[which], kind=found.kind[which], group=found.group[which])


def _last_lines(found: BulkLines) -> list[tuple[int, int]]:
    """Each group with its last line."""
    groups, last = np.unique(found.group[::-1], return_index=True)
    lines: Places = found.line[::-1][last]
    return list(zip(groups.tolist(), lines.tolist(), strict=True))


def _info_line(lines: BlockLines, line: int, place: tuple[int, int]) -> InfoLine:
    start, end = int(lines.places[line]) + 1, int(lines.places[line + 1])
    return InfoLine(bytes(lines.padded[start:end]), place[0] + start - PAD_BYTES, place[1] + line)
