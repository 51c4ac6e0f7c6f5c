"""Words for the parts of a comparison: one line of summary, and the lines below it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from rankscope.features.comparison.rules.model import ComparedPart, PartState
from rankscope.features.comparison.rules.schedule_comparison import (
    MOST_PARTINGS,
    RankParting,
    ScheduleComparison,
    goes_on,
)
from rankscope.features.comparison.rules.series_comparison import REAL, SeriesComparison, SeriesDifference
from rankscope.features.comparison.rules.settings_differences import SettingsComparison
from rankscope.features.comparison.rules.tensor_differences import TensorComparison
from rankscope.features.comparison.rules.time_comparison import (
    LEAST_APART,
    LEAST_CHANGE,
    LEAST_STEPS,
    TimeComparison,
    TimeRatio,
)
from rankscope.text.wording import digits, duration, group_name, plural, ranks_text

_LONGEST_RANKS = 40
_MOST_CHANGES = 5
_GOOD_PART = 0.1
_MANY_TIMES = 3
_ASPECTS = {
    "operation": "another operation", "group": "another group", "peer": "another peer", "dtype": "another type",
    "size": "another size", "data-size": "another size, which depends on data", "order": "another order",
    "other": "another operation",
}  # fmt: skip
_ONSETS = {
    "rounding": "as small as rounding",
    "undecided": "a small change, or rounding in bf16",
    "real": "a real change",
    "unresolved": "the printed digits do not tell its kind",
}


def schedule_part(found: ScheduleComparison | None, sizes: tuple[int, int]) -> ComparedPart:
    """The answer of the schedules."""
    if found is None:
        return ComparedPart("schedule", PartState.NOT_COMPARED, f"{sizes[0]} ranks in A, {sizes[1]} in B")
    left = tuple(_schedule_left(found))
    lines = (*_schedule_notes(found), *(f"not compared: {reason}" for reason in left))
    if not found.equal and not found.partings:
        why = found.apart
        for label, run in (("A", found.a), ("B", found.b)):
            if run.left_out and not run.bounds:
                why = why or f"the dumps of {label} omit finished operations (TORCH_INCLUDE_ONLY_ACTIVE)"
            elif not run.bounds:
                why = why or f"{label} has no operations"
        why = why or ("no stretch of operations is in both runs" if found.alignments else "no rank is in both runs")
        return ComparedPart("schedule", PartState.NOT_COMPARED, why, lines, left)
    compared = [rank for rank, alignment in found.alignments.items() if alignment.placed != "none"]
    groups = found.a.rows["group"].n_unique()
    extent = f"{plural(found.equal, 'operation')} equal on {plural(len(compared), 'rank')}, {plural(groups, 'group')}"
    if found.partings:
        summary = f"differs on {ranks_text([p.rank for p in found.partings], _LONGEST_RANKS)}; {extent}"
        return ComparedPart("schedule", PartState.DIFFERS, summary, lines, left)
    return ComparedPart("schedule", PartState.EQUAL, f"equal: {extent}", lines, left)


def _schedule_notes(schedule: ScheduleComparison) -> Iterator[str]:
    """Limits of the comparison, and what is no difference."""
    for label, count, ranks in goes_on(schedule):
        who = ranks_text(ranks, _LONGEST_RANKS)
        yield f"run {label} goes on for {plural(count, 'operation')} on {who}; that is no difference"
    wrapped = [rank for rank in schedule.alignments if rank not in schedule.a.whole or rank not in schedule.b.whole]
    content = [
        rank for rank, alignment in schedule.alignments.items() if alignment.placed == "content" and not alignment.shift
    ]
    if content:
        yield (
            f"{ranks_text(content, _LONGEST_RANKS)}: the two hold no common window by number, so equal stretches are "
            "laid on each other; what came before is unknown"
        )
    elif wrapped and schedule.equal:
        yield f"compared in the window that both hold, on {ranks_text(wrapped, _LONGEST_RANKS)}"
    for parting in schedule.unordered:
        yield f"rank {parting.rank}: threads issue {parting.call_a.shown} in another order; that is no difference"
    for label, names in (("A", schedule.groups.only_a), ("B", schedule.groups.only_b)):
        if names and schedule.alignments:
            yield f"only in {label}: {', '.join(names[:4])}{f' and {len(names) - 4} more' if len(names) > 4 else ''}"


def _schedule_left(found: ScheduleComparison) -> Iterator[str]:
    """The parts of the schedules that were not compared, with the reasons."""
    if found.untold:
        what = " and ".join(dict.fromkeys(name.partition("_")[2].replace("dtypes", "types") for name in found.untold))
        yield f"{what}, which one of the runs does not record"
    none = found.ranks_placed("none")
    if none and found.equal:
        yield f"{ranks_text(none, _LONGEST_RANKS)}, no stretch of operations is in both runs"
    for label, run, other in (("A", found.a, found.b), ("B", found.b, found.a)):
        if run.left_out:
            yield f"{ranks_text(run.left_out, _LONGEST_RANKS)}, whose dumps in {label} omit operations"
        alone = run.bounds.keys() - other.bounds.keys() - {*other.left_out}
        if alone and other.bounds:
            yield f"{ranks_text(sorted(alone), _LONGEST_RANKS)}, only in {label}"


def parting_title(found: ScheduleComparison, parting: RankParting, ranks: Collection[int]) -> str:
    """The parting in words, and its ranks."""
    who = ranks_text(ranks, _LONGEST_RANKS)
    ours, theirs = _operation_at(found, parting, in_b=False), _operation_at(found, parting, in_b=True)
    length_a, length_b = (
        "one operation" if count == 1 else plural(count, "operation")
        for count in (parting.parting.length_a, parting.parting.length_b)
    )
    if parting.aspect == "earlier":
        count = plural(abs(parting.shift), "operation")
        return f"before the dumps begin, B issued {count} {'more' if parting.shift > 0 else 'fewer'} than A on {who}"
    if parting.aspect == "more":
        return f"on {who} B issues {length_b} more, {theirs}, before {ours}"
    if parting.aspect == "fewer":
        return (
            f"B lacks {ours} on {who}"
            if parting.parting.length_a == 1
            else f"B lacks {length_a} on {who}, {ours} first"
        )
    return f"{_ASPECTS[parting.aspect]} on {who}, {ours} in A, {theirs} in B"


def _operation_at(found: ScheduleComparison, parting: RankParting, *, in_b: bool) -> str:
    """An operation with its place: "all_reduce [64,32] f32 (tensor_parallel #12)"."""
    run, row, call = (found.b, parting.row_b, parting.call_b) if in_b else (found.a, parting.row_a, parting.call_a)
    ops = run.dataset.ops
    number, seq = ops["group"][row], ops["seq"][row]
    peer = f" with rank {call.peer}" if call.peer is not None else ""
    if number is None:
        return f"{call.shown}{peer}"
    group = run.dataset.group_list[number]
    place = group_name(group.name, group.description)
    return f"{call.shown}{peer} ({place}{f' #{seq}' if seq is not None and not ops['is_p2p'][row] else ''})"


def parting_details(found: ScheduleComparison, parting: RankParting) -> Iterator[str]:
    """The place of the parting, and whether the runs meet again."""
    yield f"operation {parting.operation:,} of rank {parting.rank}, counted in A from 0"
    if parting.aspect == "earlier":
        yield "the numbers of equal operations in the dumps tell it; larger rings (TORCH_FR_BUFFER_SIZE) show the place"
    elif not parting.parting.meets:
        ends = min(parting.parting.length_a, parting.parting.length_b) == 1
        yield "one of the two ends there" if ends else "from there on the two have no stretch in common"
    else:
        many = parting.places >= MOST_PARTINGS
        places = f"{parting.places} places or more" if many else plural(parting.places, "place")
        yield f"the runs meet again; they differ at {places} of rank {parting.rank}"
    same = [other.rank for other in found.partings if other.rank in found.first]
    if len(same) > 1:
        yield f"{ranks_text(same, _LONGEST_RANKS)} first differ at the same point"


def settings_part(found: SettingsComparison) -> ComparedPart:
    """The answer of settings, versions and places."""
    counted = sum(change.counts for change in found.changes)
    others = len(found.changes) - counted
    beside = f"; {others} that may differ from run to run" if others else ""
    changed = [f"{change.weight}: {change.shown}" for change in found.changes]
    lines = (*changed, *(f"not compared: {reason}" for reason in found.left), *found.notes)
    names = f" of {found.compared:,}" if found.compared else ""
    if counted:
        state, summary = PartState.DIFFERS, f"{counted}{names} differ{beside}"
    elif not found.compared:
        why = f"only {found.only_told} tells settings" if found.only_told else "no settings in common"
        state, summary = PartState.NOT_COMPARED, f"{why}{beside}"
    elif others:
        state, summary = PartState.UNCOUNTED, f"{others}{names} differ, and may do so from run to run"
    else:
        state, summary = PartState.EQUAL, f"equal: {found.compared:,} compared"
    return ComparedPart("settings", state, summary, lines, found.left)


def values_part(
    found: SeriesComparison,
    again: Sequence[SeriesComparison],
    notes: Sequence[str] = (),
    tensors: TensorComparison | None = None,
    left: Sequence[str] = (),
) -> ComparedPart:
    """The answer of tensors and training series, and of the steps that each run computed twice.

    `notes` are on files of series, `left` what was not compared.
    """
    lines = [*tensor_lines(tensors), *map(series_title, found.differences)]
    coarse = [f"{name} (one digit is {size:.1e} of the value)" for name, _, size in found.equal if size > REAL]
    if coarse:
        lines.append(f"equal as printed, which tells little: {', '.join(dict.fromkeys(coarse))}")
    if found.rounded_steps:
        lines.append(f"{plural(found.rounded_steps, 'value')} of rounded steps left out")
    for label, twice in zip("AB", again, strict=True):
        if twice.differences:
            lines.append(f"{label} computed {plural(twice.steps, 'step')} twice: {series_title(twice.differences[0])}")
        elif twice.steps:
            lines.append(f"{label} computed {plural(twice.steps, 'step')} twice, with equal values")
    lines += [*notes, *(f"not compared: {reason}" for reason in left)]
    answers = [tensors_text(tensors)] if tensors is not None else []
    if found.differences:
        names = ", ".join(dict.fromkeys(difference.name for difference in found.differences))
        answers.append(f"{names} from step {found.differences[0].step} on")
    elif found.steps:
        answers.append(f"no difference seen in {plural(found.steps, 'step')}")
    if not answers:
        why = "no loss or gradient norm of common steps"
        return ComparedPart("values", PartState.NOT_COMPARED, why, tuple(lines), tuple(left))
    state = PartState.EQUAL
    if found.differences or (tensors is not None and tensors.differences):
        state = PartState.DIFFERS
    elif tensors is not None and tensors.equal != tensors.compared:
        # tensors that differ between reruns, too, are no differences
        state = PartState.UNCOUNTED
    return ComparedPart("values", state, "; ".join(answers), tuple(lines), tuple(left))


def tensors_text(found: TensorComparison) -> str:
    """The answer of tensors."""
    if found.equal == found.compared:
        return f"all {plural(found.compared, 'tensor')} equal"
    steps = [tensor.found.step for tensor in found.differences if tensor.found.step is not None]
    since = f", from step {min(steps)} on" if steps else "" if found.differences else ", as between reruns"
    return f"{found.compared - found.equal:,} of {plural(found.compared, 'tensor')} differ{since}"


def tensor_lines(found: TensorComparison | None) -> list[str]:
    """Counts of the compared tensors, in words."""
    if found is None:
        return []
    how = "rank by rank" if found.is_ranked else "as whole tensors, with shards merged by their places"
    return [f"{plural(found.compared, 'tensor')} compared {how}: {found.equal:,} are equal bit for bit"]


def series_title(series: SeriesDifference) -> str:
    """The first difference of a series in words."""
    rank = f" of rank {series.rank}" if series.rank is not None else ""
    if series.name == "batch_hash":
        hashes = f"hash {series.value_a:.15g} in A, {series.value_b:.15g} in B"
        return f"another batch{rank} at step {series.step}: {hashes}"
    size = f"{series.relative:.1e}" if series.relative != float("inf") else "not comparable"
    factor = f"; the ratio stays at {series.ratio:.4g}" if series.ratio is not None else ""
    before = f" (equal up to step {series.last_equal})" if series.last_equal is not None else ""
    return (
        f"{series.name}{rank} at step {series.step}: {series.value_a:.9g} in A, {series.value_b:.9g} in B, "
        f"relative difference {size}, {_ONSETS[series.onset]}{factor}{before}"
    )


def durations_part(found: TimeComparison | None) -> ComparedPart:
    """The answer of times: a change of steps that is not told from what each run shows by itself does not count."""
    if found is None or not (found.steps or found.parts):
        return ComparedPart("durations", PartState.NOT_COMPARED, "no durations that both runs have")
    lines = [*map(ratio_text, found.steps), *(straggler.title for straggler in found.stragglers), *found.notes]
    lines += [
        ratio_text(part) if part.cost_a is None and part in found.collectives else cost_text(part)
        for part in found.parts
    ]
    state, steps = PartState.NOT_COMPARED, found.steps
    if found.stragglers or any(step.stands_out for step in steps):
        state = PartState.DIFFERS
    elif any(min(step.count_a, step.count_b) >= LEAST_APART for step in steps):
        changed = any(abs(step.ratio - 1) >= LEAST_CHANGE for step in steps)
        state = PartState.UNCOUNTED if changed else PartState.EQUAL
    if steps:
        return ComparedPart("durations", state, _change_text(steps[0]), tuple(lines))
    kinds = (
        ("kernel", ", a call of each: steps are not marked in both", found.kernels),
        ("call site", " of collectives", found.collectives),
    )
    counts = [f"{plural(len(times), noun)}{more}" for noun, more, times in kinds if times]
    return ComparedPart("durations", state, f"no times of steps, only of {'; '.join(counts)}", tuple(lines))


def _change_text(time: TimeRatio) -> str:
    change = f"{_percent(time.ratio)} %"
    if time.low is not None and time.high is not None:
        return f"{change} ({_percent(time.low)} .. {_percent(time.high)}, within these two runs)"
    if time.apart and time.above == 1:
        return f"{change}, all {time.count_b} steps apart from all {time.count_a} in A, within these two runs"
    if time.apart:
        pairs = f"{time.above * 100:.0f} % of all pairs of {time.count_a} and {time.count_b} steps lie this way"
        return f"{change}, {pairs}, within these two runs"
    few = min(time.count_a, time.count_b) < LEAST_STEPS
    return f"{change}, no interval{f': fewer than {LEAST_STEPS} steps' if few else ''}"


def ratio_text(time: TimeRatio) -> str:
    """The times of one thing in words."""
    return f"{time.name}: {_seconds_text(time.median_a)} -> {_seconds_text(time.median_b)}, {_change_text(time)}"


def cost_text(part: TimeRatio) -> str:
    """The times a step of a part of it in words; those of a call where steps are not known."""
    each = "a call" if part.cost_a is None else "a step"
    if not (part.count_a and part.count_b):
        label, cost = ("B", part.cost_b) if part.count_b else ("A", part.cost_a)
        return f"{part.name}: only in {label}, {_seconds_text(cost or 0)} {each}"
    if part.ratio >= _MANY_TIMES:
        change = f"{digits(part.ratio)} times as long"
    else:
        within = f" ({_percent(part.low)} .. {_percent(part.high)})" if part.low and part.high else ""
        change = f"{_percent(part.ratio)} %{within}"
    return f"{part.name}: {_seconds_text(part.median_a)} -> {_seconds_text(part.median_b)} {each}, {change}"


def largest_changes(step: TimeRatio, parts: Sequence[TimeRatio]) -> tuple[str, ...]:
    """The parts of a step whose change is a good part of that of the step, in words; `parts` with the largest first."""
    least = _GOOD_PART * abs(step.median_b - step.median_a)
    return tuple(cost_text(one) for one in parts[:_MOST_CHANGES] if one.cost_a is not None and abs(one.change) >= least)


def _percent(ratio: float) -> str:
    """The change with its sign; none is +0.0."""
    return f"{round((ratio - 1) * 100, 1) + 0.0:+.1f}"


def _seconds_text(seconds: float) -> str:
    return duration(round(seconds * 1e9))
