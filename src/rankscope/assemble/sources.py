"""Source files with their known facts, which are filled in step by step."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np
import polars as pl

from rankscope.assemble import file_names
from rankscope.assemble.op_names import library_of, p2p_ranks
from rankscope.assemble.recorders import Completeness, completeness, recorder_of
from rankscope.kinds.functions import function
from rankscope.kinds.input_kinds import INPUTS, UNKNOWN_KIND
from rankscope.parsers.contents import DecodedFile
from rankscope.parsers.files.directory_walk import printable_text
from rankscope.parsers.flight_recorder.model import Dump
from rankscope.parsers.matrices import NULL, Numbers
from rankscope.parsers.members import GroupConfig
from rankscope.parsers.sidecar import Sidecar
from rankscope.text.wording import links_out, plural

WANTED = (
    "rankscope reads flight recorder dumps (PyTorch writes them to TORCH_FR_DUMP_TEMP_FILE), logs, py-spy dumps and "
    "profiler traces"
)
"""What is asked for where nothing can be read."""
_MOST_REASONS = 5
_OWN_TABLES = (
    "dump", "directory", "tag", "place_named", "libraries", "span", "candidates", "threads", "highest",
    "complete",
)  # fmt: skip


Span = tuple[int, int]
"""Modification times of an earlier and a later version, in nanoseconds since the epoch."""


@dataclass(frozen=True)
class DumpVersions:
    """The versions of one recorder's dump, of which only the newest is kept."""

    since_ns: int
    """Since this version no operation was issued, started or completed."""
    newest_ns: int
    moved: Span | None = None
    """The last two versions with progress between them."""
    restarted: bool = False
    """The first version replaced a dump of another recorder."""

    @property
    def unchanged(self) -> Span | None:
        """The first and the last of the equal versions; None if there is only one."""
        return (self.since_ns, self.newest_ns) if self.since_ns < self.newest_ns else None


@dataclass(frozen=True)
class WindowSpans:
    """The spans of a window in order: by track, start, and the longest first."""

    order: Numbers
    """Rows of the window."""
    columns: pl.DataFrame
    """Columns of the table of spans that need no other file; `track` and `start_ns` as in the file."""


@dataclass
class SourceFile:
    """One file, or one member of an archive."""

    shown: str
    kind: str
    size: int
    mtime_ns: int | None
    problem: str | None
    content: DecodedFile | None = None
    rank: int | None = None
    rank_source: str | None = None
    attempt: int | None = None
    used: bool = False
    note: str | None = None
    """The reason why a correct file is not used."""
    named: int | None = field(default=None)
    """The rank in its name or the user's option."""
    card: Sidecar | None = None
    """The sidecar of a dump of the capture."""
    writer: tuple[str, int | None] = ("", None)
    """Host and process that it names itself as its writer."""
    newer: SourceFile | None = None
    """The newer dump of the same recorder, which is used instead."""
    drawn: WindowSpans | None = None
    """The sorted spans of a trace, if they were computed after its read."""
    versions: DumpVersions | None = None
    """The versions of a watched dump that was written anew."""

    def renewed(self) -> SourceFile:
        """The file before its assembly with others; results from its content alone are kept."""
        other = SourceFile(self.shown, self.kind, self.size, self.mtime_ns, self.problem, self.content)
        other.__dict__.update({name: getattr(self, name) for name in _OWN_TABLES})
        return other

    def replace_dump(self, dump: Dump) -> None:
        """Takes another form of its dump; facts that were computed from the old one are dropped."""
        self.content = dump
        for name in _OWN_TABLES:
            self.__dict__.pop(name, None)

    @cached_property
    def dump(self) -> Dump | None:
        """The content, if it is a flight recorder's dump."""
        return self.content if isinstance(self.content, Dump) else None

    @property
    def tells(self) -> bool:
        """Whether it has any content; a text that only looks like a log has none."""
        tells = INPUTS[self.kind].tells
        return self.content is not None and (not tells or bool(function(tells)(self.content)))

    @cached_property
    def directory(self) -> str:
        """Its directory."""
        return file_names.directory_of(self.shown)

    @cached_property
    def tag(self) -> str | None:
        """The directory that names its attempt."""
        return file_names.attempt_of(self.shown)

    @cached_property
    def place_named(self) -> str | None:
        """The host in its path."""
        return file_names.host_of(self.shown)

    @property
    def host(self) -> str | None:
        """The host in its sidecar, the one that it names, else the one in its path."""
        return (self.card.host if self.card is not None else "") or self.writer[0] or self.place_named

    @property
    def stated(self) -> list[GroupConfig]:
        """Groups with written members, in the dump or in its sidecar.

        gloo writes one without a name into its dumps, which every new group overwrites.
        """
        return self._own + self.carded

    @property
    def _own(self) -> list[GroupConfig]:
        config = self.dump.config if self.dump is not None else []
        return [group for group in config if group.ranks and (group.name or group.description)]

    @property
    def carded(self) -> list[GroupConfig]:
        """Groups that only the sidecar has, and that this recorder would record."""
        if self.card is None:
            return []
        known = {group.name for group in self._own}
        unnamed = any(group.pg_id is not None for group in self._own)
        groups = [] if unnamed else self.card.groups
        return [
            GroupConfig(group.name, group.description, group.ranks)
            for group in groups
            if group.name not in known and self._writes(group.backend)
        ]

    def _writes(self, backend: str) -> bool:
        # "nccl" is part of "nccl2", which is another recorder
        named = re.split("[:,]", backend)
        return not backend or not self.libraries or any(library in named for library in self.libraries)

    @cached_property
    def libraries(self) -> frozenset[str]:
        """The texts before the ':' in its operations."""
        return frozenset(library_of(call.profiling_name) for call in self.dump.calls) if self.dump else frozenset()

    @cached_property
    def span(self) -> tuple[int, int] | None:
        """Times of its first and its last event; None without one."""
        if self.dump is None:
            return None
        times = [self.dump.column(name) for name in ("created_ns", "completed_ns")]
        known = np.concatenate([t[t != NULL] for t in times])
        omitted = self.dump.omitted
        if omitted is not None and omitted.begin_ns is not None:
            known = np.append(known, omitted.begin_ns)
        return (int(known.min()), int(known.max())) if known.size else None

    @cached_property
    def candidates(self) -> frozenset[int] | None:
        """The ranks that its own groups and peers allow; None without such facts."""
        return None if self.dump is None else own_ranks(self.dump)

    @cached_property
    def highest(self) -> int:
        """The highest rank in its own groups; -1 without one."""
        return max((group.ranks.highest for group in self.dump.config if group.ranks), default=-1) if self.dump else -1

    @cached_property
    def complete(self) -> Completeness | None:
        """The completeness of its dump; None without one."""
        return completeness(self.dump, self.recorder) if self.dump is not None else None

    @cached_property
    def recorder(self) -> str | None:
        """The recorder of its dump, one of schema.RECORDERS; None without a dump or operations."""
        return recorder_of(self.dump) if self.dump is not None else None

    @cached_property
    def threads(self) -> frozenset[str]:
        """Identities of the threads that it names."""
        calls = self.dump.calls if self.dump else []
        return frozenset(call.thread_id for call in calls if call.thread_id)


def own_ranks(dump: Dump) -> frozenset[int] | None:
    """The possible ranks of a dump: members of all of its groups, at the place of its sends and receives."""
    if dump.rank is not None:
        return frozenset([dump.rank])
    members = {group.name: group.ranks for group in dump.config if group.ranks and group.name}
    sets = [ranks.as_set for ranks in members.values()]
    for name, own in {(c.name, p2p_ranks(c.profiling_name)) for c in dump.calls}:
        ranks = members.get(name or "")
        if own is not None and ranks is not None and own[0] < len(ranks):
            sets.append(frozenset([ranks[own[0]]]))
    sets.sort(key=len)
    return sets[0].intersection(*sets[1:]) if len(sets) > 1 else sets[0] if sets else None


def config_world(sources: Sequence[SourceFile]) -> int:
    """The number of ranks in written groups of the dumps; 0 without any."""
    told = [s.card.world_size for s in sources if s.card is not None and s.card.world_size is not None]
    return max([0, *told, *(s.highest + 1 for s in sources)])


def left_out_ranks(sources: Sequence[SourceFile], world: int) -> frozenset[int]:
    """Ranks that are not in a replay of some ranks, if all of its dumps tell the same ones; else none."""
    told = {source.dump.replayed for source in sources if source.dump is not None}
    replayed = next(iter(told)) if len(told) == 1 else None
    return frozenset() if replayed is None else frozenset(range(world)) - replayed.as_set


def common_members(values: list[str]) -> str:
    """The most frequent value; of several the first in order. Empty without values."""
    counts = Counter(values)
    return min(counts, key=lambda v: (-counts[v], v)) if counts else ""


def empty_reason(root: str, sources: Sequence[SourceFile], wanted: str = "") -> str:
    """The reason why there is nothing to show, with the first problems, and what is `wanted`."""
    wanted = wanted or WANTED
    if not sources:
        return f"{printable_text(root)}: no files; {wanted}"
    links = [s for s in sources if INPUTS[s.kind].leads_out]
    if links and len(links) == len(sources):
        first = "; ".join(f"{s.shown}: {s.problem}" for s in links[:_MOST_REASONS])
        more = f"; and {len(links) - _MOST_REASONS:,} more" if len(links) > _MOST_REASONS else ""
        return f"{links_out(len(links), printable_text(root))}; nothing else is there ({first}{more})"
    left_out = f"; {links_out(len(links), printable_text(root))}" if links else ""
    # what is known of a file helps more than that it is not known
    told = sorted(sources, key=lambda s: s.problem in (UNKNOWN_KIND, None))
    reasons = [f"{s.shown}: {_problem(root, s)}" for s in told[:_MOST_REASONS]]
    more = f" and {len(sources) - len(reasons):,} more" if len(sources) > len(reasons) else ""
    looked = f"{plural(len(sources), 'file')} ({'; '.join(reasons)}{more})"
    return f"{printable_text(root)}: no dump, stack, log or trace in {looked}{left_out}; {wanted}"


def _problem(root: str, source: SourceFile) -> str:
    """Why a file tells nothing; of one that nothing recognises, what it seems to be and what to bring."""
    from rankscope.parsers.files.foreign_files import GUESSED_BYTES, guess

    if source.problem not in (UNKNOWN_KIND, None):
        return source.problem
    problem = source.problem or "no line of a program reports an operation, an error or the end of a process"
    path = Path(root) if Path(root).is_file() else Path(root) / source.shown
    try:
        with path.open("rb") as file:
            head = file.read(GUESSED_BYTES)
    except (OSError, ValueError):
        # inside of an archive, or gone
        return problem
    return f"{problem}; it seems to be {guess(head)}" if head else problem
