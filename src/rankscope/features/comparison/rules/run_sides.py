"""More than two runs compared: baselines against candidates, which are reruns of one setting or each another one."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

from rankscope.features.comparison.rules.hypotheses import hypotheses
from rankscope.features.comparison.rules.metric_words import metric_differences, metrics_part, outlier_of, power_text
from rankscope.features.comparison.rules.model import (
    ComparedPart,
    ComparedRun,
    ComparisonPictures,
    DifferenceKind,
    MetricEffect,
    Outlier,
    PartState,
    RunComparison,
    RunDifference,
    RunGroups,
)
from rankscope.features.comparison.rules.run_agreement import RerunNoise, agreements, outlying_ranks, rerun_noise
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
    metric_effects,
    outlying_runs,
    run_metrics,
    runs_needed,
    smallest_p,
)
from rankscope.features.comparison.rules.series_comparison import LEAST_BASELINES, beyond_noise
from rankscope.features.comparison.rules.series_curves import CommonSeries, common_series
from rankscope.features.comparison.rules.time_comparison import LEAST_CHANGE
from rankscope.features.comparison.rules.value_causes import Grounds

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
            f"{side}{number if len(own) > 1 else ''}"
            for side, own in zip("AB", self.sides, strict=True)
            for number in range(1, len(own) + 1)
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
        found = (one for pool in pools for one in outlying_runs(self.metrics, pool, LEAST_CHANGE))
        return tuple(outlier_of(one, self.labels) for one in found)

    @cached_property
    def noise(self) -> RerunNoise:
        """Differences between reruns of the baseline, or of the candidate if there is one baseline."""
        baselines = [one for number, one in self.pairs.items() if number in self.sides.a]
        if len(self.sides.a) > 1 or not self.pooled:
            return rerun_noise(baselines)
        return rerun_noise(list(self._reruns_of_candidate()))

    def _reruns_of_candidate(self) -> Iterator[Grounds]:
        first, *others = self.sides.b
        for number in others:
            if number in self.pairs and first in self.pairs:
                yield compared_pair(self.runs[first], self.runs[number])


def _comparison(several: SeveralRuns) -> RunComparison:
    if not several.candidates:
        raise NothingComparableError("; ".join(str(several.tried[number]) for number in several.sides.b))
    effects = metric_effects(several.metrics, several.sides)
    if not several.pooled:
        effects = tuple(replace(one, low=None, high=None, p=None, q=None, smallest_effect=None) for one in effects)
    split = {number: several.noise.split(pair) for number, pair in several.candidates.items()}
    quiet = {number: one for number, (one, _) in split.items()}
    left, lines = _left_ranges(several)
    found = [*_exact(several, quiet), *left, *_time_differences(several, quiet, effects)]
    differences = tuple(sorted(found, key=lambda one: _KINDS.index(one.kind)))
    parts = tuple(_with_differences((*_parts(several, quiet, left, lines), _durations(several, effects)), differences))
    groups = _groups(several, effects, {number: rest for number, (_, rest) in split.items()})
    causes = hypotheses(_first_pair(quiet, differences, several)._replace(times=None)) if differences else ()
    facts = tuple(run_facts(label, run) for label, run in zip(several.labels, several.runs, strict=True))
    return RunComparison(
        _headline(differences, parts, groups), facts, parts, differences, causes, effects, groups
    )  # fmt: skip


def _first_pair(quiet: Mapping[int, Grounds], differences: Sequence[RunDifference], several: SeveralRuns) -> Grounds:
    """The pair that shows the first difference."""
    label = differences[0].runs[0] if differences[0].runs else ""
    return next((one for number, one in quiet.items() if several.labels[number] == label), next(iter(quiet.values())))


# Differences.


def _exact(several: SeveralRuns, pairs: Mapping[int, Grounds]) -> Iterator[RunDifference]:
    """Differences of schedules, values, outcomes and settings that no rerun shows, each with its candidates."""
    found = {
        several.labels[number]: [
            one for one in differences_of(pair, ()) if one.kind != "outcome-differs" or not several.noise.outcome
        ]
        for number, pair in pairs.items()
    }
    yield from _merged(found)


def _merged(found: Mapping[str, Sequence[RunDifference]]) -> Iterator[RunDifference]:
    """Equal differences of several candidates as one."""
    merged: dict[tuple[object, ...], RunDifference] = {}
    for label, differences in found.items():
        for one in differences:
            # values of one step have other digits in each candidate
            title = one.title.partition(":")[0] if one.kind == "values-differ" else one.title
            key = (one.kind, one.ranks, one.step, one.operation, title)
            known = merged.get(key, one)
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
    own = {several.labels[number]: list(time_differences(pair.times)) for number, pair in pairs.items()}
    if not several.pooled:
        return [*_merged(own), *_alone(several, {label for label, found in own.items() if found})]
    reruns = {
        (one.kind, one.ranks)
        for number in several.sides.a[1:] if number in several.pairs
        for one in time_differences(several.pairs[number].times)
    }  # fmt: skip
    ranked = _merged({label: [one for one in found if one.ranks] for label, found in own.items()})
    steady = [
        one for one in ranked
        if 2 * len(one.runs) > len(several.sides.b) and (one.kind, one.ranks) not in reruns
    ]  # fmt: skip
    return [*steady, *metric_differences(effects)]


def _alone(several: SeveralRuns, known: Collection[str]) -> Iterator[RunDifference]:
    """Times of steps in which one run differs from all others, if its comparison with A does not show it already."""
    steps = {one.name for one in several.metrics if one.kind == "step"}
    for one in several.outliers:
        if one.metric in steps and one.name not in known:
            runs = (one.name,) if one.name in several.labels[1:] else several.labels[1:]
            yield RunDifference("durations-differ", one.title, runs=runs)


# Parts, groups and the headline.


def _parts(
    several: SeveralRuns, pairs: Mapping[int, Grounds], ranges: Sequence[RunDifference], lines: Sequence[str]
) -> Iterator[ComparedPart]:
    """The answers of schedule, settings and values: one for all candidates, or those of each."""
    answers = {several.labels[number]: parts_of(pair) for number, pair in pairs.items()}
    failed = [f"{several.labels[number]}: {one}" for number, one in several.tried.items() if isinstance(one, str)]
    for at, name in enumerate(("schedule", "settings", "values")):
        summaries: dict[str, list[str]] = {}
        for label, parts in answers.items():
            summaries.setdefault(parts[at].answer, []).append(label)
        told = [f"{', '.join(labels)}: {summary}" for summary, labels in summaries.items()]
        if len(summaries) == 1:
            told = [*summaries]
        names = [*sorted(several.noise.values), *(["tensors"] if several.noise.tensors else [])]
        if name == "values" and names:
            noisy = f"{', '.join(names)} differ between reruns, too"
            told = [*(one.title for one in ranges), noisy, *told]
        own = [*(failed if name == "schedule" else ()), *(lines if name == "values" else ())]
        parts_here = [parts[at] for parts in answers.values()]
        state = _joined_state([part.state for part in parts_here])
        if name == "values" and names:
            state = PartState.DIFFERS if ranges or state is PartState.DIFFERS else PartState.UNCOUNTED
        summary = parts_here[0].summary if state is PartState.NOT_COMPARED and len(summaries) == 1 else told[0]
        left = dict.fromkeys(one for part in parts_here for one in part.left)
        unread = [f"{label}: {parts[at].summary}" for label, parts in answers.items() if not parts[at].is_compared]
        more = (*left, *(unread if state is not PartState.NOT_COMPARED else ()))
        yield ComparedPart(name, state, summary, (*told[1:], *own, *parts_here[0].lines), more)


_STATES = (PartState.DIFFERS, PartState.UNCOUNTED, PartState.EQUAL, PartState.NOT_COMPARED)


def _joined_state(states: Sequence[PartState]) -> PartState:
    """The answer for all candidates: the first of `_STATES` that one of them has."""
    return min(states, key=_STATES.index)


_ASPECTS: Mapping[DifferenceKind, str] = {
    "schedule-differs": "schedule", "settings-differ": "settings", "values-differ": "values",
    "outcome-differs": "outcome", "durations-differ": "durations",
}  # fmt: skip


def _with_differences(parts: Sequence[ComparedPart], found: Sequence[RunDifference]) -> Iterator[ComparedPart]:
    """The parts; those with a difference over all candidates differ."""
    names = {_ASPECTS[one.kind] for one in found}
    yield from (replace(one, state=PartState.DIFFERS) if one.name in names else one for one in parts)


def _durations(several: SeveralRuns, effects: Sequence[MetricEffect]) -> ComparedPart:
    if several.pooled:
        return metrics_part(effects)
    number, pair = next(iter(several.candidates.items()))
    part = parts_of(pair)[3]
    return replace(part, summary=f"{several.labels[number]}: {part.summary}", lines=())


def _groups(several: SeveralRuns, effects: Sequence[MetricEffect], rest: Mapping[int, Grounds]) -> RunGroups:
    known = {(0, number): pair for number, pair in several.pairs.items()}
    tested = len(effects)
    labels, count_a = several.labels, len(several.sides.a)
    power = "each run against A: times hold within two runs; reruns of both (--baseline, --candidate) tell more"
    return RunGroups(
        labels[:count_a], labels[count_a:], several.pooled,
        power_text(several.sides, tested) if several.pooled else power,
        smallest_p(*map(len, several.sides)) if several.pooled else None,
        runs_needed(tested) if several.pooled else None,
        agreements(several.runs, labels, known, several.series.tables),
        several.outliers,
        outlying_ranks(several.runs, labels, several.sides) if several.pooled else (),
        tuple(_noisy(several, rest)),
    )  # fmt: skip


def _noisy(several: SeveralRuns, rest: Mapping[int, Grounds]) -> Iterator[RunDifference]:
    """Differences of the candidates that reruns show as well; of each series one."""
    found = {
        several.labels[number]: [
            one for one in differences_of(pair, ())
            if one.kind != "values-differ" and (one.kind != "outcome-differs" or several.noise.outcome)
        ]
        for number, pair in rest.items()
    }  # fmt: skip
    yield from _merged(found)
    steps: dict[str, dict[str, int]] = {}
    for number, pair in rest.items():
        tensors = () if pair.tensors is None else pair.tensors.differences
        named = [
            *((one.name, one.step) for one in pair.series.differences),
            *(("tensors", one.step or 0) for one in tensors),
        ]
        for name, step in named:
            steps.setdefault(name, {}).setdefault(several.labels[number], step)
    for name, own in steps.items():
        first = min(own.values())
        yield RunDifference("values-differ", f"{name} from step {first} on", step=first, runs=tuple(own))


def _headline(differences: Sequence[RunDifference], parts: Sequence[ComparedPart], groups: RunGroups) -> str:
    if not differences:
        who = "A and B" if groups.pooled else f"A and {', '.join(groups.candidates)}"
        return f"{same_headline(parts, who)}{beside_text(parts)}"
    first, more = differences[0], len(differences) > 1
    if groups.pooled:
        count = len(groups.candidates)
        some = f"{', '.join(first.runs)} of {count} candidates" if 0 < len(first.runs) < count else "B"
        verb = "differ" if 1 < len(first.runs) < count else "differs"
        return f"{some} {verb} from A{' first' if more else ''}: {first.title}"
    return f"{_who_differs(first, groups)}: {first.title}"


def _who_differs(first: RunDifference, groups: RunGroups) -> str:
    """Which of all runs differ from which, in the respect of the first difference."""
    count = len(groups.candidates)
    agreement = next((one for one in groups.agreement if one.aspect == _ASPECTS.get(first.kind)), None)
    sizes = [len(one) for one in agreement.clusters] if agreement is not None else []
    if agreement is not None and len(sizes) == 2 and sizes[1] == 1 < sizes[0]:
        return f"{agreement.clusters[1][0]} differs from the {count} others, which agree"
    if sizes and sizes[0] == 1:
        return f"no two of {count + 1} runs agree"
    return f"{', '.join(first.runs)} of {count} runs differ{'s' if len(first.runs) == 1 else ''} from A"


# Comparisons with all that they rest on, for the screen.


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
