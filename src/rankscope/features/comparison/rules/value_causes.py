"""Causes of other values, and the grounds from which causes are inferred.

A cause is told by what differs first: the batch, the learning rate, loss and gradient norm of the first step or of the
next one, the first step after a restart, or no more than rounding. Options, settings and schedules then tell which of
the causes that look alike it is. Where nothing recorded tells, they are named together.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from math import sqrt
from typing import NamedTuple

import polars as pl

from rankscope.features.comparison.rules.model import DETERMINISM, CauseAction, ComparedRun, Hypothesis
from rankscope.features.comparison.rules.option_changes import option_role
from rankscope.features.comparison.rules.schedule_comparison import ScheduleComparison
from rankscope.features.comparison.rules.series_comparison import SeriesComparison, SeriesDifference
from rankscope.features.comparison.rules.series_curves import CommonSeries
from rankscope.features.comparison.rules.settings_differences import (
    SettingChange,
    SettingsComparison,
)
from rankscope.features.comparison.rules.tensor_differences import TensorComparison
from rankscope.features.comparison.rules.time_comparison import TimeComparison
from rankscope.text.secrets import HIDDEN

CAUSES: Mapping[str, str] = {
    "seed": "another seed",
    "initial-values": "other initial values",
    "data": "other data, or another order of it",
    "dropout": "another dropout",
    "batch": "another size of batch",
    "model": "another model",
    "precision": "another precision",
    "lr": "another learning rate",
    "optimizer": "another optimizer, or other options of it",
    "optimizer-state": "a resumed run without its optimizer's state",
    "resume-state": "a restart that did not restore all state: parameters, order of data, or random numbers",
    "order": "another order of sums: sizes of buckets, number or placement of ranks, algorithm",
    "kernel": "a kernel that does not repeat, or another kernel",
    "scale": "gradients of another scale: averaging, clipping, or the divisor of a sum",
    "event": "an event at that step: a skipped step, a retry, other data from there on",
    "small-change": "a small real change",
    "code": "the program took another path: other code, another option, or a branch that depends on rank or data",
    "mesh": "another order of pipeline stages, or another mesh",
    "slow-rank": "one rank is slow",
    "data-loader": "the data loader is late",
    "host-work": "other work of the host before the first collective of a step",
    "machine": "another speed of the machine or of the code",
}
"""Kinds of cause, in words."""
MOST_SETTINGS = 3
ROUNDING_ROLES = ("order", "kernel", "precision")
START_ROLES = ("seed", "data", "dropout", "initial-values", "batch", "model", "precision", "order")
START = ("seed", "initial-values", "data", "dropout")
UPDATE = ("lr", "optimizer", "data")
_OF_KERNELS = re.compile(r"CUBLAS|CUDNN|NVTE|TF32|DETERMINISTIC|version:|gpus|cpu-model", re.IGNORECASE)
"""Settings that choose kernels; the others that decide results choose the order of sums."""
_OF_NUMBERS = {
    "torch.seed": "seed", "random state": "seed", "batch of step": "data", "torch.matmul_precision": "precision",
    "torch.default_dtype": "precision",
}  # fmt: skip
"""Roles by the beginnings of names of settings that records of numbers tell."""
_NEAR = 0.02
"""Relative distance at which a ratio is taken for the size of the job or its root."""
_ALIKE_NORM = 1e-5
"""Parameters of other initial values have norms that differ by more; one update moves them by less."""
_MOST_MOVED = 30
"""Most learning rates by which the first update moves the norm of all parameters."""
_LEAST_RATE = 1e-6
"""Smallest relative difference of learning rates that is no other print of the same one."""
_ONE_CHANGE = "Run A again with {name} as in B, and change nothing else."


class Grounds(NamedTuple):
    """Two runs and their compared parts, from which causes are inferred; None if a part could not be compared."""

    schedule: ScheduleComparison | None
    settings: SettingsComparison
    series: SeriesComparison
    times: TimeComparison | None
    equal: Mapping[str, str]
    """Roles of options that are equal in both runs, each with an example."""
    common: CommonSeries
    """The training series of both runs, from one source each."""
    runs: tuple[ComparedRun, ComparedRun]
    tensors: TensorComparison | None = None

    @property
    def world_sizes(self) -> tuple[int, int]:
        """The world sizes; 0 where one is unknown."""
        a, b = self.runs
        return a.dataset.world_size, b.dataset.world_size

    @property
    def first(self) -> SeriesDifference | None:
        """The difference of values that tells most: of the first step that differs, one whose digits tell its kind."""
        known = [one for one in self.series.differences if one.name not in ("batch_hash", "lr")]
        # what others tell is behind the update of their step
        found = [one for one in known if one.name in ("loss", "grad_norm")] or known
        now = [one for one in found if one.step == found[0].step]
        ordered = sorted(now, key=lambda one: one.onset == "unresolved")
        return ordered[0] if ordered else None

    def differing(self, name: str) -> SeriesDifference | None:
        """The first difference of a series."""
        return next((one for one in self.series.differences if one.name == name), None)

    def is_equal(self, name: str) -> bool:
        """Whether a series is in both runs and has no difference."""
        return any(one == name for one, _, _ in self.series.equal) and self.differing(name) is None

    def is_second(self, one: SeriesDifference) -> bool:
        """Whether only the first common step is before it."""
        own = (table.filter(pl.col("name") == one.name) for table in self.common.tables)
        steps = set.intersection(*(set(table["step"]) for table in own))
        return one.last_equal is not None and one.last_equal == min(steps, default=None)

    def changes(self, roles: Sequence[str]) -> list[SettingChange]:
        """The options and settings that differ and are such a cause, in the order of the roles."""
        told = [(role_of(one), one) for one in self.settings.changes if one.counts]
        return [one for role in roles for found, one in told if found == role]


def role_of(one: SettingChange) -> str:
    """The kind of cause that a change of this setting is; "" where it is none of them."""
    if one.option:
        role = option_role(one.option)
        return role.role if role is not None else ""
    if one.name in ("world size", "mesh", "ranks of a host"):
        return "order"
    if one.weight != "repeatability":
        return ""
    recorded = next((role for begin, role in _OF_NUMBERS.items() if one.name.startswith(begin)), None)
    if recorded is not None:
        return recorded
    return "kernel" if _OF_KERNELS.search(one.name) else "order"


# Causes of other values.


def value_causes(grounds: Grounds) -> Iterator[Hypothesis]:
    batch, rate, first = grounds.differing("batch_hash"), grounds.differing("lr"), grounds.first
    if batch is not None and (first is None or batch.step <= first.step):
        said = f"the hash of the batch differs first at step {batch.step}"
        yield from by_changes(grounds, ("seed", "data", "batch"), said) or [
            Hypothesis(
                "data", CAUSES["data"], (said,), (), "Print which samples each batch has, in both runs.", ("data",)
            )
        ]
        return
    if rate is not None and rate.relative > _LEAST_RATE and (first is None or rate.step <= first.step):
        yield from _rate(grounds, rate)
    if first is not None:
        yield from _by_onset(grounds, first)


def _by_onset(grounds: Grounds, first: SeriesDifference) -> Iterator[Hypothesis]:
    """The causes that the first difference of loss or gradient norm suggests."""
    said = f"{first.name} differs first at step {first.step}, by {first.relative:.1e}"
    if first.onset == "unresolved":
        yield from _unresolved(grounds, first, said)
    elif first.ratio is not None and first.name == "grad_norm":
        yield _scale(first, max(grounds.world_sizes))
    elif first.onset != "real":
        yield from _rounding(grounds, first, said)
    elif first.after_restart:
        yield from _restart(grounds, first, said)
    elif first.is_first:
        yield from _start(grounds, said)
    elif grounds.is_second(first):
        yield from _update(grounds, first, said)
    else:
        yield from by_changes(grounds, ROUNDING_ROLES, said)
        yield Hypothesis(
            "event", CAUSES["event"], (f"{said}; step {first.last_equal} is equal",), (),
            "Read both logs around that step; hash the batches of the steps before it.", ("event",),
        )  # fmt: skip


def by_changes(grounds: Grounds, roles: Sequence[str], said: str, against: Sequence[str] = ()) -> list[Hypothesis]:
    """One cause for each option or setting that differs and may be the cause."""
    found = []
    changed = grounds.changes(roles)
    for one in changed[:MOST_SETTINGS]:
        role, effect = role_of(one), one.effect.rstrip(".")
        others = [f"{other.name} differs, too" for other in changed if other is not one][:1]
        found.append(
            Hypothesis(
                change_id(one), f"{CAUSES[role]}: {one.shown}", (said, *([f"{one.name}: {effect}"] if effect else [])),
                (*against, *others), _ONE_CHANGE.format(name=one.name), (role,), action=action_of(one),
            )
        )  # fmt: skip
    return found


def _rate(grounds: Grounds, rate: SeriesDifference) -> Iterator[Hypothesis]:
    """Another learning rate, which acts from its step on."""
    first = grounds.first
    said = f"lr differs first at step {rate.step}: {rate.value_a:.6g} in A, {rate.value_b:.6g} in B"
    early = first is not None and first.step == rate.step and first.onset == "real"
    if early and grounds.changes(START):
        return
    against = (f"{first.name} of the same step differs, which that update does not reach",) if early and first else ()
    changed = by_changes(grounds, ("lr",), said, against)
    yield from changed or [
        Hypothesis("lr", CAUSES["lr"], (said,), against, "Run A again with the learning rate of B.", ("lr",))
    ]


def _start(grounds: Grounds, said: str) -> Iterator[Hypothesis]:
    """The first step differs: before any update, so in parameters, batch, random numbers or options."""
    said = f"{said}, the first common step"
    changed = by_changes(grounds, START_ROLES, said)
    yield from changed
    if changed:
        return
    out = {role: grounds.equal[role] for role in START if role in grounds.equal}
    if grounds.is_equal("batch_hash"):
        out["data"] = "the hashes of the batches are equal"
    norm = _parameters(grounds)
    if norm is not None and norm.is_alike:
        out["initial-values"] = norm.said
    kinds = ["seed", "initial-values"] if norm is not None and not norm.is_alike else START
    known = () if norm is None or norm.is_alike else (norm.said,)
    left = tuple(one for one in kinds if one not in out)
    yield Hypothesis(
        id_of(left or ("code",)), one_of(left or ("code",)), (said, *known), tuple(dict.fromkeys(out.values())),
        "Print seed, batch hash and a norm of the parameters before the first step in both runs.", left or ("code",),
    )  # fmt: skip


class _Norms(NamedTuple):
    """The norms of the parameters behind the first step."""

    is_alike: bool
    said: str


def _parameters(grounds: Grounds) -> _Norms | None:
    """Whether the parameters of both runs were the same before the first step; None if their norm is not printed.

    The first update moves the norm by little more than its learning rate, other random values by more.
    """
    starts = [one.filter(pl.col("step") == pl.col("step").min()) for one in grounds.common.tables]
    tables = [one.filter(pl.col("name") == "params_norm") for one in starts]
    if any(one.is_empty() for one in tables):
        return None
    a, b = (float(one["value"][0]) for one in tables)
    digits = sum(float(one["resolution"].fill_null(0.0)[0]) for one in tables)
    rates = starts[0].filter(pl.col("name") == "lr")["value"]
    limit = _MOST_MOVED * float(rates[0]) if len(rates) else _ALIKE_NORM * abs(a)
    alike = abs(a - b) <= max(limit, digits)
    said = "alike: one update moves it by as much" if alike else "not alike: one update moves it by less"
    return _Norms(alike, f"the norms of the parameters behind it are {said} ({a:.6g}, {b:.6g})")


def _update(grounds: Grounds, first: SeriesDifference, said: str) -> Iterator[Hypothesis]:
    """The first step is equal and the next one is not: the first update differs, or the second batch."""
    said = f"{said}; step {first.last_equal}, before the first update, is equal"
    changed = by_changes(grounds, (*UPDATE, "kernel", "precision"), said)
    yield from changed
    if changed:
        return
    out = {role: grounds.equal[role] for role in UPDATE if role in grounds.equal}
    for role, name in (("lr", "lr"), ("data", "batch_hash")):
        if grounds.is_equal(name):
            out[role] = f"{name} is equal in all steps"
    left = tuple(one for one in UPDATE if one not in out) or ("code",)
    yield Hypothesis(
        id_of(left), one_of(left), (said,), tuple(out.values()),
        "Log the learning rate and a hash of each batch, and print the optimizer's options in both runs.", left,
    )  # fmt: skip


def _restart(grounds: Grounds, first: SeriesDifference, said: str) -> Iterator[Hypothesis]:
    """A difference right behind a restart: the first step has the old parameters, the next one the first update."""
    experiment = "Resume A from the same checkpoint, and compare the steps that are computed twice."
    if first.since_restart == 0:
        out = ["the hashes of the batches are equal"] if grounds.is_equal("batch_hash") else []
        yield Hypothesis(
            "resume-state",
            CAUSES["resume-state"],
            (f"{said}, the first step behind a restart",),
            tuple(out),
            experiment,
            ("resume-state",),
        )
        return
    equal = ["the learning rate is equal"] if grounds.is_equal("lr") else []
    yield Hypothesis(
        "optimizer-state", CAUSES["optimizer-state"],
        (f"{said}; step {first.last_equal}, the first behind a restart, is equal: the update is not", *equal), (),
        f"Log the norm of the optimizer's state behind the restart. {experiment}", ("optimizer-state",),
    )  # fmt: skip


def _rounding(grounds: Grounds, first: SeriesDifference, said: str) -> Iterator[Hypothesis]:
    """A difference as small as rounding: sums in another order, or a kernel that does not repeat."""
    small = first.onset == "undecided"
    said = f"{said}: {'it may be rounding' if small else 'as small as rounding'}"
    changed = by_changes(grounds, ROUNDING_ROLES, said)
    yield from changed
    schedule = grounds.schedule
    if changed or (schedule is not None and schedule.partings):
        if not changed:
            yield _schedule_order(grounds, said)
        return
    equal, unknown = _equal_sums(grounds)
    kinds = ("kernel", *(["order"] if unknown else []), *(["small-change"] if small else []))
    yield Hypothesis(
        id_of(kinds), one_of(kinds), (said, *equal),
        (*unknown, *(["a small real change looks alike at this size"] if small else [])),
        "Run A twice: if it differs from itself as much, it does not repeat (rankscope repro --determinism).", kinds,
        action=DETERMINISM,
    )  # fmt: skip


def _equal_sums(grounds: Grounds) -> tuple[list[str], list[str]]:
    """Signs that ranks add the same parts in the same order, and what leaves that open."""
    schedule = grounds.schedule
    if schedule is None or not schedule.equal:
        return [], ["the schedules are not compared: sums over ranks may have another order"]
    said = ["the schedules are equal: ranks add the same parts"]
    libraries = {str(one) for run in (schedule.a, schedule.b) for one in run.rows["library"].unique().to_list()}
    if "nccl" in libraries and not grounds.settings.compared:
        return said, ["the settings of NCCL are not compared: it may have chosen another algorithm"]
    return said, []


def _schedule_order(grounds: Grounds, said: str) -> Hypothesis:
    assert grounds.schedule is not None
    parting = grounds.schedule.partings[0]
    return Hypothesis(
        "order", CAUSES["order"], (said, f"A: {parting.call_a.shown}, B: {parting.call_b.shown}"), (),
        "Run A with the sizes of buckets and the way of sharing the work that B has.", ("order",),
    )  # fmt: skip


def _unresolved(grounds: Grounds, first: SeriesDifference, said: str) -> Iterator[Hypothesis]:
    """A difference of the last printed digits."""
    exact = "Log exact values (TensorBoard or wandb, or print with 9 digits), and run both again."
    yield from by_changes(grounds, START_ROLES if first.is_first else (*ROUNDING_ROLES, *UPDATE), said)
    kinds = () if first.is_first else ("order", "kernel", "small-change")
    cause = "the printed digits do not tell" + (f": {one_of(kinds)}" if kinds else "")
    yield Hypothesis(f"unresolved:{id_of(kinds)}", cause, (said,), (), exact, kinds)


def id_of(kinds: Sequence[str]) -> str:
    """The id of a cause that is one of these kinds."""
    return "+".join(kinds)


def change_id(one: SettingChange) -> str:
    """The id of the cause that a setting is."""
    return f"{role_of(one) or 'setting'}:{one.name}"


_VARIABLE = re.compile(r"[A-Z][A-Z0-9_]+")


def action_of(one: SettingChange) -> CauseAction | None:
    """The next step for a setting that differs: its value in B, if it is a variable whose value may be shown."""
    value = one.changes[0][1]
    if one.option or not _VARIABLE.fullmatch(one.name) or value == HIDDEN:
        return None
    return CauseAction("set-variable", one.name, value if one.is_set_in_b else None)


def one_of(kinds: Sequence[str]) -> str:
    words = [CAUSES[one] for one in kinds]
    return words[0] if len(words) == 1 else f"one of: {'; '.join(words)}"


def _scale(first: SeriesDifference, world_size: int) -> Hypothesis:
    """Gradients of another scale: averaging, clipping, or the divisor."""
    ratio = first.ratio or 1.0
    known = {"the number of ranks": world_size, "its root": sqrt(max(world_size, 1))}
    near = [name for name, n in known.items() if n > 1 and min(abs(ratio / n - 1), abs(ratio * n - 1)) < _NEAR]
    said = f"the ratio B / A stays at {ratio:.4g}: a factor, not noise"
    return Hypothesis(
        "scale", CAUSES["scale"], (said, *(f"the factor is {name}, or its inverse" for name in near)), (),
        "Compare how both runs average gradients: sum or mean, the divisor, accumulation steps, the clipping limit.",
        ("scale",),
    )  # fmt: skip
