"""Lines of single operations: COLL and CALL. `coll_rows` reads blocks of COLL lines all at once.

    AllReduce: opCount 28c sendbuff 0x7f.. recvbuff 0x7f.. count 9984512 datatype 7 op 0 root 0 comm 0x55.. [nranks=4]
    stream 0x55..

Unchanged from NCCL 2.4 to 2.32; RCCL adds ` acc 0x..` before count and ` task 0 globalrank 0` at the end.

A line is split at its spaces, counted from its end: every name must be at its place, else the slow way takes the line.
Many lines have the same text before "NCCL INFO": each distinct one is parsed once.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from rankscope.features.logs.read import packed_words as w
from rankscope.features.logs.read.model import CODES, IS_CALL, NUMBERS
from rankscope.features.logs.read.packed_words import Mask, Places, Words
from rankscope.parsers.line_blocks import PAD_BYTES
from rankscope.parsers.matrices import NULL, Codes, Numbers

_POINTER = r"(?:0x[0-9a-fA-F]{1,16}|\(nil\)|[0-9a-fA-F]{1,16})"
COLL_LINE = re.compile(
    rf"(?P<op>\w{{1,64}}): opCount (?P<op_count>[0-9a-f]{{1,16}}) sendbuff {_POINTER} recvbuff {_POINTER}"
    rf"(?: acc {_POINTER})? count (?P<count>\d{{1,19}}) datatype (?P<datatype>\d{{1,9}}) op (?P<reduction>\d{{1,18}}) "
    rf"root (?P<root>-?\d{{1,9}}) comm (?P<comm>{_POINTER}) \[nranks=(?P<nranks>\d{{1,9}})\] stream (?P<rest>.*)"
)
COLL_BEGINNING = re.compile(r"(?P<op>\w{1,64}): opCount [0-9a-f]")
_GLOBAL_RANK = re.compile(r" globalrank (\d{1,9})\b")
_CALL = re.compile(r"(?P<op>(?:mscclpp_)?nccl\w{1,64})\((?P<values>[^()]{0,400})\)\s*$")
_RENAMED = {"Bcast": "Broadcast"}
_INT64 = 2**63


class Operation(NamedTuple):
    """One operation; NULL for values behind a cut."""

    op: str
    pointer: str
    nranks: int | None
    elements: int
    datatype: int
    reduction: int
    root: int
    op_count: int
    rank: int | None = None
    """Rank in the communicator, where RCCL prints it."""


def coll_operation(message: str, torn: bool) -> Operation | None:
    """The operation of a COLL line; None for another line, or without its communicator."""
    found = COLL_LINE.match(message)
    if found is None:
        return None
    rank = None if torn else _GLOBAL_RANK.search(found["rest"])
    numbers = [int(found[name]) for name in ("count", "datatype", "reduction", "root")]
    count, datatype, reduction, root = (n if n < _INT64 else NULL for n in numbers)
    op_count = int(found["op_count"], 16)
    return Operation(
        found["op"],
        found["comm"],
        int(found["nranks"]),
        count,
        datatype,
        reduction,
        root,
        op_count if op_count < _INT64 else NULL,
        int(rank[1]) if rank else None,
    )


def torn_operation(message: str, pointer: str) -> Operation | None:
    """The operation of a cut line, with only its name certain; None for another line."""
    found = COLL_BEGINNING.match(message)
    return Operation(found["op"], pointer, None, NULL, -1, NULL, NULL, NULL) if found else None


def call_operation(message: str) -> Operation | None:
    """The operation of a CALL line: `ncclAllReduce(send,recv,count,datatype,op,root,comm,stream)`."""
    found = _CALL.match(message)
    values = [value.strip() for value in found["values"].split(",")] if found else []
    if found is None or len(values) != 8 or not all(value.isdecimal() for value in values[2:6]):
        return None
    name = found["op"].removeprefix("nccl")
    count, datatype, reduction, root = (int(v) if len(v) < 19 else NULL for v in values[2:6])
    if datatype > 1 << 30 or root > 1 << 30:
        return None
    return Operation(_RENAMED.get(name, name), _pointer(values[6]), None, count, datatype, reduction, root, NULL)


def _pointer(text: str) -> str:
    return text if text.startswith("0x") else f"0x{text}"


COLUMNS = (*NUMBERS, *CODES)


class OperationRows:
    """Operations of communicators in any order; in the end sorted by communicator and offset."""

    def __init__(self) -> None:
        self._parts: list[Numbers] = []
        self._single: list[tuple[int, ...]] = []

    def one(self, **values: int) -> None:
        """Adds a single operation, with a value for each column but the ordinal."""
        self._single.append(tuple(values.get(name, 0) for name in COLUMNS))

    def many(self, **columns: Numbers) -> None:
        """Adds several operations, as columns without the ordinal."""
        size = len(columns["offset"])
        part = np.zeros((len(COLUMNS), size), np.int64)
        for i, name in enumerate(COLUMNS):
            if name in columns:
                part[i] = columns[name]
        self._parts.append(part)

    @property
    def count(self) -> int:
        """The number of operations."""
        return len(self._single) + sum(int(part.shape[1]) for part in self._parts)

    def drain(self) -> tuple[Numbers, Codes]:
        """Returns and drops all operations; CALL lines only where no COLL line has the same."""
        single = np.array(self._single, np.int64).reshape(len(self._single), len(COLUMNS)).T
        whole = np.concatenate([*self._parts, single], axis=1)
        if self._single:
            # blocks come in order
            whole = whole[:, np.argsort(whole[NUMBERS.index("offset")], kind="stable")]
        self._parts, self._single = [], []
        order = _by_comm(whole)
        numbers = np.take(whole[: len(NUMBERS)], order, axis=1)
        return numbers, whole[len(NUMBERS) :].astype(np.int32).take(order, axis=1)


def _by_comm(whole: Numbers) -> Numbers:
    """The order of rows by communicator, without rows of none, and without CALL lines beside COLL lines."""
    comm = whole[len(NUMBERS)]
    small = comm.size and int(comm.max()) < 1 << 15
    order = np.argsort(comm.astype(np.int16) if small else comm, kind="stable")
    keep = comm >= 0
    call = (whole[-1] & IS_CALL) > 0
    if call.any():
        keep &= ~(call & np.isin(comm, comm[~call]))
    return order if keep.all() else order[keep[order]]


P2P_OPS = frozenset(("Send", "Recv", "PutSignal", "Signal", "WaitSignal"))
"""Operations between two ranks: the others of the communicator issue none."""
UNEVEN_OPS = frozenset(("AllToAllv", "AlltoAllv"))
"""Collectives whose count may differ from rank to rank."""


HEAD_BYTES = 192
"""Longest head; the slow way takes longer ones."""
_NAMES = ((3, b"[nranks="), (11, b"datatype"), (13, b"count "))
"""Names with their places, counted from the end; the words beside the other names must be numbers."""
_FIRST_NAMES = ((19, b"opCount "), (22, b"NCCL INF"))
_NUMBERS = (("count", 12), ("datatype", 10), ("reduction", 8), ("root", 6))
_TOKENS = 24


@dataclass(frozen=True)
class LineGroup:
    """The common values of the lines of one group."""

    head: bytes
    """The text before "NCCL INFO", without its time."""
    line: bytes
    """The first line of the group, without its time."""
    op: str
    pointer: str
    nranks: bytes
    start: int
    """Place of that line in the block."""


@dataclass(frozen=True)
class CollRows:
    """The COLL lines of a block: a row each, in order."""

    line: Places
    """Index of the line in the block."""
    start: Places
    """Place of the line in the block."""
    group: Places
    """Index into `groups`."""
    groups: list[LineGroup]
    count: Places
    datatype: Places
    reduction: Places
    root: Places
    op_count: Places
    stamp_ns: Places
    """NULL where the head has no time of NCCL's usual form."""


class BlockLines:
    """The lines of a text, and the places of their words. `padded` has PAD_BYTES bytes on both sides."""

    def __init__(self, padded: bytearray, size: int, has_returns: bool | None = None) -> None:
        self.padded = padded
        self.words = w.load_words(padded)
        text = np.frombuffer(padded, np.uint8, PAD_BYTES + size)
        self.bytes = text
        self.has_returns = padded.find(b"\r", 0, PAD_BYTES + size) >= 0 if has_returns is None else has_returns
        """Whether only blanks separate words."""
        spaces = (text == 32) | (text == 10) if self.has_returns else text <= 32
        self.separators = np.flatnonzero(spaces)
        # the first one is the line end of the padding
        ends = np.flatnonzero(text.take(self.separators) == 10)
        self.first = ends[:-1]
        self.ends = ends[1:]
        self.places = self.separators.take(ends)

    def bounds(self) -> tuple[Places, Places]:
        """Where each line begins and ends in the text, without the line end."""
        return self.places[:-1] + 1 - PAD_BYTES, self.places[1:] - PAD_BYTES

    def start(self, base: Places, token: int) -> Places:
        """The beginning of the token that is `token` places before each separator."""
        return self.separators.take(base - token) + 1

    def end(self, base: Places, token: int) -> Places:
        """The end of that token."""
        return self.separators.take(base - token + 1)


def coll_rows(lines: BlockLines) -> CollRows | None:
    """The COLL lines of a block; None without any."""
    chosen = np.flatnonzero(lines.ends - lines.first >= _TOKENS)
    if not chosen.size:
        return None
    base = lines.ends.take(chosen)
    if not w.equal_words(lines.words, lines.start(base, 3), b"[nranks=").all():
        base = base - 4 * w.equal_words(lines.words, lines.start(base, 4), b"task ")
    good = base - lines.first.take(chosen) >= _TOKENS
    for token, text in _NAMES:
        good &= w.equal_words(lines.words, lines.start(base, token), text)
    chosen, base = chosen[good], base[good]
    return _rows(lines, chosen, base) if chosen.size else None


def _rows(lines: BlockLines, chosen: Places, base: Places) -> CollRows | None:
    inner = base
    if not w.equal_words(lines.words, lines.start(base, 15), b"recvbuff").all():
        inner = base - 2 * w.equal_words(lines.words, lines.start(base, 15), b"acc ")
    good = inner - lines.first.take(chosen) >= _TOKENS
    for token, text in _FIRST_NAMES:
        good &= w.equal_words(lines.words, lines.start(inner, token), text)
    numbers: dict[str, Places] = {}
    for name, token in _NUMBERS:
        numbers[name], fine = w.read_decimals(lines.words, lines.start(base, token), lines.end(base, token))
        good &= fine
    op_count = w.read_hexadecimals(lines.words, lines.start(inner, 18), lines.end(inner, 18))
    numbers["op_count"] = op_count[0]
    colon, start = lines.end(inner, 20) - 1, lines.places.take(chosen) + 1
    head_length = lines.start(inner, 22) - start
    good &= op_count[1] & (lines.bytes.take(colon) == 58) & (head_length <= HEAD_BYTES) & (head_length >= 8)
    if not good.all():
        chosen, base, inner = chosen[good], base[good], inner[good]
        numbers = {name: column[good] for name, column in numbers.items()}
    return _grouped_rows(lines, chosen, base, inner, numbers) if chosen.size else None


def _grouped_rows(
    lines: BlockLines, chosen: Places, base: Places, inner: Places, numbers: dict[str, Places]
) -> CollRows:
    """The rows, grouped by head, operation, communicator and number of ranks."""
    words, start = lines.words, lines.places.take(chosen) + 1
    stamp_ns, taken = stamp_times(lines, chosen, start)
    head, head_end = start + taken, lines.start(inner, 22)
    op, op_end = lines.start(inner, 20), lines.end(inner, 20) - 1
    pointer, pointer_end = lines.start(base, 4), lines.end(base, 4)
    ranks, ranks_end = lines.start(base, 3), lines.end(base, 3)
    key = w.text_hash(words, head, head_end - head)
    # the name of an operation has "INFO " in front, the others at least eight bytes
    key = w.mix_hash(key, w.text_hash(words, op - 5, op_end - op + 5))
    key = w.mix_hash(key, w.text_hash(words, pointer - 5, pointer_end - pointer + 5))
    key = w.mix_hash(key, w.text_hash(words, ranks, ranks_end - ranks))
    # RCCL's lines have more at the end
    key = w.mix_hash(key, (lines.ends.take(chosen) - base).view(np.uint64))
    _, index, inverse = np.unique(key, return_index=True, return_inverse=True)
    places = (head, head_end, lines.places.take(chosen + 1), op, op_end, pointer, pointer_end, ranks, ranks_end, start)
    groups = [_group(lines.padded, row) for row in zip(*(place[index].tolist() for place in places), strict=True)]
    return CollRows(chosen, start - PAD_BYTES, inverse.reshape(-1), groups, stamp_ns=stamp_ns, **numbers)


def _group(text: bytearray, places: tuple[int, ...]) -> LineGroup:
    head, head_end, whole, op, op_end, pointer, pointer_end, ranks, ranks_end, start = places
    name, at = text[op:op_end].decode("utf-8", "replace"), text[pointer:pointer_end].decode("utf-8", "replace")
    return LineGroup(
        bytes(text[head:head_end]), bytes(text[head:whole]), name, at, bytes(text[ranks:ranks_end]), start - PAD_BYTES
    )


def stamp_times(lines: BlockLines, chosen: Places, start: Places) -> tuple[Places, Places]:
    """Times `[2026-04-22 21:34:20.123456] ` at the beginning of lines, in ns, and their length in bytes."""
    taken = np.zeros(len(start), np.int64)
    stamp_ns = np.full(len(start), NULL, np.int64)
    if not (lines.bytes.take(start) == 91).any():
        return stamp_ns, taken
    end = lines.separators.take(lines.first.take(chosen) + 2) - 1
    digits = end - start - 21
    punctuation = ((0, b"["), (5, b"-"), (8, b"-"), (11, b" "), (14, b":"), (17, b":"))
    has = (lines.bytes[end] == 93) & (digits >= -1) & (digits <= 9)
    for at, sign in punctuation:
        has &= lines.bytes[start + at] == sign[0]
    if not has.any():
        return stamp_ns, taken
    which = np.flatnonzero(has)
    ns, good = _time(lines.words, start[which], end[which])
    stamp_ns[which[good]] = ns[good]
    taken[which[good]] = (end - start)[which[good]] + 2
    return stamp_ns, taken


def _time(words: Words, start: Places, end: Places) -> tuple[Places, Mask]:
    fields, good = [], np.ones(len(start), np.bool_)
    for first, last in ((1, 5), (6, 8), (9, 11), (12, 14), (15, 17), (18, 20)):
        value, fine = w.read_decimals(words, start + first, start + last)
        fields.append(value)
        good &= fine
    year, month, day, hour, minute, second = fields
    digits = np.maximum(end - start - 21, 0)
    fraction, fine = w.read_decimals(words, end - digits, end)
    good &= (fine | (digits == 0)) & (month >= 1) & (month <= 12) & (day >= 1) & (day <= 31) & (year >= 1970)
    good &= (year < 2200) & (hour < 24) & (minute < 60)
    seconds = _days(year, month, day) * 86_400 + hour * 3600 + minute * 60 + second
    return seconds * 1_000_000_000 + np.where(digits > 0, fraction, 0) * 10 ** (9 - digits), good


def _days(year: Places, month: Places, day: Places) -> Places:
    """Days since the epoch, in the Gregorian calendar."""
    year = year - (month <= 2)
    era = year // 400
    of_era = year - era * 400
    of_year = (153 * (month + np.where(month > 2, -3, 9)) + 2) // 5 + day - 1
    days: Places = era * 146_097 + of_era * 365 + of_era // 4 - of_era // 100 + of_year - 719_468
    return days
