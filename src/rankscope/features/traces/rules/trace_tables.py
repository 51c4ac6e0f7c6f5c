"""Tables of each trace by itself, steps, kernels, idle time, queues, launches, and operations that dumps hold too.

Both sources count alike: (group, number, is_p2p) is one operation of a rank, if the trace has its number (torch 2.12
and later, not on gloo). Both also take the issue time from one clock, some microseconds apart, and both are in issue
order for each rank and group. If times contradict the numbers, or there are no numbers, the two series are shifted onto
each other, and count as the same only if they match completely.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
import polars as pl

from rankscope.analysis.arrays import Ints
from rankscope.features.traces.rules.device_spans import BusyIntervals, SpanIndex, steps_on_device
from rankscope.features.traces.rules.host_pieces import host_pieces
from rankscope.features.traces.rules.model import IDLE, IDLE_KINDS, KERNELS, LAUNCHES, QUEUES, STEPS, Columns
from rankscope.schema import Dataset
from rankscope.schema.tables import SOURCES

# Tables of Holistic Trace Analysis: device work, launches, and reasons of idle streams.

LAUNCH_GAP_NS = 30_000
"""A shorter gap between two kernels is the cost of a launch: the default of HTA."""
FULL_QUEUE = 1024
"""Number of launched operations at which the next launch blocks."""
LATE_START_NS = 100_000
"""A kernel that starts this long after its launch is an outlier."""


def kernel_table(ran: pl.DataFrame) -> pl.DataFrame:
    """One row per kernel of a file, with KERNELS but the rank; `ran` is the work of its devices."""
    length = pl.col("end_ns") - pl.col("start_ns")
    by = [-pl.col("total_ns"), pl.col("kind"), pl.col("name").cast(pl.String)]
    table = ran.group_by("file", pl.col("what").cast(pl.String).alias("kind"), "name").agg(
        count=pl.len(), total_ns=length.sum(), mean_ns=length.mean().cast(pl.Int64), max_ns=length.max(),
        min_ns=length.min(),
    ).with_columns(share=pl.col("total_ns") / pl.col("total_ns").sum().over("kind"))  # fmt: skip
    return _shaped(table, KERNELS).sort(by)


def idle_table(launched: pl.DataFrame) -> pl.DataFrame:
    """One row per stream of a file and kind of idle time, with IDLE but the rank; see `SpanIndex.launched`.

    Host wait: the next kernel was launched only after the end of the previous one. Kernel wait: the gap is the cost of
    a launch. Other: neither, as when a stream waits for another.
    """
    before = pl.col("end_ns").shift().over("track")
    gap = (pl.col("start_ns") - before).alias("idle_ns")
    late = pl.col("call_ns") > before
    kind = (
        pl.when(late.fill_null(False)).then(pl.lit(IDLE_KINDS[0]))
        .when(pl.col("start_ns") - before < LAUNCH_GAP_NS).then(pl.lit(IDLE_KINDS[1])).otherwise(pl.lit(IDLE_KINDS[2]))
    )  # fmt: skip
    table = (
        launched.select("file", "track", "lane", gap, kind.alias("kind")).drop_nulls("idle_ns")
        .group_by("file", "track", "lane", "kind").agg(pl.col("idle_ns").clip(0).sum())
        .with_columns(share=pl.col("idle_ns") / pl.col("idle_ns").sum().over("track"))
    )  # fmt: skip
    return _shaped(table, IDLE).sort("track", "kind")


def queue_table(launched: pl.DataFrame) -> pl.DataFrame:
    """One row per stream of a file, with QUEUES but the rank: operations launched and not started, at each change."""
    ran = launched.filter(pl.col("call_ns").is_not_null())
    changes = pl.concat([
        ran.select("file", "track", "lane", at="call_ns", by=pl.lit(1)),
        ran.select("file", "track", "lane", at="start_ns", by=pl.lit(-1)),
    ]).sort("track", "at", maintain_order=True)  # fmt: skip
    waits = changes.with_columns(
        length=pl.col("by").cum_sum().over("track"), lasts=pl.col("at").shift(-1).over("track") - pl.col("at")
    )
    full = pl.col("lasts").filter(pl.col("length") >= FULL_QUEUE).sum()
    table = waits.group_by("file", "lane").agg(
        mean=pl.col("length").mean(), median=pl.col("length").median(), max=pl.col("length").max(), full_ns=full
    )
    return _shaped(table, QUEUES).sort("lane")


def launch_table(launched: pl.DataFrame) -> pl.DataFrame:
    """One row per file, with LAUNCHES but the rank; a kernel that starts during its launch has no delay."""
    delay = (pl.col("start_ns") - pl.col("called_ns")).clip(0)
    call, kernel = pl.col("called_ns") - pl.col("call_ns"), pl.col("end_ns") - pl.col("start_ns")
    table = launched.filter(pl.col("call_ns").is_not_null()).group_by("file").agg(
        launches=pl.len(), delay_ns=delay.median().cast(pl.Int64), delay_p99_ns=delay.quantile(0.99).cast(pl.Int64),
        runtime_ns=call.median().cast(pl.Int64), short=(kernel < call).sum(), late=(delay > LATE_START_NS).sum(),
    )  # fmt: skip
    return _shaped(table, LAUNCHES)


def _shaped(table: pl.DataFrame, columns: Columns) -> pl.DataFrame:
    return table.select([pl.col(name).cast(kind) for name, kind in columns.items() if name != "rank"])


FileTables = dict[str, pl.DataFrame]
"""Tables of one file by name, without its rank: "steps" on its own clock, and KERNELS, IDLE, QUEUES, LAUNCHES."""
TABLES: dict[str, Columns] = {"kernels": KERNELS, "idle": IDLE, "queues": QUEUES, "launches": LAUNCHES}
_LAUNCH_TABLES: dict[str, Callable[[pl.DataFrame], pl.DataFrame]] = {
    "idle": idle_table, "queues": queue_table, "launches": launch_table,
}  # fmt: skip
_LATER_COLUMNS = ("late_ns", "waited_ns")


def tables_of_all(spans: SpanIndex, steps: pl.DataFrame) -> FileTables:
    """The tables of all files, in the order of files.

    `steps` are those that the program marked: file, step, begin_ns, end_ns.
    """
    dataset, windows = spans.dataset, device_windows(spans, steps)
    ranks = dataset.traces.select("file", "rank")
    found = [_of(spans, file, windows[file]) for file in sorted(dataset.traces["file"])]
    out = {
        name: _ranked([one[name] for one in found if name in one], ranks, columns) for name, columns in TABLES.items()
    }
    without = {name: kind for name, kind in STEPS.items() if name not in _LATER_COLUMNS}
    told = _ranked([one["steps"] for one in found], ranks, without)
    return {**out, "steps": told.sort("rank", "file", "start_ns", maintain_order=True)}


def step_windows(dataset: Dataset, steps: pl.DataFrame) -> dict[int, pl.DataFrame]:
    """By file its steps as its host goes through them; the whole window is one step if none are marked."""
    windows = dataset.traces.select(
        "file", pl.lit(0, dtype=pl.Int64).alias("step"), begin_ns="start_ns", end_ns="end_ns"
    )
    marked = steps.select("file", "step", "begin_ns", "end_ns").sort("begin_ns")
    parts = {file: part for (file,), part in marked.partition_by("file", as_dict=True).items()}
    return {file: parts.get(file, part) for (file,), part in windows.partition_by("file", as_dict=True).items()}


def device_windows(spans: SpanIndex, steps: pl.DataFrame) -> dict[int, pl.DataFrame]:
    """The same as its device goes through them; `steps` are all that the program marked, and each file is cut once."""
    marked = set(steps["file"])

    def cut(file: int, part: pl.DataFrame) -> pl.DataFrame:
        return steps_on_device(spans, file, part) if file in marked else part

    windows = step_windows(spans.dataset, steps)
    return {file: spans.once("steps", file, partial(cut, file, part)) for file, part in windows.items()}


def _of(spans: SpanIndex, file: int, steps: pl.DataFrame) -> FileTables:
    ran, launched = spans.device(file), spans.launched(file)
    tables = {"steps": split_steps(spans, file, steps)}
    if ran is not None:
        tables["kernels"] = kernel_table(ran)
        tables |= {name: make(launched) for name, make in _LAUNCH_TABLES.items()}
    return tables


def _ranked(tables: list[pl.DataFrame], ranks: pl.DataFrame, columns: Columns) -> pl.DataFrame:
    """The tables merged into one with these columns, and the rank of each file."""
    if not tables:
        return pl.DataFrame(schema=columns)
    joined = pl.concat(tables, how="vertical_relaxed").join(ranks, on="file", maintain_order="left")
    return joined.select([pl.col(name).cast(kind) for name, kind in columns.items()])


# Time of each rank and step by activity: computing, communication, copies, idle.


def split_steps(spans: SpanIndex, file: int, steps: pl.DataFrame) -> pl.DataFrame:
    """Columns of STEPS but `rank`, `late_ns` and `waited_ns`, on the file's own clock.

    `steps`: file, step, begin_ns, end_ns, all of one file.
    """
    since, until = steps["begin_ns"].to_numpy(), steps["end_ns"].to_numpy()
    ran = spans.device(file)
    if ran is None:
        none = pl.lit(None, dtype=pl.Int64)
        return steps.select(*_HEAD, **dict.fromkeys(_PARTS, none))
    start, end, what = ran["start_ns"].to_numpy(), ran["end_ns"].to_numpy(), ran["what"].to_physical().to_numpy()
    computes, communicates = what == 0, what == 1
    both = computes | communicates
    device = BusyIntervals.of(start, end)
    compute = BusyIntervals.of(start[computes], end[computes]).within(since, until)
    communication = BusyIntervals.of(start[communicates], end[communicates]).within(since, until)
    either, any_ = BusyIntervals.of(start[both], end[both]).within(since, until), device.within(since, until)
    active = device.joined(host_pieces(spans, file).work).within(since, until)
    table = steps.select(*_HEAD).with_columns(
        compute_ns=pl.Series(compute), communication_ns=pl.Series(communication),
        exposed_ns=pl.Series(either - compute), overlap_ns=pl.Series(compute + communication - either),
        memory_ns=pl.Series(any_ - either), idle_ns=pl.Series(until - since - any_),
        host_gap_ns=pl.Series(until - since - active),
    )  # fmt: skip
    if file in spans.whole:
        return table
    unread = [name for name in _PARTS if name != "communication_ns"]
    return table.with_columns(pl.lit(None, dtype=pl.Int64).alias(name) for name in unread)


_HEAD = ("file", "step", pl.col("begin_ns").alias("start_ns"), "end_ns")
_PARTS = ("compute_ns", "communication_ns", "exposed_ns", "overlap_ns", "memory_ns", "idle_ns", "host_gap_ns")


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
