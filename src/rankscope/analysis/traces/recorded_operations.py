"""Operations that are both in dumps and in traces.

Both sources count alike: (group, number, is_p2p) is one operation of a rank, if the trace has its number (torch 2.12
and later, not on gloo). Both also take the issue time from one clock, some microseconds apart, and both are in issue
order for each rank and group. If times contradict the numbers, or there are no numbers, the two series are shifted onto
each other, and count as the same only if they match completely.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from rankscope.analysis.arrays import Ints
from rankscope.schema import SOURCES, Dataset

NEAR_NS = 200_000
"""Operations issued further apart are not the same, unless their neighbours show it."""
FAR, FEWEST = 0.25, 4
"""Largest share of such pairs, and fewest pairs that can show it."""
BEFORE_NS = 20_000
"""A recorder notes an operation after its begin in the profiler, with this tolerance."""
ONE_RUN_NS = 60_000_000_000
"""Operations of one number issued further apart are of two runs."""
DATED_NS = 10**17
"""Earlier times (before 1973) are of a trace that lost its clock base."""
UNKNOWN_NUMBER = -1
"""Marks an unknown operation number."""
MOST_SERIES = 20_000
"""Most (rank, group) series that are joined for the report."""
PROBES = 3
_KEYS = ["rank", "group", "is_p2p"]


@dataclass(frozen=True)
class OperationSeries:
    """The operations of one rank and group in the order in which it issued them."""

    rows: Ints
    """Row numbers of the caller."""
    numbers: Ints
    issued_ns: Ints


def series_of(table: pl.DataFrame) -> OperationSeries:
    """Series of the rows of `ops` or `traced` with issue times, with their index as `row`."""
    number = pl.when("is_p2p").then("p2p_seq").otherwise("seq").fill_null(UNKNOWN_NUMBER)
    known = table.filter(pl.col("created_ns").is_not_null()).sort("created_ns", "row")
    columns = known.select(pl.col("row").cast(pl.Int64), number=number, issued="created_ns")
    return OperationSeries(*(columns[name].to_numpy() for name in columns.columns))


def same_operations(seen: OperationSeries, issued: OperationSeries) -> tuple[Ints, Ints]:
    """Indices in `seen` and in `issued` of equal operations."""
    by_number = _by_number(seen, issued)
    if by_number is not None and _apart(seen, issued, by_number) <= NEAR_NS:
        return by_number
    begin = laid_on(seen.issued_ns, issued.issued_ns)
    if begin is not None:
        low, high = max(0, -begin), min(len(seen.rows), len(issued.rows) - begin)
        places = np.arange(low, high)
        return places, places + begin
    if by_number is not None and _may_be_one_run(seen, issued, by_number):
        return by_number
    none = np.empty(0, np.int64)
    return none, none


def _by_number(seen: OperationSeries, issued: OperationSeries) -> tuple[Ints, Ints] | None:
    """The indices of equal numbers; None if numbers are unknown or ambiguous."""
    own = np.flatnonzero(issued.numbers != UNKNOWN_NUMBER)
    for numbers in (seen.numbers, issued.numbers[own]):
        if not len(numbers) or (numbers == UNKNOWN_NUMBER).any() or len(np.unique(numbers)) < len(numbers):
            return None
    _, a, b = np.intersect1d(seen.numbers, issued.numbers[own], assume_unique=True, return_indices=True)
    return (a, own[b]) if len(a) else None


def _apart(seen: OperationSeries, issued: OperationSeries, places: tuple[Ints, Ints]) -> int:
    a, b = places
    return int(np.median(np.abs(seen.issued_ns[a] - issued.issued_ns[b])))


def _may_be_one_run(seen: OperationSeries, issued: OperationSeries, places: tuple[Ints, Ints]) -> bool:
    """Whether time differences are about constant, as between clocks, and small enough for one run."""
    a, b = places
    apart = seen.issued_ns[a] - issued.issued_ns[b]
    steady = float(np.median(np.abs(apart - np.median(apart)))) <= NEAR_NS
    dated = int(seen.issued_ns[0]) > DATED_NS
    return steady and (not dated or abs(float(np.median(apart))) <= ONE_RUN_NS)


def laid_on(seen: Ints, issued: Ints) -> int | None:
    """The shift of `seen` in `issued`, both rising; None if they do not match."""
    shifts = {shift for a, b, sign in ((seen, issued, 1), (issued, seen, -1)) for shift in _near(a, b, sign)}
    fitting = {shift: apart for shift in shifts if (apart := _fit(seen, issued, shift)) is not None}
    return min(fitting, key=lambda shift: fitting[shift]) if fitting else None


def _near(these: Ints, those: Ints, sign: int) -> list[int]:
    """Shifts that align one of `these` with one of `those` of nearly the same issue time."""
    if not len(these) or not len(those):
        return []
    out: list[int] = []
    for at in np.unique(np.linspace(0, len(these) - 1, PROBES).astype(np.int64)).tolist():
        low, high = np.searchsorted(those, [these[at] - NEAR_NS, these[at] + NEAR_NS])
        out += [sign * (place - at) for place in range(int(low), int(high))]
    return out


def _fit(seen: Ints, issued: Ints, shift: int) -> tuple[bool, int] | None:
    """The misfit of a shift (not all near, distance); None if the pairs cannot be the same.

    All pairs are near, or most are, and the others were recorded before the next was issued: a thread may lose its
    processor between the two notes.
    """
    low, high = max(0, -shift), min(len(seen), len(issued) - shift)
    if high <= low:
        return None
    a, b = seen[low:high], issued[low + shift : high + shift]
    apart = np.abs(a - b)
    middle, worst = int(np.median(apart)), int(apart.max())
    if worst <= NEAR_NS:
        return False, worst
    held = bool((b >= a - BEFORE_NS).all() and (b[:-1] < a[1:]).all())
    few = int((apart > NEAR_NS).sum()) <= max(1, FAR * len(a)) and len(a) >= FEWEST
    return (True, middle) if held and few else None


def recorded_in_dumps(dataset: Dataset) -> pl.DataFrame:
    """row (of `traced`), op_row (of `ops`): the traced operations that are in dumps as well."""
    schema = {"row": pl.Int64, "op_row": pl.Int64}
    dumped = dataset.ops.with_row_index("row").filter(pl.col("source") == SOURCES[0])
    tables = [dataset.traced.with_row_index("row"), dumped]
    tables = [table.select("row", *_KEYS, "seq", "p2p_seq", "created_ns") for table in tables]
    seen, issued = (table.partition_by(_KEYS, as_dict=True) for table in tables)
    keys = [key for key in seen if key in issued][:MOST_SERIES]
    pairs = [pl.DataFrame(schema=schema)]
    for key in keys:
        first, second = series_of(seen[key]), series_of(issued[key])
        a, b = same_operations(first, second)
        pairs.append(pl.DataFrame({"row": first.rows[a], "op_row": second.rows[b]}, schema=schema))
    return pl.concat(pairs)
