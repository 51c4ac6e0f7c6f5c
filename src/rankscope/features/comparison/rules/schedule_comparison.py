"""Schedules of two runs: the sequence of operations of each rank, and the first place at which they part."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
import polars as pl

from rankscope.analysis.arrays import Ints, filled_array
from rankscope.analysis.logical_time import drawn_rows, in_program_order, logical_columns
from rankscope.analysis.signatures import distinct_calls, element_count, once, wire_name
from rankscope.features.comparison.rules.schedule_alignment import (
    Alignment,
    GroupMatching,
    Parting,
    align,
    match_groups,
)
from rankscope.schema import Dataset, Frame
from rankscope.text.tensors import tensors

Signature = tuple[str, int | None, int | None, str | None, str | None]
_ROLES = 3
"""Roles of a row in a coalesced group."""


class Call(NamedTuple):
    """One operation in comparable form."""

    op: str
    elements: tuple[int | None, int | None]
    """Elements that go in and out."""
    dtypes: tuple[str | None, str | None]
    group: int
    """Number of the matched group."""
    peer: int | None
    shown: str
    """Its words: "all_reduce [64,32] f32"."""


def call_codes(a: pl.DataFrame, b: pl.DataFrame, groups: GroupMatching) -> tuple[Ints, Ints]:
    """The code of each row of two tables of operations."""
    numbers: dict[Signature, int] = {}
    coded = [_signature_numbers(rows, numbers) for rows in (a, b)]
    tops = [int(rows["peer"].max() or 0) for rows in (a, b) if rows.height]  # type: ignore[arg-type]
    peers = max(tops, default=0) + 3
    out = []
    for rows, own, of in zip((a, b), coded, (groups.of_a, groups.of_b), strict=True):
        group = filled_array(rows["group"].cast(pl.Int64), -1)
        code = own * (groups.size + 1)
        code += np.where(group < 0, groups.size, of[group]) if len(of) else groups.size
        code = code * peers + filled_array(rows["peer"].cast(pl.Int64), -2) + 2
        out.append(code * _ROLES + rows["coalesced"].to_physical().cast(pl.Int64).fill_null(0).to_numpy())
    return out[0], out[1]


def _signature_numbers(rows: pl.DataFrame, numbers: dict[Signature, int]) -> Ints:
    """The number of each row's signature; new ones are added to `numbers`."""
    distinct, place = distinct_calls(rows)
    own = [numbers.setdefault(_signature(*row), len(numbers)) for row in distinct.cast(pl.String).iter_rows()]
    found: Ints = np.array(own, np.int64)[place.to_numpy()] if own else np.zeros(0, np.int64)
    return found


def _signature(
    op: str | None, in_sizes: str | None, out_sizes: str | None, in_dtypes: str | None, out_dtypes: str | None
) -> Signature:
    name = wire_name(op or "")
    if name.endswith("barrier"):
        return name, None, None, None, None
    return name, element_count(in_sizes), element_count(out_sizes), _type(in_dtypes), _type(out_dtypes)


def _type(dtypes: str | None) -> str | None:
    return None if dtypes in (None, "", "[]", "null") else once(dtypes or "")


def call_of(row: dict[str, object], numbers: Ints) -> Call:
    """The comparable form of one row of operations."""
    texts = [None if row[name] is None else str(row[name]) for name in CALL_COLUMNS]
    op, in_elements, out_elements, in_type, out_type = _signature(*texts)
    group, peer = row["group"], row["peer"]
    words = tensors(texts[1], texts[3]) or tensors(texts[2], texts[4])
    return Call(
        op, (in_elements, out_elements), (in_type, out_type), int(numbers[group]) if isinstance(group, int) else -1,
        peer if isinstance(peer, int) else None, f"{texts[0]} {words}".strip(),
    )  # fmt: skip


CALL_COLUMNS = ("op", "in_sizes", "out_sizes", "in_dtypes", "out_dtypes")
"""Columns from which a signature is made."""


@dataclass(frozen=True)
class ScheduleRows:
    """The operations of a run in program order, rank by rank."""

    dataset: Dataset
    """`ops` holds these operations, also where they come from traces."""
    rows: pl.DataFrame
    """Operations with `row`, their row in `dataset.ops`."""
    left_out: tuple[int, ...]
    """Ranks whose dump omits operations."""

    @cached_property
    def bounds(self) -> dict[int, tuple[int, int]]:
        """First row and end of each rank in `rows`."""
        ranks = self.rows["rank"].to_numpy()
        starts = np.flatnonzero(np.diff(ranks, prepend=-1))
        ends = [*starts[1:].tolist(), len(ranks)][: len(starts)]
        return {int(ranks[start]): (start, end) for start, end in zip(starts.tolist(), ends, strict=True)}

    @cached_property
    def numbers(self) -> Ints:
        """The number of each operation from the start of its process; -1 if it is not recorded."""
        numbers: Ints = self.rows["record_id"].fill_null(-1).to_numpy()
        return numbers

    @cached_property
    def whole(self) -> frozenset[int]:
        """Ranks whose dump holds all operations from the start."""
        dumps = self.dataset.dumps.filter(~pl.col("wrapped").fill_null(True))
        return frozenset(dumps["rank"].drop_nulls().to_list())


class RankParting(NamedTuple):
    """The first place at which a rank's schedules part, with what each run does there."""

    rank: int
    operation: int
    """Number of the operation in A, from the start of the run or of the dump."""
    row_a: int
    """Row of A's operations."""
    row_b: int
    aspect: str
    """"operation", "group", "peer", "dtype", "size", "data-size", "more", "fewer", "order", "threads",
    "earlier" (before the dumps begin) or "other"."""
    parting: Parting
    call_a: Call
    call_b: Call
    places: int
    """Number of partings on this rank."""
    shift: int = 0
    """How many operations more B issued before the dumps begin."""


@dataclass(frozen=True)
class ScheduleComparison:
    """The schedules of two runs side by side."""

    a: ScheduleRows
    b: ScheduleRows
    groups: GroupMatching
    alignments: dict[int, Alignment]
    """By rank, of the ranks that both runs have."""
    partings: tuple[RankParting, ...]
    """The earliest first, by dependency of operations in A."""
    unordered: tuple[RankParting, ...] = ()
    """Places where several threads issue operations in another order; no differences."""
    first: tuple[int, ...] = ()
    """Ranks that part first."""
    apart: str = ""
    """Why the operations cannot be compared: they come from sources that tell different things."""
    untold: tuple[str, ...] = ()
    """Columns that are not compared, for one of the runs has them nowhere."""

    @property
    def equal(self) -> int:
        """The number of equal operations."""
        return sum(one.equal for one in self.alignments.values())

    def ranks_placed(self, how: str) -> tuple[int, ...]:
        """The ranks whose sequences were placed in this way."""
        return tuple(rank for rank, one in self.alignments.items() if one.placed == how)

    def stack(self, row: int, in_b: bool) -> tuple[Frame, ...]:
        """The stack of an operation."""
        dataset = self.b.dataset if in_b else self.a.dataset
        return dataset.stack(dataset.ops["stack_id"][row])


def schedule_rows(dataset: Dataset) -> ScheduleRows:
    """The operations of a run; without dumps and logs those of traces."""
    ops = dataset.ops if dataset.ops.height else _traced(dataset)
    known = dataset if ops is dataset.ops else replace(dataset, ops=ops)
    cut = known.dumps.filter(pl.col("filtered").fill_null("none") != "none")
    left_out = sorted(cut["rank"].drop_nulls().unique().to_list())
    keep = ops["rank"].is_not_null() & ~ops["rank"].is_in(left_out) & drawn_rows(ops) & ~_torn_batches(ops)
    rows = in_program_order(ops.with_row_index("row").filter(keep))
    return ScheduleRows(known, rows, tuple(left_out))


def _traced(dataset: Dataset) -> pl.DataFrame:
    return dataset.traced.select(dataset.ops.columns).sort("rank", maintain_order=True)


def _torn_batches(ops: pl.DataFrame) -> pl.Series:
    """Mask of the rows of batches that a dump holds in part, at its beginning or at its end."""
    if not (ops["coalesced"] == "inner").any():
        return pl.repeat(False, ops.height, dtype=pl.Boolean, eager=True)
    role = ops["coalesced"].to_physical().to_numpy()
    inner, closer = (ops["coalesced"].dtype.categories.to_list().index(name) for name in ("inner", "closer"))  # type: ignore[attr-defined]
    torn = np.zeros(ops.height, np.bool_)
    ranks = ops["rank"].fill_null(-1).to_numpy()
    starts = np.flatnonzero(np.diff(ranks, prepend=-2))
    for start, end in zip(starts.tolist(), [*starts[1:].tolist(), ops.height], strict=True):
        closers = np.flatnonzero(role[start:end] == closer)
        if not len(closers):
            continue
        if role[start] in (inner, closer):
            torn[start : start + closers[0] + 1] = True
        last = start + int(closers[-1]) + 1
        torn[last:end] |= role[last:end] == inner
    return pl.Series(torn)


def compare_schedules(a: Dataset, b: Dataset) -> ScheduleComparison:
    """The comparison of the operations of all ranks that both runs have; the loop is over ranks only."""
    ours, theirs = schedule_rows(a), schedule_rows(b)
    groups = match_groups(ours.dataset, theirs.dataset)
    if apart := _apart(ours, theirs):
        return ScheduleComparison(ours, theirs, groups, {}, (), apart=apart)
    untold = _untold(ours, theirs)
    ours, theirs = (
        replace(run, rows=run.rows.with_columns(pl.lit(None, run.rows.schema[name]).alias(name) for name in untold))
        for run in (ours, theirs)
    )
    codes = call_codes(ours.rows, theirs.rows, groups)
    alignments: dict[int, Alignment] = {}
    partings = list[RankParting]()
    for rank in sorted(ours.bounds.keys() & theirs.bounds.keys()):
        one, other = ours.bounds[rank], theirs.bounds[rank]
        numbers = _numbers(ours, theirs, rank)
        found = align(codes[0][slice(*one)], codes[1][slice(*other)], *numbers)
        alignments[rank] = found
        if found.partings or found.shift:
            partings.append(_parting(ours, theirs, groups, rank, found, codes))
    ordered, first = _by_dependency(ours, [one for one in partings if one.aspect != "threads"])
    loose = tuple(one for one in partings if one.aspect == "threads")
    return ScheduleComparison(ours, theirs, groups, alignments, ordered, loose, first, untold=untold)


def _apart(a: ScheduleRows, b: ScheduleRows) -> str:
    """Words for the sources of operations if they differ: logs and traces know other sizes and names than dumps do."""
    for words, column in (("come from", [run.rows["source"] for run in (a, b)]), ("are recorded by", _recorders(a, b))):
        told = [sorted(map(str, one.drop_nulls().unique().to_list())) for one in column]
        if all(told) and told[0] != told[1]:
            return f"the operations of A {words} {' and '.join(told[0])}, those of B {words} {' and '.join(told[1])}"
    return ""


def _untold(a: ScheduleRows, b: ScheduleRows) -> tuple[str, ...]:
    """Columns of sizes and types that one run has and the other has nowhere, as traces without recorded shapes do."""
    has = [{name for name in CALL_COLUMNS[1:] if run.rows[name].null_count() < run.rows.height} for run in (a, b)]
    return tuple(sorted(has[0] ^ has[1])) if a.rows.height and b.rows.height else ()


def _recorders(a: ScheduleRows, b: ScheduleRows) -> list[pl.Series]:
    return [run.dataset.dumps["recorder"] for run in (a, b)]


def _numbers(a: ScheduleRows, b: ScheduleRows, rank: int) -> tuple[Ints | None, Ints | None]:
    """The numbers of a rank's operations in both runs; None if they are not recorded, or those of two recorders."""
    found = []
    for run in (a, b):
        start, end = run.bounds[rank]
        numbers = np.sort(run.numbers[start:end])
        if numbers[0] < 0 or (np.diff(numbers) <= 0).any():
            if rank not in run.whole:
                return None, None
            numbers = np.arange(end - start, dtype=np.int64)
        found.append(numbers)
    return found[0], found[1]


def _parting(
    a: ScheduleRows, b: ScheduleRows, groups: GroupMatching, rank: int, found: Alignment, codes: tuple[Ints, Ints]
) -> RankParting:
    """The first parting of a rank with the operations of both runs there."""
    # what was issued before the dumps begin comes first
    one = Parting(*found.start, 0, abs(found.shift), True) if found.shift else found.partings[0]
    at_a, at_b = a.bounds[rank][0] + one.at_a, b.bounds[rank][0] + one.at_b
    call_a = call_of(a.rows.row(at_a, named=True), groups.of_a)
    call_b = call_of(b.rows.row(at_b, named=True), groups.of_b)
    ours, theirs = codes[0][at_a : at_a + one.length_a], codes[1][at_b : at_b + one.length_b]
    aspect = "earlier" if found.shift else _aspect(one, call_a, call_b, ours, theirs)
    if aspect == "order" and a.rows["thread"][at_a : at_a + one.length_a].drop_nulls().n_unique() > 1:
        aspect = "threads"
    number, row_a, row_b = int(a.numbers[at_a]), int(a.rows["row"][at_a]), int(b.rows["row"][at_b])
    number = number if number >= 0 else one.at_a
    places = len(found.partings) + bool(found.shift)
    return RankParting(rank, number, row_a, row_b, aspect, one, call_a, call_b, places, found.shift)


def _aspect(one: Parting, call_a: Call, call_b: Call, ours: Ints, theirs: Ints) -> str:
    """The respect in which the runs differ at a parting."""
    if one.meets and one.length_a == 0:
        return "more"
    if one.meets and one.length_b == 0:
        return "fewer"
    if one.length_a == one.length_b > 1 and np.array_equal(np.sort(ours), np.sort(theirs)):
        return "order"
    size = "data-size" if call_a.op == "all_to_all" else "size"
    aspects = {"operation": "op", "group": "group", "peer": "peer", "dtype": "dtypes", size: "elements"}
    unequal = (name for name, part in aspects.items() if getattr(call_a, part) != getattr(call_b, part))
    return next(unequal, "other")


def _by_dependency(a: ScheduleRows, partings: list[RankParting]) -> tuple[tuple[RankParting, ...], tuple[int, ...]]:
    """The partings with the earliest first, and the ranks of the earliest: clocks of hosts tell no order."""
    if len(partings) < 2:
        return tuple(partings), tuple(one.rank for one in partings)
    columns = logical_columns(a.dataset)
    ordered = sorted(partings, key=lambda one: (int(columns[one.row_a]), one.rank))
    earliest = columns[ordered[0].row_a]
    return tuple(ordered), tuple(one.rank for one in ordered if columns[one.row_a] == earliest)


def goes_on(found: ScheduleComparison) -> Iterator[tuple[str, int, tuple[int, ...]]]:
    """For each run that goes on behind the end of the other: its label, most operations of a rank, and the ranks."""
    for label, left in (("A", "left_a"), ("B", "left_b")):
        more = {rank: getattr(one, left) for rank, one in found.alignments.items() if getattr(one, left)}
        if more:
            yield label, max(more.values()), tuple(more)
