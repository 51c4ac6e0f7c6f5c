"""Runs that agree with each other, what differs between reruns of one setting, and ranks that stand out over runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import polars as pl

from rankscope.features.comparison.rules.model import ComparedRun, Outlier, RunAgreement
from rankscope.features.comparison.rules.run_statistics import Sides
from rankscope.features.comparison.rules.schedule_comparison import ScheduleComparison, compare_schedules, schedule_rows
from rankscope.features.comparison.rules.series_comparison import STEP_SECONDS, SeriesComparison, side_by_side, unequal
from rankscope.features.comparison.rules.settings_differences import COUNTED, SettingsComparison, compare_settings
from rankscope.features.comparison.rules.tensor_differences import Place, TensorComparison
from rankscope.features.comparison.rules.time_comparison import LEAST_CHANGE, Floats
from rankscope.features.comparison.rules.value_causes import Grounds
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


Known = Mapping[tuple[int, int], Grounds]
"""Pairs of runs that are compared already."""
Same = Callable[[int, int], bool | None]
"""Whether two runs agree; None if they cannot be compared."""


# Agreement of runs.


def agreements(
    runs: Sequence[ComparedRun], labels: Sequence[str], known: Known, tables: Sequence[pl.DataFrame]
) -> tuple[RunAgreement, ...]:
    """Which runs agree in schedule, settings, values and outcome; respects that cannot be compared are missing.

    `tables` are the series of all runs, from one source.
    """
    found = {
        "schedule": _clusters(len(runs), _same_schedule(runs, known)),
        "settings": _clusters(len(runs), _same_settings(runs, known)),
        "values": _clusters(len(runs), _same_values(tables, known)),
        "outcome": _clusters(len(runs), lambda i, j: runs[i].analysis.is_critical == runs[j].analysis.is_critical),
    }
    return tuple(
        RunAgreement(aspect, tuple(tuple(labels[number] for number in one) for one in sorted(own, key=_size_first)))
        for aspect, own in found.items()
        if own
    )


def _size_first(cluster: Sequence[int]) -> tuple[int, int]:
    return -len(cluster), cluster[0]


def _clusters(count: int, same: Same) -> list[list[int]]:
    """Runs that agree with the first of their set; nothing if one cannot be compared with the first run."""
    found = [[0]]
    for number in range(1, count):
        for cluster in found:
            agrees = same(cluster[0], number)
            if agrees is None:
                return []
            if agrees:
                cluster.append(number)
                break
        else:
            found.append([number])
    return found


def _same_schedule(runs: Sequence[ComparedRun], known: Known) -> Same:
    def same(i: int, j: int) -> bool | None:
        found = _schedule(runs, i, j, known)
        if found is None or not (found.equal or found.partings):
            return None
        return not found.partings

    return same


def _schedule(runs: Sequence[ComparedRun], i: int, j: int, known: Known) -> ScheduleComparison | None:
    if (i, j) in known:
        return known[i, j].schedule
    one, other = runs[i].dataset, runs[j].dataset
    apart = one.world_size and other.world_size and one.world_size != other.world_size
    return None if apart else compare_schedules(one, other)


def _same_settings(runs: Sequence[ComparedRun], known: Known) -> Same:
    def same(i: int, j: int) -> bool | None:
        found = known[i, j].settings if (i, j) in known else compare_settings(runs[i], runs[j])
        counted = any(one.weight in COUNTED for one in found.changes)
        return None if not found.compared and not counted else not counted

    return same


def _same_values(tables: Sequence[pl.DataFrame], known: Known) -> Same:
    """Whether two runs have equal values at the steps that all runs have, and equal tensors if these are compared."""
    joined = side_by_side(tables) if all(table.width for table in tables) else pl.DataFrame()

    def same(i: int, j: int) -> bool | None:
        tensors = known[i, j].tensors if (i, j) in known else None
        equal = None if tensors is None else tensors.equal == tensors.compared
        if joined.is_empty():
            return equal
        columns = (joined[f"{name} {n}"].to_numpy() for name in ("value", "resolution") for n in (i, j))
        return not unequal(*columns).any() and equal is not False

    return same


# Noise of reruns.


class RerunNoise(NamedTuple):
    """Respects in which reruns of one setting differ: they are no sign of another setting."""

    schedule: frozenset[str]
    """Respects in which schedules part, such as "data-size"."""
    values: frozenset[str]
    """Names of series."""
    settings: frozenset[str]
    outcome: bool
    tensors: frozenset[Place] = frozenset()
    """Tensors that differ in any step."""

    def split(self, pair: Grounds) -> tuple[Grounds, Grounds]:
        """The pair without what differs between reruns, and with nothing else."""
        schedule, settings, series, *_ = pair
        noisy = schedule is not None and bool(schedule.partings) and schedule.partings[0].aspect in self.schedule
        quiet, rest = (
            pair._replace(
                schedule=schedule if noisy == within else None, series=_only(series, self.values, within),
                settings=_only_settings(settings, self.settings, within),
                tensors=_only_tensors(pair.tensors, self.tensors, within),
            )
            for within in (False, True)
        )  # fmt: skip
        return quiet, rest


def rerun_noise(reruns: Sequence[Grounds]) -> RerunNoise:
    """Respects in which any pair of reruns differs."""
    return RerunNoise(
        frozenset(one.schedule.partings[0].aspect for one in reruns if one.schedule and one.schedule.partings),
        frozenset(found.name for one in reruns for found in one.series.differences),
        frozenset(change.name for one in reruns for change in one.settings.changes),
        any(a.analysis.is_critical != b.analysis.is_critical for a, b in (one.runs for one in reruns)),
        frozenset(place for one in reruns if one.tensors is not None for place in one.tensors.places),
    )  # fmt: skip


def _only(series: SeriesComparison, names: frozenset[str], within: bool) -> SeriesComparison:
    return series._replace(differences=tuple(one for one in series.differences if (one.name in names) == within))


def _only_settings(settings: SettingsComparison, names: frozenset[str], within: bool) -> SettingsComparison:
    return settings._replace(changes=tuple(one for one in settings.changes if (one.name in names) == within))


def _only_tensors(
    tensors: TensorComparison | None, places: frozenset[Place], within: bool
) -> TensorComparison | None:  # fmt: skip
    """The comparison with differences at these places only, or at all others."""
    if tensors is None:
        return None
    return replace(tensors, differences=tuple(one for one in tensors.differences if (one.place in places) == within))
