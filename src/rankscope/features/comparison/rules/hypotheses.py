"""Possible causes of a difference, each with evidence for and against it, and the experiment that decides.

A cause of other values is told by what differs first: the batch, the learning rate, loss and gradient norm of the first
step or of the next one, the first step after a restart, or no more than rounding. Options, settings and schedules then
tell which of the causes that look alike it is. Where nothing recorded tells, they are named together.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from math import sqrt
from typing import NamedTuple

import numpy as np
import polars as pl

from rankscope.analysis.host_stacks import own_frames
from rankscope.features.comparison.option_roles import CAUSES, option_role
from rankscope.features.comparison.rules.model import DETERMINISM, CauseAction, ComparedRun, Hypothesis
from rankscope.features.comparison.rules.part_words import parting_title
from rankscope.features.comparison.rules.schedule_comparison import RankParting, ScheduleComparison, ScheduleRows
from rankscope.features.comparison.rules.series_comparison import CommonSeries, SeriesComparison, SeriesDifference
from rankscope.features.comparison.rules.settings_differences import CODE, SettingChange, SettingsComparison
from rankscope.features.comparison.rules.tensor_differences import TensorComparison
from rankscope.features.comparison.rules.time_comparison import (
    WARM_UP,
    Floats,
    TimeComparison,
    TimeRatio,
    period_of,
    plain_codes,
)
from rankscope.text.secrets import HIDDEN
from rankscope.text.tensors import tensors
from rankscope.text.wording import duration, ranks_text

MOST_SETTINGS = 3
MOST_FILES = 6
"""Most files of the job's code that are named."""
ROUNDING_ROLES = ("order", "kernel", "precision", "accumulation", "world-size", "version")
START_ROLES = (
    "seed", "data", "dropout", "initial-values", "batch", "model", "precision", "world-size", "accumulation", "order",
    "kernel",
)  # fmt: skip
START = ("seed", "initial-values", "data", "dropout")
UPDATE = ("lr", "optimizer", "data")
ROUNDING = ("order", "kernel")
"""Roles whose changes only round otherwise."""
_CODE = ("option", "code", "version")
_OTHER_DATA = ("world-size", "accumulation", *_CODE)
_OTHER_SCHEDULE = ("batch", "accumulation", "world-size", "order", "model", *_CODE)
EXPLAINING = (*START_ROLES, "lr", "optimizer", "optimizer-state", "code", "version", "option")
"""Roles whose changes may make other values; the last ones tell least of what changed."""
UNTOLD = "untold"
"""The id of the answer that nothing recorded tells the cause."""
_OF_KERNELS = re.compile(r"CUBLAS|CUDNN|NVTE|TF32|DETERMINISTIC|gpus|cpu-model|OMP_|MKL_|threads", re.IGNORECASE)
"""Settings that choose kernels; the others that decide results choose the order of sums."""
_SYMPTOMS = re.compile(r"random states?\b.*|batch of step \d+")
"""Settings that show what the job drew or read: a consequence, unless nothing else differs."""
_OF_NUMBERS = {
    "torch.seed": "seed",
    "torch.threads": "kernel",
    "batch of step": "data",
    "torch.matmul_precision": "precision",
    "torch.default_dtype": "precision",
}
"""Roles by the beginnings of names of settings that records of numbers tell."""
_NEAR = 0.02
"""Relative distance at which a ratio is taken for the size of the job or its root."""
_ALIKE_NORM = 1e-5
"""Parameters of other initial values have norms that differ by more; one update moves them by less."""
_MOST_MOVED = 30
"""Most learning rates by which the first update moves the norm of all parameters."""
_LEAST_RATE = 1e-6
"""Smallest relative difference of learning rates that is no other print of the same one."""


def _one_change(change: SettingChange) -> str:
    """The run of A that shows whether this setting makes the difference."""
    changed = "Set the seed of A as in B" if role_of(change) == "seed" else f"Run A again with {change.name} as in B"
    return f"{changed}, and change nothing else."


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
        known = [difference for difference in self.series.differences if difference.name not in ("batch_hash", "lr")]
        # what others tell is behind the update of their step
        metrics = [difference for difference in known if difference.name in ("loss", "grad_norm")] or known
        now = [difference for difference in metrics if difference.step == metrics[0].step]
        ordered = sorted(now, key=lambda difference: difference.onset == "unresolved")
        return ordered[0] if ordered else None

    def differing(self, name: str) -> SeriesDifference | None:
        """The first difference of a series."""
        return next((one for one in self.series.differences if one.name == name), None)

    def is_equal(self, name: str) -> bool:
        """Whether a series is in both runs and has no difference."""
        return any(one == name for one, _, _ in self.series.equal) and self.differing(name) is None

    def is_second(self, difference: SeriesDifference) -> bool:
        """Whether only the first common step is before it."""
        rows = (table.filter(pl.col("name") == difference.name) for table in self.common.tables)
        steps = set.intersection(*(set(table["step"]) for table in rows))
        return difference.last_equal is not None and difference.last_equal == min(steps, default=None)

    def changes(self, roles: Sequence[str]) -> list[SettingChange]:
        """The options and settings that differ and are such a cause, in the order of the roles.

        What a run drew or read counts only where no option, seed or code explains it.
        """
        role_pairs = [(role_of(change), change) for change in self.settings.changes if change.counts]
        causes = [pair for pair in role_pairs if not _SYMPTOMS.fullmatch(pair[1].name)]
        role_pairs = causes if any(role in EXPLAINING for role, _ in causes) else role_pairs
        return [change for role in roles for role_found, change in role_pairs if role_found == role]

    @property
    def code_told(self) -> bool:
        """Whether both runs tell their code."""
        return all(run.dataset.settings["name"].str.starts_with(CODE).any() for run in self.runs)

    @property
    def is_told(self) -> bool:
        """Whether both runs tell their code or options of known effect, so that it is known what is equal in them."""
        return self.code_told or bool(self.equal) or any(change.option for change in self.settings.changes)

    def refuted(self, change: SettingChange) -> str:
        """Why a change cannot be the cause of the first difference of values; "" if it can."""
        role, first = role_of(change), self.first
        tensor = self.tensors.differences[0] if self.tensors is not None and self.tensors.differences else None
        if role in ("lr", "optimizer") and tensor is not None and tensor.is_before_update:
            return "the values differ before the first update, which it changes"
        if role == "initial-values" and self.tensors is not None and self.tensors.equal_start:
            return self.tensors.equal_start
        if first is None or tensor is not None:
            return ""
        if role in ("lr", "optimizer") and first.is_first and first.step <= 1 and first.name in ("loss", "grad_norm"):
            return f"{first.name} of the first step differs, which no update reaches"
        is_soon = first.step <= 1 if first.last_equal is None else first.step == first.last_equal + 1
        is_low = any(half in self.equal.get("precision", "").lower() for half in ("16", "half", "8"))
        if role in ROUNDING and first.onset == "real" and is_soon and not is_low:
            return f"the first difference, {first.relative:.1e}, is larger than rounding"
        return ""


def role_of(one: SettingChange) -> str:
    """The kind of cause that a change of this setting is; "" where it is none of them."""
    if one.option:
        role = option_role(one.option)
        if role is not None:
            return role.role
        return "option" if one.weight == "option" else ""
    if one.name == "world size":
        return "world-size"
    if one.name in ("mesh", "ranks of a host"):
        return "order"
    if one.name.startswith(CODE):
        return "code"
    if one.name.startswith("version:"):
        return "version"
    if one.weight != "repeatability" or one.name.startswith("random state"):
        return ""
    recorded = next((role for begin, role in _OF_NUMBERS.items() if one.name.startswith(begin)), None)
    if recorded is not None:
        return recorded
    return "kernel" if _OF_KERNELS.search(one.name) else "order"


def value_causes(grounds: Grounds) -> Iterator[Hypothesis]:
    """Causes of other values, by what differs first."""
    batch, rate, first = grounds.differing("batch_hash"), grounds.differing("lr"), grounds.first
    if batch is not None and (first is None or batch.step <= first.step):
        said = f"the hash of the batch differs first at step {batch.step}"
        experiment = "Print which samples each batch has, in both runs."
        yield from by_changes(grounds, ("seed", "data", "batch"), said, others=_OTHER_DATA) or [
            of_kinds(("data",), (said,), experiment)
        ]
        return
    if rate is not None and rate.relative > _LEAST_RATE and (first is None or rate.step <= first.step):
        yield from _rate(grounds, rate)
    if first is not None:
        yield from _by_onset(grounds, first)


def of_kinds(
    kinds: tuple[str, ...],
    speaks_for: tuple[str, ...],
    experiment: str,
    against: tuple[str, ...] = (),
    *,
    ranks: tuple[int, ...] = (),
    action: CauseAction | None = None,
) -> Hypothesis:
    """The cause that is one of these kinds, which nothing recorded tells apart."""
    return Hypothesis(id_of(kinds), one_of(kinds), speaks_for, against, experiment, kinds, ranks, action)


def _by_onset(grounds: Grounds, first: SeriesDifference) -> Iterator[Hypothesis]:
    """The causes that the first difference of loss or gradient norm suggests."""
    said = f"{first.name} differs first at step {first.step}, by {first.relative:.1e}"
    if first.onset == "unresolved":
        yield from by_changes(grounds, START_ROLES if first.is_first else (*ROUNDING_ROLES, *UPDATE), said)
        kinds = () if first.is_first else ("order", "kernel", "small-change")
        cause = "the printed digits do not tell" + (f": {one_of(kinds)}" if kinds else "")
        experiment = "Log exact values (TensorBoard or wandb, or print with 9 digits), and run both again."
        yield Hypothesis(f"unresolved:{id_of(kinds)}", cause, (said,), (), experiment, kinds)
    elif first.ratio is not None and first.name == "grad_norm":
        yield from by_changes(grounds, ("batch", "accumulation", "world-size", "precision"), said)
        yield _scale(first, max(grounds.world_sizes))
    elif first.onset != "real":
        yield from _rounding(grounds, first, said)
    elif first.after_restart:
        yield _restart(grounds, first, said)
    elif first.is_first:
        yield from _start(grounds, said)
    elif grounds.is_second(first):
        yield from _update(grounds, first, said)
    else:
        yield from by_changes(grounds, ROUNDING_ROLES, said)
        experiment = "Read both logs around that step; hash the batches of the steps before it."
        yield of_kinds(("event",), (f"{said}; step {first.last_equal} is equal",), experiment)


def by_changes(
    grounds: Grounds, roles: Sequence[str], said: str, against: Sequence[str] = (), others: Sequence[str] = EXPLAINING
) -> list[Hypothesis]:
    """One cause for each option or setting that differs and that nothing recorded refutes: those of `roles`, which fit
    best, come before those of `others`."""
    causes = []
    changed = [
        change for change in grounds.changes(tuple(dict.fromkeys((*roles, *others)))) if not grounds.refuted(change)
    ]
    code = [change for change in changed if role_of(change) == "code"]
    changed = [change for change in changed if change not in code[1:]]
    for change in changed[:MOST_SETTINGS]:
        if change in code:
            causes.append(_other_code(grounds, code, said, against))
            continue
        role, effect = role_of(change), change.effect.rstrip(".")
        speaks_for = (said, *([f"{change.name}: {effect}"] if effect else []))
        rivals = [f"{other.name} differs, too" for other in changed if other is not change][:1]
        cause, experiment = f"{CAUSES[role]}: {change.shown}", _one_change(change)
        action = action_of(change)
        causes.append(
            Hypothesis(change_id(change), cause, speaks_for, (*against, *rivals), experiment, (role,), action=action)
        )
    return causes


def _other_code(
    grounds: Grounds, changes: Sequence[SettingChange], said: str, against: Sequence[str] = ()
) -> Hypothesis:
    """Other code as one cause: commit, uncommitted changes and files of the job that differ."""
    files = [change.name.removeprefix(f"{CODE}file ") for change in changes if change.name.startswith(f"{CODE}file ")]
    rest = [change.shown for change in changes if not change.name.startswith(f"{CODE}file ")]
    named = ", ".join(files[:MOST_FILES]) + (f" and {len(files) - MOST_FILES} more" if len(files) > MOST_FILES else "")
    cause = f"{CAUSES['code']}: {named or rest[0]}"
    shown = (*([f"these files differ: {named}"] if named else []), *rest, *grounds.runs[1].code_changes)
    experiment = "Run A again with the code of B, and change nothing else."
    return Hypothesis("code", cause, (said, *shown), tuple(against), experiment, ("code",))


def untold(grounds: Grounds, said: str, against: Sequence[str] = ()) -> Hypothesis:
    """The answer where all that is recorded is equal or refuted, or where nothing of it is recorded."""
    symptoms = tuple(change.shown for change in grounds.settings.changes if _SYMPTOMS.fullmatch(change.name))[
        :MOST_SETTINGS
    ]
    out = [f"{change.shown}: {why}" for change in grounds.changes(EXPLAINING) if (why := grounds.refuted(change))]
    if not grounds.is_told:
        cause = "the records do not tell it: they hold neither options nor code of both runs"
        experiment = "Record both runs: python -m rankscope.capture --numbers every=1 -o DIR train.py ..."
    else:
        names = {change.name for change in grounds.settings.changes}
        is_code_told = grounds.code_told and not any(name.startswith(CODE) for name in names)
        what = "data or a kernel differs" if is_code_told else "code, data or a kernel differs"
        same = (
            "no option that differs explains it" if out else "same options and code" if is_code_told else "same options"
        )
        cause, experiment = f"{same}; {what}: record modules", _RECORD
    return Hypothesis(UNTOLD, cause, (said, *symptoms), tuple(dict.fromkeys((*against, *out))), experiment, ())


def _rate(grounds: Grounds, rate: SeriesDifference) -> Iterator[Hypothesis]:
    """Another learning rate, which acts from its step on."""
    first = grounds.first
    said = f"lr differs first at step {rate.step}: {rate.value_a:.6g} in A, {rate.value_b:.6g} in B"
    early = first is not None and first.step == rate.step and first.onset == "real"
    if early and grounds.changes(START):
        return
    against = (f"{first.name} of the same step differs, which that update does not reach",) if early and first else ()
    experiment = "Run A again with the learning rate of B."
    yield from by_changes(grounds, ("lr",), said, against, _CODE) or [of_kinds(("lr",), (said,), experiment, against)]


def _start(grounds: Grounds, said: str) -> Iterator[Hypothesis]:
    """The first step differs: before any update, so in parameters, batch, random numbers or options."""
    said = f"{said}, the first common step"
    changed = by_changes(grounds, START_ROLES, said)
    yield from changed
    if changed:
        return
    is_alike, norms = _parameters(grounds)
    is_other = bool(norms) and not is_alike
    # parameters that are known to be others are evidence; without it any cause would be a guess
    left = tuple(kind for kind in ("seed", "initial-values") if kind not in grounds.equal)
    if is_other and left and not (grounds.tensors is not None and grounds.tensors.equal_start):
        experiment = "Print seed and a norm of the parameters before the first step in both runs."
        yield of_kinds(left, (said, norms), experiment)
        return
    out = {role: grounds.equal[role] for role in START if role in grounds.equal}
    if grounds.is_equal("batch_hash"):
        out["data"] = "the hashes of the batches are equal"
    if is_alike:
        out["initial-values"] = norms
    yield untold(grounds, said, tuple(out.values()))


def _parameters(grounds: Grounds) -> tuple[bool, str]:
    """Whether the parameters of both runs were the same before the first step, in words, too; "" if no norm is printed.

    The first update moves the norm by little more than its learning rate, other random values by more.
    """
    starts = [table.filter(pl.col("step") == pl.col("step").min()) for table in grounds.common.tables]
    norms = [start.filter(pl.col("name") == "params_norm") for start in starts]
    if any(norm.is_empty() for norm in norms):
        return False, ""
    a, b = (float(norm["value"][0]) for norm in norms)
    digits = sum(float(norm["resolution"].fill_null(0.0)[0]) for norm in norms)
    rates = starts[0].filter(pl.col("name") == "lr")["value"]
    limit = _MOST_MOVED * float(rates[0]) if len(rates) else _ALIKE_NORM * abs(a)
    is_alike = abs(a - b) <= max(limit, digits)
    how = "alike: one update moves it by as much" if is_alike else "not alike: one update moves it by less"
    return is_alike, f"the norms of the parameters behind it are {how} ({a:.6g}, {b:.6g})"


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
    left = tuple(role for role in UPDATE if role not in out)
    if grounds.is_told or not left:
        yield untold(grounds, said, tuple(out.values()))
    else:
        yield of_kinds(left, (said,), _EXPERIMENTS["lr"], tuple(out.values()))


def _restart(grounds: Grounds, first: SeriesDifference, said: str) -> Hypothesis:
    """A difference right behind a restart: the first step has the old parameters, the next one the first update."""
    experiment = "Resume A from the same checkpoint, and compare the steps that are computed twice."
    if first.since_restart == 0:
        against = ("the hashes of the batches are equal",) if grounds.is_equal("batch_hash") else ()
        return of_kinds(("resume-state",), (f"{said}, the first step behind a restart",), experiment, against)
    said = f"{said}; step {first.last_equal}, the first behind a restart, is equal: the update is not"
    speaks_for = (said, "the learning rate is equal") if grounds.is_equal("lr") else (said,)
    experiment = f"Log the norm of the optimizer's state behind the restart. {experiment}"
    return of_kinds(("optimizer-state",), speaks_for, experiment)


def _rounding(grounds: Grounds, first: SeriesDifference, said: str) -> Iterator[Hypothesis]:
    """A difference as small as rounding: sums in another order, or a kernel that does not repeat."""
    small, schedule = first.onset == "undecided", grounds.schedule
    said = f"{said}: {'it may be rounding' if small else 'as small as rounding'}"
    changed = by_changes(grounds, ROUNDING_ROLES, said)
    yield from changed
    if changed:
        return
    if schedule is not None and schedule.partings:
        parting = schedule.partings[0]
        calls = f"A: {parting.call_a.shown}, B: {parting.call_b.shown}"
        experiment = "Run A with the sizes of buckets and the way of sharing the work that B has."
        yield of_kinds(("order",), (said, calls), experiment)
        return
    # signs that ranks add the same parts in the same order, and what leaves that open
    speaks_for, against = [said], list[str]()
    if schedule is None or not schedule.equal:
        against.append("the schedules are not compared: sums over ranks may have another order")
    else:
        speaks_for.append("the schedules are equal: ranks add the same parts")
        libraries = {str(name) for run in (schedule.a, schedule.b) for name in run.rows["library"].unique().to_list()}
        if "nccl" in libraries and not grounds.settings.compared:
            against.append("the settings of NCCL are not compared: it may have chosen another algorithm")
    if small and grounds.is_told:
        yield untold(grounds, said, against)
        return
    kinds = ("kernel", *(["order"] if against else []), *(["small-change"] if small else []))
    against += ["a small real change looks alike at this size"] if small else []
    experiment = "Run A twice: if it differs from itself as much, it does not repeat (rankscope repro --determinism)."
    yield of_kinds(kinds, tuple(speaks_for), experiment, tuple(against), action=DETERMINISM)


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
    experiment = (
        "Compare how both runs average gradients: sum or mean, the divisor, accumulation steps, the clipping limit."
    )
    return of_kinds(("scale",), (said, *(f"the factor is {name}, or its inverse" for name in near)), experiment)


_EXPERIMENTS: Mapping[str, str] = {
    "data": "Compare sampler, seed and number of workers of both data loaders; run A with the batches of B.",
    "dropout": "Run both without dropout, or with one seed for it: equal numbers then show that it is the dropout.",
    "order": "Fix algorithm and protocol of the backend (NCCL_ALGO, NCCL_PROTO), and run A twice: does it repeat?",
    "kernel": "Run this module twice on its recorded input: does it repeat? (rankscope repro --determinism)",
    "optimizer": "Print the optimizer's options and its learning rate in that step of both runs.",
    "seed": "Print seed and a norm of the parameters before the first step in both runs.",
    "lr": "Log the learning rate and a hash of each batch, and print the optimizer's options in both runs.",
    "precision": "Compare the precision options of both runs (autocast, reduce_dtype), and run A with those of B.",
    "initial-values": 'Record modules, which has the parameters: numbers.start(model, level="modules") in both runs.',
    "code": "Compare the code of both runs at that line.",
}
"""Experiments by the first kind of cause."""
_MORE_ROLES: Mapping[str, tuple[str, ...]] = {
    "data": ("seed", "data", "batch"),
    "dropout": ("seed", "dropout"),
    "initial-values": ("seed", "model"),
}
"""Roles of options that may bring about a kind, beside the one of its own name."""
_RECORD = 'Record modules around this place in both runs: numbers.start(model, every=1, level="modules").'
_JUDGE = "Run rankscope report --only numbers on both runs: its rules tell whose result is none of these inputs."
_UNTOLD = "what was recorded does not tell what made this difference"


def tensor_causes(grounds: Grounds) -> Iterator[Hypothesis]:
    """Causes of the first tensor that differs: options and settings that fit, else the kinds that its place tells."""
    if grounds.tensors is None or not grounds.tensors.differences:
        return
    first = grounds.tensors.differences[0]
    said, kinds = first.found.title, first.kinds
    if kinds not in (("data",), ("order",)) and not first.is_root:
        # without those whose options are equal, unless none is left
        left = [kind for kind in kinds if kind not in grounds.equal and not (kind == "lr" and grounds.is_equal(kind))]
        kinds = tuple(left) or kinds
    # the roles of options and settings that may bring about one of the kinds
    roles = tuple(dict.fromkeys(role for kind in kinds for role in (*_MORE_ROLES.get(kind, ()), kind)))
    changed = by_changes(grounds, roles, said)
    yield from changed
    if changed:
        return
    out = tuple(grounds.equal[kind] for kind in first.kinds if kind in grounds.equal and kind not in kinds)
    if len(kinds) > 1 and grounds.is_told:
        yield untold(grounds, f"{said}{f'; {first.reason}' if first.reason else ''}", out)
        return
    cause = one_of(kinds) if kinds else _UNTOLD
    experiment = _EXPERIMENTS[kinds[0]] if kinds else _JUDGE if first.is_root else _RECORD
    evidence = (said, *((first.reason,) if first.reason else ()))
    action = DETERMINISM if kinds[:1] == ("kernel",) else None
    yield Hypothesis(id_of(kinds) or UNTOLD, cause, evidence, out, experiment, kinds, action=action)


_TOLD = 0.5
"""Share of the added time of a step from which on one place explains it."""


def hypotheses(grounds: Grounds) -> tuple[Hypothesis, ...]:
    """Causes that what was compared suggests: those of the earliest difference first; the first of a cause counts.

    Values tell more of a cause than the schedule does, unless all they tell is that something happened at a step.
    Tensors tell most: they name the operation.
    """
    values, schedule, tensors = list(value_causes(grounds)), list(_of_schedule(grounds)), list(tensor_causes(grounds))
    happened = bool(values) and values[0].kinds == ("event",)
    first = (*schedule, *values) if happened else (*values, *schedule)
    has_kinds = bool(tensors) and bool(tensors[0].kinds)
    first = (*tensors, *first) if has_kinds else (*first, *tensors)
    if not first:
        first = tuple(by_changes(grounds, (), "no other difference is recorded"))
    if grounds.is_told:
        # one of several kinds is a guess where options and settings are known
        first = (*(cause for cause in first if len(cause.kinds) == 1), *(c for c in first if len(c.kinds) != 1))
    seen: dict[str, Hypothesis] = {}
    for cause in (*first, *_of_times(grounds), *_of_settings(grounds)):
        seen.setdefault(cause.id, cause)
    return tuple(seen.values())


_SCHEDULE_CAUSES: Mapping[str, tuple[str, tuple[str, ...], str]] = {
    "size": (
        "another size of batch, model or bucket",
        ("order", "batch", "model"),
        "Print the shape of the tensor at that line in both runs; run A with the batch and the bucket size of B.",
    ),
    "data-size": (
        "values differ before: the sizes of an all_to_all depend on data, as the routing to experts does",
        ("data",),
        "Record loss and gradient norm of both runs exactly, and look which step differs before this operation.",
    ),
    "dtype": (
        "another precision of parameters or of reductions",
        ("precision",),
        "Compare the precision options of both runs (autocast, reduce_dtype, hooks), and run A with those of B.",
    ),
    "peer": (CAUSES["mesh"], ("mesh",), "Print rank, stage and mesh at the start of both runs, and compare."),
}
_OTHER_PATH = (
    "the program took another path: other code, another option, or a branch that depends on rank or data",
    ("code",),
    "Compare code and options of both runs at that line; run A with the commit and the options of B.",
)


def _of_schedule(grounds: Grounds) -> Iterator[Hypothesis]:
    if grounds.schedule is None or not grounds.schedule.partings:
        return
    first = grounds.schedule.partings[0]
    cause, kinds, experiment = _SCHEDULE_CAUSES.get(first.aspect, _OTHER_PATH)
    # those that other evidence tells, too, have the id of their kind
    cause_id = f"schedule:{first.aspect}" if first.aspect in ("size", "data-size", "dtype") else id_of(kinds)
    speaks_for, speaks_against = [f"A: {first.call_a.shown}, B: {first.call_b.shown}"], list[str]()
    yield from by_changes(
        grounds, kinds if kinds != ("code",) else ("order", "model", "optimizer"), speaks_for[0], others=_OTHER_SCHEDULE
    )
    if first.aspect == "earlier":
        said = parting_title(grounds.schedule, first, (first.rank,))
        yield Hypothesis(cause_id, cause, (said,), (), experiment, kinds)
        return
    if first.aspect == "size" and grounds.first is None and grounds.series.steps:
        cause_id, kinds, cause = "schedule:buckets", ("order",), "another size of buckets"
        speaks_for.append("the values are equal: batch and model are the same")
    _stack_evidence(grounds.schedule, first, speaks_for, speaks_against)
    yield Hypothesis(cause_id, cause, tuple(speaks_for), tuple(speaks_against), experiment, kinds)


def _stack_evidence(
    schedule: ScheduleComparison, first: RankParting, speaks_for: list[str], speaks_against: list[str]
) -> None:
    """Adds what the lines of code tell of another schedule."""
    stacks = schedule.stack(first.row_a, False), schedule.stack(first.row_b, True)
    if all(stacks):
        innermost = [(own_frames(stack) or stack)[0] for stack in stacks]
        lines = [f"{frame.file}:{frame.line}" for frame in innermost]
        same = stacks[0] == stacks[1]
        said = f"both are issued at {lines[0]}" if same else f"A issues it at {lines[0]}, B at {lines[1]}"
        (speaks_for if same == (first.aspect in _SCHEDULE_CAUSES) else speaks_against).append(said)
    if first.places == 1 and first.parting.meets:
        speaks_against.append("it happens once, then the runs meet again: an option would act in each step")
    elif first.places > 1:
        speaks_for.append("it happens again later")


def _of_times(grounds: Grounds) -> Iterator[Hypothesis]:
    """Causes of steps that take another time; those of the slower run."""
    if grounds.times is None:
        return
    alone = grounds.times.stragglers
    if alone:
        titles = tuple(straggler.title for straggler in alone[:MOST_SETTINGS])
        where = "with the host, or stays with the rank"
        experiment = f"Run {alone[0].run} again without that host: the delay goes {where}."
        cause = "one rank or one host alone, and no setting"
        yield Hypothesis("slow-rank:alone", cause, titles, (), experiment, ("slow-rank",), alone[0].ranks)
    explained = {straggler.run for straggler in alone}
    steps = [step for step in grounds.times.steps if step.stands_out]
    steps = [step for step in steps if ("B" if step.ratio > 1 else "A") not in explained]
    if not steps:
        return
    step, in_b = steps[0], steps[0].ratio > 1
    said = f"{step.name}: {abs(step.ratio - 1) * 100:.0f} % {'slower' if in_b else 'faster'} in B"
    place = late_place(grounds.schedule) if grounds.schedule is not None else None
    # ranks that are late again and again in one run, and not in the other
    late = [
        {rank for finding in run.analysis.findings if finding.kind == "straggler" for rank in finding.culprit_ranks}
        for run in grounds.runs
    ]
    slow = tuple(sorted(late[in_b] - late[not in_b])) or (place.ranks if place is not None else ())
    if slow:
        who, comes = ranks_text(slow, 40), "comes" if len(slow) == 1 else "come"
        where = f", to {place.operation}" if place is not None and place.ranks == slow else ""
        late_text = f"{who} {comes} late again and again{where}, and the others wait; not so in the other run"
        experiment = f"Run the slower job with {who} on another host or device."
        yield of_kinds(("slow-rank",), (said, f"in {'B' if in_b else 'A'} {late_text}"), experiment, ranks=slow)
        return
    yield from by_changes(grounds, ("data-loader",), said, others=())
    yield from _late_hosts(grounds, step, said, in_b, place)
    changed = [change for change in grounds.settings.changes if change.weight in ("speed", "behaviour", "place")]
    speaks_for = (said, *(change.shown for change in changed[:MOST_SETTINGS]))
    against = ("one run a side: two runs of one setting differ by themselves",)
    experiment = "Run both three times in turn, on the same hosts, and compare the medians of the runs."
    yield of_kinds(("machine",), speaks_for, experiment, against)


def _late_hosts(
    grounds: Grounds, step: TimeRatio, said: str, in_b: bool, place: LatePlace | None
) -> Iterator[Hypothesis]:
    """All ranks come later to the same operation: something before it takes longer on each host."""
    added = abs(step.median_b - step.median_a)
    loads = list[float | None]()
    for table in grounds.common.tables:
        # the time for data in a step, without the first ones
        values = table.filter(pl.col("name") == "data_s").sort("step")["value"] if table.height else pl.Series([])
        middle = values[WARM_UP:].median() if len(values) > WARM_UP else None
        loads.append(float(middle) if isinstance(middle, int | float) else None)
    if all(loads) and added:
        change = (loads[in_b] or 0) - (loads[not in_b] or 0)
        if change >= _TOLD * added:
            more, data = (duration(round(seconds * 1e9)) for seconds in (added, change))
            data_time = f"of {more} more in a step, {data} are told as time for data"
            yield of_kinds(("data-loader",), (said, data_time), _LOADER)
            return
    if place is None:
        return
    known = ("data-loader",) if not all(loads) else ()
    against = () if known else ("the time for data is alike in both runs",)
    late = f"all ranks come later to {place.operation}, and nobody later than the others"
    yield of_kinds((*known, "host-work"), (said, late), _LOADER, against)


_LOADER = "Log the time that each step waits for its batch, or take a profiler trace of a few steps of both runs."


class LatePlace(NamedTuple):
    """The operation in the turn of the loop before which a run loses time."""

    operation: str
    ranks: tuple[int, ...]
    """The ranks that come late to it while the others wait; empty if all ranks come late."""


def late_place(schedule: ScheduleComparison) -> LatePlace | None:
    """Where most of the added time of a turn lies, by each rank's own clock; None if it lies in several places.

    A slow rank comes late to an operation, and the others lose the same time behind it: they wait in it.
    """
    turns = {rank: [_turns(run, rank) for run in (schedule.a, schedule.b)] for rank in schedule.alignments}
    if not turns or any(not a.size or a.shape[1] != b.shape[1] for a, b in turns.values()):
        return None
    by_place: dict[int, list[int]] = {}
    for rank, (a, b) in sorted(turns.items()):
        # the place before which most of it lies; the faster quarter is what other work spares
        added = np.abs(_usual_gaps(b) - _usual_gaps(a))
        place = int(added.argmax())
        if added[place] < _TOLD * abs(float(_usual_gaps(b).sum() - _usual_gaps(a).sum())):
            return None
        by_place.setdefault(place, []).append(rank)
    if len(by_place) > 2:
        return None
    late = list(by_place.items())
    if len(by_place) == 2:
        late = [(place, ranks) for place, ranks in late if _come_later(turns, ranks, place)]
    if len(late) != 1:
        return None
    place, ranks = late[0]
    row = schedule.a.rows.row(schedule.a.bounds[ranks[0]][0] + place, named=True)
    operation = f"{row['op']} {tensors(row['in_sizes'], row['in_dtypes'])}".strip()
    return LatePlace(operation, tuple(ranks) if len(by_place) == 2 else ())


def _come_later(turns: Mapping[int, Sequence[Floats]], ranks: Sequence[int], place: int) -> bool:
    """Whether ranks reach a place later than the others, by what one run has more than the other."""
    change, added = list[float](), list[float]()
    for run in (0, 1):
        count = min(len(times[run]) for times in turns.values())
        at = {rank: times[run][-count:, place] for rank, times in turns.items()}
        ours = np.mean([at[rank] for rank in ranks], axis=0)
        change.append(float(np.median(ours - np.mean([at[rank] for rank in at if rank not in ranks], axis=0))))
        added.append(float(np.median([_usual_gaps(times[run]).sum() for times in turns.values()])))
    more = added[1] - added[0]
    return bool((change[1] - change[0]) * np.sign(more) >= _TOLD * abs(more))


def _usual_gaps(turns: Floats) -> Floats:
    """The time before each operation of a turn that three quarters of the turns exceed, in seconds."""
    gaps = np.diff(turns.ravel(), prepend=np.nan).reshape(turns.shape)[1:]
    found: Floats = np.quantile(gaps, 0.25, axis=0)
    return found


def _turns(run: ScheduleRows, rank: int) -> Floats:
    """(turns, operations of a turn): when a rank issued them, in seconds of its clock; without the first turns.

    Empty if the times or the turns are unknown.
    """
    start, end = run.bounds[rank]
    rows, numbers = run.rows[start:end], run.numbers[start:end]
    period = period_of(plain_codes(rows))
    if not period or rows["created_ns"].null_count() or (np.diff(numbers) != 1).any():
        return np.zeros((0, 0))
    first = int(-numbers[0] % period) + WARM_UP * period
    whole = (len(rows) - first) // period
    times = rows["created_ns"].to_numpy()[first : first + max(whole, 0) * period]
    return times.reshape(-1, period) / 1e9 if whole > WARM_UP else np.zeros((0, 0))


def _of_settings(grounds: Grounds) -> Iterator[Hypothesis]:
    parts = grounds.schedule is not None and bool(grounds.schedule.partings)
    decisive = [
        change
        for change in grounds.settings.changes
        if change.weight == "repeatability" and not _SYMPTOMS.fullmatch(change.name) and role_of(change) != "code"
    ]
    for one in decisive[:MOST_SETTINGS]:
        against = [why] if (why := grounds.refuted(one)) else []
        if parts and role_of(one) in ROUNDING:
            against.append("the schedules differ, which the order of sums does not change")
        effect = one.effect or "it changes the order of sums or the kernels"
        cause = f"{one.name} differs, and decides results: {effect}".rstrip(".")
        experiment = _one_change(one)
        role = role_of(one)
        kinds = (role,) if role else ()
        yield Hypothesis(change_id(one), cause, (one.shown,), tuple(against), experiment, kinds, action=action_of(one))
