"""Ranks that stand out over several runs: late at collectives, or slow in their steps, in B and not in A."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import polars as pl

from rankscope.analysis.comparison.model import ComparedRun, Outlier
from rankscope.analysis.comparison.run_statistics import Sides
from rankscope.analysis.comparison.schedule_comparison import schedule_rows
from rankscope.analysis.comparison.series_comparison import STEP_SECONDS
from rankscope.analysis.comparison.time_comparison import LEAST_CHANGE, Floats
from rankscope.text.wording import duration

LEAST_RANKS = 4
LEAST_LATE = 1e-3
"""Seconds; a rank that comes less late does not stand out."""
FAR = 5.0
"""Distance from the median over ranks, in robust standard deviations."""
MOST_RANKS = 8

RankValues = Mapping[int, float]


class RankMetric(NamedTuple):
    """One metric of each rank of all runs."""

    name: str
    in_seconds: bool
    """Whether ranks differ by seconds; else by a ratio."""
    values: tuple[RankValues, ...]
    """For each run the value of each rank."""


def outlying_ranks(runs: Sequence[ComparedRun], labels: Sequence[str], sides: Sides) -> tuple[Outlier, ...]:
    """Ranks that differ from the others in all candidates, and more than in the baselines; the largest first."""
    metrics = (
        RankMetric("late at collectives", True, tuple(map(lateness, runs))),
        RankMetric("step, as logged", False, tuple(map(_logged_steps, runs))),
    )
    return tuple(one for metric in metrics for one in rank_outliers(metric, labels, sides))


def lateness(run: ComparedRun) -> dict[int, float]:
    """For each rank the mean time in seconds by which it enters collectives behind the first of its peers.

    All members leave a collective at about the same time, so who enters last has the shortest duration in it: clocks of
    hosts need not agree.
    """
    rows = schedule_rows(run.dataset).rows.lazy()
    ns = pl.coalesce("duration_ns", pl.col("completed_ns") - pl.col("started_ns")).alias("ns")
    timed = rows.filter(~pl.col("is_p2p").fill_null(False) & pl.col("seq").is_not_null()).select(
        "rank", "group", "seq", ns
    )
    call = ["group", "seq"]
    behind = timed.filter(pl.col("ns") > 0).select(
        "rank", (pl.col("ns").max().over(call) - pl.col("ns")).alias("late"), pl.len().over(call).alias("members")
    )
    found = behind.filter(pl.col("members") > 1).group_by("rank").agg(pl.col("late").mean() / 1e9).collect()
    return {int(rank): float(late) for rank, late in found.iter_rows()}


def _logged_steps(run: ComparedRun) -> dict[int, float]:
    """For each rank that prints them the median of its step times in seconds."""
    if run.series.is_empty():
        return {}
    rows = run.series.filter(pl.col("name") == STEP_SECONDS, pl.col("rank").is_not_null(), pl.col("value") > 0)
    return {int(rank): float(value) for rank, value in rows.group_by("rank").agg(pl.col("value").median()).iter_rows()}


def rank_outliers(metric: RankMetric, labels: Sequence[str], sides: Sides) -> Iterator[Outlier]:
    """Ranks that stand out in one metric, those with the largest change first."""
    ranks = sorted(set.intersection(*(set(values) for values in metric.values)))
    if len(ranks) < LEAST_RANKS:
        return
    away = np.array([_away(metric, [values[rank] for rank in ranks]) for values in metric.values])
    side_a, side_b = (np.median(away[list(side)], axis=0) for side in sides)
    change = side_b - side_a
    least = LEAST_LATE if metric.in_seconds else LEAST_CHANGE
    far = np.abs(change - np.median(change)) > max(FAR * _spread(change), least)
    # a rank stands out in each candidate, and not by one run alone
    steady = (np.abs(away[list(sides.b)]) > least).all(axis=0) & (np.ptp(np.sign(away[list(sides.b)]), axis=0) == 0)
    places = sorted(np.flatnonzero(far & steady).tolist(), key=lambda at: -abs(float(change[at])))
    runs = tuple(labels[number] for number in sides.b)
    for at in places[:MOST_RANKS]:
        sizes = float(side_a[at]), float(side_b[at])
        yield Outlier(
            f"rank {ranks[at]}", metric.name, _title(metric, ranks[at], sizes), sizes[1], runs, metric.in_seconds
        )


def _away(metric: RankMetric, values: Sequence[float]) -> Floats:
    """The distance of each rank from the median over ranks: in seconds, or as a ratio."""
    own = np.array(values)
    middle = float(np.median(own))
    found: Floats = own - middle if metric.in_seconds else own / middle - 1
    return found


def _spread(values: Floats) -> float:
    from scipy.stats import median_abs_deviation

    return float(median_abs_deviation(values, scale="normal"))


def _title(metric: RankMetric, rank: int, sizes: tuple[float, float]) -> str:
    words = [_size_text(size, metric.in_seconds) for size in sizes]
    what = "enters collectives" if metric.in_seconds else "takes for a step"
    return f"rank {rank} {what} {words[1]} than the middle rank in B; in A {words[0]}"


def _size_text(size: float, in_seconds: bool) -> str:
    if in_seconds:
        return f"{duration(round(abs(size) * 1e9))} {'later' if size >= 0 else 'earlier'}"
    return f"{abs(size) * 100:.1f} % {'more' if size >= 0 else 'less'}"
