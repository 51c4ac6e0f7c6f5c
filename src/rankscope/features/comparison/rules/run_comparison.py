"""Two runs compared: what each part says, the differences in program order, and the headline."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import polars as pl

from rankscope.features.comparison.option_roles import current_roles
from rankscope.features.comparison.rules.hypotheses import Grounds, hypotheses
from rankscope.features.comparison.rules.model import (
    ComparedPart,
    ComparedRun,
    ComparisonPictures,
    PartState,
    RunComparison,
    RunDifference,
    RunFacts,
    StackPair,
)
from rankscope.features.comparison.rules.part_words import (
    durations_part,
    largest_changes,
    parting_details,
    parting_title,
    schedule_part,
    series_title,
    settings_part,
    values_part,
)
from rankscope.features.comparison.rules.picture_data import comparison_pictures
from rankscope.features.comparison.rules.schedule_comparison import ScheduleComparison, compare_schedules
from rankscope.features.comparison.rules.series_comparison import (
    VALUE_NAMES,
    SeriesComparison,
    SeriesDifference,
    common_series,
    compare_series,
    recomputed,
)
from rankscope.features.comparison.rules.settings_differences import (
    compare_options,
    compare_settings,
    equal_roles,
    with_command,
    with_options,
)
from rankscope.features.comparison.rules.tensor_differences import TensorComparison, compare_tensors
from rankscope.features.comparison.rules.time_comparison import TimeComparison, compare_times
from rankscope.features.comparison.rules.traced_times import with_traced_times
from rankscope.text.wording import plural


class NothingComparableError(Exception):
    """The runs have nothing in common that can be compared."""


def compare_runs(a: ComparedRun, b: ComparedRun, *, is_drawn: bool = False) -> RunComparison:
    """The comparison of run B with run A, with the data of pictures if `is_drawn`; raises NothingComparableError."""
    pair = compared_pair(a, b)
    found = pair_comparison(pair)
    tables = list(zip("AB", pair.common.tables, strict=True))
    return replace(found, pictures=pair_pictures(pair, tables)) if is_drawn else found


def pair_comparison(pair: Grounds) -> RunComparison:
    """The comparison of two runs from all that was compared."""
    differences, parts = tuple(differences_of(pair)), parts_of(pair)
    return RunComparison(
        headline_of(differences, parts),
        tuple(map(run_facts, "AB", pair.runs)),
        parts,
        differences,
        hypotheses(pair) if differences else (),
    )


def pair_pictures(pair: Grounds, tables: Sequence[tuple[str, pl.DataFrame]]) -> ComparisonPictures:
    """The data of pictures of a pair, with the series of all runs by their labels."""
    return comparison_pictures(pair.schedule, pair.settings, pair.series, pair.times, tables)


def compared_pair(a: ComparedRun, b: ComparedRun) -> Grounds:
    """The parts of two runs side by side; raises NothingComparableError."""
    sizes = a.dataset.world_size, b.dataset.world_size
    schedule = None if all(sizes) and sizes[0] != sizes[1] else compare_schedules(a.dataset, b.dataset)
    common = common_series([a.series, b.series])
    times = with_traced_times(compare_times(schedule, *common.tables), a, b)
    told = [with_command(run.options, run.dataset) for run in (a, b)]
    options = compare_options(*told)
    notes = [f"{label}: {note}" for label, run in (("A", a), ("B", b)) for note in run.options.notes]
    _, problem = current_roles()
    settings = with_options(compare_settings(a, b), options, [*notes, *([problem] if problem else [])])
    resumed = (*a.options.resumed, *b.options.resumed)
    series, equal = compare_series(*common.tables, resumed=resumed), equal_roles(options.pairs)
    tensors = compare_tensors(a.dataset, b.dataset)
    pair = Grounds(schedule, settings, series, times, equal, common, (a, b), tensors)
    known = (pair.schedule and pair.schedule.equal) or pair.series.steps or pair.settings.compared or pair.tensors
    timed = pair.times and (pair.times.steps or pair.times.parts)
    if not (known or timed or list(differences_of(pair))):
        raise NothingComparableError(_nothing(a, b, schedule))
    return pair


def differences_of(pair: Grounds, times: Sequence[RunDifference] | None = None) -> Iterator[RunDifference]:
    """The differences of a pair, the earliest in program order first; `times` take the place of those of durations."""
    yield from _schedule_differences(pair.schedule)
    # where no dumps tell the schedules
    if pair.tensors is not None and pair.tensors.parting is not None and not (pair.schedule and pair.schedule.equal):
        yield pair.tensors.parting
    yield from _value_differences(pair.tensors, pair.series)
    a, b = pair.runs
    if a.analysis.is_critical != b.analysis.is_critical:
        label, other, run = ("A", "B", a) if a.analysis.is_critical else ("B", "A", b)
        title = f"{label} ends with a critical finding and {other} does not: {run.analysis.verdict}"
        yield RunDifference("outcome-differs", title, tuple(run.analysis.culprits))
    yield from time_differences(pair.times) if times is None else times
    counted = [one for one in pair.settings.changes if one.counts]
    if counted:
        ranks = sorted({rank for one in counted for _, _, who in one.changes for rank in who})
        more = f", and {plural(len(counted) - 1, 'more setting')}" if len(counted) > 1 else ""
        shown = tuple(one.shown for one in counted)
        yield RunDifference("settings-differ", f"{shown[0]}{more}", tuple(ranks), shown)


def parts_of(pair: Grounds) -> tuple[ComparedPart, ...]:
    """The answers of schedule, settings, values and durations."""
    again = tuple(map(recomputed, pair.common.tables))
    return (
        schedule_part(pair.schedule, pair.world_sizes),
        settings_part(pair.settings),
        values_part(pair.series, again, pair.common.notes, pair.tensors, [*_left_values(pair)]),
        durations_part(pair.times),
    )


def _nothing(a: ComparedRun, b: ComparedRun, schedule: ScheduleComparison | None) -> str:
    """Why two runs have nothing in common."""
    if schedule is not None and schedule.apart:
        return f"{a.title} and {b.title}: {schedule.apart}"
    if not a.series.is_empty() and not b.series.is_empty():
        return f"{a.title} and {b.title}: no series has a step that is in both runs"
    empty = [run.title for run in (a, b) if run.dataset.ops.is_empty() and run.dataset.traced.is_empty()]
    if empty:
        return f"{' and '.join(empty)}: no operations, settings or training series in both runs to compare"
    return f"{a.title} and {b.title}: no rank has a stretch of operations that is in both runs"


def _left_values(pair: Grounds) -> Iterator[str]:
    """The values that were not compared: files that could not be read, and series and tensors of one run."""
    for label, run in zip("AB", pair.runs, strict=True):
        yield from (f"{label}: {problem}" for problem in run.series_problems)
    names = [set(run.series["name"].unique()) & {*VALUE_NAMES} if run.series.width else set[str]() for run in pair.runs]
    for label, ours, other in (("A", names[0], names[1]), ("B", names[1], names[0])):
        if ours - other:
            yield f"{', '.join(sorted(ours - other))}, only in {label}"
    for label, count in zip("AB", pair.tensors.alone if pair.tensors is not None else (), strict=False):
        if count:
            yield f"{plural(count, 'tensor')}, only in {label}"


def run_facts(label: str, run: ComparedRun) -> RunFacts:
    """The facts of a run for the head of a report."""
    dataset = run.dataset
    bare = not dataset.seen_ranks and dataset.messages.is_empty() and not run.analysis.findings
    verdict = "training series only" if bare and not run.series.is_empty() else run.analysis.verdict
    return RunFacts(label, run.title, dataset.world_size, verdict)


def headline_of(differences: Sequence[RunDifference], parts: Sequence[ComparedPart]) -> str:
    """The earliest difference, or which parts are the same."""
    if differences:
        first, more = differences[0], len(differences) - 1
        return f"{'first difference' if more else 'B differs from A'}: {first.title}"
    return f"{same_headline(parts, 'A and B')}{beside_text(parts)}"


def same_headline(parts: Sequence[ComparedPart], who: str) -> str:
    """The parts in which runs are equal, of runs without a difference that counts."""
    equal = [part.name for part in parts if part.state is PartState.EQUAL]
    if equal:
        return f"no difference between {who} in {' and '.join(equal)}"
    return f"no difference that counts between {who}"


def beside_text(parts: Sequence[ComparedPart]) -> str:
    """Words for what differs and does not count, and for what was not compared."""
    small = [part.name for part in parts if part.state is PartState.UNCOUNTED]
    left = [part.name for part in parts if not part.is_compared]
    left += [f"some {part.name}" for part in parts if part.is_compared and part.left]
    words = f"; what differs in {' and '.join(small)} does not count" if small else ""
    return f"{words}; not compared: {', '.join(left)}" if left else words


def _schedule_differences(schedule: ScheduleComparison | None) -> Iterator[RunDifference]:
    """One difference for the ranks that part first, and one for the others."""
    if schedule is None or not schedule.partings:
        return
    first = schedule.partings[0]
    later = [one for one in schedule.partings if one.rank not in schedule.first]
    yield RunDifference(
        "schedule-differs",
        parting_title(schedule, first, schedule.first),
        tuple(sorted(schedule.first)),
        tuple(parting_details(schedule, first)),
        StackPair(schedule.stack(first.row_a, False), schedule.stack(first.row_b, True)),
        operation=first.operation,
    )
    if later:
        ranks = tuple(sorted(one.rank for one in later))
        yield RunDifference(
            "schedule-differs",
            f"later, {parting_title(schedule, later[0], ranks)}",
            ranks,
            operation=later[0].operation,
        )


def _value_differences(tensors: TensorComparison | None, series: SeriesComparison) -> list[RunDifference]:
    """Differences of tensors before those of series, which follow from them; a series that differs in an earlier step
    comes first: not each step is recorded. Of each series one, of the rank that differs first."""
    by_name = dict[str, list[SeriesDifference]]()
    for one in series.differences:
        by_name.setdefault(one.name, []).append(one)
    of_series = []
    for differences in by_name.values():
        ranks = sorted({one.rank for one in differences if one.rank is not None})
        first = differences[0]
        of_series.append(RunDifference("values-differ", series_title(first), tuple(ranks), step=first.step))
    of_tensors = [one.found for one in tensors.differences] if tensors is not None else []
    begin = of_tensors[0].step if of_tensors else None
    early = [one for one in of_series if begin is not None and one.step is not None and one.step < begin]
    return [*early, *of_tensors, *(one for one in of_series if one not in early)]


def time_differences(times: TimeComparison | None) -> Iterator[RunDifference]:
    """Ranks that are slow in one run only, then steps that take another time; all else is context."""
    if times is None:
        return
    for slow in times.stragglers:
        yield RunDifference("durations-differ", slow.title, slow.ranks, slow.details)
    for one in times.steps:
        if one.stands_out:
            change = (one.ratio - 1) * 100
            how = "slower" if change > 0 else "faster"
            title = f"{one.name}: B is {abs(change):.1f} % {how} within these two runs"
            yield RunDifference("durations-differ", title, details=largest_changes(one, times.parts))
