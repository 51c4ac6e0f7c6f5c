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


def schedule_part(found: ScheduleComparison | None, sizes: tuple[int, int]) -> ComparedPart:
    """The answer of the schedules."""
    if found is None:
        return ComparedPart("schedule", PartState.NOT_COMPARED, f"{sizes[0]} ranks in A, {sizes[1]} in B")
    left = tuple(_schedule_left(found))
    lines = (*_schedule_notes(found), *map(_left_line, left))
    if not found.equal and not found.partings:
        return ComparedPart("schedule", PartState.NOT_COMPARED, _why_not(found), lines, left)
    compared = tuple(rank for rank, one in found.alignments.items() if one.placed != "none")
    groups = found.a.rows["group"].n_unique()
    extent = f"{plural(found.equal, 'operation')} equal on {plural(len(compared), 'rank')}, {plural(groups, 'group')}"
    if found.partings:
        summary = f"differs on {ranks_text([p.rank for p in found.partings], _LONGEST_RANKS)}; {extent}"
        return ComparedPart("schedule", PartState.DIFFERS, summary, lines, left)
    return ComparedPart("schedule", PartState.EQUAL, f"equal: {extent}", lines, left)


def _left_line(reason: str) -> str:
    return f"not compared: {reason}"


def _why_not(found: ScheduleComparison) -> str:
    if found.apart:
        return found.apart
    for label, run in (("A", found.a), ("B", found.b)):
        if run.left_out and not run.bounds:
            return f"the dumps of {label} omit finished operations (TORCH_INCLUDE_ONLY_ACTIVE)"
        if not run.bounds:
            return f"{label} has no operations"
    if not found.alignments:
        return "no rank is in both runs"
    return "no stretch of operations is in both runs"


def _schedule_notes(found: ScheduleComparison) -> Iterator[str]:
    """Limits of the comparison, and what is no difference."""
    for label, count, ranks in goes_on(found):
        who = ranks_text(ranks, _LONGEST_RANKS)
        yield f"run {label} goes on for {plural(count, 'operation')} on {who}; that is no difference"
    wrapped = [rank for rank in found.alignments if rank not in found.a.whole or rank not in found.b.whole]
    content = [rank for rank, one in found.alignments.items() if one.placed == "content" and not one.shift]
    if content:
        yield (
            f"{ranks_text(content, _LONGEST_RANKS)}: the two hold no common window by number, so equal stretches are "
            "laid on each other; what came before is unknown"
        )
    elif wrapped and found.equal:
        yield f"compared in the window that both hold, on {ranks_text(wrapped, _LONGEST_RANKS)}"
    for one in found.unordered:
        yield f"rank {one.rank}: threads issue {one.call_a.shown} in another order; that is no difference"
    for label, names in (("A", found.groups.only_a), ("B", found.groups.only_b)):
        if names and found.alignments:
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


def parting_title(found: ScheduleComparison, one: RankParting, ranks: Collection[int]) -> str:
    """The parting in words, and its ranks."""
    who = ranks_text(ranks, _LONGEST_RANKS)
    ours, theirs = _at(found, one, False), _at(found, one, True)
    if one.aspect == "earlier":
        count = plural(abs(one.shift), "operation")
        return f"before the dumps begin, B issued {count} {'more' if one.shift > 0 else 'fewer'} than A on {who}"
    if one.aspect == "more":
        return f"on {who} B issues {_several(one.parting.length_b)} more, {theirs}, before {ours}"
    if one.aspect == "fewer":
        return f"on {who} B leaves out {_several(one.parting.length_a)}, {ours}"
    return f"{_ASPECTS[one.aspect]} on {who}, {ours} in A, {theirs} in B"


def _several(count: int) -> str:
    return "one operation" if count == 1 else plural(count, "operation")


def _at(found: ScheduleComparison, one: RankParting, in_b: bool) -> str:
    """An operation with its place: "all_reduce [64,32] f32 (tensor_parallel #12)"."""
    run, row, call = (found.b, one.row_b, one.call_b) if in_b else (found.a, one.row_a, one.call_a)
    ops = run.dataset.ops
    number, seq = ops["group"][row], ops["seq"][row]
    peer = f" with rank {call.peer}" if call.peer is not None else ""
    if number is None:
        return f"{call.shown}{peer}"
    group = run.dataset.group_list[number]
    place = group_name(group.name, group.description)
    return f"{call.shown}{peer} ({place}{f' #{seq}' if seq is not None and not ops['is_p2p'][row] else ''})"


def parting_details(found: ScheduleComparison, one: RankParting) -> Iterator[str]:
    """The place of the parting, and whether the runs meet again."""
    yield f"operation {one.operation:,} of rank {one.rank}, counted in A from 0"
    more = f"{one.places} places or more" if one.places >= MOST_PARTINGS else plural(one.places, "place")
    if one.aspect == "earlier":
        yield "the numbers of equal operations in the dumps tell it; larger rings (TORCH_FR_BUFFER_SIZE) show the place"
    elif not one.parting.meets:
        ends = min(one.parting.length_a, one.parting.length_b) == 1
        yield "one of the two ends there" if ends else "from there on the two have no stretch in common"
    else:
        yield f"the runs meet again; they differ at {more} of rank {one.rank}"
    same = [other.rank for other in found.partings if other.rank in found.first]
    if len(same) > 1:
        yield f"{ranks_text(same, _LONGEST_RANKS)} part at the same place by dependency"


def settings_part(found: SettingsComparison) -> ComparedPart:
    """The answer of settings, versions and places."""
    counted = [one for one in found.changes if one.counts]
    others = len(found.changes) - len(counted)
    beside = f"; {others} that may differ from run to run" if others else ""
    changed = tuple(f"{one.weight}: {one.shown}" for one in found.changes)
    lines = (*changed, *map(_left_line, found.left), *found.notes)
    if not found.compared and not counted:
        why = f"only {found.only_told} tells settings" if found.only_told else "no settings in common"
        return ComparedPart("settings", PartState.NOT_COMPARED, f"{why}{beside}", lines, found.left)
    names = f" of {found.compared:,}" if found.compared else ""
    if counted:
        summary = f"{len(counted)}{names} differ{beside}"
        return ComparedPart("settings", PartState.DIFFERS, summary, lines, found.left)
    if others:
        summary = f"{others}{names} differ, and may do so from run to run"
        return ComparedPart("settings", PartState.UNCOUNTED, summary, lines, found.left)
    return ComparedPart("settings", PartState.EQUAL, f"equal: {found.compared:,} compared", lines, found.left)


def values_part(
    found: SeriesComparison, again: Sequence[SeriesComparison], notes: Sequence[str] = (),
    tensors: TensorComparison | None = None, left: Sequence[str] = (),
) -> ComparedPart:  # fmt: skip
    """The answer of tensors and training series, and of the steps that each run computed twice.

    `notes` are on files of series, `left` what was not compared.
    """
    lines = [*tensor_lines(tensors), *(series_title(one) for one in found.differences)]
    coarse = [f"{name} (one digit is {size:.1e} of the value)" for name, _, size in found.equal if size > REAL]
    if coarse:
        lines.append(f"equal as printed, which tells little: {', '.join(dict.fromkeys(coarse))}")
    if found.rounded_steps:
        lines.append(f"{plural(found.rounded_steps, 'value')} of rounded steps left out")
    for label, one in zip("AB", again, strict=True):
        if one.differences:
            lines.append(f"{label} computed {plural(one.steps, 'step')} twice: {series_title(one.differences[0])}")
        elif one.steps:
            lines.append(f"{label} computed {plural(one.steps, 'step')} twice, with equal values")
    lines += [*notes, *map(_left_line, left)]
    told = [text for text in (tensors_text(tensors), _series_text(found)) if text]
    if not told:
        why = "no loss or gradient norm of common steps"
        return ComparedPart("values", PartState.NOT_COMPARED, why, tuple(lines), tuple(left))
    return ComparedPart("values", _values_state(found, tensors), "; ".join(told), tuple(lines), tuple(left))


def _values_state(found: SeriesComparison, tensors: TensorComparison | None) -> PartState:
    if found.differences or (tensors is not None and tensors.differences):
        return PartState.DIFFERS
    # tensors that differ between reruns, too, are no differences
    return PartState.EQUAL if tensors is None or tensors.equal == tensors.compared else PartState.UNCOUNTED


def _series_text(found: SeriesComparison) -> str:
    """The answer of series; "" without common steps."""
    if not found.differences:
        return f"no difference seen in {plural(found.steps, 'step')}" if found.steps else ""
    names = ", ".join(dict.fromkeys(one.name for one in found.differences))
    return f"{names} from step {found.differences[0].step} on"


def tensors_text(found: TensorComparison | None) -> str:
    """The answer of tensors; "" if none are compared."""
    if found is None:
        return ""
    if found.equal == found.compared:
        return f"all {plural(found.compared, 'tensor')} equal"
    step = min((one.found.step for one in found.differences if one.found.step is not None), default=None)
    since = f", from step {step} on" if step is not None else "" if found.differences else ", as between reruns"
    return f"{found.compared - found.equal:,} of {plural(found.compared, 'tensor')} differ{since}"


def tensor_lines(found: TensorComparison | None) -> list[str]:
    """Counts of the compared tensors, in words."""
    if found is None:
        return []
    how = "rank by rank" if found.is_ranked else "as whole tensors, with shards merged by their places"
    return [f"{plural(found.compared, 'tensor')} compared {how}: {found.equal:,} are equal bit for bit"]


def series_title(one: SeriesDifference) -> str:
    """The first difference of a series in words."""
    rank = f" of rank {one.rank}" if one.rank is not None else ""
    size = f"{one.relative:.1e}" if one.relative != float("inf") else "not comparable"
    onsets = {
        "rounding": "as small as rounding", "undecided": "a small change, or rounding in bf16", "real": "a real change",
        "unresolved": "the printed digits do not tell its kind",
    }  # fmt: skip
    if one.name == "batch_hash":
        return f"another batch{rank} at step {one.step}: hash {one.value_a:.15g} in A, {one.value_b:.15g} in B"
    factor = f"; the ratio stays at {one.ratio:.4g}" if one.ratio is not None else ""
    before = f" (equal up to step {one.last_equal})" if one.last_equal is not None else ""
    return (
        f"{one.name}{rank} at step {one.step}: {one.value_a:.9g} in A, {one.value_b:.9g} in B, relative difference "
        f"{size}, {onsets[one.onset]}{factor}{before}"
    )


def durations_part(found: TimeComparison | None) -> ComparedPart:
    """The answer of times."""
    if found is None or not (found.steps or found.parts):
        return ComparedPart("durations", PartState.NOT_COMPARED, "no durations that both runs have")
    lines = [*(ratio_text(one) for one in found.steps), *(one.title for one in found.stragglers), *found.notes]
    lines += [
        ratio_text(one) if one.cost_a is None and one in found.collectives else cost_text(one) for one in found.parts
    ]
    if found.steps:
        return ComparedPart("durations", _times_state(found), _change_text(found.steps[0]), tuple(lines))
    kinds = (("kernel", ", a call of each: steps are not marked in both", found.kernels),
             ("call site", " of collectives", found.collectives))  # fmt: skip
    counts = [f"{plural(len(ones), noun)}{more}" for noun, more, ones in kinds if ones]
    state = PartState.DIFFERS if found.stragglers else PartState.NOT_COMPARED
    return ComparedPart("durations", state, f"no times of steps, only of {'; '.join(counts)}", tuple(lines))


def _times_state(found: TimeComparison) -> PartState:
    """The answer of step times: a change that is not told from what each run shows by itself does not count."""
    if found.stragglers or any(one.stands_out for one in found.steps):
        return PartState.DIFFERS
    if all(min(one.count_a, one.count_b) < LEAST_APART for one in found.steps):
        return PartState.NOT_COMPARED
    changed = any(abs(one.ratio - 1) >= LEAST_CHANGE for one in found.steps)
    return PartState.UNCOUNTED if changed else PartState.EQUAL


def _change_text(one: TimeRatio) -> str:
    change = f"{_percent(one.ratio)} %"
    if one.low is not None and one.high is not None:
        return f"{change} ({_percent(one.low)} .. {_percent(one.high)}, within these two runs)"
    if one.apart:
        return f"{change}, {_apart_text(one)}, within these two runs"
    few = min(one.count_a, one.count_b) < LEAST_STEPS
    return f"{change}, no interval{f': fewer than {LEAST_STEPS} steps' if few else ''}"


def _apart_text(one: TimeRatio) -> str:
    """How steps stand apart that are too few for an interval."""
    if one.above == 1:
        return f"all {one.count_b} steps apart from all {one.count_a} in A"
    return f"{one.above * 100:.0f} % of all pairs of {one.count_a} and {one.count_b} steps lie this way"


def ratio_text(one: TimeRatio) -> str:
    """The times of one thing in words."""
    return f"{one.name}: {_times_text(one)}, {_change_text(one)}"


def cost_text(one: TimeRatio) -> str:
    """The times a step of a part of it in words; those of a call where steps are not known."""
    each = "a call" if one.cost_a is None else "a step"
    if not (one.count_a and one.count_b):
        label, cost = ("B", one.cost_b) if one.count_b else ("A", one.cost_a)
        return f"{one.name}: only in {label}, {_seconds_text(cost or 0)} {each}"
    if one.ratio >= _MANY_TIMES:
        change = f"{digits(one.ratio)} times as long"
    else:
        within = f" ({_percent(one.low)} .. {_percent(one.high)})" if one.low and one.high else ""
        change = f"{_percent(one.ratio)} %{within}"
    return f"{one.name}: {_times_text(one)} {each}, {change}"


def largest_changes(step: TimeRatio, parts: Sequence[TimeRatio]) -> tuple[str, ...]:
    """The parts of a step whose change is a good part of that of the step, in words; `parts` with the largest first."""
    least = _GOOD_PART * abs(step.median_b - step.median_a)
    return tuple(cost_text(one) for one in parts[:_MOST_CHANGES] if one.cost_a is not None and abs(one.change) >= least)


def _percent(ratio: float) -> str:
    """The change with its sign; none is +0.0."""
    return f"{round((ratio - 1) * 100, 1) + 0.0:+.1f}"


def _times_text(one: TimeRatio) -> str:
    return f"{_seconds_text(one.median_a)} -> {_seconds_text(one.median_b)}"


def _seconds_text(seconds: float) -> str:
    return duration(round(seconds * 1e9))
