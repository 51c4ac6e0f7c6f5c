"""Frontiers of each rank in each of its groups, and the reasons why an operation is not in a rank's dump."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from enum import StrEnum
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from rankscope.analysis.arrays import Ints, filled_array, true_mask
from rankscope.schema import Dataset

TABLE_FACTOR = 8
"""Largest ratio of (rank, group) pairs to rows for which a table of all pairs is used."""
UNKNOWN_SEQ = -(2**62)
"""Marks an unknown sequence number."""
_ALL = 2**62

Key = tuple[int, int]
"""(rank, group)."""


class Frontier(NamedTuple):
    """State of one rank in one group: sequence numbers of collectives, None if the dump cannot tell."""

    enqueued: int | None
    completed: int | None
    first_kept: int | None
    wrapped: bool | None
    filtered: str


class FrontierColumns(NamedTuple):
    """Frontiers as columns, with `UNKNOWN_SEQ` for unknown numbers."""

    rank: Ints
    group: Ints
    enqueued: Ints
    completed: Ints
    first_kept: Ints
    wrapped: NDArray[np.bool_]


class Completions(NamedTuple):
    """The last finished collective of each rank and group; sorted by rank and group."""

    rank: Ints
    group: Ints
    seq: Ints
    enqueued: Ints
    """The last issued collective; UNKNOWN_SEQ if it is unknown."""


class Frontiers(Mapping[Key, Frontier]):
    """Frontiers by (rank, group), in the order of the table; Frontier objects are made only on request."""

    def __init__(self, table: pl.DataFrame) -> None:
        self.table = table
        """Columns rank, group, and those of a Frontier."""

    def __getitem__(self, key: Key) -> Frontier:
        place = self._places[key]
        return Frontier(*(column[place] for column in self._columns))

    def __iter__(self) -> Iterator[Key]:
        return iter(self._places)

    def __len__(self) -> int:
        return self.table.height

    @cached_property
    def columns(self) -> FrontierColumns:
        """All frontiers as arrays."""
        table = self.table
        rank, group = (table[name].to_numpy().astype(np.int64) for name in ("rank", "group"))
        enqueued, completed, first = (
            filled_array(table[name], UNKNOWN_SEQ) for name in ("enqueued", "completed", "first_kept")
        )
        return FrontierColumns(rank, group, enqueued, completed, first, true_mask(table["wrapped"]))

    @cached_property
    def _places(self) -> dict[Key, int]:
        keys = zip(self.table["rank"].to_list(), self.table["group"].to_list(), strict=True)
        return {key: place for place, key in enumerate(keys)}

    @cached_property
    def _columns(self) -> list[list[Any]]:
        return [self.table[name].to_list() for name in Frontier._fields]


def frontiers_of(dataset: Dataset) -> Frontiers:
    """The frontiers of a job; completions in rows count where pg_status lags behind them."""
    done = pl.when(pl.col("done_seq") > UNKNOWN_SEQ).then("done_seq")
    table = dataset.frontiers.with_columns(done_seq=pl.Series(_done(dataset))).select(
        "rank",
        "group",
        pl.col("last_enqueued").alias("enqueued"),
        pl.max_horizontal("last_completed", done).alias("completed"),
        "first_kept",
        "wrapped",
        pl.col("filtered").cast(pl.String),
    )
    return Frontiers(table)


def completions(frontiers: Frontiers, pending: pl.DataFrame) -> Completions:
    """The last known finished collective of each rank and group; never one of the `pending` calls."""
    fronts, opened = frontiers.columns, pending.select("rank", "group", "seq").drop_nulls()
    rank, group, seq = (opened[name].to_numpy().astype(np.int64) for name in ("rank", "group", "seq"))
    rank, group = np.concatenate([fronts.rank, rank]), np.concatenate([fronts.group, group])
    groups = int(group.max(initial=0)) + 1
    keys, place = np.unique(rank * groups + group, return_inverse=True)
    done, enqueued = np.full(len(keys), _ALL), np.full(len(keys), UNKNOWN_SEQ)
    known = np.where(fronts.completed == UNKNOWN_SEQ, _ALL, fronts.completed)
    np.minimum.at(done, place, np.concatenate([known, seq - 1]))
    np.maximum.at(enqueued, place[: len(known)], fronts.enqueued)
    told = done != _ALL
    return Completions(keys[told] // groups, keys[told] % groups, done[told], enqueued[told])


def _done(dataset: Dataset) -> Ints:
    """For each frontier the last collective that a row calls completed; UNKNOWN_SEQ without one."""
    ops, fronts = dataset.ops, dataset.frontiers
    done = true_mask((ops["state"] == "completed") & ~ops["is_p2p"] & ops["group"].is_not_null())
    seq = np.where(done, filled_array(ops["seq"], UNKNOWN_SEQ), UNKNOWN_SEQ)
    groups = 1 + max(int(filled_array(table["group"], 0).max(initial=0)) for table in (ops, fronts))
    rows, keys = (
        filled_array(t["rank"], -1).astype(np.int64) * groups + filled_array(t["group"], 0) for t in (ops, fronts)
    )
    last = np.full(len(keys) + 1, UNKNOWN_SEQ)
    np.maximum.at(last, _places(rows, keys, TABLE_FACTOR * ops.height), seq)
    return last[:-1]


def _places(wanted: Ints, keys: Ints, most: int) -> Ints:
    """The index in `keys` of each wanted key; the length of `keys` for a missing one."""
    low, high = int(keys.min(initial=0)), int(keys.max(initial=0))
    if low >= 0 and high < most:
        place_of = np.full(high + 2, len(keys))
        place_of[keys] = np.arange(len(keys))
        return place_of[np.where((wanted >= 0) & (wanted <= high), wanted, high + 1)]
    order = np.argsort(keys, kind="stable")
    rising = np.append(keys[order], np.iinfo(np.int64).max)
    found = np.searchsorted(rising, wanted)
    return np.append(order, len(keys))[np.where(rising[found] == wanted, found, len(keys))]


class Absence(StrEnum):
    """Reasons why a member of a group has no row for a collective."""

    NO_DUMP = "no dump"
    NEVER_ISSUED = "never issued"
    OVERWRITTEN = "overwritten"
    FILTERED = "filtered"
    UNKNOWN = "unknown"


class Presence:
    """Answers for one Dataset who issued an operation, and why a row is absent."""

    def __init__(self, dataset: Dataset) -> None:
        self.seen = frozenset(dataset.seen_ranks)
        self._from_logs = dataset.from_logs
        self.frontiers = frontiers_of(dataset)
        self._members = tuple(group.ranks for group in dataset.group_list)
        files = dataset.dumps.filter(pl.col("rank").is_not_null())
        self._whole = {
            rank: not wrapped and filtered == "none"
            for rank, wrapped, filtered in files.select("rank", "wrapped", "filtered").iter_rows()
        }
        self._cut = dataset.cut_ranks

    def whole(self, rank: int) -> bool:
        """Whether the dump of a rank holds every operation it issued."""
        return self._whole.get(rank, False) and not self.cut(rank)

    def cut(self, rank: int) -> bool:
        """Whether the dump of a rank was read only in part, so its last operations may be missing."""
        return rank in self._cut

    def told(self, rank: int, group: int) -> bool:
        """Whether any record covers a rank in a group. In a job with only logs, silence is no missing dump."""
        return self._from_logs or rank in self.seen or (rank, group) in self.frontiers

    def dumped(self, rank: int) -> bool:
        """Whether a rank left a dump; a log alone does not show its sends and receives."""
        return rank in self.seen and not self._from_logs

    def absence(self, rank: int, group: int, seq: int) -> Absence:
        """The reason why `rank` has no row for collective `seq` of `group`."""
        if not self.told(rank, group):
            return Absence.NO_DUMP
        frontier = self.frontiers.get((rank, group))
        if frontier is None or frontier.enqueued is None:
            return Absence.NEVER_ISSUED if self.whole(rank) else Absence.UNKNOWN
        if seq > frontier.enqueued:
            return Absence.NEVER_ISSUED
        if frontier.filtered == "only-active":
            return Absence.FILTERED
        if frontier.wrapped and (frontier.first_kept is None or seq < frontier.first_kept):
            return Absence.OVERWRITTEN
        return Absence.UNKNOWN

    def absences(self, group: int, seq: int, issued: Collection[int]) -> dict[int, Absence]:
        """For every member of `group` outside `issued`, the reason why it has no row for collective `seq`."""
        return {rank: self.absence(rank, group, seq) for rank in self._members[group] if rank not in issued}
