"""Everything that was read of one attempt of one job."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import polars as pl

from rankscope.kinds.input_kinds import DUMP, LOG
from rankscope.schema.tables import (
    ATTEMPTS,
    COMMS,
    HOOKS,
    MESSAGES,
    RAS,
    REPEATS,
    SETTINGS,
    SPANS,
    THREADS,
    TRACED,
    TRACES,
    TRACKS,
    empty,
)

OVERDUE_NS = 120_000_000_000
"""A dump of an operation that has timed out is on the disk so long after the timeout, 15 s of waiting included."""


class Frame(NamedTuple):
    """One frame of a stack."""

    function: str
    file: str
    line: int


@dataclass(frozen=True)
class Group:
    """A process group, one over all ranks."""

    id: int
    name: str
    description: str
    ranks: tuple[int, ...]
    """Global ranks; the position is the rank within the group."""
    membership: str
    has_p2p: bool


@dataclass(frozen=True)
class Dataset:
    """Everything that was read of one attempt of one job."""

    ops: pl.DataFrame
    groups: pl.DataFrame
    stacks: pl.DataFrame
    frontiers: pl.DataFrame
    files: pl.DataFrame
    attempts: pl.DataFrame = field(default_factory=lambda: empty(ATTEMPTS))
    messages: pl.DataFrame = field(default_factory=lambda: empty(MESSAGES))
    settings: pl.DataFrame = field(default_factory=lambda: empty(SETTINGS))
    comms: pl.DataFrame = field(default_factory=lambda: empty(COMMS))
    ras: pl.DataFrame = field(default_factory=lambda: empty(RAS))
    threads: pl.DataFrame = field(default_factory=lambda: empty(THREADS))
    repeats: pl.DataFrame = field(default_factory=lambda: empty(REPEATS))
    traced: pl.DataFrame = field(default_factory=lambda: empty(TRACED))
    """Operations that profilers saw, with the columns of `ops` and `source` "profiler".

    They are apart because a window is cut out of the middle of a run: what is not in it was not left out by its rank.
    (group, seq, is_p2p) is the same collective as in `ops`; seq and comms_id are null where the trace does not tell.
    created_ns is when the host issued it, started_ns and completed_ns are those of its execution; sizes are in
    elements. Sorted by file, then created_ns.
    """
    traces: pl.DataFrame = field(default_factory=lambda: empty(TRACES))
    tracks: pl.DataFrame = field(default_factory=lambda: empty(TRACKS))
    spans: pl.DataFrame = field(default_factory=lambda: empty(SPANS))
    attempt: int = 0
    """The attempt whose rows these are."""
    world_size: int = 0
    """Ranks the job had, as far as groups, files and options tell."""
    root: str = ""
    """What the user pointed at, for titles."""

    @property
    def told_by_logs(self) -> bool:
        """Whether any table is filled that only logs fill."""
        return any(table.height for table in (self.messages, self.settings, self.comms, self.ras))

    @cached_property
    def group_list(self) -> tuple[Group, ...]:
        """The groups, indexed by their id."""
        rows = self.groups.sort("group").iter_rows(named=True)
        return tuple(
            Group(r["group"], r["name"], r["description"], tuple(r["ranks"]), r["membership"], r["has_p2p"])
            for r in rows
        )

    @cached_property
    def dumps(self) -> pl.DataFrame:
        """The rows of `files` whose operations are in `ops`: what a rank left, not what others saw of it."""
        return self.files.filter(pl.col("used") & (pl.col("kind") == DUMP.name))

    @cached_property
    def timed_dumps(self) -> pl.DataFrame:
        """The rows of `dumps` with a rank and a modification time that can be the moment of the dump.

        Where one of a hook shows an operation pending for far longer than its timeout, all of them are copies: the
        watchdog of torch 2.15 ends a process soon after the timeout, and no dump is written any more.
        """
        known, hooked = self.dumps.drop_nulls(["rank", "mtime_ns"]), self.dumps["recorder"].is_in(HOOKS)
        if not hooked.any():
            return known
        theirs = self.dumps.filter(hooked).select("file", "mtime_ns")
        waits = pl.col("state") == "scheduled"
        since = pl.coalesce(pl.col("created_ns").filter(waits).min(), pl.col("created_ns").max())
        ages = (
            self.ops.join(theirs, on="file").group_by("file")
            .agg(age=pl.col("mtime_ns").first() - since, timeout=pl.col("timeout_ms").max() * 1_000_000)
        )  # fmt: skip
        copied = ages.select((pl.col("age") > pl.col("timeout") + OVERDUE_NS).any()).item()
        return known.clear() if copied else known

    @cached_property
    def written(self) -> pl.DataFrame:
        """When each rank was dumped last: rank, written_ns; without ranks of which no file has a time."""
        known = self.timed_dumps
        return known.group_by("rank", maintain_order=True).agg(written_ns=pl.col("mtime_ns").max())

    @cached_property
    def from_logs(self) -> bool:
        """Whether no rank left a dump, and there are logs: all that is known comes from them."""
        return self.dumps.is_empty() and self.has_logs

    @cached_property
    def has_logs(self) -> bool:
        """Whether a log was read that tells anything."""
        return bool((self.files["used"] & (self.files["kind"] == LOG.name)).any())

    @property
    def has_traces(self) -> bool:
        """Whether a profiler's trace was read."""
        return not self.traces.is_empty()

    @cached_property
    def from_traces(self) -> bool:
        """Whether there are traces, and neither dumps nor logs: all that is known comes from them."""
        return self.has_traces and self.dumps.is_empty() and not self.has_logs

    @cached_property
    def seen_ranks(self) -> tuple[int, ...]:
        """Ranks of which a flight recorder dump was read, sorted; without any those that logs or traces tell of."""
        told = self.frontiers if self.from_logs else self.traces if self.from_traces else self.dumps
        return tuple(sorted(told["rank"].drop_nulls().unique().to_list()))

    @cached_property
    def missing_ranks(self) -> tuple[int, ...]:
        """Ranks of the job of which no dump could be read, sorted; none where there are only logs, or only traces."""
        if self.from_logs or self.from_traces:
            return ()
        seen = set(self.seen_ranks)
        return tuple(r for r in range(self.world_size) if r not in seen)

    @cached_property
    def cut_ranks(self) -> frozenset[int]:
        """Ranks of whose dump only a part could be read: what they issued last may be in the rest."""
        files = self.dumps.filter(pl.col("problem").is_not_null())
        return frozenset(files["rank"].drop_nulls().to_list())

    @cached_property
    def unread_dumps(self) -> dict[int, tuple[str, str]]:
        """By rank of which no dump could be read: path and problem of its file, told by its name, if there is one."""
        lost = self.files.filter(~pl.col("used") & pl.col("problem").is_not_null())
        by_path = dict(lost.select("path", "problem").iter_rows())
        own = lost.filter(pl.col("kind") == DUMP.name).select("rank", "path", "problem").drop_nulls("rank")
        found = {rank: (path, problem) for rank, path, problem in own.iter_rows()}
        names = {_others(path, rank) for path, rank in self.dumps.select("path", "rank").drop_nulls().iter_rows()}
        for rank in self.missing_ranks if by_path else ():
            path = next((one for name in names if (one := name.format(rank)) in by_path), None)
            if path is not None:
                found.setdefault(rank, (path, by_path[path]))
        return {rank: found[rank] for rank in self.missing_ranks if rank in found}

    @cached_property
    def _stack_rows(self) -> dict[int, tuple[Frame, ...]]:
        out: dict[int, list[Frame]] = {}
        rows = self.stacks.sort("stack_id", "depth").select("stack_id", "function", "file", "line").iter_rows()
        for stack_id, function, file, line in rows:
            out.setdefault(stack_id, []).append(Frame(function, file, line))
        return {k: tuple(v) for k, v in out.items()}

    def stack(self, stack_id: int | None) -> tuple[Frame, ...]:
        """The frames of a stack, innermost first; empty if there is none."""
        return () if stack_id is None else self._stack_rows.get(stack_id, ())


def _others(path: str, rank: int) -> str:
    """How the dumps of other ranks are called, with a place for their number."""
    front, number, back = path.replace("{", "{{").replace("}", "}}").rpartition(str(rank))
    return f"{front}{{}}{back}" if number else path
