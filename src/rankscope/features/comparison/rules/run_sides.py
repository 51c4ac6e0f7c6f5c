"""More than two runs compared: baselines against candidates, which are reruns of one setting or each another one.

It tells which runs agree, what differs between reruns of one setting, and which ranks stand out over runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
import polars as pl

from rankscope.features.comparison.rules.hypotheses import Grounds, hypotheses
from rankscope.features.comparison.rules.model import (
    ComparedPart,
    ComparedRun,
    ComparisonPictures,
    DifferenceKind,
    Hypothesis,
    MetricEffect,
    Outlier,
    PartState,
    RunAgreement,
    RunComparison,
    RunDifference,
    RunGroups,
)
from rankscope.features.comparison.rules.run_comparison import (
    NothingComparableError,
    beside_text,
    compared_pair,
    differences_of,
    pair_comparison,
    pair_pictures,
    parts_of,
    run_facts,
    same_headline,
    time_differences,
)
from rankscope.features.comparison.rules.run_statistics import (
    RunMetric,
    Sides,
    metric_differences,
    metric_effects,
    metrics_part,
    outlying_runs,
    power_text,
    run_metrics,
    runs_needed,
    smallest_p,
)
from rankscope.features.comparison.rules.schedule_comparison import compare_schedules, schedule_rows
from rankscope.features.comparison.rules.series_comparison import (
    LEAST_BASELINES,
    STEP_SECONDS,
    CommonSeries,
    beyond_noise,
    common_series,
    side_by_side,
    unequal,
)
from rankscope.features.comparison.rules.settings_differences import compare_settings
from rankscope.features.comparison.rules.tensor_differences import Place
from rankscope.features.comparison.rules.time_comparison import LEAST_CHANGE
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
    logged: list[RankValues] = []
    for run in runs:
        if run.series.is_empty():
            logged.append({})
            continue
        rows = run.series.filter(pl.col("name") == STEP_SECONDS, pl.col("rank").is_not_null(), pl.col("value") > 0)
        medians = rows.group_by("rank").agg(pl.col("value").median())
        logged.append({int(rank): float(value) for rank, value in medians.iter_rows()})
    metrics = (
        RankMetric("late at collectives", True, tuple(map(lateness, runs))),
        RankMetric("step, as logged", False, tuple(logged)),
    )
    return tuple(outlier for metric in metrics for outlier in rank_outliers(metric, labels, sides))


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


def rank_outliers(metric: RankMetric, labels: Sequence[str], sides: Sides) -> Iterator[Outlier]:
    """Ranks that stand out in one metric, those with the largest change first."""
    from scipy.stats import median_abs_deviation

    ranks = sorted(set.intersection(*(set(values) for values in metric.values)))
    if len(ranks) < LEAST_RANKS:
        return
    values = np.array([[of_run[rank] for rank in ranks] for of_run in metric.values])
    middle = np.median(values, axis=1, keepdims=True)
    # the distance of each rank from the median over ranks: in seconds, or as a ratio
    away = values - middle if metric.in_seconds else values / middle - 1
    side_a, side_b = (np.median(away[list(side)], axis=0) for side in sides)
    change = side_b - side_a
    least = LEAST_LATE if metric.in_seconds else LEAST_CHANGE
    far = np.abs(change - np.median(change)) > max(FAR * float(median_abs_deviation(change, scale="normal")), least)
    # a rank stands out in each candidate, and not by one run alone
    steady = (np.abs(away[list(sides.b)]) > least).all(axis=0) & (np.ptp(np.sign(away[list(sides.b)]), axis=0) == 0)
    places = sorted(np.flatnonzero(far & steady).tolist(), key=lambda at: -abs(float(change[at])))
    runs = tuple(labels[number] for number in sides.b)
    what = "enters collectives" if metric.in_seconds else "takes for a step"
    for at in places[:MOST_RANKS]:
        size_a, size_b = (_size_text(float(side[at]), metric.in_seconds) for side in (side_a, side_b))
        title = f"rank {ranks[at]} {what} {size_b} than the middle rank in B; in A {size_a}"
        yield Outlier(f"rank {ranks[at]}", metric.name, title, float(side_b[at]), runs, metric.in_seconds)


def _size_text(size: float, in_seconds: bool) -> str:
    if in_seconds:
        return f"{duration(round(abs(size) * 1e9))} {'later' if size >= 0 else 'earlier'}"
    return f"{abs(size) * 100:.1f} % {'more' if size >= 0 else 'less'}"


Known = Mapping[tuple[int, int], Grounds]
"""Pairs of runs that are compared already."""
Same = Callable[[int, int], bool | None]
"""Whether two runs agree; None if they cannot be compared."""


def agreements(
    runs: Sequence[ComparedRun], labels: Sequence[str], known: Known, tables: Sequence[pl.DataFrame]
) -> tuple[RunAgreement, ...]:
    """Which runs agree in schedule, settings, values and outcome; respects that cannot be compared are missing.

    `tables` are the series of all runs, from one source.
    """
    joined = side_by_side(tables) if all(table.width for table in tables) else pl.DataFrame()

    def same_schedule(i: int, j: int) -> bool | None:
        a, b = runs[i].dataset, runs[j].dataset
        if (i, j) in known:
            schedule = known[i, j].schedule
        else:
            is_apart = a.world_size and b.world_size and a.world_size != b.world_size
            schedule = None if is_apart else compare_schedules(a, b)
        if schedule is None or not (schedule.equal or schedule.partings):
            return None
        return not schedule.partings

    def same_settings(i: int, j: int) -> bool | None:
        settings = known[i, j].settings if (i, j) in known else compare_settings(runs[i], runs[j])
        counted = any(change.counts for change in settings.changes)
        return None if not settings.compared and not counted else not counted

    def same_values(i: int, j: int) -> bool | None:
        """At the steps that all runs have, and of the tensors if these are compared."""
        tensors = known[i, j].tensors if (i, j) in known else None
        equal = None if tensors is None else tensors.equal == tensors.compared
        if joined.is_empty():
            return equal
        columns = (joined[f"{name} {n}"].to_numpy() for name in ("value", "resolution") for n in (i, j))
        return not unequal(*columns).any() and equal is not False

    aspects: dict[str, Same] = {
        "schedule": same_schedule,
        "settings": same_settings,
        "values": same_values,
        "outcome": lambda i, j: runs[i].analysis.is_critical == runs[j].analysis.is_critical,
    }
    agreed = []
    for aspect, same in aspects.items():
        clusters = sorted(_clusters(len(runs), same), key=lambda cluster: (-len(cluster), cluster[0]))
        if clusters:
            named = tuple(tuple(labels[number] for number in cluster) for cluster in clusters)
            agreed.append(RunAgreement(aspect, named))
    return tuple(agreed)


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
        schedule, tensors = pair.schedule, pair.tensors
        noisy = schedule is not None and bool(schedule.partings) and schedule.partings[0].aspect in self.schedule
        halves = []
        for within in (False, True):
            series = [one for one in pair.series.differences if (one.name in self.values) == within]
            changes = [one for one in pair.settings.changes if (one.name in self.settings) == within]
            if tensors is not None:
                differing = [one for one in tensors.differences if (one.place in self.tensors) == within]
            halves.append(
                pair._replace(
                    schedule=schedule if noisy == within else None,
                    settings=pair.settings._replace(changes=tuple(changes)),
                    series=pair.series._replace(differences=tuple(series)),
                    tensors=None if tensors is None else replace(tensors, differences=tuple(differing)),
                )
            )
        return halves[0], halves[1]


def rerun_noise(reruns: Sequence[Grounds]) -> RerunNoise:
    """Respects in which any pair of reruns differs."""
    return RerunNoise(
        frozenset(rerun.schedule.partings[0].aspect for rerun in reruns if rerun.schedule and rerun.schedule.partings),
        frozenset(difference.name for rerun in reruns for difference in rerun.series.differences),
        frozenset(change.name for rerun in reruns for change in rerun.settings.changes),
        any(a.analysis.is_critical != b.analysis.is_critical for a, b in (rerun.runs for rerun in reruns)),
        frozenset(place for rerun in reruns if rerun.tensors is not None for place in rerun.tensors.places),
    )


_KINDS = ("schedule-differs", "values-differ", "outcome-differs", "durations-differ", "settings-differ")
"""Kinds of differences in program order."""


def compare_sides(
    baselines: Sequence[ComparedRun], candidates: Sequence[ComparedRun], *, pooled: bool = True, is_drawn: bool = False
) -> RunComparison:
    """The comparison of candidates with baselines, reruns of one setting each; raises NothingComparableError.

    If not `pooled`, each candidate is a setting of its own, and compared with the one baseline. If `is_drawn`, it has
    the data of pictures of the first pair, with the series of all runs.
    """
    runs, sides = (*baselines, *candidates), _sides(len(baselines), len(candidates))
    if len(runs) == 2:
        pair = compared_pair(*runs)
        effects = metric_effects(run_metrics({1: pair.times}, pair.common, 2) if pair.times else (), sides)
        pictures = pair_pictures(pair, list(zip("AB", pair.common.tables, strict=True))) if is_drawn else None
        return replace(pair_comparison(pair), metrics=effects, pictures=pictures or ComparisonPictures())
    several = SeveralRuns(runs, sides, pooled)
    found = _comparison(several)
    if not is_drawn:
        return found
    tables = [(label, table) for label, table in zip(several.labels, several.series.tables, strict=True) if table.width]
    return replace(found, pictures=pair_pictures(next(iter(several.candidates.values())), tables))


def _sides(baselines: int, candidates: int) -> Sides:
    return Sides(tuple(range(baselines)), tuple(range(baselines, baselines + candidates)))


@dataclass(frozen=True)
class SeveralRuns:
    """All runs with what is known of each pair with the first baseline."""

    runs: tuple[ComparedRun, ...]
    sides: Sides
    pooled: bool

    @cached_property
    def labels(self) -> tuple[str, ...]:
        """A or A1, A2, ..; B or B1, B2, .."""
        return tuple(
            f"{side}{number if len(runs) > 1 else ''}"
            for side, runs in zip("AB", self.sides, strict=True)
            for number in range(1, len(runs) + 1)
        )

    @cached_property
    def tried(self) -> dict[int, Grounds | str]:
        """For each other run its comparison with the first, or why there is none."""
        found: dict[int, Grounds | str] = {}
        for number in range(1, len(self.runs)):
            try:
                found[number] = compared_pair(self.runs[0], self.runs[number])
            except NothingComparableError as error:
                found[number] = str(error)
        return found

    @cached_property
    def pairs(self) -> dict[int, Grounds]:
        """The comparisons with the first run."""
        return {number: one for number, one in self.tried.items() if not isinstance(one, str)}

    @cached_property
    def candidates(self) -> dict[int, Grounds]:
        """Those of candidates."""
        return {number: one for number, one in self.pairs.items() if number in self.sides.b}

    @cached_property
    def series(self) -> CommonSeries:
        """The series that all runs with any series have."""
        have = [number for number, run in enumerate(self.runs) if not run.series.is_empty()]
        found = common_series([self.runs[number].series for number in have]) if have else CommonSeries((), ())
        tables = dict(zip(have, found.tables, strict=True))
        empty = self.runs[0].series.clear().select([])
        return CommonSeries(tuple(tables.get(number, empty) for number in range(len(self.runs))), found.notes)

    @cached_property
    def metrics(self) -> tuple[RunMetric, ...]:
        """The metrics of all runs."""
        times = {number: one.times for number, one in self.pairs.items() if one.times is not None}
        return run_metrics(times, self.series, len(self.runs))

    @cached_property
    def outliers(self) -> tuple[Outlier, ...]:
        """Runs that differ from their peers: of their side, or of all runs if each is a setting of its own."""
        pools = self.sides if self.pooled else (tuple(range(len(self.runs))),)
        found = (outlying_runs(self.metrics, {number: self.labels[number] for number in pool}) for pool in pools)
        return tuple(outlier for outliers in found for outlier in outliers)

    @cached_property
    def noise(self) -> RerunNoise:
        """Differences between reruns of the baseline, or of the candidate if there is one baseline."""
        if len(self.sides.a) > 1 or not self.pooled:
            return rerun_noise([pair for number, pair in self.pairs.items() if number in self.sides.a])
        first = self.sides.b[0]
        others = [number for number in self.sides.b[1:] if number in self.pairs and first in self.pairs]
        return rerun_noise([compared_pair(self.runs[first], self.runs[number]) for number in others])


def _comparison(several: SeveralRuns) -> RunComparison:
    if not several.candidates:
        raise NothingComparableError("; ".join(str(several.tried[number]) for number in several.sides.b))
    effects = metric_effects(several.metrics, several.sides)
    if not several.pooled:
        effects = tuple(
            replace(effect, low=None, high=None, p=None, q=None, smallest_effect=None) for effect in effects
        )
    split = {number: several.noise.split(pair) for number, pair in several.candidates.items()}
    quiet = {number: pair for number, (pair, _) in split.items()}
    left, lines = _left_ranges(several)
    # schedules, values, outcomes and settings that no rerun shows, each with its candidates
    exact = {
        several.labels[number]: [
            difference
            for difference in differences_of(pair, ())
            if difference.kind != "outcome-differs" or not several.noise.outcome
        ]
        for number, pair in quiet.items()
    }
    unordered = [*_merged(exact), *left, *_time_differences(several, quiet, effects)]
    differences = tuple(sorted(unordered, key=lambda difference: _KINDS.index(difference.kind)))
    if several.pooled:
        durations = metrics_part(effects)
    else:
        number, pair = next(iter(several.candidates.items()))
        durations = parts_of(pair)[3]
        durations = replace(durations, summary=f"{several.labels[number]}: {durations.summary}", lines=())
    differing = {_ASPECTS[difference.kind] for difference in differences}
    parts = tuple(
        replace(part, state=PartState.DIFFERS) if part.name in differing else part
        for part in (*_parts(several, quiet, left, lines), durations)
    )
    groups = _groups(several, effects, {number: rest for number, (_, rest) in split.items()})
    causes: tuple[Hypothesis, ...] = ()
    if differences:
        # of the pair that shows the first difference
        label = differences[0].runs[0] if differences[0].runs else ""
        shown = (pair for number, pair in quiet.items() if several.labels[number] == label)
        causes = hypotheses(next(shown, next(iter(quiet.values())))._replace(times=None))
    facts = tuple(run_facts(label, run) for label, run in zip(several.labels, several.runs, strict=True))
    return RunComparison(_headline(differences, parts, groups), facts, parts, differences, causes, effects, groups)


def _merged(by_run: Mapping[str, Sequence[RunDifference]]) -> Iterator[RunDifference]:
    """Equal differences of several candidates as one."""
    merged: dict[tuple[object, ...], RunDifference] = {}
    for label, differences in by_run.items():
        for difference in differences:
            # values of one step have other digits in each candidate
            title = difference.title.partition(":")[0] if difference.kind == "values-differ" else difference.title
            key = (difference.kind, difference.ranks, difference.step, difference.operation, title)
            known = merged.get(key, difference)
            merged[key] = replace(known, runs=(*known.runs, label))
    yield from merged.values()


def _left_ranges(several: SeveralRuns) -> tuple[list[RunDifference], list[str]]:
    """Series that most candidates take out of the range of the baselines, and lines on those that fewer do."""
    baselines = [several.series.tables[number] for number in several.sides.a if several.series.tables[number].width]
    if len(baselines) < LEAST_BASELINES or not several.pooled:
        return [], []
    left: dict[str, dict[str, int]] = {}
    for number in several.sides.b:
        for name, step in beyond_noise(baselines, several.series.tables[number]):
            if name in several.noise.values:
                left.setdefault(name, {}).setdefault(several.labels[number], step)
    differences, lines = list[RunDifference](), list[str]()
    for name, steps in left.items():
        title = f"{name} leaves the range of the {len(baselines)} baselines at step {min(steps.values())}"
        if 2 * len(steps) > len(several.sides.b):
            differences.append(RunDifference("values-differ", title, step=min(steps.values()), runs=tuple(steps)))
        else:
            lines.append(f"{title} in {', '.join(steps)} only")
    return differences, lines


def _time_differences(
    several: SeveralRuns, pairs: Mapping[int, Grounds], effects: Sequence[MetricEffect]
) -> list[RunDifference]:
    """Metrics that differ over runs; for single candidates their times against the one baseline."""
    by_label = {several.labels[number]: list(time_differences(pair.times)) for number, pair in pairs.items()}
    if not several.pooled:
        differences = list(_merged(by_label))
        # times of steps in which one run differs from all others, if its comparison with A does not show it already
        steps = {metric.name for metric in several.metrics if metric.kind == "step"}
        for outlier in several.outliers:
            if outlier.metric in steps and not by_label.get(outlier.name):
                runs = (outlier.name,) if outlier.name in several.labels[1:] else several.labels[1:]
                differences.append(RunDifference("durations-differ", outlier.title, runs=runs))
        return differences
    reruns = {
        (rerun.kind, rerun.ranks)
        for number in several.sides.a[1:]
        if number in several.pairs
        for rerun in time_differences(several.pairs[number].times)
    }
    ranked = _merged({label: [one for one in differences if one.ranks] for label, differences in by_label.items()})
    most = len(several.sides.b) / 2
    steady = [one for one in ranked if len(one.runs) > most and (one.kind, one.ranks) not in reruns]
    return [*steady, *metric_differences(effects)]


def _parts(
    several: SeveralRuns, pairs: Mapping[int, Grounds], ranges: Sequence[RunDifference], lines: Sequence[str]
) -> Iterator[ComparedPart]:
    """The answers of schedule, settings and values: one for all candidates, or those of each."""
    answers = {several.labels[number]: parts_of(pair) for number, pair in pairs.items()}
    failed = [f"{several.labels[number]}: {why}" for number, why in several.tried.items() if isinstance(why, str)]
    noisy = [*sorted(several.noise.values), *(["tensors"] if several.noise.tensors else [])]
    for at, name in enumerate(("schedule", "settings", "values")):
        parts = {label: of_pair[at] for label, of_pair in answers.items()}
        labels: dict[str, list[str]] = {}
        for label, part in parts.items():
            labels.setdefault(part.answer, []).append(label)
        summaries = (
            [f"{', '.join(runs)}: {answer}" for answer, runs in labels.items()] if len(labels) > 1 else [*labels]
        )
        state = min((part.state for part in parts.values()), key=_STATES.index)
        if name == "values" and noisy:
            between = f"{', '.join(noisy)} differ between reruns, too"
            summaries = [*(difference.title for difference in ranges), between, *summaries]
            state = PartState.DIFFERS if ranges or state is PartState.DIFFERS else PartState.UNCOUNTED
        first = next(iter(parts.values()))
        summary = first.summary if state is PartState.NOT_COMPARED and len(labels) == 1 else summaries[0]
        more = failed if name == "schedule" else lines if name == "values" else ()
        left = [*dict.fromkeys(reason for part in parts.values() for reason in part.left)]
        if state is not PartState.NOT_COMPARED:
            left += [f"{label}: {part.summary}" for label, part in parts.items() if not part.is_compared]
        yield ComparedPart(name, state, summary, (*summaries[1:], *more, *first.lines), tuple(left))


_STATES = (PartState.DIFFERS, PartState.UNCOUNTED, PartState.EQUAL, PartState.NOT_COMPARED)
"""The answer for all candidates is the first of these that one of them has."""


_ASPECTS: Mapping[DifferenceKind, str] = {
    "schedule-differs": "schedule",
    "settings-differ": "settings",
    "values-differ": "values",
    "outcome-differs": "outcome",
    "durations-differ": "durations",
}


def _groups(several: SeveralRuns, effects: Sequence[MetricEffect], rest: Mapping[int, Grounds]) -> RunGroups:
    known = {(0, number): pair for number, pair in several.pairs.items()}
    tested = len(effects)
    labels, count_a = several.labels, len(several.sides.a)
    power = "each run against A: times hold within two runs; reruns of both (--baseline, --candidate) tell more"
    return RunGroups(
        labels[:count_a],
        labels[count_a:],
        several.pooled,
        power_text(several.sides, tested) if several.pooled else power,
        smallest_p(*map(len, several.sides)) if several.pooled else None,
        runs_needed(tested) if several.pooled else None,
        agreements(several.runs, labels, known, several.series.tables),
        several.outliers,
        outlying_ranks(several.runs, labels, several.sides) if several.pooled else (),
        tuple(_noisy(several, rest)),
    )


def _noisy(several: SeveralRuns, rest: Mapping[int, Grounds]) -> Iterator[RunDifference]:
    """Differences of the candidates that reruns show as well; of each series one."""
    by_label = {
        several.labels[number]: [
            difference
            for difference in differences_of(pair, ())
            if difference.kind != "values-differ" and (difference.kind != "outcome-differs" or several.noise.outcome)
        ]
        for number, pair in rest.items()
    }
    yield from _merged(by_label)
    steps: dict[str, dict[str, int]] = {}
    for number, pair in rest.items():
        tensors = () if pair.tensors is None else pair.tensors.differences
        named = [(difference.name, difference.step) for difference in pair.series.differences]
        named += [("tensors", tensor.found.step or 0) for tensor in tensors]
        for name, step in named:
            steps.setdefault(name, {}).setdefault(several.labels[number], step)
    for name, step_of_run in steps.items():
        first = min(step_of_run.values())
        yield RunDifference("values-differ", f"{name} from step {first} on", step=first, runs=tuple(step_of_run))


def _headline(differences: Sequence[RunDifference], parts: Sequence[ComparedPart], groups: RunGroups) -> str:
    count = len(groups.candidates)
    if not differences:
        who = "A and B" if groups.pooled else f"A and {', '.join(groups.candidates)}"
        return f"{same_headline(parts, who)}{beside_text(parts)}"
    first, more = differences[0], len(differences) > 1
    if groups.pooled:
        some = f"{', '.join(first.runs)} of {count} candidates" if 0 < len(first.runs) < count else "B"
        verb = "differ" if 1 < len(first.runs) < count else "differs"
        return f"{some} {verb} from A{' first' if more else ''}: {first.title}"
    # which of all runs differ from which, in the respect of the first difference
    aspect = _ASPECTS.get(first.kind)
    clusters = next((agreement.clusters for agreement in groups.agreement if agreement.aspect == aspect), ())
    if len(clusters) == 2 and len(clusters[1]) == 1 < len(clusters[0]):
        who = f"{clusters[1][0]} differs from the {count} others, which agree"
    elif clusters and len(clusters[0]) == 1:
        who = f"no two of {count + 1} runs agree"
    else:
        who = f"{', '.join(first.runs)} of {count} runs differ{'s' if len(first.runs) == 1 else ''} from A"
    return f"{who}: {first.title}"


class WholeComparison(NamedTuple):
    """A comparison with all that it rests on, for lanes and pictures."""

    found: RunComparison
    runs: tuple[ComparedRun, ...]
    """Baselines first, then candidates."""
    grounds: Grounds
    """Those of the first baseline and the first candidate that can be compared with it."""
    series: CommonSeries
    """The compared series of each run."""
    baselines: int = 1
    """How many of the runs are baselines."""

    @property
    def pair(self) -> tuple[ComparedRun, ComparedRun]:
        """The two runs that lanes show."""
        return self.grounds.runs


def compare_in_full(a: ComparedRun, b: ComparedRun) -> WholeComparison:
    """The comparison of run B with run A, and what it rests on; raises NothingComparableError."""
    pair = compared_pair(a, b)
    return WholeComparison(pair_comparison(pair), (a, b), pair, pair.common)


def compare_sides_in_full(
    baselines: Sequence[ComparedRun], candidates: Sequence[ComparedRun], *, pooled: bool = True
) -> WholeComparison:
    """The same with what it rests on: that of the pair that lanes show, and the series of all runs."""
    runs = (*baselines, *candidates)
    if len(runs) == 2:
        return compare_in_full(*runs)
    several = SeveralRuns(runs, _sides(len(baselines), len(candidates)), pooled)
    found = _comparison(several)
    shown = next(iter(several.candidates.values()))
    return WholeComparison(found, runs, shown, common_series([run.series for run in runs]), len(baselines))
