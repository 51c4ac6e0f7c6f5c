"""Ranks of stacks: from their content, a name or a command line. A wrong stack at a rank is worse than none."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import PurePosixPath

from rankscope.assemble import file_names
from rankscope.assemble.dump_ranks import LIKELY_RANKS, LIKELY_SHARE
from rankscope.assemble.sources import SourceFile
from rankscope.features.stacks.py_spy import thread_roles
from rankscope.features.stacks.py_spy.model import PY_SPY, Identity, SampledProcess, Snapshot
from rankscope.schema.tables import UNRANKED

_LOCAL = re.compile(r"local[_.\-]?rank[_.\-]?(\d{1,6})(?!\d)", re.IGNORECASE)
_OF_TORCHRUN = re.compile(r"(?:^|/)attempt_\d{1,6}/(\d{1,6})/(?:stdout|stderr)\.log$")
"""The files that torchrun writes for each process of a node."""
_BARE = re.compile(
    r"^(?:.*[^a-z])?(?:py[_\-.]?spy|stack|stacks|trace|traces|threads?|backtraces?|tracebacks?|dump|bt|r|pystack"
    r"|fault[_\-.]?handler)?$"
)

Named = Mapping[int, Sequence[SourceFile]]
"""Dumps of flight recorders, by the rank in their names."""


@dataclass
class RankedStacks:
    """Stacks of processes, and the known rank of each."""

    source: SourceFile
    snapshot: Snapshot
    ranks: dict[int, int] = field(default_factory=dict)
    """Ranks by index of the owner."""
    how: str | None = None
    """One of schema.RANK_SOURCES."""
    local: bool = False
    """The number counts within a node."""
    bare: bool = False
    """The name does not call the number a rank."""
    certain: bool = False
    """The recorder's dump beside it, or the user, confirms it."""
    before_ns: int | None = None
    """Time before which it was written, from the names of files of one directory; None if only its own time tells
    it."""
    in_log: bool = False
    """The stacks are in a log, which has further events."""

    @cached_property
    def owners(self) -> dict[Identity, list[int]]:
        """Processes that are ranks: for each identity the indices of its dumps."""
        found: dict[Identity, list[int]] = defaultdict(list)
        for index in sorted({role.owner for role in self.snapshot.roles if role.owner is not None}):
            found[self.snapshot.identities[index]].append(index)
        return dict(found)

    @property
    def unknown(self) -> list[Identity]:
        """The identities without a known rank."""
        return [one for one, indices in self.owners.items() if not self.ranks.keys() & set(indices)]

    @property
    def written_ns(self) -> int | None:
        """The write time: of its file, unless a later file has an older time, as copies have."""
        own = self.source.mtime_ns
        return own if self.before_ns is None else min(self.before_ns, self.before_ns if own is None else own)

    @property
    def claimed(self) -> dict[int, int]:
        """By rank, the index of its process; of several in one file the last."""
        return {rank: index for index, rank in sorted(self.ranks.items())}

    @cached_property
    def place(self) -> str:
        """The place of collection: the host in its path, else its directory."""
        return self.source.host or self.source.directory

    def threads_of(self, identity: Identity) -> frozenset[int | None]:
        """The threads of a process."""
        identities = self.snapshot.identities
        return frozenset(t.thread_id for t in self.snapshot.threads if identities[t.process] == identity)

    def rank_of(self, index: int) -> int | None:
        """The rank of a process."""
        owner = self.snapshot.roles[index].owner
        return None if owner is None else self.ranks.get(owner)

    def give_up(self, note: str) -> None:
        """Notes why no rank is known."""
        self.ranks, self.how = {}, None
        self.source.note = f"{UNRANKED}{' of the stacks in it' if self.in_log else ''}: {note}"


def claim_process_ranks(
    seen: RankedStacks, pattern: re.Pattern[str] | None, dumps: Named, files: int, world: int
) -> None:
    """Gives the processes of a file the ranks in their content, the user's option, the name or their command lines.

    `dumps` are the recorders' dumps of the same attempt, `files` is the number of py-spy's, `world` is 0 if unknown.
    """
    if _by_content(seen):
        return
    told = file_names.rank_by(pattern, seen.source.shown) if pattern is not None else None
    if told is not None:
        _give_rank(seen, told, "option")
        seen.certain = True
        return
    if not file_names.says_rank(seen.source.shown) and _by_title(seen):
        return
    _by_name(seen, dumps, world or max(LIKELY_RANKS, LIKELY_SHARE * files))
    if not seen.ranks and seen.source.note is None:
        _by_command(seen)
    if not seen.ranks and seen.source.note is None:
        seen.give_up(_unknown_reason(seen))


def _by_content(seen: RankedStacks) -> bool:
    """Sets the ranks beside the stacks: global ones, else those within the node."""
    owners = [index for indices in seen.owners.values() for index in indices]
    for name in ("rank", "local_rank"):
        told = {index: getattr(seen.snapshot.processes[index], name) for index in owners}
        seen.ranks = {index: rank for index, rank in told.items() if rank is not None}
        if seen.ranks:
            seen.how, seen.local, seen.certain = "content", name == "local_rank", name == "rank"
            return True
    return False


def _by_title(seen: RankedStacks) -> bool:
    """Whether a title that a server gave to a process holds its rank: it outweighs a bare number in a file name."""
    processes = seen.snapshot.processes
    if any(thread_roles.title_rank(processes[i].command) is not None for ids in seen.owners.values() for i in ids):
        _by_command(seen)
    return bool(seen.ranks) or seen.source.note is not None


def _by_name(seen: RankedStacks, dumps: Named, most: int) -> None:
    shown = seen.source.shown
    local = _LOCAL.findall(PurePosixPath(shown).name) or _OF_TORCHRUN.findall(shown)
    named = int(local[-1]) if local else file_names.rank_of(shown)
    if named is None or not (local or file_names.says_rank(shown) or _may_be_rank(seen, named, most)):
        return
    alike = [s for s in dumps.get(named, ()) if bool(local) == bool(_LOCAL.search(s.shown))]
    beside = {s.rank: s for s in alike if _same_node(s, seen.source)}
    if len(beside) == 1:
        # numbers of one node are of one kind: the result for the recorder's dump applies here too
        rank, dump = next(iter(beside.items()))
        if rank is not None:
            _give_rank(seen, rank, dump.rank_source or "name")
            seen.certain = True
    elif any(s.rank != named for s in alike):
        seen.give_up(f"other nodes also number their ranks from 0, so {named} is not a rank of the whole job")
    else:
        _give_rank(seen, named, "name")
        seen.local = bool(local)
        seen.bare = not local and not file_names.says_rank(shown)


def _may_be_rank(seen: RankedStacks, number: int, most: int) -> bool:
    """Whether a bare number can be a rank: it is no process id, and follows a word for a stack."""
    name = PurePosixPath(seen.source.shown.replace("!", "/")).name.lower()
    before = re.split(rf"{number}(?:\.\w+)*$", name)[0]
    return (
        number < most
        and number not in {p.pid for p in seen.snapshot.processes}
        and bool(_BARE.match(before.rstrip("_-.")))
    )


def _same_node(dump: SourceFile, other: SourceFile) -> bool:
    """Whether two files come from one node."""
    return dump.host == other.host if dump.host and other.host else dump.directory == other.directory


def _give_rank(seen: RankedStacks, rank: int, how: str) -> None:
    """Gives all processes of a file the same rank, if only one of them can be a rank."""
    if len(seen.owners) != 1:
        seen.give_up(_unknown_reason(seen))
        return
    seen.ranks = {index: rank for indices in seen.owners.values() for index in indices}
    seen.how = how


def _by_command(seen: RankedStacks) -> None:
    processes = seen.snapshot.processes
    owners = [index for indices in seen.owners.values() for index in indices]
    told = {i: thread_roles.rank_in(processes[i].command, processes[i].parent_command) for i in owners}
    if not any(rank is not None for rank in told.values()):
        told = {i: thread_roles.local_rank_in(processes[i].command) for i in owners}
        seen.local = True
    seen.ranks = {i: rank for i, rank in told.items() if rank is not None}
    seen.how = "content" if seen.ranks else None
    pids = {(rank, seen.snapshot.identities[i]) for i, rank in seen.ranks.items()}
    if len(pids) > len({rank for rank, _ in pids}):
        seen.give_up("several processes in it say that they are the same one")


def _unknown_reason(seen: RankedStacks) -> str:
    if len(seen.owners) > 1:
        return f"{len(seen.owners)} processes in it may be ranks, and none says which"
    if not seen.owners:
        return "a process that starts ranks, or one that serves one"
    if any(process.tool != PY_SPY for process in seen.snapshot.processes):
        return "neither its name nor a line in it shows the rank; give --rank-from"
    return "neither its name nor a command line shows the rank"


def one_node(seen: Sequence[RankedStacks], world: int) -> bool:
    """Whether the job ran on one node, so that a rank within the node is the global rank."""
    full = world > 0 and any(s.local and rank == world - 1 for s in seen for rank in s.ranks.values())
    lines = {line for s in seen for p in s.snapshot.processes for line in _lines(p)}
    return full or any(thread_roles.on_one_node(line, world) for line in lines)


def _lines(process: SampledProcess) -> tuple[str, str]:
    return process.command, process.parent_command
