"""The processes that wrote the logs of one attempt, and the lives of their communicators, over all files."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from rankscope.parsers.assemble.logs.numbers import rank, short, size
from rankscope.parsers.assemble.logs.restarts import run_of
from rankscope.parsers.assemble.sources import Source
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
    """One life of a communicator in one process."""

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
    rank: int | None = None
    """Global rank."""
    group: int | None = None
    """Row of `groups`."""
    twin: bool = False
    """Another row tells more of the same life."""


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
            if life.identity and not life.twin:
                found[life.identity].append(life)
        return dict(found)


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
    lives, by_place = _lives(logs)
    return Scene(logs, speakers, lives, by_place)


def _lives(logs: Sequence[Log]) -> tuple[list[Life], dict[tuple[int, int], Life]]:
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
    _twins(lives)
    return lives, by_place


def _twins(lives: Sequence[Life]) -> None:
    """Marks what a second log of the same process repeats, and takes from it what the first does not say."""
    same: dict[tuple[int, str, int], list[Life]] = defaultdict(list)
    counted: dict[tuple[int, str, int], int] = defaultdict(int)
    for life in lives:
        if life.twin:
            continue
        key = (life.speaker, life.comm.pointer, life.log)
        same[life.speaker, life.comm.pointer, counted[key]].append(life)
        counted[key] += 1
    for group in same.values():
        best = max(group, key=lambda life: (life.comm.collectives + life.comm.p2p, life.comm.init))
        for life in group:
            if life is not best:
                life.twin = True
                best.comm = _filled(best.comm, life.comm)
                best.parent = best.parent or life.parent


def _filled(comm: Comm, other: Comm) -> Comm:
    names = ("rank", "nranks", "device", "comm_id", "parent", "split", "color", "started", "completed")
    told = {n: getattr(other, n) for n in names if getattr(comm, n) in (None, "")}
    return comm._replace(**told)
