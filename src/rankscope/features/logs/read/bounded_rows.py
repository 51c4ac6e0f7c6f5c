"""Events and operations of a log in bounded memory: the first and last events, the last operations and their hash.

Phantom processes come from lines whose host lost its beginning, or got a piece of another line in front.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence
from hashlib import blake2b
from itertools import pairwise
from typing import Generic, Protocol, TypeVar

import numpy as np

from rankscope.features.logs.read.coll_lines import UNEVEN_OPS
from rankscope.features.logs.read.log_record import Event
from rankscope.features.logs.read.model import (
    CHECKPOINT_STEP,
    CODES,
    IS_P2P,
    LEAST_ROWS,
    MOST_ROWS,
    NUMBERS,
    TAIL_ROWS,
    Comm,
    LogContent,
    LogWriter,
    NcclWarning,
)
from rankscope.features.logs.read.packed_words import Words, mix_hash
from rankscope.parsers.matrices import NULL, Codes, Numbers

MOST_EVENTS = 100_000
MOST_WARNINGS = 20_000
STACKS_PER_STREAM = 16
"""Most stacks of one stream of lines, the last ones: for a process, its workers, and some earlier moments."""
STACKS = "thread-dump"
MOST_KINDS = 4_000
"""Most kinds; more kinds are grouped by fewer words."""
LEFT_OUT = "left out: "
LEAST_PER_KIND = 4
"""Fewest kept rows of each kind, and of each group of kinds beyond MOST_KINDS."""


class PlacedRow(Protocol):
    """A row with a place in a log."""

    @property
    def offset(self) -> int:
        """Offset of its first byte."""


T = TypeVar("T", bound=PlacedRow)


class BoundedKind(Generic[T]):
    """Rows of a log, bounded by kind: a frequent kind must not push out the line of the cause.

    It keeps all rows up to `most`. Beyond that, each kind gives up rows of its middle, down to an equal number.
    """

    def __init__(
        self, most: int, kind: Callable[[T], tuple[Hashable, ...]], only_last: Callable[[T], bool] | None = None
    ) -> None:
        """`kind` gives the words of a row's kind, most important first; of kinds that `only_last` chooses, no first
        rows stay."""
        self.seen = 0
        """The number of all rows."""
        self._most, self._kind, self._only_last = most, kind, only_last
        self._each = most
        self._kept = 0
        self._left_out: Counter[tuple[Hashable, ...]] = Counter()
        """The number of dropped rows, by the first two words of their kind."""
        self._first: dict[tuple[Hashable, ...], list[T]] = {}
        self._last: dict[tuple[Hashable, ...], list[T]] = {}

    def add(self, rows: Sequence[T]) -> None:
        """Takes rows in the order of the log."""
        self.seen += len(rows)
        self._kept += len(rows)
        for row in rows:
            kind = self._kind(row)
            key = kind if kind in self._last or len(self._last) < MOST_KINDS else kind[:2]
            if key not in self._last:
                self._first[key], self._last[key] = [], []
            self._last[key].append(row)
            if key[0] == STACKS and len(self._last[key]) > STACKS_PER_STREAM:
                self._last[key].pop(0)
                self._left_out[key[:2]] += 1
                self._kept -= 1
        if self._kept > (self._most if self._each > LEAST_PER_KIND else 2 * self._most):
            self._cut()
            # leaves some room for later rows: without it, every new row would cost another cut
            while self._kept > 3 * self._most // 4 and self._each > LEAST_PER_KIND:
                self._each = max(LEAST_PER_KIND, self._each // 2)
                self._cut()

    def result(self) -> list[T]:
        """The kept rows, in the order of the log."""
        kept = [row for key, last in self._last.items() for row in (*self._first[key], *last)]
        return sorted(kept, key=lambda row: row.offset)

    def left_out(self) -> dict[str, int]:
        """The numbers of dropped rows, as counts of a log."""
        return {left_out(*key): count for key, count in self._left_out.items()}

    def copy(self) -> BoundedKind[T]:
        """A copy that continues independently."""
        other: BoundedKind[T] = BoundedKind(self._most, self._kind, self._only_last)
        other.__dict__.update(self.__dict__, _left_out=self._left_out.copy())
        other._first = {key: list(rows) for key, rows in self._first.items()}
        other._last = {key: list(rows) for key, rows in self._last.items()}
        return other

    def _cut(self) -> None:
        for key, last in self._last.items():
            first = self._first[key]
            if len(first) + len(last) <= self._each:
                continue
            begin = 0 if self._only_last is not None and self._only_last(last[-1]) else self._each // 2
            self._first[key] = [*first, *last[: max(0, begin - len(first))]][:begin]
            kept = last[max(0, begin - len(first)) :][begin - self._each :]
            gone = len(first) + len(last) - len(self._first[key]) - len(kept)
            self._last[key] = kept
            self._left_out[key[:2]] += gone
            self._kept -= gone


def left_out(kind: Hashable, name: Hashable = None) -> str:
    """The name under which a log counts dropped rows of a kind."""
    return f"{LEFT_OUT}{kind} {name or ''}".rstrip()


def bounded_events(most: int = 0) -> BoundedKind[Event]:
    """A bounded list of events. Fingerprints keep only their last ones, which form lanes."""
    return BoundedKind(most or MOST_EVENTS, _event_kind, lambda event: event.kind == "fingerprint")


def bounded_warnings() -> BoundedKind[NcclWarning]:
    """A bounded list of warnings."""
    return BoundedKind(MOST_WARNINGS, _warning_kind)


def _event_kind(event: Event) -> tuple[Hashable, ...]:
    values = event.values
    return event.kind, values.get("id") or values.get("exception"), event.rank, values.get("label")


def _warning_kind(row: NcclWarning) -> tuple[Hashable, ...]:
    return row.level, row.place, row.process


MOST_FINGERPRINTS = 4096
_MASK = (1 << 64) - 1
_BASE = 0x2545F4914F6CDD1D
_POWERS = np.array([pow(_BASE, CHECKPOINT_STEP - 1 - i, 1 << 64) for i in range(CHECKPOINT_STEP)], np.uint64)
_UNKNOWN_HASH = np.uint64(0x1F83D9ABFB41BD6B)


def name_hash(op: str) -> int:
    """A number for an operation, the same in all logs."""
    return int.from_bytes(blake2b(op.encode(), digest_size=8).digest(), "little")


class CommTail:
    """The operations of one communicator."""

    def __init__(self) -> None:
        self.collectives = self.p2p = self.kept = 0
        self.first_op_count: int | None = None
        self.fingerprints: list[int] = []
        self._parts: list[tuple[Numbers, Codes]] = []
        self._hashes = np.empty(0, np.uint64)

    def add(self, numbers: Numbers, codes: Codes, hashes: Words) -> None:
        """Appends operations; `hashes` has one number for each, and `numbers` gets the ordinals."""
        if not numbers.shape[1]:
            return
        p2p = (codes[CODES.index("flags")] & IS_P2P) > 0
        numbers[0] = np.where(p2p, self.p2p + np.cumsum(p2p) - 1, self.collectives + np.cumsum(~p2p) - 1)
        if self.first_op_count is None and numbers[NUMBERS.index("op_count"), 0] != NULL:
            self.first_op_count = int(numbers[NUMBERS.index("op_count"), 0])
        self.p2p += int(p2p.sum())
        self.collectives += int((~p2p).sum())
        self._fingerprint(np.concatenate([self._hashes, hashes[~p2p]]))
        self._parts.append((numbers, codes))
        self.kept += numbers.shape[1]

    def _fingerprint(self, hashes: Words) -> None:
        full = len(hashes) // CHECKPOINT_STEP * CHECKPOINT_STEP
        sums = (hashes[:full].reshape(-1, CHECKPOINT_STEP) * _POWERS).sum(axis=1, dtype=np.uint64)
        value = self.fingerprints[-1] if self.fingerprints else 0
        for one in sums.tolist():
            value = ((value ^ one) * _BASE + 1) & _MASK
            self.fingerprints.append(value)
        del self.fingerprints[:-MOST_FINGERPRINTS]
        self._hashes = hashes[full:].copy()

    def cut(self, most: int) -> None:
        """Keeps only the last `most` operations."""
        numbers = np.concatenate([n for n, _ in self._parts], axis=1)[:, -most:]
        codes = np.concatenate([c for _, c in self._parts], axis=1)[:, -most:]
        self._parts = [(numbers.copy(), codes.copy())]
        self.kept = numbers.shape[1]

    def renumber(self, at: int) -> None:
        """Gives its communicator another index."""
        self.cut(self.kept)
        self._parts[0][1][CODES.index("comm")] = at

    def copy(self) -> CommTail:
        """A copy that continues independently; it shares the operations, which never change."""
        other = CommTail()
        other.__dict__.update(self.__dict__, fingerprints=list(self.fingerprints), _parts=list(self._parts))
        return other

    def rows(self, most: int) -> tuple[Numbers, Codes]:
        """The last operations, at most `most`."""
        self.cut(most)
        return self._parts[0]


class CommTails:
    """The operations of all communicators of a log, by index."""

    def __init__(self) -> None:
        self.tails: dict[int, CommTail] = {}
        self._most = TAIL_ROWS

    def add(self, numbers: Numbers, codes: Codes, ops: list[str], moved: Sequence[int] | None = None) -> None:
        """Takes operations sorted by communicator, each in the order of the log.

        `ops` are the names of `codes`; `moved` maps the communicators of the codes to those of this log.
        """
        comm = codes[CODES.index("comm")]
        hashes = _hashes(numbers, codes, ops)
        bounds = np.flatnonzero(np.diff(comm, prepend=-1, append=-1)).tolist() if comm.size else []
        for start, end in sorted(pairwise(bounds), key=lambda b: int(numbers[NUMBERS.index("offset"), b[0]])):
            at = int(comm[start])
            own = codes[:, start:end].copy()
            if moved is not None:
                at = own[CODES.index("comm")] = moved[at]
            self.tails.setdefault(at, CommTail()).add(numbers[:, start:end].copy(), own, hashes[start:end])
        self._most = min(TAIL_ROWS, max(LEAST_ROWS, MOST_ROWS // max(1, len(self.tails))))
        for tail in self.tails.values():
            if tail.kept > 2 * self._most:
                tail.cut(self._most)

    def move(self, moved: Mapping[int, int]) -> None:
        """Gives communicators other indices, and removes those without one."""
        self.tails = {moved[at]: tail for at, tail in self.tails.items() if at in moved}
        for at, tail in self.tails.items():
            tail.renumber(at)

    def copy(self) -> CommTails:
        """A copy that continues independently."""
        other = CommTails()
        other.tails, other._most = {at: tail.copy() for at, tail in self.tails.items()}, self._most
        return other

    def result(self, comms: list[Comm]) -> tuple[list[Comm], Numbers, Codes]:
        """The communicators with their counts, and their kept operations."""
        parts = [self.tails[at].rows(self._most) for at in sorted(self.tails)]
        counted = [_counted_comm(row, self.tails[at]) if at in self.tails else row for at, row in enumerate(comms)]
        numbers = [n for n, _ in parts] or [np.empty((len(NUMBERS), 0), np.int64)]
        codes = [c for _, c in parts] or [np.empty((len(CODES), 0), np.int32)]
        return counted, np.concatenate(numbers, axis=1), np.concatenate(codes, axis=1)


def _counted_comm(row: Comm, tail: CommTail) -> Comm:
    return row._replace(
        collectives=tail.collectives, p2p=tail.p2p, fingerprints=tail.fingerprints, first_op_count=tail.first_op_count
    )


def _hashes(numbers: Numbers, codes: Codes, ops: list[str]) -> Words:
    """A hash of the values that all ranks agree on: operation, count, datatype, root."""
    names = np.array([name_hash(op) for op in ops] or [0], np.uint64)
    even = np.array([op not in UNEVEN_OPS for op in ops] or [True], np.bool_)
    op = codes[CODES.index("op")]
    hashed = np.where(op >= 0, names[op], _UNKNOWN_HASH)
    count, root = numbers[NUMBERS.index("count")], numbers[NUMBERS.index("root")]
    hashed = mix_hash(hashed, np.where(even[op], count, 0).view(np.uint64))
    hashed = mix_hash(hashed, codes[CODES.index("datatype")].astype(np.int64).view(np.uint64))
    hashed = mix_hash(hashed, root.view(np.uint64))
    return hashed ^ (hashed >> np.uint64(31))


PHANTOM_RECORDS = 3
HOST_RATIO = 8
"""Bounds of a phantom: it has at most PHANTOM_RECORDS records, and another process with the same pid, and a host that
ends alike, has at least HOST_RATIO times as many."""


def move_phantoms(content: LogContent) -> None:
    """Gives the rows of phantoms to the real processes."""
    rows = content.processes
    real = _real(rows, content.comms)
    if not real:
        return
    issued = {row.process for row in content.comms}
    for at, other in real.items():
        rows[other] = _with_phantom(rows[other], rows[at], at in issued)
    kept = [at for at in range(len(rows)) if at not in real]
    place = {at: i for i, at in enumerate(kept)}
    moved = {at: place[real.get(at, at)] for at in range(len(rows))} | {-1: -1}
    content.processes = [rows[at] for at in kept]
    content.comms = [row._replace(process=moved[row.process]) for row in content.comms]
    content.settings = [row._replace(process=moved[row.process]) for row in content.settings]
    content.warnings = [row._replace(process=moved[row.process]) for row in content.warnings]


def rehomed(processes: list[LogWriter], comms: list[Comm], numbers: Numbers, codes: Codes) -> tuple[Numbers, Codes]:
    """Operations (columns NUMBERS and CODES, not yet counted), those of phantoms with their real communicators."""
    # the real communicator of each phantom's one: of the same pointer, and begun before
    real = _real(processes, comms)
    homes = {}
    for at, row in enumerate(comms):
        if row.process in real:
            own = [
                i
                for i, other in enumerate(comms)
                if other.process == real[row.process] and other.pointer == row.pointer and other.offset <= row.offset
            ]
            if own:
                homes[at] = max(own, key=lambda i: comms[i].offset)
    if not homes:
        return numbers, codes
    moved = np.array([homes.get(at, at) for at in range(len(comms))], np.int32)
    comm = CODES.index("comm")
    codes[comm] = moved[codes[comm]]
    order = np.lexsort((numbers[NUMBERS.index("offset")], codes[comm]))
    return numbers[:, order], codes[:, order]


def _real(processes: list[LogWriter], comms: list[Comm]) -> dict[int, int]:
    begun = {row.process for row in comms if row.init}
    return {at: other for at, other in _phantoms(processes).items() if at not in begun}


def _phantoms(rows: list[LogWriter]) -> dict[int, int]:
    """The real process of each phantom."""
    by_pid: defaultdict[int, list[int]] = defaultdict(list)
    for at, row in enumerate(rows):
        by_pid[row.pid].append(at)
    found = {}
    for same in by_pid.values():
        # processes in containers have the same pid by the thousand
        few = [at for at in same if rows[at].records <= PHANTOM_RECORDS]
        least = HOST_RATIO * min((rows[at].records for at in few), default=0)
        many = [at for at in same if rows[at].records >= least]
        for at in few if many else ():
            others = [other for other in many if other != at and _is_phantom(rows[at], rows[other])]
            if len(others) == 1:
                found[at] = others[0]
    return found


def _is_phantom(row: LogWriter, other: LogWriter) -> bool:
    rare = row.records <= PHANTOM_RECORDS and other.records >= HOST_RATIO * row.records
    return rare and (row.host.endswith(other.host) or other.host.endswith(row.host))


def _with_phantom(row: LogWriter, phantom: LogWriter, issued: bool) -> LogWriter:
    """The row of a process with its phantom's counts. A text before a whole operation comes from another writer; any
    other text may be missing from a line of the process."""
    cuts = [at for at in (row.torn_at, phantom.torn_at if issued else phantom.offset) if at is not None]
    return row._replace(records=row.records + phantom.records, torn_at=min(cuts, default=None))
