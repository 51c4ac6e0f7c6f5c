"""Runs that agree with each other, and what differs between reruns of one setting."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import polars as pl

from rankscope.analysis.comparison.model import ComparedRun, RunAgreement
from rankscope.analysis.comparison.schedule_comparison import ScheduleComparison, compare_schedules
from rankscope.analysis.comparison.series_comparison import SeriesComparison, side_by_side, unequal
from rankscope.analysis.comparison.settings_differences import COUNTED, SettingsComparison, compare_settings
from rankscope.analysis.comparison.tensor_differences import Place, TensorComparison
from rankscope.analysis.comparison.value_causes import Grounds

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
