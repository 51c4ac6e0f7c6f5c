"""The processes that wrote the logs of one attempt, and the lives of their communicators, over all files."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from rankscope.assemble.logs.numbers import rank, short, size
from rankscope.assemble.logs.pieces import Series, filled, join, series_of
from rankscope.assemble.logs.restarts import run_of
from rankscope.assemble.sources import Source
from rankscope.parsers.logs.model import Comm, LogContent


class Log(NamedTuple):
    """One file."""

    place: int
    """Row of `files`."""
    source: Source
    content: LogContent
    speakers: list[int]
    """For each of its processes the index of the speaker."""

    @property
    def own(self) -> bool:
        """Whether NCCL wrote it for one process alone (NCCL_DEBUG_FILE), line by line: none is lost at the end."""
        only_nccl = all(event.kind == "known-error" for event in self.content.events)
        return len(self.content.processes) == 1 and not self.content.processes[0].label and only_nccl


@dataclass
class Speaker:
    """A process."""

    host: str
    pid: int
    told: set[int] = field(default_factory=set)
    """Global ranks that prefixes of its lines say."""
    labels: set[str] = field(default_factory=set)
    """Launchers' prefixes."""
    device: int | None = None
    """Of the threads that issue operations."""
    rank: int | None = None
    """Global rank; None where nothing tells for sure."""
    old: bool = False
    """It is of an earlier run of the job whose lines stand in the same log."""
    how: str = ""
    """How it was found: "prefix", "name", "communicator", "launcher", "device"; "" without one."""


@dataclass(eq=False)
class Life:
    """One life of a communicator in one process; of a life that goes on in further files, what one of them has."""

    speaker: int
    log: int
    at: int
    """Its index into the log's communicators."""
    comm: Comm
    index: int = 0
    """Its place among all lives."""
    parent: Life | None = None
    identity: str = ""
    """The same for all members; "" where it cannot be told which communicator of the others it is."""
    recalled: str = ""
    """The identity it had before the lines that told it were gone."""
    rank: int | None = None
    """Global rank."""
    group: int | None = None
    """Row of `groups`."""
    twin: bool = False
    """Another row tells more of the same life."""
    rest: list[Life] = field(default_factory=list)
    """Its further pieces, in the order in which they were printed."""
    goes_on: bool = False
    """It is such a piece: the first one stands for the life."""
    before: tuple[int, int] = (0, 0)
    """Of such a piece: collectives, and sends and receives, in the pieces before it."""
    adrift: bool = False
    """Lines between the pieces before it and this one are missing: its operations cannot be counted."""

    @property
    def pieces(self) -> tuple[Life, ...]:
        """All of the life."""
        return (self, *self.rest)

    @property
    def stands(self) -> bool:
        """Whether it is the one that stands for its life."""
        return not (self.twin or self.goes_on)

    @property
    def told(self) -> int:
        """How many operations are printed of it."""
        return sum(piece.comm.collectives + piece.comm.p2p for piece in self.pieces)

    def put(self, group: int | None) -> None:
        """Gives all of the life its group."""
        for piece in self.pieces:
            piece.group = group


@dataclass
class Scene:
    """All of it."""

    logs: list[Log]
    speakers: list[Speaker]
    lives: list[Life]
    by_place: dict[tuple[int, int], Life]
    """By log and index in it."""
    since: dict[int, int] = field(default_factory=dict)
    """By log, where the last run of the job begins in it, if there are several."""
    lines_before: dict[int, int] = field(default_factory=dict)
    """By row of `files` how many lines its process wrote into other files before, if it did."""
    mixed_prints: dict[int, int] = field(default_factory=dict)
    """By log how many fingerprints could not be put to a group."""
    told_groups: dict[tuple[int, int], int] = field(default_factory=dict)
    """Rows of `groups` of lines that name none, by log and offset."""
    world: int = 0
    """Ranks of the job, as far as logs tell; 0 if they do not."""
    sized: bool = True
    """Whether that was told, and is not only the highest rank that a line mentions."""

    _ranked: dict[int, bool] = field(default_factory=dict)

    def ranked(self, number: int) -> bool:
        """Whether prefixes of any lines of the log of that number, in the run that is read, say ranks."""
        if number not in self._ranked:
            since, events = self.since.get(number, 0), self.logs[number].content.events
            self._ranked[number] = any(event.rank is not None for event in events if event.offset >= since)
        return self._ranked[number]

    def identities(self) -> dict[str, list[Life]]:
        """The communicators that are told apart, with their lives."""
        found: dict[str, list[Life]] = defaultdict(list)
        for life in self.lives:
            if life.identity and life.stands:
                found[life.identity].append(life)
        return dict(found)


# From the logs of an attempt to its scene: what one process printed is one, in however many files it stands.


def build(sources: Sequence[tuple[int, Source]], run: int = -1) -> Scene:
    """The scene of logs, given with their rows of `files`; of logs with several runs of the job of that one."""
    speakers: list[Speaker] = []
    index: dict[tuple[str, int], int] = {}
    logs: list[Log] = []
    for place, source in sources:
        content = source.log
        if content is None:
            continue
        content = run_of(content, run)
        here: list[int] = []
        for process in content.processes:
            at = index.setdefault((process.host, process.pid), len(speakers))
            if at == len(speakers):
                speakers.append(Speaker(process.host, process.pid))
            speakers[at].told |= {told for told in [rank(process.rank)] if told is not None}
            speakers[at].labels |= {process.label} - {""}
            if process.device is not None:
                speakers[at].device = process.device
            here.append(at)
        logs.append(Log(place, source, content, here))
    logs, series = _in_order(logs)
    lives, by_place = _lives(logs, series)
    return Scene(logs, speakers, lives, by_place, lines_before=_lines_before(logs, series))


def _in_order(logs: Sequence[Log]) -> tuple[list[Log], list[Series]]:
    """The logs, those of a series in the order in which they were written, and the series."""
    spoken: dict[tuple[int, str], set[int]] = defaultdict(set)
    for number, log in enumerate(logs):
        for speaker in log.speakers:
            spoken[speaker, log.source.directory].add(number)
    # where a name alone would not do: only files in which the same process speaks
    shared = sorted({number for numbers in spoken.values() if len(numbers) > 1 for number in numbers})
    series = series_of([logs[number].source.shown for number in shared])
    of_log = {shared[i]: [shared[k] for k in one.members] for one in series for i in one.members}
    order = [k for i in range(len(logs)) for k in ([i] if i not in of_log else of_log[i] * (i == min(of_log[i])))]
    moved = {number: place for place, number in enumerate(order)}
    return [logs[number] for number in order], [
        Series(tuple(moved[shared[i]] for i in one.members), frozenset(moved[shared[i]] for i in one.behind_gaps))
        for one in series
    ]


def _lines_before(logs: Sequence[Log], series: Sequence[Series]) -> dict[int, int]:
    found = {}
    for one in series:
        lines = 0
        for number in one.members:
            found[logs[number].place] = lines
            lines += logs[number].content.counts.get("lines", 0)
    return found


def _lives(logs: Sequence[Log], series: Sequence[Series]) -> tuple[list[Life], dict[tuple[int, int], Life]]:
    lives: list[Life] = []
    by_place: dict[tuple[int, int], Life] = {}
    for number, log in enumerate(logs):
        for at, comm in enumerate(log.content.comms):
            sound = comm._replace(nranks=size(comm.nranks), rank=rank(comm.rank), device=short(comm.device))
            life = Life(log.speakers[comm.process], number, at, sound, len(lives))
            # what was printed of it is another's: a piece of a line stood in front
            life.twin = not (comm.init or comm.collectives or comm.p2p or comm.state != "seen")
            lives.append(life)
            by_place[number, at] = life
    for life in lives:
        if life.comm.parent_comm is not None:
            life.parent = by_place.get((life.log, life.comm.parent_comm))
    for one in series:
        own = (by_place[number, at] for number in one.members for at in range(len(logs[number].content.comms)))
        join(one, [life for life in own if not life.twin], logs)
    _twins(lives, {log: number for number, one in enumerate(series) for log in one.members})
    return lives, by_place


def _twins(lives: Sequence[Life], series: dict[int, int]) -> None:
    """Marks what a second log of the same process repeats, and takes from it what the first does not say."""
    same: dict[tuple[int, str, int], list[Life]] = defaultdict(list)
    counted: dict[tuple[int, str, int], int] = defaultdict(int)
    for life in lives:
        if not life.stands:
            continue
        # of the logs of a series none repeats another
        key = (life.speaker, life.comm.pointer, series.get(life.log, -1 - life.log))
        same[life.speaker, life.comm.pointer, counted[key]].append(life)
        counted[key] += 1
    for group in same.values():
        best = max(group, key=lambda life: (life.told, life.comm.init))
        for life in group:
            if life is not best:
                for piece in life.pieces:
                    piece.twin = True
                best.comm = filled(best.comm, life.comm)
                best.parent = best.parent or life.parent
