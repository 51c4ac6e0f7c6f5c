"""The schedule of a job around its failure: the operations of each rank in program order, from where groups agree.

Completed sends and receives are left out on both sides, completed collectives before the window too. A rank without a
dump has issued what any peer saw completed. Which operations are left out, and what is put in for ranks that cannot
tell, decides nothing about who waits for whom: a collective that every member has completed holds up nobody.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import groupby
from math import prod

import orjson
import polars as pl

from rankscope.analysis.collective_calls import collect_calls
from rankscope.analysis.logical_time import in_program_order, logical_columns
from rankscope.analysis.signatures import UNEVEN_OPS, UNTOLD_OPS, element_count, wire_name
from rankscope.features.replay.replay_source import (
    ReplaySource,
    SchedulePart,
    paired_transfers,
    replay_source,
    with_held_transfers,
)
from rankscope.schema import Dataset

_NEVER = 2**62
_FIELDS = ("group", "seq", "low", "high", "k", "op", "elements", "dtype", "pending", "batch", "sizes")
Splits = tuple[tuple[int, ...], tuple[int, ...]]
Key = tuple[int, ...]
"""Identifies one operation on all its ranks: (group, seq), or (group, sender, receiver, k-th between the two)."""


@dataclass(frozen=True)
class Step:
    """An operation of one rank."""

    key: Key
    op: str
    """The name of the operation; of a collective as it must agree between members."""
    elements: int | None
    """Elements of the tensors, as `analysis.signatures` counts them; None where they need not agree."""
    dtype: str | None
    """As JSON; None where it need not agree."""
    pending: bool
    """Whether the dumps say that it has not ended."""
    batch: int = -1
    """Sends and receives with one number are one batch; -1 is in none."""
    run: int = -1
    """Neighbouring sends and receives that have ended have one number: each may have been waited for later."""
    filled: bool = False
    """Whether no dump of the rank has it: a peer saw it completed."""
    splits: Splits | None = None
    """Of an all_to_all: elements to each member of the group, and from each; None if the dump does not tell."""
    sent: int | None = None
    """Elements that the rank gives in, where `elements` need not agree; None if unknown."""

    @property
    def group(self) -> int:
        """The row of the group in `Dataset.groups`."""
        return self.key[0]

    @property
    def is_p2p(self) -> bool:
        """Whether it is a send or a receive."""
        return len(self.key) == 4

    @property
    def together(self) -> tuple[int, int] | None:
        """Neighbours with one value are issued together; None stands alone."""
        known = (self.run, -1) if self.run >= 0 else (-1, self.batch)
        return known if max(known) >= 0 else None

    @property
    def stream(self) -> Key:
        """The line in which it runs in order: the group, or the direction of a pair of ranks."""
        return self.key[:3] if self.is_p2p else self.key[:1]


@dataclass(frozen=True)
class Schedule:
    """The steps of each rank, and the members of each group."""

    steps: Mapping[int, tuple[Step, ...]]
    groups: Mapping[int, tuple[int, ...]]
    """Members of each group that is used, in their order, by its row in `Dataset.groups`."""
    silent: frozenset[int] = field(default_factory=frozenset)
    """Ranks without a dump: where they stand is not known."""
    noun: str = "dumps"
    """The kind of input that tells the operations."""
    remarks: tuple[str, ...] = ()
    """Sentences on what is guessed, or left out."""

    @cached_property
    def members(self) -> dict[Key, tuple[int, ...]]:
        """The ranks that have to come to each operation."""
        keys = {step.key for steps in self.steps.values() for step in steps}
        return {key: (key[1], key[2]) if len(key) == 4 else self.groups[key[0]] for key in keys}

    @cached_property
    def over(self) -> frozenset[Key]:
        """The operations that some rank has seen completed."""
        return frozenset(s.key for steps in self.steps.values() for s in steps if not s.pending and not s.filled)

    def recorded(self, rank: int) -> dict[Key, Key]:
        """The first pending operation of each stream of a rank, as its dump says."""
        first: dict[Key, Key] = {}
        for step in self.steps[rank]:
            if step.pending:
                first.setdefault(step.stream, step.key)
        return first

    def units(self, rank: int) -> list[list[Step]]:
        """The steps of a rank, those that are issued together as one."""
        numbered = enumerate(self.steps[rank])
        together = groupby(numbered, lambda item: item[1].together or item[0])
        return [[step for _, step in part] for _, part in together]


@dataclass(frozen=True)
class ReplayOperations:
    """All operations of a job that a schedule may take."""

    source: ReplaySource
    rows: pl.DataFrame
    """Collectives and paired sends and receives, by rank in program order, with their real states.

    Columns: rank, row, col, group, seq, low, high, k, op, elements, dtype, state, pending, agreed, batch; low, high and
    k are of sends and receives, and null otherwise. `agreed`: all members of whom anything is known have issued it.
    """


def schedule_of(job: Dataset | ReplayOperations, *, stuck: bool = True, part: SchedulePart | None = None) -> Schedule:
    """The schedule around the first pending operations; if the job is not `stuck`, the last ones that all have issued.

    `part` asks for another one. ValueError if nothing holds an operation, or not that part.
    """
    operations = job if isinstance(job, ReplayOperations) else replay_operations(job)
    source, dataset = operations.source, operations.source.dataset
    stuck = stuck and not source.is_window
    rows = (part or SchedulePart()).rows(operations.rows, source, stuck=stuck)
    if rows.is_empty():
        raise ValueError(f"the {source.noun} hold no operation that all members of a group have issued")
    recorded_sizes = source.dataset.ops.select("in_sizes", "out_sizes")[rows["row"]]
    rows = rows.hstack(recorded_sizes).with_columns(
        sizes=pl.when(pl.col("elements").is_null()).then(pl.struct("in_sizes", "out_sizes"))
    )
    groups = {group.id: group.ranks for group in dataset.group_list if group.id in set(rows["group"].to_list())}
    steps = {rank: tuple(rank_steps) for rank, rank_steps in _steps(rows)}
    ranks = sorted({*steps, *(rank for members in groups.values() for rank in members)})
    silent = frozenset(ranks) - source.told
    filled = _filled(rows, groups, {rank: steps.get(rank, ()) for rank in ranks})
    return Schedule(filled, groups, silent, source.noun, source.remarks)


def replay_operations(dataset: Dataset) -> ReplayOperations:
    """The operations of a job, for one schedule or several; ValueError if nothing holds one."""
    source = replay_source(dataset)
    dataset = source.dataset
    ops = dataset.ops.with_row_index("row")
    columns = pl.DataFrame({"col": logical_columns(dataset)}).with_row_index("row")
    # a ring that lost the beginning of a coalesced group cannot tell its sizes, and so has no key
    wire = {op: wire_name(op) for op in ops["op"].cast(pl.String).drop_nulls().unique()}
    named = pl.coalesce(pl.col("key").cast(pl.String), pl.col("op").cast(pl.String).replace(wire)).alias("op")
    plain = collect_calls(dataset).select(
        "row", "rank", "group", "seq", "state", named, "elements", pl.col("dtype").cast(pl.String),
        low=pl.lit(None, pl.Int32), high=pl.lit(None, pl.Int32), k=pl.lit(None, pl.Int64), batch=pl.lit(-1, pl.Int64),
    )  # fmt: skip
    paired = paired_transfers(source, in_program_order(ops.filter("is_p2p")))
    both = pl.concat([plain, paired.select(plain.columns)]).join(columns, on="row", how="left")
    both = both.sort("rank", "row").with_columns(agreed=pl.col("seq").is_not_null() & ~_lacking(source, both))
    is_told = not (both["state"] == "unknown").any()
    both = both.with_columns(pending=pl.col("state") != "completed" if is_told else _pending())
    return ReplayOperations(source, with_held_transfers(both))


def _pending() -> pl.Expr:
    """Whether an operation has not ended; one whose recorder tells no end has, if all issued it and nobody differs."""
    collective = pl.col("seq").is_not_null()
    values = (pl.col(name).drop_nulls().n_unique().over("group", "seq") for name in ("elements", "dtype"))
    names = pl.col("op").filter(~pl.col("op").is_in(UNTOLD_OPS)).n_unique().over("group", "seq")
    differs = collective & (pl.max_horizontal(names, *values) > 1)
    first = pl.col("seq").filter((pl.col("state") == "unknown") & differs).min().over("group")
    unended = ~pl.col("agreed") | (pl.col("seq") >= first).fill_null(False)
    is_open = pl.col("state") != "completed"
    return pl.when(pl.col("state") == "unknown").then(collective & unended).otherwise(is_open)


def _lacking(source: ReplaySource, rows: pl.DataFrame) -> pl.Expr:
    """Whether a member of whom anything is known has not issued a collective."""
    if source.noun == "logs":
        # logs begin anywhere: who has issued a later one has issued this one
        ends = rows.drop_nulls("seq").group_by("rank", "group").agg(pl.col("seq").max())
        last = {(rank, group): seq for rank, group, seq in ends.iter_rows()}
        least = {
            group.id: min((last.get((rank, group.id), -1) for rank in source.told & set(group.ranks)), default=-1)
            for group in source.dataset.group_list
        }
        return pl.col("seq") > pl.col("group").replace_strict(least, default=-1, return_dtype=pl.Int64)
    due = {group.id: len(source.told.intersection(group.ranks)) for group in source.dataset.group_list}
    return pl.len().over("group", "seq") < pl.col("group").replace_strict(due, default=0, return_dtype=pl.UInt32)


def _steps(rows: pl.DataFrame) -> Iterator[tuple[int, list[Step]]]:
    """The steps of each rank. A loop over the few operations of the window."""
    for rank, rows_of_rank in groupby(rows.select("rank", *_FIELDS).iter_rows(), lambda row: int(row[0])):
        steps = [_step(*row[1:]) for row in rows_of_rank]
        runs = groupby(steps, lambda step: step.is_p2p and not step.pending)
        # sends and receives that have ended know their run
        joined = [replace(step, run=run) if ended else step for run, (ended, part) in enumerate(runs) for step in part]
        yield rank, joined


def _step(
    group: int,
    seq: int | None,
    low: int,
    high: int,
    k: int,
    op: str,
    elements: int | None,
    dtype: str | None,
    pending: bool,
    batch: int,
    sizes: Mapping[str, str | None] | None,
) -> Step:
    key = (group, low, high, k) if seq is None else (group, seq)
    splits = _splits(sizes) if op in UNEVEN_OPS else None
    sent = element_count(sizes["in_sizes"]) if sizes else None
    return Step(key, op, elements, dtype, pending, batch, splits=splits, sent=sent)


def _splits(sizes: Mapping[str, str | None] | None) -> Splits | None:
    """The elements to and from each member, where each has a tensor of its own."""
    if sizes is None or not sizes["in_sizes"] or not sizes["out_sizes"]:
        return None
    sent, got = (tuple(map(prod, orjson.loads(sizes[name] or "[]"))) for name in ("in_sizes", "out_sizes"))
    return (sent, got) if len(sent) == len(got) > 1 else None


def _filled(
    rows: pl.DataFrame, groups: Mapping[int, tuple[int, ...]], every: Mapping[int, tuple[Step, ...]]
) -> dict[int, tuple[Step, ...]]:
    """The steps of all ranks, with those in front that only peers have recorded, and have completed.

    Each member has issued what a peer has completed: rings drop it, and a rank without a dump cannot tell. Nothing is
    put behind what a rank has recorded.
    """
    over = rows.filter(~pl.col("pending") & pl.col("seq").is_not_null()).sort("col", "row")
    seen = over.unique(["group", "seq"], keep="first", maintain_order=True)
    seen_steps = [_step(*row) for row in seen.select(_FIELDS).iter_rows()]
    out = {}
    for rank, steps in every.items():
        has = {step.key for step in steps}
        first = {step.group: step.key[1] for step in reversed(steps) if not step.is_p2p}
        lacking = [
            replace(step, filled=True)
            for step in seen_steps
            if rank in groups[step.group] and step.key not in has and step.key[1] < first.get(step.group, _NEVER)
        ]
        out[rank] = (*lacking, *steps)
    return out
