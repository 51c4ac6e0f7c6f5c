"""Log processes of one attempt, and the lives of their communicators, over all files."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import NamedTuple

from rankscope.assemble.sources import SourceFile
from rankscope.parsers.logs.model import Comm, LogContent


class LogFile(NamedTuple):
    """One log file."""

    place: int
    """Row of `files`."""
    source: SourceFile
    content: LogContent
    speakers: list[int]
    """For each process of the file, the index of its log process."""

    @property
    def own(self) -> bool:
        """Whether NCCL wrote it for one process alone (NCCL_DEBUG_FILE), line by line: no line is lost at the end."""
        only_nccl = all(event.kind == "known-error" for event in self.content.events)
        return len(self.content.processes) == 1 and not self.content.processes[0].label and only_nccl


@dataclass
class LogProcess:
    """A process that wrote lines, over all files."""

    host: str
    pid: int
    told: set[int] = field(default_factory=set)
    """Global ranks in prefixes of its lines."""
    labels: set[str] = field(default_factory=set)
    """Launchers' prefixes."""
    device: int | None = None
    """The device of threads that issue operations."""
    rank: int | None = None
    """Global rank; None if it is not certain."""
    old: bool = False
    """It belongs to an earlier run of the job in the same log."""
    how: str = ""
    """Source of the rank: "prefix", "name", "communicator", "launcher", "device"; "" without one."""


@dataclass(eq=False)
class CommLife:
    """One life of a communicator in one process, or one file's piece of a life over several files."""

    speaker: int
    log: int
    at: int
    """Its index into the log's communicators."""
    comm: Comm
    index: int = 0
    """Its index among all lives."""
    parent: CommLife | None = None
    identity: str = ""
    """A text that is equal for all members; "" if the communicator is not identified."""
    recalled: str = ""
    """Its identity before the identifying lines were lost."""
    rank: int | None = None
    """Global rank."""
    group: int | None = None
    """Row of `groups`."""
    twin: bool = False
    """Another row has more of the same life."""
    rest: list[CommLife] = field(default_factory=list)
    """Its further pieces, in the order of printing."""
    goes_on: bool = False
    """It is a further piece: the first one represents the life."""
    before: tuple[int, int] = (0, 0)
    """For a further piece: collectives, and sends and receives, in the pieces before it."""
    adrift: bool = False
    """Lines between this piece and those before it are missing: its operations cannot be counted."""

    @property
    def pieces(self) -> tuple[CommLife, ...]:
        """All pieces of the life."""
        return (self, *self.rest)

    @property
    def stands(self) -> bool:
        """Whether it represents its life."""
        return not (self.twin or self.goes_on)

    @property
    def operation_count(self) -> int:
        """The number of printed operations."""
        return sum(piece.comm.collectives + piece.comm.p2p for piece in self.pieces)

    def set_group(self, group: int | None) -> None:
        """Sets the group of all pieces of the life."""
        for piece in self.pieces:
            piece.group = group


@dataclass
class LogScene:
    """All log files, log processes and communicator lives of one attempt."""

    logs: list[LogFile]
    speakers: list[LogProcess]
    lives: list[CommLife]
    by_place: dict[tuple[int, int], CommLife]
    """Lives by log and index in it."""
    since: dict[int, int] = field(default_factory=dict)
    """By log, the offset of the last run of the job, if there are several."""
    lines_before: dict[int, int] = field(default_factory=dict)
    """By row of `files`, the number of earlier lines of its process in other files, if any."""
    mixed_prints: dict[int, int] = field(default_factory=dict)
    """By log, the number of fingerprints without a known group."""
    told_groups: dict[tuple[int, int], int] = field(default_factory=dict)
    """Rows of `groups` for lines without a group name, by log and offset."""
    world: int = 0
    """Ranks of the job, if logs have them; else 0."""
    sized: bool = True
    """Whether a line has that number; else it is only the highest rank in a line."""

    _ranked: dict[int, bool] = field(default_factory=dict)

    def ranked(self, number: int) -> bool:
        """Whether prefixes of lines of that log, in the chosen run, hold ranks."""
        if number not in self._ranked:
            since, events = self.since.get(number, 0), self.logs[number].content.events
            self._ranked[number] = any(event.rank is not None for event in events if event.offset >= since)
        return self._ranked[number]

    def identities(self) -> dict[str, list[CommLife]]:
        """The identified communicators, with their lives."""
        found: dict[str, list[CommLife]] = defaultdict(list)
        for life in self.lives:
            if life.identity and life.stands:
                found[life.identity].append(life)
        return dict(found)
