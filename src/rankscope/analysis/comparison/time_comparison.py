"""Durations of two runs: the ratio of medians with an interval that holds within these two runs.

Two runs of one setting differ by themselves: with an offset of 1 % such an interval excludes equality in 17 to 87 % of
pairs. So one run a side shows a ratio and never calls it significant.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from rankscope.analysis.arrays import Ints
from rankscope.analysis.comparison.schedule_alignment import stretch_hashes
from rankscope.analysis.comparison.schedule_comparison import ScheduleComparison, ScheduleRows
from rankscope.analysis.comparison.series_comparison import STEP_SECONDS
from rankscope.text.tensors import tensors

Floats = NDArray[np.float64]
LEAST_STEPS = 50
"""Fewer values of a side give no interval."""
WARM_UP = 10
"""First steps of a run that are left out."""
LEAST_CHANGE = 0.03
"""A smaller change of the median is no difference."""
_RESAMPLINGS = 400
_SEED = 0
_LARGEST = 0.125
"""Longest block as a part of the series."""
_UNCORRELATED = 0.1
_QUARTERS = 4
MOST_SITES = 20
"""Most call sites of collectives that are compared."""
_SITE = ["label", "op", "in_sizes", "in_dtypes"]
_PERIOD_STRETCH = 8
_REGULAR = 0.9
"""Part of the operations that must repeat after one period."""


class TimeRatio(NamedTuple):
    """Times of one thing in both runs."""

    name: str
    median_a: float
    """Seconds."""
    median_b: float
    count_a: int
    count_b: int
    low: float | None
    """Ends of the 95 % interval of the ratio within these two runs; None with fewer than `LEAST_STEPS` values."""
    high: float | None
    drift: float = 0.0
    """How much the steadier of the two runs differs from itself: see `own_drift`."""

    @property
    def ratio(self) -> float:
        """Median of B by that of A."""
        return self.median_b / self.median_a if self.median_a else float("nan")

    @property
    def stands_out(self) -> bool:
        """Whether the change is at least `LEAST_CHANGE` and its interval excludes equality.

        A change that is smaller than those that each run shows within itself is none: other work came and went.
        """
        if abs(self.ratio - 1) <= self.drift:
            return False
        known = self.low is not None and self.high is not None
        return known and abs(self.ratio - 1) >= LEAST_CHANGE and not (self.low or 0) <= 1 <= (self.high or 0)


class TimeComparison(NamedTuple):
    """Times of steps and of collectives."""

    steps: tuple[TimeRatio, ...]
    collectives: tuple[TimeRatio, ...]
    """By their cost in A, the largest first."""


def compare_times(
    schedule: ScheduleComparison | None, series_a: pl.DataFrame, series_b: pl.DataFrame
) -> TimeComparison:
    """The times of steps, by series or by the period of the schedule, and of collectives by group, operation, size."""
    steps = list(_logged_steps(series_a, series_b))
    if schedule is None:
        return TimeComparison(tuple(steps), ())
    steps = steps or list(_periods(schedule))
    return TimeComparison(tuple(steps), () if schedule.apart else tuple(_collectives(schedule)))


def time_ratio(name: str, a: Floats, b: Floats) -> TimeRatio:
    """The ratio of medians of two series of times in seconds, in order of time."""
    low, high = ratio_interval(a, b) if min(len(a), len(b)) >= LEAST_STEPS else (None, None)
    drift = min(own_drift(a), own_drift(b)) if low is not None else 0.0
    return TimeRatio(name, float(np.median(a)), float(np.median(b)), len(a), len(b), low, high, drift)


def own_drift(values: Floats) -> float:
    """The largest change between the medians of the quarters of a run, as a part of the smaller one."""
    middles = [float(np.median(part)) for part in np.array_split(values, _QUARTERS)]
    return max(middles) / min(middles) - 1 if min(middles) > 0 else 0.0


def ratio_interval(a: Floats, b: Floats) -> tuple[float, float]:
    """2.5 % and 97.5 % of the ratio of medians over resampled moving blocks; the seed is fixed."""
    rng = np.random.default_rng(_SEED)
    medians = [np.median(_resampled(rng, one), axis=1) for one in (a, b)]
    ratios = medians[1] / medians[0]
    return float(np.quantile(ratios, 0.025)), float(np.quantile(ratios, 0.975))


def _resampled(rng: np.random.Generator, values: Floats) -> Floats:
    """Samples of the series, one in each row, made of blocks of neighbours."""
    size = block_length(values)
    starts = rng.integers(0, len(values) - size + 1, size=(_RESAMPLINGS, -(-len(values) // size)))
    places = (starts[:, :, None] + np.arange(size)).reshape(_RESAMPLINGS, -1)[:, : len(values)]
    found: Floats = values[places]
    return found


def block_length(values: Floats) -> int:
    """(2c/(1-c²))^(2/3) T^(1/3) with the rank autocorrelation c of neighbours; 1 if c is small (Carlstein, 1986)."""
    ranks = pl.Series(values).rank("average").to_numpy()
    spread = float(np.std(ranks[:-1]) * np.std(ranks[1:]))
    if not spread:
        return 1
    c = float(np.mean((ranks[:-1] - ranks[:-1].mean()) * (ranks[1:] - ranks[1:].mean()))) / spread
    if c <= _UNCORRELATED:
        return 1
    c = min(c, 0.99)
    length = float((2 * c / (1 - c * c)) ** (2 / 3) * len(values) ** (1 / 3))
    return max(1, min(round(length), int(len(values) * _LARGEST)))


# Times of steps.


def _logged_steps(a: pl.DataFrame, b: pl.DataFrame) -> Iterator[TimeRatio]:
    """The times of steps that a trainer printed, without the first ones; one series for a run."""
    if a.is_empty() or b.is_empty():
        return
    times = [_step_seconds(one) for one in (a, b)]
    if all(map(len, times)):
        yield time_ratio("step, as logged", *times)


def _step_seconds(table: pl.DataFrame) -> Floats:
    rows = table.filter((pl.col("name") == STEP_SECONDS) & (pl.col("value") > 0)).sort("step")
    each = rows.group_by("step", maintain_order=True).agg(pl.col("value").max())["value"].to_numpy()
    found: Floats = each[WARM_UP:] if len(each) > WARM_UP else each
    return found


def _periods(schedule: ScheduleComparison) -> Iterator[TimeRatio]:
    """The times between repetitions of the loop on the lowest rank of both runs."""
    ranks = [rank for rank, one in schedule.alignments.items() if one.placed != "none"]
    if not ranks:
        return
    times = [_turn_seconds(run, ranks[0]) for run in (schedule.a, schedule.b)]
    if all(len(one) > 1 for one, _ in times) and times[0][1] == times[1][1]:
        name = f"turn of the loop of {times[0][1]} operations, rank {ranks[0]}"
        yield time_ratio(name, times[0][0], times[1][0])


def _turn_seconds(run: ScheduleRows, rank: int) -> tuple[Floats, int]:
    """Seconds of each turn of the loop, and the operations of a turn; 0 if nothing repeats."""
    start, end = run.bounds[rank]
    rows = run.rows[start:end]
    created = rows["created_ns"].to_numpy()
    period = period_of(plain_codes(rows))
    if not period or rows["created_ns"].null_count():
        return np.zeros(0), 0
    first = (len(created) - 1) % period
    if rank in run.whole:
        first += WARM_UP * period
    turns: Floats = np.diff(created[first::period]) / 1e9
    return turns[turns > 0], period


def plain_codes(rows: pl.DataFrame) -> Ints:
    """A number for each operation by kind, group and size, within this rank."""
    codes: Ints = rows.select(
        pl.struct(pl.col("op").cast(pl.String), "group", "in_sizes", "peer").rank("dense").cast(pl.Int64).alias("code")
    )["code"].to_numpy()
    return codes


def period_of(codes: Ints) -> int:
    """The length of the loop at the end of a sequence: the shortest that repeats; 0 if nothing does."""
    size = _PERIOD_STRETCH
    if len(codes) < 2 * size:
        return 0
    hashes = stretch_hashes(codes, size)
    places = np.flatnonzero(hashes == hashes[-1])
    shifts: list[int] = (len(hashes) - 1 - places[:-1][::-1])[:64].tolist()
    for shift in shifts:
        recent = codes[-min(len(codes), 4 * shift) :]
        if np.mean(recent[shift:] == recent[:-shift]) >= _REGULAR:
            return shift
    return 0


# Times of collectives.


def _collectives(schedule: ScheduleComparison) -> Iterator[TimeRatio]:
    """Times of the costliest collectives without the wait: the shortest over the ranks, pooled over groups."""
    both = _sites(schedule.a).join(_sites(schedule.b), on=_SITE, nulls_equal=True, suffix="_b")
    cost = both["seconds"].list.sum()
    ordered = both.with_columns(cost=cost).sort("cost", *_SITE, descending=[True, *(False for _ in _SITE)])
    for row in ordered.head(MOST_SITES).iter_rows(named=True):
        name = f"{row['op']} {tensors(row['in_sizes'], row['in_dtypes'])} in {row['label']}"
        yield time_ratio(name, np.array(row["seconds"]), np.array(row["seconds_b"]))


def _sites(run: ScheduleRows) -> pl.DataFrame:
    """label, op, in_sizes, in_dtypes, seconds: the times of each call site in order of their numbers."""
    duration = pl.coalesce("duration_ns", pl.col("completed_ns") - pl.col("started_ns")).alias("ns")
    timed = run.rows.lazy().select("group", "seq", "op", "in_sizes", "in_dtypes", "is_p2p", duration)
    moved = (
        timed.filter((pl.col("ns") > 0) & ~pl.col("is_p2p").fill_null(False) & pl.col("seq").is_not_null())
        .group_by("group", "seq", "op", "in_sizes", "in_dtypes").agg(pl.col("ns").min())
        .join(_labels(run).lazy(), on="group")
        .with_columns(pl.col("op", "in_dtypes").cast(pl.String))
        .group_by(*_SITE, "seq").agg(pl.col("ns").median())
    )  # fmt: skip
    return moved.sort("seq").group_by(_SITE).agg((pl.col("ns") / 1e9).alias("seconds")).collect()


def _labels(run: ScheduleRows) -> pl.DataFrame:
    """group, label: the description of each group, or the number of its members."""
    groups = run.dataset.groups
    unnamed = pl.format("groups of {}", pl.col("ranks").list.len())
    label = pl.when(pl.col("description") == "").then(unnamed).otherwise("description")
    return groups.select("group", label.alias("label"))
