"""The same operation among those of dumps and among those that a profiler saw.

Both count alike: (group, number, is_p2p) is one operation of a rank, where the trace tells its number (torch 2.12 and
later, not on gloo). Both also take the time at which the host issued it from one clock, some microseconds apart, and
of one rank and group both are in the order of issue. Where times contradict the numbers, or there are none, the two
series are laid on each other, and are taken for the same only where they fit each other whole.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from rankscope.schema import SOURCES, Dataset

Ints = npt.NDArray[np.int64]
NEAR_NS = 200_000
"""Operations that were issued further apart than this are not the same, unless what lies around them says so."""
FAR, FEWEST = 0.25, 4
"""Share of them that may be, and how many there must be to say so."""
BEFORE_NS = 20_000
"""A recorder notes an operation after the profiler saw it begin, give or take so much."""
ONE_RUN_NS = 60_000_000_000
"""Operations of one number that were issued further apart are of two runs."""
DATED_NS = 10**17
"""Earlier times (before 1973) are those of a trace that lost the base of its clock."""
UNTOLD = -1
"""Stands for the number of an operation that tells none."""
MOST_SERIES = 20_000
"""Ranks times groups that are joined for the report."""
PROBES = 3
_KEYS = ["rank", "group", "is_p2p"]


@dataclass(frozen=True)
class OperationSeries:
    """The operations of one rank and group in the order in which it issued them."""

    rows: Ints
    """Whatever the caller knows them by."""
    numbers: Ints
    issued_ns: Ints


def series_of(table: pl.DataFrame) -> OperationSeries:
    """Rows of `ops` or `traced`, with their place in it as `row`, that tell when they were issued."""
    number = pl.when("is_p2p").then("p2p_seq").otherwise("seq").fill_null(UNTOLD)
    known = table.filter(pl.col("created_ns").is_not_null()).sort("created_ns", "row")
    columns = known.select(pl.col("row").cast(pl.Int64), number=number, issued="created_ns")
    return OperationSeries(*(columns[name].to_numpy() for name in columns.columns))


def same_operations(seen: OperationSeries, issued: OperationSeries) -> tuple[Ints, Ints]:
    """Places in `seen` and in `issued` of the operations that are the same."""
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
    """The places of equal numbers; None where they are not told, or do not tell operations apart."""
    own = np.flatnonzero(issued.numbers != UNTOLD)
    for numbers in (seen.numbers, issued.numbers[own]):
        if not len(numbers) or (numbers == UNTOLD).any() or len(np.unique(numbers)) < len(numbers):
            return None
    _, a, b = np.intersect1d(seen.numbers, issued.numbers[own], assume_unique=True, return_indices=True)
    return (a, own[b]) if len(a) else None


def _apart(seen: OperationSeries, issued: OperationSeries, places: tuple[Ints, Ints]) -> int:
    a, b = places
    return int(np.median(np.abs(seen.issued_ns[a] - issued.issued_ns[b])))


def _may_be_one_run(seen: OperationSeries, issued: OperationSeries, places: tuple[Ints, Ints]) -> bool:
    """Whether times differ by about the same everywhere, as clocks do, and not by so much that it is another run."""
    a, b = places
    apart = seen.issued_ns[a] - issued.issued_ns[b]
    steady = float(np.median(np.abs(apart - np.median(apart)))) <= NEAR_NS
    dated = int(seen.issued_ns[0]) > DATED_NS
    return steady and (not dated or abs(float(np.median(apart))) <= ONE_RUN_NS)


def laid_on(seen: Ints, issued: Ints) -> int | None:
    """How many places later each of `seen` stands in `issued`, both rising; None where they do not fit each other."""
    shifts = {shift for a, b, sign in ((seen, issued, 1), (issued, seen, -1)) for shift in _near(a, b, sign)}
    fitting = {shift: apart for shift in shifts if (apart := _fit(seen, issued, shift)) is not None}
    return min(fitting, key=lambda shift: fitting[shift]) if fitting else None


def _near(these: Ints, those: Ints, sign: int) -> list[int]:
    """Shifts that lay one of `these` on one of `those` that was issued at nearly the same time."""
    if not len(these) or not len(those):
        return []
    out: list[int] = []
    for at in np.unique(np.linspace(0, len(these) - 1, PROBES).astype(np.int64)).tolist():
        low, high = np.searchsorted(those, [these[at] - NEAR_NS, these[at] + NEAR_NS])
        out += [sign * (place - at) for place in range(int(low), int(high))]
    return out


def _fit(seen: Ints, issued: Ints, shift: int) -> tuple[bool, int] | None:
    """How badly the pairs of a shift fit: not all near, and how far apart; None where they cannot be the same.

    All are near, or most are, and the others were recorded before the next one was issued: a thread may lose its
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


def recorded(dataset: Dataset) -> pl.DataFrame:
    """row (of `traced`), op_row (of `ops`): the operations of traces that are in dumps as well."""
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
