"""Counts of sends and receives of a rank, compared with the same stage of other pipelines.

The k-th operation between two ranks cannot be counted if a ring wrapped, or if a dump keeps only active entries. But
every entry carries `op_id`, which counts the operations of its group on its rank from the beginning
(ProcessGroupNCCL.cpp): ranks of one stage must have the same count when they come to the same collective.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import polars as pl

from rankscope.analysis.facts import Facts
from rankscope.analysis.replicas import ReplicaCohorts


class P2pCount(NamedTuple):
    """Number of operations a rank had issued in a group with sends and receives when it came to a collective."""

    own: int
    usual: int
    """The number that most ranks of its stage had issued by then."""
    votes: int
    """How many ranks had issued `usual`."""
    group: str
    place: str
    """The last collective that can be compared."""
    what: str = "operations"
    """The unit that is counted."""


@dataclass(frozen=True)
class ReplicaCounters:
    """Compares the counters of ranks with those of their replicas."""

    facts: Facts
    cohorts: ReplicaCohorts

    def compare(self, ranks: Iterable[int]) -> dict[int, P2pCount]:
        """For each of `ranks` that can be compared: its count beside that of the majority of its stage."""
        return {rank: count for rank in ranks if (count := self._last(rank)) is not None}

    def _last(self, rank: int) -> P2pCount | None:
        stage = self.cohorts.stage_of(rank)
        replicas = [
            r for r, other in self.cohorts.stages.items() if other == stage and r != rank and self.facts.alike(r, rank)
        ]
        return self._seen(rank, replicas) or self._told(rank, replicas)

    def _told(self, rank: int, replicas: Iterable[int]) -> P2pCount | None:
        """Comparison by `pg_status`, if the entries before the last collective are gone."""
        own = self._standings.get(rank)
        others = (self._standings[r] for r in replicas if r in self._standings)
        found = find_deviation(own, others) if own else None
        if own is None or found is None:
            return None
        label, op, seq = own.place
        return P2pCount(found.own, found.usual, found.votes, found.group, f"{op} #{seq} of {label}", found.what)

    def _seen(self, rank: int, replicas: list[int]) -> P2pCount | None:
        """Comparison by `op_id`, if the entries between the last send or receive and a collective are present."""
        own = self._table.filter(pl.col("rank") == rank)
        others = self._table.filter(pl.col("rank").is_in(replicas)).join(
            own, on=["counter", "label", "seq"], how="semi"
        )
        votes: dict[tuple[str, str, int], Counter[int]] = {}
        for *key, count in others.select("counter", "label", "seq", "count").iter_rows():
            votes.setdefault((key[0], key[1], key[2]), Counter())[count] += 1
        for counter, label, seq, op, count in (
            own.sort("row", descending=True).select("counter", "label", "seq", "op", "count").iter_rows()
        ):
            ranked = votes.get((counter, label, seq), Counter[int]()).most_common(1)
            if ranked and 2 * ranked[0][1] > votes[counter, label, seq].total():
                return P2pCount(count, *ranked[0], counter, f"{op} #{seq} of {label}")
        return None

    @cached_property
    def _standings(self) -> dict[int, RankCounts]:
        return rank_counts(self.facts)

    @cached_property
    def _table(self) -> pl.DataFrame:
        """One row per collective and kind of group with sends: rank, row, label, seq, op, counter, count.

        Only if every record between the last send or receive and the collective is present.
        """
        labels = pl.DataFrame(
            {"group": [g.id for g in self.facts.groups], "label": [self.facts.label(g.id) for g in self.facts.groups],
             "paired": [g.has_p2p for g in self.facts.groups]},
            schema={"group": pl.UInt32, "label": pl.String, "paired": pl.Boolean},
        )  # fmt: skip
        rows = (
            self.facts.dataset.ops.select("rank", "record_id", "group", "seq", "op_id", pl.col("op").cast(pl.String))
            .with_row_index("row")
            .with_columns(run=pl.col("record_id") - pl.col("row").cast(pl.Int64))
            .join(labels, on="group", how="left", maintain_order="left")
        )
        counters = rows.filter("paired")["label"].unique().sort()
        return pl.concat([_EMPTY, *(_counted(rows, counter) for counter in counters)])


def _counted(rows: pl.DataFrame, counter: str) -> pl.DataFrame:
    count = pl.when(pl.col("paired") & (pl.col("label") == counter)).then("op_id").forward_fill().over("rank", "run")
    return (
        rows.with_columns(count=count, counter=pl.lit(counter))
        .filter(~pl.col("paired") & pl.col("count").is_not_null() & pl.col("seq").is_not_null())
        .select(_EMPTY.columns)
    )


_EMPTY = pl.DataFrame(
    schema={
        "rank": pl.Int32, "row": pl.UInt32, "label": pl.String, "seq": pl.Int64, "op": pl.String,
        "counter": pl.String, "count": pl.Int64,
    }
)  # fmt: skip


# Counts at the end of a dump that has lost most earlier records.


class RankCounts(NamedTuple):
    """Counts of the operations a rank has issued."""

    record_id: int
    """Record number of the last entry, a collective."""
    place: tuple[str, str, int]
    """The last collective: group, operation, sequence number."""
    collectives: tuple[tuple[str, int], ...]
    """Last issued sequence number of every group without sends and receives."""
    pairs: tuple[tuple[str, int], ...]
    """Counter of the last operation of every group with sends and receives."""

    def together(self, other: RankCounts) -> bool:
        """Whether both ranks have come to the same place."""
        return (self.place, self.collectives) == (other.place, other.collectives)


def rank_counts(facts: Facts) -> dict[int, RankCounts]:
    """Counts of each rank whose last entry is a waiting collective and whose dump has `pg_status`."""
    paired = {g.id for g in facts.groups if g.has_p2p}
    last = facts.dataset.ops.group_by("rank", maintain_order=True).last()
    last = last.filter(
        ~pl.col("group").is_in(paired) & ~pl.col("is_p2p") & (pl.col("state") != "completed")
    ).drop_nulls(["record_id", "seq"])
    counters = _counters(facts)
    found = {}
    for rank, record, group, op, seq in last.select("rank", "record_id", "group", "op", "seq").iter_rows():
        told = counters.get(rank)
        if told:
            found[rank] = RankCounts(
                record, (facts.label(group), op, seq), _labelled(facts, told, set(told) - paired),
                _labelled(facts, told, set(told) & paired),
            )  # fmt: skip
    return found


class CounterDeviation(NamedTuple):
    """The first difference between a rank and most others at the same place; their first counter if none differs."""

    group: str
    own: int
    usual: int
    votes: int
    """How many ranks count `usual`."""
    what: str = "operations"
    """The unit that is counted: a batch is one operation, although its parts and its end are records, too."""


def find_deviation(own: RankCounts, others: Iterable[RankCounts]) -> CounterDeviation | None:
    """Compares a rank with `others`; None if they disagree, or if their record numbers contradict the counts."""
    alike = [other for other in others if own.together(other)]
    ranked = Counter((other.pairs, other.record_id) for other in alike).most_common(1)
    if not own.pairs or not ranked or 2 * ranked[0][1] <= len(alike):
        return None
    (usual, record), votes = ranked[0]
    if [group for group, _ in usual] != [group for group, _ in own.pairs]:
        return None
    pairs = zip(own.pairs, usual, strict=True)
    both = [CounterDeviation(group, mine, theirs, votes) for (group, mine), (_, theirs) in pairs]
    differs = [one for one in both if one.own != one.usual]
    if not differs and own.record_id != record:
        collectives = sum(count for _, count in own.collectives) - 1  # records are numbered from 0
        groups = " and ".join(group for group, _ in own.pairs)
        return CounterDeviation(groups, own.record_id - collectives, record - collectives, votes, "records")
    borne_out = all(_sign(own.record_id - record) == _sign(one.own - one.usual) for one in differs)
    return (*differs, both[0])[0] if borne_out else None


def _sign(number: int) -> int:
    return (number > 0) - (number < 0)


def _counters(facts: Facts) -> dict[int, dict[int, int]]:
    """By rank: the issued operations of each group, as `pg_status` says."""
    found: dict[int, dict[int, int]] = {}
    told = facts.dataset.frontiers.select("rank", "group", "status_enqueued").drop_nulls()
    for rank, group, enqueued in told.iter_rows():
        found.setdefault(rank, {})[group] = enqueued
    return found


def _labelled(facts: Facts, counters: dict[int, int], groups: set[int]) -> tuple[tuple[str, int], ...]:
    return tuple(sorted((facts.label(group), counters[group]) for group in groups))
