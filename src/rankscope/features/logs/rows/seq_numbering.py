"""Sequence numbers of the collectives of a communicator, if lines at the beginning or in the middle are missing.

A log from the start of a process has its own numbers. Any other is aligned with such a log, at the only place with
equal operations; a training loop repeats itself, and if several places fit equally well nothing is joined. Without such
a log, the longest one numbers the others: then only differences are right.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import polars as pl

from rankscope.features.logs.read.model import IS_P2P
from rankscope.features.logs.rows.log_processes import CommLife, LogScene
from rankscope.parsers.matrices import Numbers

FIRST_SEQ = 1
"""First sequence number in torch."""
SHORTEST_RUN = 3
"""Fewest operations in a row that prove a match, unless both sides have no more."""
FAR = 1 << 62
DENSE_RATIO = 4
"""Largest ratio of value range to values for counting in a table."""
MOST_PLACES = 64
"""Most tried occurrences of the rarest operation."""


class SeqNumbering(NamedTuple):
    """The mapping from ordinals of a life to sequence numbers, for ordinals from `first` to `until`, both included."""

    shift: int
    relative: bool = False
    """No log of the communicator has its beginning: numbers start anywhere."""
    first: int = 0
    until: int | None = None
    """None for the end. Behind a torn line only operations that match elsewhere are reliable."""
    last: int | None = None
    """Sequence number of the last collective; None if lines behind it may be missing."""


@dataclass(eq=False)
class _CountedLane:
    life: CommLife
    ordinals: Numbers
    codes: Numbers
    """One number for operation, count, type and root of each kept collective."""
    whole: bool
    torn: bool

    @cached_property
    def occurs(self) -> Numbers:
        """The frequency of each code; the last number, for all larger codes, is 0."""
        return np.append(np.bincount(self.codes), 0)


def number_lives(scene: LogScene) -> dict[tuple[int, int], SeqNumbering]:
    """Numberings by log and communicator; unknown ones are left out."""
    lanes = _joined_lanes(scene, _lanes(scene))
    found: dict[tuple[int, int], SeqNumbering] = {}
    for lives in scene.identities().values():
        own = [lanes[id(life)] for life in lives if id(life) in lanes]
        for lane, numbering in _settle_lanes(own):
            last = int(lane.ordinals[-1]) + numbering.shift if not lane.torn else None
            for piece in lane.life.pieces:
                if not piece.adrift:
                    found[piece.log, piece.at] = numbering._replace(last=last)
    return found


def _lanes(scene: LogScene) -> dict[int, _CountedLane]:
    meanings: dict[tuple[str, int, int, int], int] = {}
    lanes: dict[int, _CountedLane] = {}
    for number_, log in enumerate(scene.logs):
        content = log.content
        comm = content.code("comm")
        alone = np.flatnonzero((content.code("flags") & IS_P2P) == 0)
        if not alone.size:
            continue
        columns = content.code("op"), content.column("count"), content.code("datatype"), content.column("root")
        table = [column[alone].astype(np.int64) for column in columns]
        known, place = _distinct(table)
        codes = np.array(
            [
                meanings.setdefault((content.ops[op], *rest), len(meanings))
                for op, *rest in zip(*(column[known].tolist() for column in table), strict=True)
            ],
            np.int64,
        )[place]
        bounds = np.searchsorted(comm[alone], np.arange(len(content.comms) + 1))
        for at in range(len(content.comms)):
            part = slice(int(bounds[at]), int(bounds[at + 1]))
            life = scene.by_place[number_, at]
            if part.start == part.stop or life.twin or life.adrift:
                continue
            torn = content.processes[life.comm.process].torn_at is not None
            ordinals = content.column("ordinal")[alone[part]] + life.before[0]
            counted = content.column("op_count")[alone[part]]
            whole = life.comm.init or _from_zero(life, counted)
            lanes[id(life)] = _CountedLane(life, ordinals, codes[part], whole, torn)
    return lanes


def _joined_lanes(scene: LogScene, lanes: dict[int, _CountedLane]) -> dict[int, _CountedLane]:
    """The lanes, with the pieces of a life joined as far back as no operation between them is missing."""
    for life in scene.lives:
        parts = [lanes.pop(id(piece)) for piece in life.pieces if id(piece) in lanes] if life.rest else []
        if not parts:
            continue
        first = len(parts) - 1
        while first and parts[first].ordinals[0] == parts[first - 1].ordinals[-1] + 1:
            first -= 1
        kept = parts[first:]
        lanes[id(life)] = _CountedLane(
            life, np.concatenate([part.ordinals for part in kept]), np.concatenate([part.codes for part in kept]),
            life.comm.init or (parts[0].life is life and parts[0].whole), any(part.torn for part in parts),
        )  # fmt: skip
    return lanes


def _distinct(columns: Sequence[Numbers]) -> tuple[Numbers, Numbers]:
    """The last index of each distinct row, and the number of the row's value; ten times as fast as unique by rows."""
    place, count = np.zeros(len(columns[0]), np.int64), 1
    for column in columns:
        values, more = _ranked(column)
        if count * more >= FAR:
            place, count = _ranked(place)
        place, count = place * more + values, count * more
    place, count = _ranked(place)
    last = np.zeros(count, np.int64)
    last[place] = np.arange(len(place))
    return last, place


def _ranked(column: Numbers) -> tuple[Numbers, int]:
    """The rank of each value among the distinct ones, and their number."""
    low, high = int(column.min(initial=FAR)), int(column.max(initial=-FAR))
    if high - low < DENSE_RATIO * len(column):
        there = np.zeros(high - low + 1, np.bool_)
        there[column - low] = True
        return (np.cumsum(there) - 1)[column - low], int(np.count_nonzero(there))
    place = pl.Series(column).rank("dense").to_numpy().astype(np.int64) - 1
    return place, int(place.max(initial=-1)) + 1


def _from_zero(life: CommLife, op_counts: Numbers) -> bool:
    """Whether the first kept line is the first of all, without a line of the initialisation: opCount then begins at 0.

    In NCCL 2.27 and later opCount may always be 0, which proves nothing.
    """
    return life.comm.first_op_count == 0 and (len(op_counts) == 1 or int(op_counts.max()) > 0)


def _settle_lanes(lanes: Sequence[_CountedLane]) -> list[tuple[_CountedLane, SeqNumbering]]:
    """The lanes with a known place, and their numbers."""
    sound = [lane for lane in lanes if lane.whole and not lane.torn]
    pattern = max(sound or lanes, key=_length, default=None)
    if pattern is None:
        return []
    relative = not any(lane.whole for lane in lanes)
    counting = SeqNumbering(FIRST_SEQ, relative)
    out = [(lane, counting) for lane in sound]
    if not sound:
        out.append((pattern, counting))
    for lane in lanes:
        if lane is not pattern and not (lane.whole and not lane.torn):
            placed = _counted_numbering(lane, pattern) if lane.whole else _aligned_numbering(lane, pattern)
            out += [(lane, placed._replace(relative=relative))] if placed is not None else []
    return out


def _length(lane: _CountedLane) -> tuple[bool, int]:
    return lane.whole, len(lane.codes)


def _counted_numbering(lane: _CountedLane, pattern: _CountedLane) -> SeqNumbering | None:
    """The numbers of a torn lane from the start: its matching part, else an alignment."""
    low = max(int(lane.ordinals[0]), int(pattern.ordinals[0]))
    high = min(int(lane.ordinals[-1]), int(pattern.ordinals[-1]))
    a = lane.codes[(lane.ordinals >= low) & (lane.ordinals <= high)]
    b = pattern.codes[(pattern.ordinals >= low) & (pattern.ordinals <= high)]
    if len(a) != len(b) or not len(a):
        return _aligned_numbering(lane, pattern)
    differ = np.flatnonzero(a != b)
    same = int(differ[0]) if differ.size else len(a)
    return (
        SeqNumbering(FIRST_SEQ, first=low, until=low + same - 1)
        if 2 * same >= len(a)
        else _aligned_numbering(lane, pattern)
    )


def _aligned_numbering(lane: _CountedLane, pattern: _CountedLane) -> SeqNumbering | None:
    """The numbers of `lane` at the one place of `pattern` with the longest run of equal operations."""
    often = pattern.occurs[np.minimum(lane.codes, len(pattern.occurs) - 1)]
    if not often.any():
        return None
    anchor = int(np.argmin(np.where(often > 0, often, len(pattern.codes) + 1)))
    places = np.flatnonzero(pattern.codes == lane.codes[anchor])
    if len(places) > MOST_PLACES:
        return None
    runs = sorted((_longest_run(lane.codes, pattern.codes, int(p) - anchor) for p in places), reverse=True)
    best = runs[0]
    alike = len(runs) > 1 and runs[1].length == best.length
    if alike or (best.length < SHORTEST_RUN and not best.length == len(lane.codes) == len(pattern.codes)):
        return None
    shift = int(pattern.ordinals[0]) + best.offset - int(lane.ordinals[0]) + FIRST_SEQ
    first = int(lane.ordinals[0]) + best.start
    return SeqNumbering(shift, first=first, until=first + best.length - 1 if lane.torn else None)


class _MatchingRun(NamedTuple):
    length: int
    offset: int
    """Distance of the lane behind the beginning of the pattern."""
    start: int
    """Index in the lane."""


def _longest_run(a: Numbers, b: Numbers, offset: int) -> _MatchingRun:
    """The longest run of equal operations if `a` begins `offset` operations behind the beginning of `b`."""
    low, high = max(0, -offset), min(len(a), len(b) - offset)
    if low >= high:
        return _MatchingRun(0, offset, 0)
    differ = np.flatnonzero(a[low:high] != b[low + offset : high + offset])
    edges = np.concatenate([[-1], differ, [high - low]])
    at = int(np.argmax(np.diff(edges)))
    return _MatchingRun(int(edges[at + 1] - edges[at]) - 1, offset, low + int(edges[at]) + 1)
