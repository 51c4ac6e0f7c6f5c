"""Possible causes of a difference, each with evidence for and against it, and the experiment that decides."""

from __future__ import annotations

from collections.abc import Iterator
from math import sqrt
from typing import NamedTuple

from rankscope.analysis.comparison.model import Hypothesis
from rankscope.analysis.comparison.part_words import parting_title
from rankscope.analysis.comparison.schedule_comparison import RankParting, ScheduleComparison
from rankscope.analysis.comparison.series_comparison import SeriesComparison, SeriesDifference
from rankscope.analysis.comparison.settings_differences import SettingChange, SettingsComparison
from rankscope.analysis.comparison.time_comparison import TimeComparison
from rankscope.analysis.stack_frames import own_frames

MOST_SETTINGS = 3
_NEAR = 0.02
"""Relative distance at which a ratio is taken for the size of the job or its root."""
_ONE_CHANGE = "Run A again with {name} as in B, and change nothing else."


class Grounds(NamedTuple):
    """The compared parts from which causes are inferred; None if a part could not be compared."""

    schedule: ScheduleComparison | None
    settings: SettingsComparison
    series: SeriesComparison
    times: TimeComparison | None
    world_size: int


def hypotheses(grounds: Grounds) -> tuple[Hypothesis, ...]:
    """Causes that what was compared suggests: those of the earliest difference first."""
    found = [*_of_schedule(grounds), *_of_values(grounds), *_of_times(grounds), *_of_settings(grounds)]
    return tuple(found)


# Causes of another schedule.

_SCHEDULE_CAUSES = {
    "size": (
        "another size of batch, model or bucket",
        "Print the shape of the tensor at that line in both runs; run A with the batch and the bucket size of B.",
    ),
    "data-size": (
        "values differ before: the sizes of an all_to_all depend on data, as the routing to experts does",
        "Record loss and gradient norm of both runs exactly, and look which step differs before this operation.",
    ),
    "dtype": (
        "another precision of parameters or of reductions",
        "Compare the precision options of both runs (autocast, reduce_dtype, hooks), and run A with those of B.",
    ),
    "peer": (
        "another order of pipeline stages, or another mesh",
        "Print rank, stage and mesh at the start of both runs, and compare.",
    ),
}
_OTHER_PATH = (
    "the program took another path: other code, another option, or a branch that depends on rank or data",
    "Compare code and options of both runs at that line; run A with the commit and the options of B.",
)


def _of_schedule(grounds: Grounds) -> Iterator[Hypothesis]:
    if grounds.schedule is None or not grounds.schedule.partings:
        return
    first = grounds.schedule.partings[0]
    cause, experiment = _SCHEDULE_CAUSES.get(first.aspect, _OTHER_PATH)
    speaks_for, speaks_against = [f"A: {first.call_a.shown}, B: {first.call_b.shown}"], list[str]()
    if first.aspect == "earlier":
        yield Hypothesis(cause, (parting_title(grounds.schedule, first, (first.rank,)),), (), experiment)
        return
    stacks = grounds.schedule.stack(first.row_a, False), grounds.schedule.stack(first.row_b, True)
    if all(stacks):
        own = [(own_frames(stack) or stack)[0] for stack in stacks]
        lines = [f"{frame.file}:{frame.line}" for frame in own]
        same = stacks[0] == stacks[1]
        said = f"both are issued at {lines[0]}" if same else f"A issues it at {lines[0]}, B at {lines[1]}"
        by_argument = first.aspect in _SCHEDULE_CAUSES
        (speaks_for if same == by_argument else speaks_against).append(said)
    if _once(first):
        speaks_against.append("it happens once, then the runs meet again: an option would act in each step")
    elif first.places > 1:
        speaks_for.append("it happens again later")
    yield Hypothesis(cause, tuple(speaks_for), tuple(speaks_against), experiment)


def _once(first: RankParting) -> bool:
    return first.places == 1 and first.parting.meets


# Causes of other values.


def _of_values(grounds: Grounds) -> Iterator[Hypothesis]:
    if not grounds.series.differences:
        return
    first = grounds.series.differences[0]
    said = f"{first.name} differs first at step {first.step}, by {first.relative:.1e}"
    if first.onset == "unresolved":
        yield Hypothesis(
            "the printed digits do not tell", (said,), (),
            "Log exact values (TensorBoard or wandb, or print with 9 digits), and run both again.",
        )  # fmt: skip
        return
    if first.ratio is not None and first.name == "grad_norm":
        yield _scale(first, grounds.world_size)
        return
    if first.onset == "rounding":
        yield Hypothesis(
            "sums were taken in another order, or by another kernel", (f"{said}: as small as rounding",),
            (), "Run A twice: if it differs from itself as much, it does not repeat (rankscope repro --determinism).",
        )  # fmt: skip
    elif first.onset == "undecided":
        yield Hypothesis(
            "a small real change, or rounding in bf16", (said,), ("both look alike at this size",),
            "Run A twice: if it differs from itself as much, it is rounding.",
        )  # fmt: skip
    else:
        yield from _real(first, said)


def _real(first: SeriesDifference, said: str) -> Iterator[Hypothesis]:
    if first.after_restart:
        yield Hypothesis(
            "a restart did not restore all state: the optimizer, the order of data, or the random numbers",
            (f"{said}, right after a restart",), (),
            "Resume A from the same checkpoint, and compare the steps that are computed twice.",
        )  # fmt: skip
    elif first.is_first:
        yield Hypothesis(
            "another seed, other data, other initial values or another option", (f"{said}, the first common step",),
            (), "Print seed, batch hash and a norm of the parameters before the first step in both runs.",
        )  # fmt: skip
    else:
        yield Hypothesis(
            "an event at that step: a skipped step, a retry, other data from there on",
            (f"{said}; step {first.last_equal} is equal",), (),
            "Read both logs around that step; hash the batches of the steps before it.",
        )  # fmt: skip


def _scale(first: SeriesDifference, world_size: int) -> Hypothesis:
    """Gradients of another scale: averaging, clipping, or the divisor."""
    ratio = first.ratio or 1.0
    known = {"the number of ranks": world_size, "its root": sqrt(max(world_size, 1))}
    near = [name for name, n in known.items() if n > 1 and min(abs(ratio / n - 1), abs(ratio * n - 1)) < _NEAR]
    said = f"the ratio B / A stays at {ratio:.4g}: a factor, not noise"
    return Hypothesis(
        "gradients of another scale: averaging, clipping, or the divisor of a sum",
        (said, *(f"the factor is {name}, or its inverse" for name in near)), (),
        "Compare how both runs average gradients: sum or mean, the divisor, accumulation steps, the clipping limit.",
    )  # fmt: skip


# Causes of other times, and settings that may be the cause.


def _of_times(grounds: Grounds) -> Iterator[Hypothesis]:
    if grounds.times is None:
        return
    alone = grounds.times.stragglers
    if alone:
        yield Hypothesis(
            "one rank or one host alone, and no setting", tuple(one.title for one in alone[:MOST_SETTINGS]), (),
            f"Run {alone[0].run} again without that host: the delay goes with the host, or stays with the rank.",
        )  # fmt: skip
    slow = {one.run for one in alone}
    if not any(one.stands_out and ("B" if one.ratio > 1 else "A") not in slow for one in grounds.times.steps):
        return
    changed = [one for one in grounds.settings.changes if one.weight in ("speed", "behaviour", "place")]
    yield Hypothesis(
        "another speed of the machine or of the code",
        tuple(one.shown for one in changed[:MOST_SETTINGS]),
        ("one run a side: two runs of one setting differ by themselves",),
        "Run both three times in turn, on the same hosts, and compare the medians of the runs.",
    )


def _of_settings(grounds: Grounds) -> Iterator[Hypothesis]:
    parts = grounds.schedule is not None and bool(grounds.schedule.partings)
    real = [one for one in grounds.series.differences if one.onset == "real"]
    for one in [one for one in grounds.settings.changes if one.weight == "repeatability"][:MOST_SETTINGS]:
        against = []
        if parts and not one.name.startswith("version:"):
            against.append("the schedules differ, which the order of sums does not change")
        if real and not one.name.startswith("version:"):
            against.append("the first difference of values is larger than rounding")
        yield Hypothesis(_cause_text(one), (one.shown,), tuple(against), _ONE_CHANGE.format(name=one.name))


def _cause_text(one: SettingChange) -> str:
    effect = one.effect or "it changes the order of sums or the kernels"
    return f"{one.name} differs, and decides results: {effect}".rstrip(".")
