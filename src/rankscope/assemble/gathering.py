"""Files of a job, and what each kind of them tells of its ranks, groups and operations, before tables are made."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import polars as pl

from rankscope.assemble.attempts import Attempt
from rankscope.assemble.sources import SourceFile
from rankscope.kinds.functions import function
from rankscope.kinds.input_kinds import GATHERED, PY_SPY
from rankscope.parsers.contents import StackFrame

Tables = dict[str, pl.DataFrame]


class RunChoice(NamedTuple):
    """The run of the job whose files count."""

    attempt: int
    """-1 if the job left no dump."""
    pattern: re.Pattern[str] | None
    """The user's option that finds ranks in names of files."""
    errors: str | None = None
    """Path of the user's own table of known errors."""


class PrintedThread(NamedTuple):
    """A thread of a process that printed its stacks."""

    name: str
    thread_id: int | None
    active: bool | None
    gil: bool | None
    frames: Sequence[StackFrame]
    """Innermost first."""


class PrintedProcess(NamedTuple):
    """A process whose stacks a file of another kind holds."""

    pid: int | None
    command: str
    """Its command line or title; "" if unknown."""
    rank: int | None
    """The global rank before its lines."""
    local_rank: int | None
    """The rank within the node before its lines."""
    tool: str
    threads: Sequence[PrintedThread]


class PrintedStacks(NamedTuple):
    """The stacks in a file of another kind."""

    source: SourceFile
    processes: Sequence[PrintedProcess]
    rank: int | None
    """The rank of all that the file holds, if known."""
    in_log: bool
    """Whether the file holds more than stacks."""


@dataclass(frozen=True, kw_only=True)
class Gathered(ABC):
    """Facts that the files of one kind tell."""

    world: int
    """The number of ranks of the job, as far as they tell it; 0 if they do not."""
    sized: bool = True
    """Whether they tell that number; else it only is the highest of their ranks plus one."""
    stacks: Sequence[PrintedStacks] = ()
    """Stacks that stand in them, for the kind that reads stacks."""
    attempt: tuple[int, pl.DataFrame] | None = None
    """The run and the table of runs of a job without dumps; None if these files do not tell runs apart."""

    @abstractmethod
    def add_tables(self, tables: Tables, world: int) -> tuple[Tables, int]:
        """The tables of the job with theirs, and the number of its ranks, which they may raise."""

    def finish(self, tables: Tables) -> None:  # noqa: B027 - few kinds have anything left to do
        """Completes rows of other kinds, when all are in the tables."""


@dataclass
class GatheredJob:
    """The files of a job with its attempts, and what each kind of them tells."""

    sources: Sequence[SourceFile]
    runs: list[Attempt]
    choice: RunChoice
    asked: bool
    """Whether the user has chosen the run."""
    world: int
    """The number of ranks, if groups are written down; 0 if only the present dumps tell it."""
    recall: dict[str, Any] | None = None
    """Results of earlier assemblies of a watched job that later ones need, by kind; None for a job read once."""
    gathered: list[Gathered] = field(default_factory=list)

    @cached_property
    def places(self) -> dict[int, int]:
        """The rows of `files` by the identities of the sources."""
        return {id(source): place for place, source in enumerate(self.sources)}

    def gather(self) -> None:
        """Asks each kind for what its files tell, at no cost without one; later kinds see what earlier ones told."""
        there = {source.kind for source in self.sources if source.content is not None}
        for kind in GATHERED:
            if kind.name in there or (kind is PY_SPY and self.stacks):
                found: Gathered | None = function(kind.gather)(self)
                self.gathered += [found] if found is not None else []

    @property
    def stacks(self) -> list[PrintedStacks]:
        """Stacks that stand in files of the kinds that were gathered before."""
        return [stack for gathered in self.gathered for stack in gathered.stacks]
