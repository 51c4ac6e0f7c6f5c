"""Facts of one Dataset that the rules share, each computed once."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import polars as pl

from rankscope.analysis.arrays import Ints
from rankscope.analysis.collective_calls import (
    IS_PENDING,
    CollectiveInstances,
    collect_calls,
    collective_instances,
    collectives_of,
    find_disagreements,
)
from rankscope.analysis.presence import UNKNOWN_SEQ, Completions, Presence, completions
from rankscope.analysis.signatures import element_count
from rankscope.schema import Dataset, Group
from rankscope.schema.tables import BLIND_HOOK, HOOKS

UNKNOWN_NAME = "?"
"""Label of a group without a known name."""


@dataclass(frozen=True)
class Facts:
    """A Dataset with its calls, pairs and presence; derived data without judgement."""

    dataset: Dataset

    @cached_property
    def groups(self) -> tuple[Group, ...]:
        """The groups by id."""
        return self.dataset.group_list

    @cached_property
    def presence(self) -> Presence:
        """Answers who issued what, and why a row is absent."""
        return Presence(self.dataset)

    @cached_property
    def first_rows(self) -> Ints:
        """For each rank the place of its first row in ops; the rows of a rank are contiguous."""
        ranks = self.dataset.ops["rank"].to_numpy()
        return np.flatnonzero(np.concatenate([[len(ranks) > 0], ranks[1:] != ranks[:-1]])[: len(ranks)])

    @cached_property
    def calls(self) -> pl.DataFrame:
        """Collectives, one row per member; see `collect_calls`."""
        return collect_calls(self.dataset)

    @cached_property
    def pending(self) -> pl.DataFrame:
        """The calls that are not finished."""
        return self.calls[self.calls.select(IS_PENDING).to_series().arg_true()]

    @cached_property
    def instances(self) -> CollectiveInstances:
        """The instance of each call."""
        known = collectives_of(self.dataset.ops)
        # the calls are all collectives unless operations of a coalesced group became one call
        same = np.array_equal(self.calls["row"].to_numpy(), known.of(np.arange(self.dataset.ops.height)))
        return known.instances if same else collective_instances(self.calls)

    @cached_property
    def _places(self) -> pl.DataFrame:
        """Group and sequence number of each instance, in their order."""
        found = self.instances
        return pl.DataFrame({"group": found.group, "seq": found.seq}, schema_overrides={"group": pl.UInt32})

    def calls_at(self, places: pl.DataFrame) -> pl.DataFrame:
        """The calls at the `group` and `seq` of any row of `places`, in the order of the calls."""
        wanted = self._places.with_row_index("code").join(
            places.select("group", "seq"), on=["group", "seq"], how="semi"
        )
        there = np.zeros(self._places.height, np.bool_)
        there[wanted["code"].to_numpy()] = True
        return self.calls[np.flatnonzero(there[self.instances.code])]

    @cached_property
    def pairs(self) -> pl.DataFrame:
        """Sends and receives; see `collect_pairs`."""
        return collect_pairs(self.dataset, self.presence)

    @cached_property
    def disagreements(self) -> pl.DataFrame:
        """Instances whose members issued different operations; see `find_disagreements`."""
        return find_disagreements(self.calls, self.instances)

    @cached_property
    def gloo_groups(self) -> frozenset[int]:
        """Groups of gloo, which marks operations as retired late, and also if they failed."""
        rows = self.dataset.ops.select("library", "group").filter(pl.col("library") == "gloo")
        return frozenset(rows["group"].unique().to_list())

    @cached_property
    def hooked(self) -> pl.DataFrame:
        """Ranks and groups whose operations a hook recorded: columns rank, group.

        A hook learns of a completion up to a second late: from its watchdog, or with the next operation of the group.
        """
        files = self.dataset.dumps.filter(pl.col("recorder").is_in(HOOKS))["file"]
        if files.is_empty():
            return self.dataset.ops.select("rank", "group").clear()
        return self.dataset.ops.filter(pl.col("file").is_in(files.implode())).select("rank", "group").unique()

    @cached_property
    def recorders(self) -> dict[int, frozenset[str]]:
        """By rank the recorder of its dumps: `op_id` and `pg_status` count different things in different recorders."""
        dumps = self.dataset.dumps.drop_nulls(["rank", "recorder"])
        table = dumps.group_by("rank").agg(pl.col("recorder").cast(pl.String))
        return {rank: frozenset(kinds) for rank, kinds in table.iter_rows()}

    def alike(self, rank: int, other: int) -> bool:
        """Whether the same recorder made the dumps of two ranks, so that all their counters compare."""
        return self.recorders.get(rank) == self.recorders.get(other)

    def is_blind(self, rank: int) -> bool:
        """Whether no record tells the end of the operations of a rank, because its backend reports no end to the
        hook."""
        return BLIND_HOOK in self.recorders.get(rank, ())

    @cached_property
    def blind_files(self) -> frozenset[int]:
        """Dumps of hooks that learn of no completion."""
        return frozenset(self.dataset.dumps.filter(pl.col("recorder") == BLIND_HOOK)["file"].to_list())

    @cached_property
    def hook_groups(self) -> frozenset[int]:
        """Groups in which a hook recorded operations of a member."""
        return frozenset(self.hooked["group"].drop_nulls().to_list())

    @cached_property
    def nothing_recorded(self) -> bool:
        """Whether there are dumps but no operation in them: neither an entry nor a counter above none."""
        if self.dataset.dumps.is_empty() or not self.dataset.ops.is_empty():
            return False
        told = self.dataset.frontiers
        return not ((told["status_enqueued"] > 0) | (told["last_enqueued"] > 0)).any()

    @cached_property
    def open_groups(self) -> frozenset[int]:
        """Groups known only from lines of c10d that do not list the members."""
        groups = self.dataset.groups.filter(pl.col("membership") == "inferred")["group"]
        if groups.is_empty() or not self.dataset.has_logs:
            return frozenset()
        dumped = self.dataset.ops.filter(pl.col("source") != "c10d-log")["group"].unique()
        return frozenset(groups.to_list()) - frozenset(dumped.to_list())

    @cached_property
    def reached(self) -> dict[int, int]:
        """By group the last collective that needs all members and that a member has finished."""
        needs_all = (pl.col("state") == "completed") & ~pl.col("rooted") & pl.col("key").is_not_null()
        rows = self.calls.select(needs_all).to_series().to_numpy()
        return self.instances.last_of(rows)

    @cached_property
    def completions(self) -> Completions:
        """The last finished collective by rank and group, if it is known; aborts do not count."""
        return completions(self.presence.frontiers, self.pending)

    @cached_property
    def completed(self) -> dict[tuple[int, int], int]:
        """The last finished collective by (rank, group)."""
        ranks, groups, seqs, _ = (column.tolist() for column in self.completions)
        return dict(zip(zip(ranks, groups, strict=True), seqs, strict=True))

    @cached_property
    def furthest(self) -> dict[int, int]:
        """By group the last collective that any rank has finished."""
        found = self.completions
        best = np.full(int(found.group.max(initial=-1)) + 1, UNKNOWN_SEQ)
        np.maximum.at(best, found.group, found.seq)
        return {group: int(best[group]) for group in np.flatnonzero(best > UNKNOWN_SEQ).tolist()}

    @cached_property
    def counts_alone(self) -> frozenset[int]:
        """Groups in which the numbers of collectives alone tell who is behind.

        Not if sends and receives share the counter. Not on gloo, which retires operations late, and failed ones too.
        """
        return frozenset(group.id for group in self.groups if not group.has_p2p) - self.gloo_groups

    @cached_property
    def has_timing(self) -> bool:
        """Whether every dump records the start of operations."""
        used = self.dataset.dumps
        return used.height > 0 and bool(used["has_timing"].all())

    def label(self, group: int) -> str:
        """The label of a group for people: its description, or its name."""
        found = self.groups[group]
        name = found.description or found.name or UNKNOWN_NAME
        return f"{name} ({self._twins[group]})" if group in self._twins else name

    @cached_property
    def _twins(self) -> dict[int, str]:
        """The library of each group that two recorders of each process count separately."""
        counts = Counter((group.name, group.ranks) for group in self.groups if group.name)
        twins = [group.id for group in self.groups if counts[group.name, group.ranks] > 1]
        if not twins:
            return {}
        rows = self.dataset.ops.filter(pl.col("group").is_in(twins)).group_by("group").agg(pl.col("library").first())
        return {group: str(library) for group, library in rows.iter_rows() if library}


# Sends and receives, each matched as the k-th between two ranks of a group.

_PAIR_COLUMNS = ["rank", "group", "peer", "p2p_seq", "created_ns", "library", "op", "state", "in_sizes"]
LANE_COLUMNS = ["group", "src", "dst", "is_send"]


def collect_pairs(dataset: Dataset, presence: Presence) -> pl.DataFrame:
    """One row per send and receive: row, rank, group, src, dst, is_send, k, counted, batch, state, elements, ...

    If both ranks kept every entry, k counts from 0 at their first operation. If a ring wrapped or a dump keeps only
    active entries, k counts from the first unfinished operation, because both sides have finished the same ones.
    `counted` tells which. `batch` is the row of the first operation that was launched together with this one.
    """
    # few jobs have sends and receives, and comparing names of operations is slow
    places = dataset.ops["is_p2p"].fill_null(value=False).arg_true()
    rows = (
        dataset.ops.select(_PAIR_COLUMNS)[places]
        .insert_column(0, places.alias("row"))
        .filter(pl.col("op").cast(pl.String).is_in(["send", "recv"]) & pl.col("peer").is_not_null())
        .select(
            "row",
            "rank",
            "group",
            "peer",
            "p2p_seq",
            "created_ns",
            "library",
            pl.col("op").cast(pl.String),
            pl.col("state").cast(pl.String),
            pl.col("in_sizes").cast(pl.String).alias("sizes"),
        )
        .with_columns(is_send=pl.col("op") == "send")
        .with_columns(
            src=pl.when("is_send").then("rank").otherwise("peer"),
            dst=pl.when("is_send").then("peer").otherwise("rank"),
            batch=pl.col("row").first().over("rank", "group", "p2p_seq"),
        )
    )
    whole = [rank for rank in presence.seen if presence.whole(rank)]
    counted = pl.col("src").is_in(whole) & pl.col("dst").is_in(whole)
    place = pl.int_range(pl.len()).over(LANE_COLUMNS)
    first_open = pl.when(IS_PENDING).then(place).min().over(LANE_COLUMNS).fill_null(pl.len().over(LANE_COLUMNS))
    sizes = rows.select("sizes").unique()
    sizes = sizes.with_columns(pl.Series("elements", [element_count(s) for s in sizes["sizes"]], dtype=pl.Int64))
    return rows.with_columns(
        counted=counted, k=pl.when(counted).then(place).otherwise(place.cast(pl.Int64) - first_open.cast(pl.Int64))
    ).join(sizes, on="sizes", how="left", nulls_equal=True, maintain_order="left")
