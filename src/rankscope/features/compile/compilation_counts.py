"""Ranks for which torch.compile compiles a function again and again while it does not for the others.

The number of a compilation, the second of "0/3", counts how often its frame was compiled before, in each process by
itself. So ranks compare by the highest number of a function, even if a log begins late or keeps only a part.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import polars as pl

from rankscope.analysis.facts import Facts
from rankscope.kinds.input_kinds import TORCH_TRACE
from rankscope.schema import Dataset

FEWEST_RECOMPILATIONS = 3
"""Fewest compilations that are again and again; a last batch of another size makes one."""
RATIO = 4
"""Least ratio of the compilations of one rank to those of any other."""
LEAST_WAIT_NS = 1_000_000
QUARTER_NS = 900 * 10**9
"""Time zones are whole quarters of an hour apart."""
MOST_ZONE_NS = 14 * 3600 * 10**9
AGAIN = ("recompile", "limit")


@dataclass(frozen=True)
class LoneFunction:
    """A function that only a few ranks compile again and again."""

    function: str
    path: str
    code_line: int
    ranks: tuple[int, ...]
    times: int
    """Recompilations of the first of these ranks, in all frames of the function."""
    rest: int
    """The most recompilations of any other rank."""
    others: int
    """Number of other ranks."""
    is_seen: bool
    """Every other rank records its compilations too."""
    rows: pl.DataFrame
    """Rows of `compilations` of these ranks and of the function, in the order of the files."""

    @property
    def spent_ns(self) -> int | None:
        """The time of the recompilations of the first rank; None if not told."""
        own = self.rows.filter((pl.col("rank") == self.ranks[0]) & (pl.col("what") == "recompile"))["duration_ns"]
        return None if own.null_count() == own.len() else int(own.sum())

    @property
    def reason(self) -> str:
        """The guard that failed last; "" if none is told."""
        told = self.rows.filter((pl.col("rank") == self.ranks[0]) & (pl.col("reason") != ""))["reason"]
        return str(told[-1]) if told.len() else ""


@dataclass(frozen=True)
class CompilationWait:
    """Waits of other ranks for the recompilations of one rank, by the times of issue in dumps."""

    rank: int
    times: int
    """Recompilations during which others waited."""
    of: int
    """Recompilations that the dumps cover."""
    waiting: tuple[int, ...]
    longest_ns: int
    group: int
    """Row of `groups` of the last such collective."""
    seq: int
    op: str


def lone_functions(facts: Facts) -> list[LoneFunction]:
    """The functions that only a few ranks compile again and again, the most often compiled first."""
    return _RankCounts(facts).lone()


def counted_again(compilations: pl.DataFrame) -> pl.DataFrame:
    """`times` that each process, of which `rank` and `pid` may be null, compiles each function again."""
    number = pl.col("compile_id").str.split("/").list.last().cast(pl.Int64, strict=False)
    again = compilations.filter(pl.col("what").is_in(AGAIN)).with_columns(
        number=number.fill_null(0),
        frame=pl.col("compile_id").str.split("/").list.first(),
        # a line of a rank may lack the process
        pid=pl.when(pl.col("rank").is_null()).then("pid"),
    )
    process = ["function", "path", "code_line", "rank", "pid"]
    # without an id, lines are counted
    by_frame = again.group_by(*process, "frame", maintain_order=True).agg(
        times=pl.max_horizontal(pl.col("number").max(), (pl.col("what") == "recompile").sum().cast(pl.Int64))
    )
    return by_frame.group_by(*process, maintain_order=True).agg(pl.col("times").sum())


def recording_ranks(dataset: Dataset) -> frozenset[int]:
    """Ranks that record their compilations: they have a structured log, or a line about one."""
    files = dataset.files.filter(pl.col("used") & (pl.col("kind") == TORCH_TRACE.name))
    return frozenset([*files["rank"].drop_nulls(), *dataset.compilations["rank"].drop_nulls()])


@dataclass(frozen=True)
class _RankCounts:
    """Recompilations by function and rank."""

    facts: Facts

    @cached_property
    def _again(self) -> pl.DataFrame:
        return counted_again(self.facts.dataset.compilations).drop_nulls("rank").drop("pid")

    @cached_property
    def _recorded(self) -> frozenset[int]:
        return recording_ranks(self.facts.dataset)

    @cached_property
    def _known(self) -> frozenset[int]:
        dataset = self.facts.dataset
        return self._recorded.union(dataset.told_ranks, dataset.messages["rank"].drop_nulls())

    def lone(self) -> list[LoneFunction]:
        by_function: defaultdict[tuple[str, str, int], dict[int, int]] = defaultdict(dict)
        for function, path, line, rank, times in self._again.sort("rank").iter_rows():
            by_function[function, path, line][rank] = times
        found = [self._of(place, counts) for place, counts in sorted(by_function.items())]
        return sorted(filter(None, found), key=lambda one: -one.times)

    def _of(self, place: tuple[str, str, int], counts: dict[int, int]) -> LoneFunction | None:
        often = {rank for rank, times in counts.items() if times >= FEWEST_RECOMPILATIONS}
        rest = max((times for rank, times in counts.items() if rank not in often), default=0)
        few = tuple(rank for rank in counts if rank in often and counts[rank] >= RATIO * rest)
        # without a line of another rank, nothing tells whether they are alone
        told = self._known - set(few) if few else frozenset()
        others = told.union(self.facts.dataset.every_rank) - set(few)
        if not told or len(few) > len(told):
            return None
        function, path, line = place
        rows = self.facts.dataset.compilations.filter(
            pl.col("rank").is_in(few), pl.col("what").is_in(AGAIN), pl.col("function") == function,
            pl.col("path") == path, pl.col("code_line") == line,
        )  # fmt: skip
        return LoneFunction(
            function, path, line, few, counts[few[0]], rest, len(others), others <= self._recorded, rows
        )  # fmt: skip


# Waits of the other ranks, from the times at which dumps say that operations were issued.


def compilation_wait(facts: Facts, lone: LoneFunction) -> CompilationWait | None:
    """The waits for the first rank of `lone`; None if the dumps do not show any.

    A recompilation ends before the next collective that its rank issues; ranks that issued it before waited meanwhile.
    Clocks of hosts are taken as equal; lines of logs in another time zone are moved by whole quarters of an hour.
    """
    rank = lone.ranks[0]
    ops = facts.dataset.ops.filter(pl.col("seq").is_not_null() & pl.col("created_ns").is_not_null() & ~pl.col("is_p2p"))
    own = ops.filter(pl.col("rank") == rank).sort("created_ns").select("group", "seq", "op", "created_ns")
    recompiled = pl.col("what").is_in(["recompile"]) & (pl.col("rank") == rank)
    starts = lone.rows.filter(recompiled).drop_nulls("start_ns").sort("start_ns")["start_ns"].to_numpy()
    if own.is_empty() or not len(starts):
        return None
    starts = starts + _zone(starts, own["created_ns"].to_numpy())
    after = np.searchsorted(own["created_ns"].to_numpy(), starts)
    covered = (after > 0) & (after < own.height)
    calls = own[after[covered]].with_columns(start_ns=pl.Series(starts[covered])).unique(["group", "seq"], keep="first")
    waits = (
        calls.join(ops.filter(pl.col("rank") != rank), on=["group", "seq"], suffix="_other")
        .with_columns(wait=pl.col("created_ns") - pl.max_horizontal("created_ns_other", "start_ns"))
        .filter(2 * pl.col("wait") >= pl.col("created_ns") - pl.col("start_ns"), pl.col("wait") >= LEAST_WAIT_NS)
        .sort("created_ns")
    )
    if waits.is_empty():
        return None
    group, seq, op = waits.select("group", "seq", pl.col("op").cast(pl.String)).row(-1)
    longest = waits["wait"].max()
    return CompilationWait(
        rank, waits.select("group", "seq").unique().height, calls.height,
        tuple(sorted(waits["rank"].unique().to_list())), longest if isinstance(longest, int) else 0, group, seq, op,
    )  # fmt: skip


def _zone(starts: npt.NDArray[np.int64], issued: npt.NDArray[np.int64]) -> int:
    """Nanoseconds to add to times of a log so that they fall among the operations of the same rank; 0 if they do, or if
    no time zone explains it."""
    middle = int(np.median(starts))
    if int(issued[0]) <= middle <= int(issued[-1]):
        return 0
    moved = round((int(np.median(issued)) - middle) / QUARTER_NS) * QUARTER_NS
    return moved if abs(moved) <= MOST_ZONE_NS and int(issued[0]) <= middle + moved <= int(issued[-1]) else 0
