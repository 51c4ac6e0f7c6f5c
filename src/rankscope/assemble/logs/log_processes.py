"""The processes that wrote the logs of one attempt, and the lives of their communicators, over all files."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import NamedTuple

from rankscope.assemble.sources import SourceFile
from rankscope.parsers.logs.model import Comm, LogContent


class LogFile(NamedTuple):
    """One file."""

    place: int
    """Row of `files`."""
    source: SourceFile
    content: LogContent
    speakers: list[int]
    """For each of its processes the index of the speaker."""

    @property
    def own(self) -> bool:
        """Whether NCCL wrote it for one process alone (NCCL_DEBUG_FILE), line by line: none is lost at the end."""
        only_nccl = all(event.kind == "known-error" for event in self.content.events)
        return len(self.content.processes) == 1 and not self.content.processes[0].label and only_nccl


@dataclass
class LogProcess:
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
class CommLife:
    """One life of a communicator in one process; of a life that goes on in further files, what one of them has."""

    speaker: int
    log: int
    at: int
    """Its index into the log's communicators."""
    comm: Comm
    index: int = 0
    """Its place among all lives."""
    parent: CommLife | None = None
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
    rest: list[CommLife] = field(default_factory=list)
    """Its further pieces, in the order in which they were printed."""
    goes_on: bool = False
    """It is such a piece: the first one stands for the life."""
    before: tuple[int, int] = (0, 0)
    """Of such a piece: collectives, and sends and receives, in the pieces before it."""
    adrift: bool = False
    """Lines between the pieces before it and this one are missing: its operations cannot be counted."""

    @property
    def pieces(self) -> tuple[CommLife, ...]:
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
class LogScene:
    """All of it."""

    logs: list[LogFile]
    speakers: list[LogProcess]
    lives: list[CommLife]
    by_place: dict[tuple[int, int], CommLife]
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

    def identities(self) -> dict[str, list[CommLife]]:
        """The communicators that are told apart, with their lives."""
        found: dict[str, list[CommLife]] = defaultdict(list)
        for life in self.lives:
            if life.identity and life.stands:
                found[life.identity].append(life)
        return dict(found)
