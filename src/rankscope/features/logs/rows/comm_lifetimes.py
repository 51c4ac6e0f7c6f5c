"""Communicators that continue in the next file of a rotated log: only the older file has their initialisation.

Names show the order of the files. Host, process id and address identify the communicator, if the older file lacks its
end and the newer one its beginning; in a watched job, also if the log has lost its first lines.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import NamedTuple

import numpy as np

from rankscope.features.logs.read.comm_lives import END_STATES
from rankscope.features.logs.read.model import Comm
from rankscope.features.logs.read.stretches import is_continued, join_contents
from rankscope.features.logs.rows.log_processes import CommLife, LogFile, LogScene
from rankscope.parsers.matrices import NULL, Numbers


def join_lives(series: FileSeries, lives: Sequence[CommLife], logs: Sequence[LogFile]) -> None:
    """Joins the pieces of each life, and finds the parents of splits in earlier files.

    `lives` are those of the logs of the series, in the order of printing.
    """
    last: dict[tuple[int, str], CommLife] = {}
    of_piece: dict[int, CommLife] = {}
    for life in lives:
        key = life.speaker, life.comm.pointer
        if life.comm.parent and life.parent is None:
            life.parent = last.get((life.speaker, life.comm.parent))
        head = last.get(key)
        if head is None or not is_continued(head.comm, life.comm):
            last[key] = life if head is None or not _is_repeated(head.comm, life.comm) else _fuller_life(head, life)
            continue
        between = range(series.members.index(head.pieces[-1].log) + 1, series.members.index(life.log) + 1)
        gap = any(series.members[i] in series.behind_gaps for i in between)
        adrift = gap or _count_jumps(head, life, logs)
        newest = head.pieces[-1]
        life.before = newest.before[0] + newest.comm.collectives, newest.before[1] + newest.comm.p2p
        life.goes_on, life.adrift = True, adrift or newest.adrift
        head.comm = join_contents(head.comm, life.comm)
        life.comm = fill_life(life.comm, head.comm)
        head.rest.append(life)
        of_piece[id(life)] = head
    for life in lives:
        if life.parent is not None:
            life.parent = of_piece.get(id(life.parent), life.parent)


def _is_repeated(comm: Comm, other: Comm) -> bool:
    """Whether both begin with the same line: the file is being copied, and will then be emptied."""
    same = (comm.offset, comm.line, comm.comm_id) == (other.offset, other.line, other.comm_id)
    return same and comm.init and other.init


def _fuller_life(one: CommLife, other: CommLife) -> CommLife:
    """The life with more rows of two equal ones; the other is marked as its twin."""
    best, rest = (one, other) if one.operation_count >= other.operation_count else (other, one)
    for piece in rest.pieces:
        piece.twin = True
    return best


def _count_jumps(head: CommLife, life: CommLife, logs: Sequence[LogFile]) -> bool:
    """Whether opCount, where it rises at all, rises otherwise between the files than within them."""
    first, newer = life.comm.first_op_count, _op_counts(life, logs)
    older = next((found for piece in reversed(head.pieces) if len(found := _op_counts(piece, logs))), newer[:0])
    if first is None or not len(older) or NULL in older or NULL in newer:
        return False
    step = max(int(np.diff(older).max(initial=0)), int(np.diff(newer).max(initial=0)))
    return step > 0 and not 0 <= first - int(older[-1]) <= step


def _op_counts(life: CommLife, logs: Sequence[LogFile]) -> Numbers:
    content = logs[life.log].content
    first, behind = np.searchsorted(content.code("comm"), [life.at, life.at + 1])
    return content.column("op_count")[first:behind]


def fill_life(comm: Comm, other: Comm) -> Comm:
    """The communicator, with unknown values filled in from the other."""
    names = ("rank", "nranks", "device", "comm_id", "parent", "split", "color", "started", "completed")
    known = {n: getattr(other, n) for n in names if getattr(comm, n) in (None, "")}
    return comm._replace(**known)


_PACKED = re.compile(r"\.(?:gz|bz2|xz|zst)$", re.IGNORECASE)
_TURNED = re.compile(
    r"(?P<stem>.+?)(?:\.(?P<number>\d{1,3})|[._\-](?P<date>\d{4}-\d\d-\d\d(?:[T_.\-][\d.:\-]{1,20})?"
    r"|\d{8}(?:[T_.\-]?\d{2,9})?|\d{10}))(?P<ending>\.(?:log|out|err|txt))?"
)


class FileSeries(NamedTuple):
    """Files that were written one after the other under one name."""

    members: tuple[int, ...]
    """Indices of the files, the oldest first."""
    behind_gaps: frozenset[int]
    """Files with a missing file before them."""


class _Name(NamedTuple):
    base: tuple[str, str]
    """Directory, and the name during the write."""
    number: int | None
    date: str


def series_of(paths: Sequence[str]) -> list[FileSeries]:
    """The series of at least two members among these paths."""
    names_in = [_parts(path) for path in paths]
    turned = [_turned(*parts) for parts in names_in]
    bases = {name.base for name in turned if name is not None}
    members: dict[tuple[str, str], dict[int, _Name | None]] = defaultdict(dict)
    for place, (parts, name) in enumerate(zip(names_in, turned, strict=True)):
        if parts in bases:
            members[parts][place] = None
        elif name is not None:
            members[name.base][place] = name
    series_ = (_series_in_order(names) for names in members.values() if len(names) > 1)
    return [series for series in series_ if series is not None]


def _parts(path: str) -> tuple[str, str]:
    pure = PurePosixPath(path.replace("!", "/"))
    return str(pure.parent), _PACKED.sub("", pure.name)


def _turned(directory: str, name: str) -> _Name | None:
    match = _TURNED.fullmatch(name)
    if match is None:
        return None
    number = None if match["number"] is None else int(match["number"])
    base = directory, match["stem"] + (match["ending"] or "")
    return _Name(base, number, re.sub(r"\D", "", match["date"] or ""))


def _series_in_order(names: dict[int, _Name | None]) -> FileSeries | None:
    """Files of one base name; the one without number or date is the newest; None if numbers and dates are mixed."""
    newest = [place for place, name in names.items() if name is None]
    dated = sorted((name.date, place) for place, name in names.items() if name is not None and name.number is None)
    counted = sorted(
        ((name.number, place) for place, name in names.items() if name is not None and name.number is not None),
        reverse=True,
    )
    if (dated and counted) or len(newest) > 1:
        return None
    numbers = [number for number, _ in counted]
    gaps = {place for (number, place), before in zip(counted[1:], numbers, strict=False) if before != number + 1}
    if newest and numbers and numbers[-1] > 1:
        gaps.add(newest[0])
    return FileSeries((*(place for _, place in [*counted, *dated]), *newest), frozenset(gaps))


MOST_COMMS = 200_000
"""Most remembered communicators; with more, those seen longest ago are dropped."""
_Key = tuple[str, int, str]


class _KnownComm(NamedTuple):
    comm: Comm
    identity: str


class CommMemory:
    """Communicators by host, process id and address."""

    def __init__(self) -> None:
        self._known: dict[_Key, _KnownComm] = {}

    def remind(self, scene: LogScene) -> None:
        """Fills in remembered facts of communicators whose initialisation is lost."""
        for life in scene.lives:
            known = self._known.get(_key(scene, life))
            if known is not None and life.stands and not life.comm.init and _fits(life.comm, known.comm):
                state = known.comm.state if life.comm.state == "seen" else life.comm.state
                life.comm = fill_life(life.comm, known.comm)._replace(state=state)
                life.recalled = known.identity

    def remember(self, scene: LogScene) -> None:
        """Remembers communicators that live and have a unique key."""
        for life in scene.lives:
            if not life.stands:
                continue
            key = _key(scene, life)
            if life.comm.init or life.comm.state in END_STATES:
                self._known.pop(key, None)
            if life.identity and life.comm.state not in END_STATES:
                self._known.pop(key, None)
                self._known[key] = _KnownComm(life.comm, life.identity)
        for key in list(self._known)[: max(0, len(self._known) - MOST_COMMS)]:
            del self._known[key]


def _key(scene: LogScene, life: CommLife) -> _Key:
    speaker = scene.speakers[life.speaker]
    return speaker.host, speaker.pid, life.comm.pointer


def _fits(comm: Comm, known: Comm) -> bool:
    return comm.nranks in (None, known.nranks) and comm.rank in (None, known.rank)
