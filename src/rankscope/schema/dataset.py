"""The tables of one attempt of one job."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

import polars as pl

from rankscope.kinds.input_kinds import DUMP, INPUTS, LOG
from rankscope.schema.table import Table, site_table
from rankscope.schema.tables import HOOKS, TABLES, JobTables
from rankscope.text.wording import SECOND_NS, ranks_text

OVERDUE_NS = 120_000_000_000
"""Time after a timeout at which a dump of the operation is on the disk, with 15 s of waiting."""


class Frame(NamedTuple):
    """One frame of a stack."""

    function: str
    file: str
    line: int


@dataclass(frozen=True)
class Group:
    """A process group, as one over all ranks."""

    id: int
    name: str
    description: str
    ranks: tuple[int, ...]
    """Global ranks; the position is the rank within the group."""
    membership: str
    has_p2p: bool


class DumpsBeside(NamedTuple):
    """Ranks that the user left out, or whose dumps lie beside the files that he gave."""

    ranks: tuple[int, ...] = ()
    directory: str = ""
    """Empty for ranks that an option left out."""


NOTHING_BESIDE = DumpsBeside()


class ReadParts(NamedTuple):
    """The part of the job that the user wants."""

    words: str = ""
    """As "4 of 12 groups, the last 50 entries of each dump"; empty for all of it."""
    cuts_rings: bool = False
    """Older entries of dumps were left out, by --last or --groups."""
    has_gaps: bool = False
    """Dumps lack entries of left-out groups among those that were read."""
    whole_follows: bool = False
    """The rest is being read while this part is shown."""


ALL_PARTS = ReadParts()


@dataclass(frozen=True)
class Dataset(JobTables):
    """All tables of one attempt of one job, and what they tell of it."""

    site: Mapping[str, pl.DataFrame] = field(default_factory=dict)
    """Tables that installed packages add, by name."""
    attempt: int = 0
    """The attempt of these rows."""
    world_size: int = 0
    """One more than the highest rank of the job, from groups, files and options."""
    is_sized: bool = True
    """Whether the number of ranks is known; else `world_size` only is more than the highest rank of some lines."""
    left_out: frozenset[int] = frozenset()
    """Ranks below `world_size` that are not in the job: a replay of some ranks keeps their numbers."""
    root: str = ""
    """The paths of the user, for titles."""
    beside: DumpsBeside = NOTHING_BESIDE
    parts: ReadParts = ALL_PARTS

    def has_any(self, tables: Iterable[str]) -> bool:
        """Whether one of these tables has a row, or one of these columns ("ops.completed_ns") a value."""
        return any(self._has(*name.split(".")) for name in tables)

    def _has(self, name: str, column: str = "") -> bool:
        table = self.table(name)
        return table.height > (table[column].null_count() if column else 0)

    def table(self, name: str) -> pl.DataFrame:
        """The table of that name, rankscope's own or one of a package; without rows or columns if there is none."""
        if name in TABLES:
            own: pl.DataFrame = getattr(self, name)
            return own
        return self.site.get(name, pl.DataFrame())

    @property
    def all_tables(self) -> list[tuple[Table, pl.DataFrame]]:
        """All tables with their declarations, those of packages last."""
        ours = [(table, self.table(name)) for name, table in TABLES.items()]
        return ours + [(site_table(name, frame.schema), frame) for name, frame in self.site.items()]

    def with_tables(self, tables: Mapping[str, pl.DataFrame]) -> Dataset:
        """The Dataset with other tables, rankscope's own or those of packages, under their names."""
        ours: dict[str, Any] = {name: table for name, table in tables.items() if name in TABLES}
        return replace(self, **ours, site={**self.site, **{n: t for n, t in tables.items() if n not in TABLES}})

    @property
    def told_by_logs(self) -> bool:
        """Whether a table has rows that only logs provide."""
        return self.has_any(("messages", "settings", "comms", "ras", "compilations", "training"))

    @cached_property
    def every_rank(self) -> tuple[int, ...]:
        """The ranks of the job, sorted, whether they left anything or not."""
        return tuple(rank for rank in range(self.world_size) if rank not in self.left_out)

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
        """The rows of `files` with operations in `ops`: files of the rank itself, not views of others."""
        return self.files.filter(pl.col("used") & (pl.col("kind") == DUMP.name))

    @cached_property
    def timed_dumps(self) -> pl.DataFrame:
        """The rows of `dumps` with a rank and a modification time that can be the moment of the dump.

        If one dump of a hook shows an operation pending far beyond its timeout, all of them are copies: the watchdog of
        torch 2.15 ends a process soon after the timeout, and then no dump is written.
        """
        known, hooked = self.dumps.drop_nulls(["rank", "mtime_ns"]), self.dumps["recorder"].is_in(HOOKS)
        if not hooked.any():
            return known
        theirs = self.dumps.filter(hooked).select("file", "mtime_ns")
        waits = pl.col("state") == "scheduled"
        since = pl.coalesce(pl.col("created_ns").filter(waits).min(), pl.col("created_ns").max())
        ages = (
            self.ops.join(theirs, on="file")
            .group_by("file")
            .agg(age=pl.col("mtime_ns").first() - since, timeout=pl.col("timeout_ms").max() * 1_000_000)
        )
        copied = ages.select((pl.col("age") > pl.col("timeout") + OVERDUE_NS).any()).item()
        return known.clear() if copied else known

    @cached_property
    def written(self) -> pl.DataFrame:
        """Time of the last dump of each rank: rank, written_ns; without ranks whose files have no time."""
        known = self.timed_dumps
        return known.group_by("rank", maintain_order=True).agg(written_ns=pl.col("mtime_ns").max())

    @cached_property
    def from_logs(self) -> bool:
        """Whether there are logs and no dumps, so that all facts come from logs."""
        return self.dumps.is_empty() and self.has_logs

    @cached_property
    def has_logs(self) -> bool:
        """Whether a log with any content was read."""
        return bool((self.files["used"] & (self.files["kind"] == LOG.name)).any())

    @property
    def has_traces(self) -> bool:
        """Whether a profiler's trace was read."""
        return not self.traces.is_empty()

    @property
    def has_sparse_traces(self) -> bool:
        """Whether only collectives and steps of some trace were read."""
        return bool((self.traces["detail"] != "all").any())

    @property
    def has_tensors(self) -> bool:
        """Whether summaries of tensors were read."""
        return not self.tensors.is_empty()

    @cached_property
    def from_tensors(self) -> bool:
        """Whether there are summaries of tensors, but neither dumps, logs nor traces."""
        return self.has_tensors and self.dumps.is_empty() and not self.has_logs and not self.has_traces

    @cached_property
    def from_memory(self) -> bool:
        """Whether there are samples of memory, but neither dumps, logs, traces nor summaries of tensors."""
        told = not self.dumps.is_empty() or self.has_logs or self.has_traces or self.has_tensors
        return not self.memory.is_empty() and not told

    @cached_property
    def from_parameters(self) -> bool:
        """Whether there are parameters of models, but neither dumps, logs, traces, summaries of tensors nor memory."""
        told = not self.dumps.is_empty() or self.has_logs or self.has_traces or self.has_tensors
        return not self.parameters.is_empty() and not told and self.memory.is_empty()

    @cached_property
    def from_samples(self) -> bool:
        """Whether there are stacks over time, and nothing else that tells of ranks."""
        others = (self.dumps, self.threads, self.memory, self.parameters, self.snapshots)
        told = self.has_logs or self.has_traces or self.has_tensors or not all(table.is_empty() for table in others)
        return not self.samples.is_empty() and not told

    @cached_property
    def from_step_ops(self) -> bool:
        """Whether there is a trace of steps, but neither dumps, logs nor traces of profilers."""
        told = not self.dumps.is_empty() or self.has_logs or self.has_traces
        return not self.step_ops.is_empty() and not told

    @cached_property
    def from_traces(self) -> bool:
        """Whether there are traces, but neither dumps nor logs, so that all facts come from traces."""
        return self.has_traces and self.dumps.is_empty() and not self.has_logs

    @property
    def is_rankless(self) -> bool:
        """Whether the only traced process has no rank, neither in its trace nor in a name: nothing gives it one."""
        return self.from_traces and not self.seen_ranks

    @cached_property
    def seen_ranks(self) -> tuple[int, ...]:
        """Ranks with a flight recorder dump, sorted; without any dump, the ranks in logs, traces or samples."""
        told = self.frontiers if self.from_logs else self.dumps
        if self.from_tensors:
            told = self.tensors
        if self.from_memory:
            told = self.memory
        if self.from_parameters:
            told = self.parameters
        if self.from_samples:
            told = self.samples
        if self.from_step_ops:
            told = self.step_ops
        if self.from_traces:
            # a lone trace that tells no rank has none
            told = self.files.join(self.traces.select("file"), on="file", how="semi")
        return tuple(sorted(told["rank"].drop_nulls().unique().to_list()))

    @cached_property
    def told_ranks(self) -> tuple[int, ...]:
        """Ranks of which the input tells anything: by dumps, traces, log messages or stacks."""
        tables = (self.messages, self.threads) if self.dumps.is_empty() else ()
        told = [rank for table in tables for rank in table["rank"].drop_nulls().unique().to_list()]
        return tuple(sorted({*self.seen_ranks, *told}))

    @property
    def source_noun(self) -> str:
        """The noun of the only kind of input; "" if there are dumps or several kinds."""
        if not self.dumps.is_empty():
            return ""
        kinds = {
            "logs": self.has_logs, "traces": self.has_traces, "stacks": not self.threads.is_empty(),
            "numbers": self.has_tensors, "samples of memory": not self.memory.is_empty(),
            "memory snapshots": not self.snapshots.is_empty(),
            "records of models": not self.parameters.is_empty(), "step traces": not self.step_ops.is_empty(),
        }  # fmt: skip
        found = [name for name, given in kinds.items() if given]
        return found[0] if len(found) == 1 else ""

    @cached_property
    def missing_ranks(self) -> tuple[int, ...]:
        """Ranks of the job without a readable dump, sorted; empty if there are only logs, or only traces."""
        if self.from_logs or self.from_traces or self.from_tensors or self.from_memory or self.from_parameters:
            return ()
        if self.from_samples or self.from_step_ops:
            return ()
        if self.dumps.is_empty() and not self.snapshots.is_empty():
            return ()
        seen = set(self.seen_ranks)
        return tuple(r for r in self.every_rank if r not in seen)

    @cached_property
    def unseen_ranks(self) -> tuple[int, ...]:
        """As `missing_ranks`; of a job of which there are only traces, the ranks without a trace."""
        if not self.from_traces or not self.seen_ranks:
            return self.missing_ranks
        return tuple(sorted(set(self.every_rank) - set(self.seen_ranks)))

    @property
    def noun(self) -> str:
        """The noun of what ranks leave."""
        return "trace" if self.from_traces else "dump"

    @cached_property
    def unopened_ranks(self) -> tuple[int, ...]:
        """Those of `unseen_ranks` that the user left out, or whose dumps lie beside the given files: no rank that is
        missing."""
        beside = set(self.beside.ranks)
        return tuple(rank for rank in self.unseen_ranks if rank in beside)

    @property
    def unopened(self) -> str:
        """A sentence part on dumps that lie beside and were not opened; "" without any."""
        if not self.unopened_ranks:
            return ""
        one = len(self.unopened_ranks) == 1
        if not self.beside.directory:
            return f"{ranks_text(self.unopened_ranks)} {'was' if one else 'were'} left out by --ranks"
        dumps, lie, were = ("the dump", "lies", "was") if one else ("the dumps", "lie", "were")
        where = "this directory" if self.beside.directory == "." else self.beside.directory
        return f"{dumps} of {ranks_text(self.unopened_ranks)} {lie} in {where} and {were} not opened"

    @property
    def dumpless_ranks(self) -> tuple[int, ...]:
        """Those of `unseen_ranks` of which no dump is known, not even one that was not opened or cannot be read."""
        known = {*self.unopened_ranks, *self.unread_dumps}
        return tuple(rank for rank in self.unseen_ranks if rank not in known)

    @cached_property
    def cut_ranks(self) -> frozenset[int]:
        """Ranks with a partly read dump: their last operations may be in the rest."""
        files = self.dumps.filter(pl.col("problem").is_not_null())
        return frozenset(files["rank"].drop_nulls().to_list())

    @cached_property
    def unread_dumps(self) -> dict[int, tuple[str, str]]:
        """For ranks without a readable dump: path and problem of the file whose name has the rank."""
        lost = self.files.filter(~pl.col("used") & pl.col("problem").is_not_null())
        by_path = dict(lost.select("path", "problem").iter_rows())
        own = lost.filter(pl.col("kind") == DUMP.name).select("rank", "path", "problem").drop_nulls("rank")
        found = {rank: (path, problem) for rank, path, problem in own.iter_rows()}
        names = {sibling_name(path, rank) for path, rank in self.dumps.select("path", "rank").drop_nulls().iter_rows()}
        for rank in self.missing_ranks if by_path else ():
            path = next((one for name in names if (one := name.format(rank)) in by_path), None)
            if path is not None:
                found.setdefault(rank, (path, by_path[path]))
        return {rank: found[rank] for rank in self.missing_ranks if rank in found}

    @cached_property
    def unread_directories(self) -> tuple[tuple[str, str], ...]:
        """Path and problem of directories that were not read, and may hold files of any rank."""
        kinds = [kind.name for kind in INPUTS.values() if kind.holds_files]
        held = self.files.filter(pl.col("kind").is_in(kinds)).sort("path")
        return tuple(held.select("path", "problem").iter_rows())

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


def sibling_name(path: str, rank: int) -> str:
    """The name pattern of other ranks' dumps, with a placeholder for the number."""
    front, number, back = path.replace("{", "{{").replace("}", "}}").rpartition(str(rank))
    return f"{front}{{}}{back}" if number else path


def latest_ns(mtime_ns: int) -> int:
    """The latest possible write time of a file with this modification time, in nanoseconds since the epoch.

    Archives in tar's old formats and many ways to copy files keep whole seconds and cut off the rest.
    """
    return mtime_ns + SECOND_NS - 1 if mtime_ns % SECOND_NS == 0 else mtime_ns
