"""Schedules of two runs: the sequence of operations of each rank, where they part, and where they meet again.

The sequences are placed by their numbers from the start of the run. If that does not fit, equal stretches serve as
anchors. Cost is linear in their lengths: `MOST_PARTINGS` bounds the number of passes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from rankscope.analysis.arrays import Ints, filled_array
from rankscope.analysis.logical_time import drawn_rows, in_program_order, logical_columns
from rankscope.analysis.signatures import distinct_calls, element_count, once, wire_name
from rankscope.schema import Dataset, Frame, Group
from rankscope.text.tensors import tensors
from rankscope.text.wording import group_name, rank_ranges

_LONGEST_RANKS = 30


class GroupMatching(NamedTuple):
    """One number for each group of both runs; matched groups share it."""

    of_a: Ints
    """Number by group id of A."""
    of_b: Ints
    only_a: tuple[str, ...]
    """Descriptions of used groups without a counterpart."""
    only_b: tuple[str, ...]

    @property
    def size(self) -> int:
        """The number of distinct numbers."""
        return int(max(self.of_a.max(initial=-1), self.of_b.max(initial=-1))) + 1


def match_groups(a: Dataset, b: Dataset) -> GroupMatching:
    """Groups with equal members and description first, then those in which only the members are equal."""
    left_a, left_b = list(a.group_list), list(b.group_list)
    of_a, of_b = (
        np.full(max((group.id for group in groups), default=-1) + 1, -1, np.int64) for groups in (left_a, left_b)
    )
    keys: tuple[Callable[[Group], object], ...] = (
        lambda group: (group.ranks, group.description),
        lambda group: tuple(sorted(group.ranks)),
    )
    count = 0
    for key in keys:
        # several of one key pair up in order of their names, or of what they do
        alike_a, alike_b = defaultdict[object, list[Group]](list), defaultdict[object, list[Group]](list)
        for alike, left in ((alike_a, left_a), (alike_b, left_b)):
            for group in left:
                alike[key(group)].append(group)
        for value, groups in alike_a.items():
            for group, other in zip(_ordered(a, groups), _ordered(b, alike_b.get(value, [])), strict=False):
                of_a[group.id] = of_b[other.id] = count
                count += 1
                left_a.remove(group)
                left_b.remove(other)
    for numbers, left in ((of_a, left_a), (of_b, left_b)):
        for group in left:
            numbers[group.id] = count
            count += 1
    return GroupMatching(of_a, of_b, _used(a, left_a), _used(b, left_b))


def _ordered(dataset: Dataset, alike: list[Group]) -> list[Group]:
    """Groups with the same members in order of their numbers; names that are hashes tell no order, operations do."""
    if len(alike) < 2:
        return alike
    if all(group.name.isdecimal() for group in alike):
        return sorted(alike, key=lambda group: int(group.name))
    distinct: dict[int, list[str]] = {}
    for group in alike:
        rows = dataset.ops.filter(pl.col("group") == group.id).select(
            pl.col("op", "in_sizes", "in_dtypes").cast(pl.String)
        )
        distinct[group.id] = sorted("|".join(map(str, row)) for row in rows.unique().iter_rows())
    return sorted(alike, key=lambda group: (distinct[group.id], group.id))


def _used(dataset: Dataset, groups: list[Group]) -> tuple[str, ...]:
    """Words for those of the groups that have operations."""
    used = set(dataset.ops["group"].drop_nulls().unique().to_list())
    return tuple(
        f"{group_name(group.name, group.description)} of ranks {rank_ranges(group.ranks, _LONGEST_RANKS)}"
        for group in groups
        if group.id in used
    )


Placement = Literal["number", "content", "none"]
"""Sequences are placed by number, by equal stretches, or not at all."""
MOST_PARTINGS = 20
"""Most partings that are searched for in one pair of sequences."""
_ANCHORS = (32, 8, 1)
"""Operations of an anchor; shorter ones count only if no longer one is found. Powers of two."""
_FIT = 8
"""Operations that are equal at the beginning of a placement by number that fits."""
_MOST_OFFSETS = 64
"""Most anchors that are tried."""
_MEETINGS = (8, 4, 1)
"""Equal operations that count as a meeting; shorter ones count only if there is no longer one. Powers of two."""
_REACHES = (64, 4096)
"""Operations after a parting among which a meeting is searched, first the near ones."""
_FACTOR = np.uint64(0x9E3779B97F4A7C15)
Hashes = NDArray[np.uint64]


class Parting(NamedTuple):
    """One place where the sequences part."""

    at_a: int
    at_b: int
    length_a: int
    """Operations of A up to the meeting, or up to its end."""
    length_b: int
    meets: bool
    """Whether the sequences meet again behind it."""


class Alignment(NamedTuple):
    """Two sequences side by side."""

    placed: Placement
    equal: int
    """Number of equal operations."""
    partings: tuple[Parting, ...] = ()
    left_a: int = 0
    """Operations of A behind the last one of B."""
    left_b: int = 0
    start: tuple[int, int] = (0, 0)
    """The first operations that are compared."""
    shift: int = 0
    """How many operations more B issued before; 0 also if it is unknown."""


class _Start(NamedTuple):
    """The first operations that are compared, and the kind of their placement."""

    placed: Placement
    at: tuple[int, int] = (0, 0)
    shift: int = 0


def align(a: Ints, b: Ints, numbers_a: Ints | None = None, numbers_b: Ints | None = None) -> Alignment:
    """The alignment of two sequences of codes; numbers count operations from the start of the run and ascend."""
    start = _start(a, b, numbers_a, numbers_b)
    if start.placed == "none":
        return Alignment("none", 0)
    partings = tuple(_partings(a, b, *start.at))
    equal, (i, j) = 0, start.at
    for one in partings:
        equal += one.at_a - i
        i, j = one.at_a + one.length_a, one.at_b + one.length_b
    left_a, left_b = len(a) - i, len(b) - j
    common = min(left_a, left_b) if not partings or partings[-1].meets else 0
    return Alignment(start.placed, equal + common, partings, left_a - common, left_b - common, start.at, start.shift)


def _start(a: Ints, b: Ints, numbers_a: Ints | None, numbers_b: Ints | None) -> _Start:
    """The placement by number if that fits at its beginning, else the one with the most equal operations."""
    if not len(a) or not len(b):
        return _Start("none")
    if numbers_a is None or numbers_b is None:
        return _by_content(a, b, 0)
    low = max(int(numbers_a[0]), int(numbers_b[0]))
    i, j = int(np.searchsorted(numbers_a, low)), int(np.searchsorted(numbers_b, low))
    size = min(len(a) - i, len(b) - j)
    if size <= 0:
        return _by_content(a, b, 0)
    equal = a[i : i + size] == b[j : j + size]
    if low == 0 or equal[:_FIT].all():
        return _Start("number", (i, j))
    other = _by_content(a, b, i - j)
    if other.placed == "none" or _equal(a, b, *other.at) <= int(np.count_nonzero(equal)):
        return _Start("number", (i, j))
    return other._replace(shift=int(numbers_b[other.at[1]] - numbers_a[other.at[0]]))


def _by_content(a: Ints, b: Ints, near: int) -> _Start:
    """The placement with the most equal operations, of those in which an anchor of one lies in the other."""
    best, found = 0, _Start("none")
    for offset in _offsets(a, b, near):
        i, j = max(0, offset), max(0, -offset)
        equal = _equal(a, b, i, j)
        if equal > best:
            best, found = equal, _Start("content", (i, j))
    return found


def _equal(a: Ints, b: Ints, i: int, j: int) -> int:
    """The number of equal operations from these places on."""
    size = min(len(a) - i, len(b) - j)
    return int(np.count_nonzero(a[i : i + size] == b[j : j + size]))


def _offsets(a: Ints, b: Ints, near: int) -> list[int]:
    """Candidates for the place of B's first operation in A; those closest to `near` come first."""
    offsets = set[int]()
    for size in (anchor for anchor in _ANCHORS if anchor <= min(len(a), len(b))):
        hashes_a, hashes_b = stretch_hashes(a, size), stretch_hashes(b, size)
        for at in {0, len(hashes_b) // 2, len(hashes_b) - 1}:
            offsets |= {int(i) - at for i in np.flatnonzero(hashes_a == hashes_b[at])}
        for at in {0, len(hashes_a) // 2, len(hashes_a) - 1}:
            offsets |= {at - int(j) for j in np.flatnonzero(hashes_b == hashes_a[at])}
        if offsets:
            break
    return sorted(offsets, key=lambda offset: (abs(offset - near), offset))[:_MOST_OFFSETS]


def stretch_hashes(codes: Ints, size: int) -> Hashes:
    """The hash of each stretch of `size` codes, a power of two; one for each stretch that fits."""
    hashes = codes.astype(np.uint64) + np.uint64(1)
    hashes = (hashes ^ (hashes >> np.uint64(31))) * _FACTOR
    step = 1
    if len(codes) < size:
        return hashes[:0]
    while step < size:
        hashes = (hashes[:-step] * _FACTOR) ^ ((hashes[step:] << np.uint64(1)) + np.uint64(step))
        step *= 2
    return hashes


def _partings(a: Ints, b: Ints, i: int, j: int) -> Iterator[Parting]:
    """The places where the sequences part, from these operations on."""
    for _ in range(MOST_PARTINGS):
        size = min(len(a) - i, len(b) - j)
        unequal = a[i : i + size] != b[j : j + size]
        first = int(unequal.argmax()) if size else 0
        if not size or not unequal[first]:
            return
        i, j = i + first, j + first
        more_a, more_b, meets = _meeting(a[i : i + _REACHES[-1]], b[j : j + _REACHES[-1]])
        if not meets:
            more_a, more_b = len(a) - i, len(b) - j
        yield Parting(i, j, more_a, more_b, meets)
        i, j = i + more_a, j + more_b


def _meeting(a: Ints, b: Ints) -> tuple[int, int, bool]:
    """How many operations of each lie before the nearest meeting, and whether there is one; near ones cost least."""
    for size in _MEETINGS:
        for far in _REACHES:
            found = _nearest(stretch_hashes(a[:far], size), stretch_hashes(b[:far], size))
            if found is not None:
                return (*found, True)
    return 0, 0, False


def _nearest(of_a: Hashes, of_b: Hashes) -> tuple[int, int] | None:
    """The first places of an equal stretch in both; None if there is none."""
    if not len(of_a) or not len(of_b):
        return None
    values, firsts = np.unique(of_b, return_index=True)
    at = np.minimum(np.searchsorted(values, of_a), len(values) - 1)
    places = np.flatnonzero(values[at] == of_a)
    if not len(places):
        return None
    nearest = int(np.argmin(places + firsts[at[places]]))
    return int(places[nearest]), int(firsts[at[places[nearest]]])


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
    tops = [int(rows["peer"].max() or 0) for rows in (a, b) if rows.height]  # type: ignore[arg-type]
    peers = max(tops, default=0) + 3
    out = []
    for rows, of in zip((a, b), (groups.of_a, groups.of_b), strict=True):
        distinct, place = distinct_calls(rows)
        signatures = [
            numbers.setdefault(_signature(*row), len(numbers)) for row in distinct.cast(pl.String).iter_rows()
        ]
        group = filled_array(rows["group"].cast(pl.Int64), -1)
        signature_codes = np.array(signatures, np.int64)[place.to_numpy()] if signatures else np.zeros(0, np.int64)
        code = signature_codes * (groups.size + 1)
        code += np.where(group < 0, groups.size, of[group]) if len(of) else groups.size
        code = code * peers + filled_array(rows["peer"].cast(pl.Int64), -2) + 2
        out.append(code * _ROLES + rows["coalesced"].to_physical().cast(pl.Int64).fill_null(0).to_numpy())
    return out[0], out[1]


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
        op,
        (in_elements, out_elements),
        (in_type, out_type),
        int(numbers[group]) if isinstance(group, int) else -1,
        peer if isinstance(peer, int) else None,
        f"{texts[0]} {words}".strip(),
    )


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

    def counted(self, rank: int) -> Ints | None:
        """The numbers of a rank's operations, rising; None if they are not recorded, or those of two recorders."""
        start, end = self.bounds[rank]
        numbers = np.sort(self.numbers[start:end])
        if numbers[0] < 0 or (np.diff(numbers) <= 0).any():
            return np.arange(end - start, dtype=np.int64) if rank in self.whole else None
        return numbers


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
    ops = dataset.ops
    if ops.is_empty():
        ops = dataset.traced.select(ops.columns).sort("rank", maintain_order=True)
    known = dataset if ops is dataset.ops else replace(dataset, ops=ops)
    cut = known.dumps.filter(pl.col("filtered").fill_null("none") != "none")
    left_out = sorted(cut["rank"].drop_nulls().unique().to_list())
    keep = ops["rank"].is_not_null() & ~ops["rank"].is_in(left_out) & drawn_rows(ops) & ~_torn_batches(ops)
    rows = in_program_order(ops.with_row_index("row").filter(keep))
    return ScheduleRows(known, rows, tuple(left_out))


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
    # logs and traces know other sizes and names than dumps do
    sources = [run.rows["source"] for run in (ours, theirs)]
    recorders = [run.dataset.dumps["recorder"] for run in (ours, theirs)]
    for words, columns in (("come from", sources), ("are recorded by", recorders)):
        of_a, of_b = (sorted(map(str, column.drop_nulls().unique().to_list())) for column in columns)
        if of_a and of_b and of_a != of_b:
            apart = f"the operations of A {words} {' and '.join(of_a)}, those of B {words} {' and '.join(of_b)}"
            return ScheduleComparison(ours, theirs, groups, {}, (), apart=apart)
    # columns that one run has and the other has nowhere, as traces without recorded shapes do
    has = [
        {name for name in CALL_COLUMNS[1:] if run.rows[name].null_count() < run.rows.height} for run in (ours, theirs)
    ]
    untold = tuple(sorted(has[0] ^ has[1])) if ours.rows.height and theirs.rows.height else ()
    ours, theirs = (
        replace(run, rows=run.rows.with_columns(pl.lit(None, run.rows.schema[name]).alias(name) for name in untold))
        for run in (ours, theirs)
    )
    codes = call_codes(ours.rows, theirs.rows, groups)
    alignments: dict[int, Alignment] = {}
    partings = list[RankParting]()
    for rank in sorted(ours.bounds.keys() & theirs.bounds.keys()):
        a_codes, b_codes = codes[0][slice(*ours.bounds[rank])], codes[1][slice(*theirs.bounds[rank])]
        alignment = align(a_codes, b_codes, ours.counted(rank), theirs.counted(rank))
        alignments[rank] = alignment
        if alignment.partings or alignment.shift:
            partings.append(_parting(ours, theirs, groups, rank, alignment, codes))
    ordered, first = _by_dependency(ours, [one for one in partings if one.aspect != "threads"])
    loose = tuple(one for one in partings if one.aspect == "threads")
    return ScheduleComparison(ours, theirs, groups, alignments, ordered, loose, first, untold=untold)


def _parting(
    a: ScheduleRows, b: ScheduleRows, groups: GroupMatching, rank: int, alignment: Alignment, codes: tuple[Ints, Ints]
) -> RankParting:
    """The first parting of a rank with the operations of both runs there."""
    # what was issued before the dumps begin comes first
    parting = Parting(*alignment.start, 0, abs(alignment.shift), True) if alignment.shift else alignment.partings[0]
    at_a, at_b = a.bounds[rank][0] + parting.at_a, b.bounds[rank][0] + parting.at_b
    call_a = call_of(a.rows.row(at_a, named=True), groups.of_a)
    call_b = call_of(b.rows.row(at_b, named=True), groups.of_b)
    ours, theirs = codes[0][at_a : at_a + parting.length_a], codes[1][at_b : at_b + parting.length_b]
    aspect = "earlier" if alignment.shift else _aspect(parting, call_a, call_b, ours, theirs)
    if aspect == "order" and a.rows["thread"][at_a : at_a + parting.length_a].drop_nulls().n_unique() > 1:
        aspect = "threads"
    number, row_a, row_b = int(a.numbers[at_a]), int(a.rows["row"][at_a]), int(b.rows["row"][at_b])
    number = number if number >= 0 else parting.at_a
    places = len(alignment.partings) + bool(alignment.shift)
    return RankParting(rank, number, row_a, row_b, aspect, parting, call_a, call_b, places, alignment.shift)


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


def goes_on(schedule: ScheduleComparison) -> Iterator[tuple[str, int, tuple[int, ...]]]:
    """For each run that goes on behind the end of the other: its label, most operations of a rank, and the ranks."""
    for label, left in (("A", "left_a"), ("B", "left_b")):
        more = {
            rank: getattr(alignment, left)
            for rank, alignment in schedule.alignments.items()
            if getattr(alignment, left)
        }
        if more:
            yield label, max(more.values()), tuple(more)
