"""Schedules that stop where the job stopped: setting, fewest ranks, and the conditions in which a replay is run.

A collective waits for all of its members, so those that had come to it can be left out.

They act on real runs only. In the simulator an operation ends once all its ranks have come, however late.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace

from rankscope.analysis.model import Analysis
from rankscope.features.replay.edits import parse_place, place_text
from rankscope.features.replay.replay_source import SchedulePart
from rankscope.features.replay.schedule import Key, ReplayOperations, Schedule, Step, schedule_of
from rankscope.features.replay.simulator import Outcome, Setting, first_pending, simulate
from rankscope.schema import Dataset
from rankscope.text.escaping import plain
from rankscope.text.wording import ranks_text

MOVING = ("healthy", "progressing", "slow")
"""Statuses of jobs that go on: what is pending there holds up nobody."""
MOST_TRIES = 64
"""Ranks and operations that are tried as what holds up the rest, where the schedule alone explains nothing."""


@dataclass(frozen=True)
class Fit:
    """A schedule with the setting that explains the dumps best."""

    schedule: Schedule
    setting: Setting
    outcome: Outcome
    equal: frozenset[int]
    """Ranks that stop at the operation that their dumps call pending, the first of several."""
    told: frozenset[int]
    """Ranks whose dumps tell."""
    exact: frozenset[int] = frozenset()
    """Those of `equal` that stop in each group, and in each direction of a pair, where their dumps say it."""

    @property
    def is_sound(self) -> bool:
        """Whether at least half of the ranks stop as in the dumps."""
        return 2 * len(self.equal) >= len(self.told)

    @property
    def agreement(self) -> str:
        """`14 of 14 ranks stop as in the dumps`."""
        return f"{len(self.equal)} of {len(self.told)} ranks stop as in the {self.schedule.noun}"


def fit_job(
    job: Dataset | ReplayOperations, analysis: Analysis, context: int = 0, part: SchedulePart | None = None
) -> Fit:
    """The schedule of a job with the setting that explains its input; ValueError if nothing holds an operation.

    `part` says which operations are taken; without one, `context` as there.
    """
    cause = next((f for f in analysis.findings if f.root_cause and f.group is not None), None)
    around: Key = (cause.group.key, cause.seq) if cause and cause.group and cause.seq is not None else ()
    part = part or SchedulePart(context=context, around=around)
    return fit(schedule_of(job, stuck=analysis.status not in MOVING, part=part), analysis)


def fit(schedule: Schedule, analysis: Analysis) -> Fit:
    """The best setting; serial is tried first, then what holds up least beside it."""
    found = [_judged(schedule, Setting(order)) for order in ("serial", "streams")]
    best = max(found, key=_score)
    for _ in range(MOST_TRIES):
        if best.equal == best.told:
            return best
        better = max((_judged(schedule, s) for s in _further(best, analysis)), key=_score, default=best)
        if _score(better) <= _score(best):
            return best
        best = better
    return best


def _judged(schedule: Schedule, setting: Setting) -> Fit:
    outcome = simulate(schedule, setting)
    recorded = frozenset(schedule.steps) - schedule.silent
    exact = frozenset(rank for rank in recorded if outcome.stops_at(schedule, rank) == schedule.recorded(rank))
    # what follows may overlap with the first one in a way that is neither serial nor independent
    first = frozenset(rank for rank in recorded - exact if _stops_first(schedule, outcome, rank))
    return Fit(schedule, setting, outcome, exact | first, recorded, exact)


def _stops_first(schedule: Schedule, outcome: Outcome, rank: int) -> bool:
    """Whether the first operation that has not ended is that which the dump calls pending first."""
    left = outcome.pending[rank]
    return (left[0] if left else None) == first_pending(schedule.steps[rank])


def _score(fit: Fit) -> tuple[int, int]:
    return len(fit.equal), len(fit.exact)


def _further(best: Fit, analysis: Analysis) -> Iterable[Setting]:
    """Settings with one more rank that stops, or all culprits, or one more operation that never ends."""
    setting, schedule = best.setting, best.schedule
    culprits = frozenset(analysis.culprits) & frozenset(schedule.steps)
    for ranks in (culprits, *(frozenset((rank,)) for rank in sorted(culprits))):
        if ranks - setting.holds:
            yield replace(setting, holds=setting.holds | ranks)
    wrong = sorted(best.told - best.equal)[:MOST_TRIES]
    stopped = (r for r in wrong if r not in setting.holds and schedule.recorded(r))
    holds = [replace(setting, holds=setting.holds | {rank}) for rank in stopped]
    keys = {key for rank in wrong for key in schedule.recorded(rank).values()}
    freezes = [replace(setting, frozen=setting.frozen | {key}) for key in sorted(keys - setting.frozen)[:MOST_TRIES]]
    # of what nobody is accused, no device is dead
    yield from (*holds, *freezes) if culprits else (*freezes, *holds)


def shrunk(fit: Fit, analysis: Analysis, more: AbstractSet[int] = frozenset()) -> Schedule:
    """The schedule of the culprits, of `more` ranks, and of as few others as keep each of these where it stopped.

    The whole schedule if no smaller one does, or if it is not serial.
    """
    schedule = fit.schedule
    if fit.setting.order != "serial" or fit.setting.frozen:
        return schedule
    kept = _beginning(fit, analysis) | (more & schedule.steps.keys())
    while kept < set(schedule.steps):
        small = restricted(schedule, frozenset(kept))
        outcome = simulate(small, fit.setting)
        added = {_holding(fit, outcome, small, rank, kept) for rank in kept if not _same(fit, outcome, small, rank)}
        added.discard(None)
        if not added:
            break
        kept.add(min(rank for rank in added if rank is not None))
    small = restricted(schedule, frozenset(kept))
    return small if keeps_places(fit, small) else schedule


def keeps_places(fit: Fit, small: Schedule) -> bool:
    """Whether each rank of a smaller schedule stops where it stops among all, and somebody does."""
    outcome = simulate(small, fit.setting)
    return any(outcome.pending.values()) and all(_same(fit, outcome, small, rank) for rank in small.steps)


def restricted(schedule: Schedule, ranks: frozenset[int]) -> Schedule:
    """The schedule of some ranks; groups lose their other members, and sends and receives to others are left out."""
    groups = {g: tuple(r for r in members if r in ranks) for g, members in schedule.groups.items()}
    kept = {g: [at for at, r in enumerate(members) if r in ranks] for g, members in schedule.groups.items()}
    steps = {
        rank: tuple(_among(s, kept[s.group]) for s in found if not s.is_p2p or {s.key[1], s.key[2]} <= ranks)
        for rank, found in schedule.steps.items()
        if rank in ranks
    }
    used = {step.group for found in steps.values() for step in found}
    left = {g: m for g, m in groups.items() if g in used}
    return replace(schedule, steps=steps, groups=left, silent=schedule.silent & ranks)


def _among(step: Step, members: list[int]) -> Step:
    """A step of a group of which only these members, by their places, are left."""
    if step.splits is None:
        return step
    sent, got = (tuple(one[at] for at in members if at < len(one)) for one in step.splits)
    return replace(step, splits=(sent, got))


def _beginning(fit: Fit, analysis: Analysis) -> set[int]:
    """Culprits, those along the chain to them, one rank that waits, and two more members of the finding's group."""
    known = set(fit.schedule.steps)
    cause = analysis.cause
    if cause is None:
        return set(sorted(known)[:2])
    along = [rank for step in cause.chain for rank in (step.rank, step.for_rank)]
    members = [rank for rank in (cause.group.ranks if cause.group else ()) if rank not in cause.culprit_ranks]
    chosen = {*cause.culprit_ranks, *cause.candidates[:1], *along, *cause.waiting_ranks[:1], *members[:2]}
    return (chosen & known) or known


def _same(fit: Fit, outcome: Outcome, small: Schedule, rank: int) -> bool:
    """Whether a rank stops at the operation where it stops among all."""
    now, before = outcome.head(small, rank), fit.outcome.head(fit.schedule, rank)
    return _key(now) == _key(before)


def _key(step: Step | None) -> Key | None:
    return None if step is None else step.key


def _holding(fit: Fit, outcome: Outcome, small: Schedule, rank: int, kept: set[int]) -> int | None:
    """A rank that is left out, and holds up this one: one that has not come to where it stops among all."""
    step = fit.outcome.head(fit.schedule, rank) or outcome.head(small, rank)
    if step is None:
        return None
    missing = [other for other in fit.schedule.members[step.key] if other not in kept]
    late = [other for other in missing if _key(fit.outcome.head(fit.schedule, other)) != step.key]
    return next(iter(late or missing), None)


PREFIXES = ("NCCL_", "TORCH_", "GLOO_", "CUDA_", "HCCL_", "RCCL_", "HSA_", "UCX_", "FI_", "OMP_", "PYTORCH_")
"""Names of settings that libraries of collectives, or what they rest on, read."""
LONGEST_S = 60.0
"""The longest time-out, and the longest that one rank sleeps: a run has an end."""
_NAME = re.compile(r"[A-Z][A-Z0-9_]{1,79}", re.ASCII)
_VALUE = re.compile(r"[ -~]{0,200}", re.ASCII)
_SECONDS = re.compile(r"\d{1,4}(?:\.\d{1,3})?", re.ASCII)


@dataclass(frozen=True)
class Delay:
    """A rank that sleeps before an operation, or before its first one."""

    rank: int
    key: Key
    """The operation; empty for the first of the rank."""
    seconds: float


@dataclass(frozen=True)
class ReplayConditions:
    """Settings, delays and time-out of a replay."""

    settings: tuple[tuple[str, str], ...] = ()
    delays: tuple[Delay, ...] = ()
    timeout: float | None = None
    """Seconds that each operation may take."""

    def __bool__(self) -> bool:
        """Whether anything differs from a plain run."""
        return bool(self.settings or self.delays or self.timeout)

    def sentences(self, dataset: Dataset) -> Iterator[str]:
        """A phrase for each of them: `with NCCL_ALGO=Ring`."""
        yield from (f"with {name}={plain(value, 60)}" for name, value in self.settings)
        for delay in self.delays:
            where = place_text(dataset, delay.key) if delay.key else "its first operation"
            yield f"rank {delay.rank} sleeps {delay.seconds:g} s before {where}"
        if self.timeout:
            yield f"an operation fails after {self.timeout:g} s"

    def remarks(self) -> Iterator[str]:
        """Sentences on effects that these conditions cannot have."""
        if any(name.startswith(("NCCL_", "RCCL_")) for name, _ in self.settings):
            yield "over gloo NCCL_* and RCCL_* have no effect: run the script with BACKEND=nccl"
        if self.delays:
            yield "a delay alone hangs nothing in the simulator: an operation ends when its last rank comes"
        if self.settings or self.timeout:
            yield "settings and the time-out change nothing in the simulator"


PLAIN = ReplayConditions()


def parse_conditions(
    dataset: Dataset, settings: Iterable[str], delays: Iterable[str], timeout: float | None
) -> ReplayConditions:
    """The conditions as typed: NAME=VALUE, RANK:SECONDS or RANK:GROUP#SEQ:SECONDS; ValueError tells what is wrong."""
    found = tuple(parse_delay(dataset, text) for text in delays)
    for rank in {delay.rank for delay in found}:
        if sum(delay.seconds for delay in found if delay.rank == rank) > LONGEST_S:
            raise ValueError(f"--delay: rank {rank} sleeps longer than {LONGEST_S:g} s")
    return ReplayConditions(tuple(map(_setting, settings)), found, timeout)


def _setting(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not _NAME.fullmatch(name):
        raise ValueError(f"--env {plain(text, 60)}: not NAME=VALUE with capital letters, digits and _ in the name")
    if not name.startswith(PREFIXES):
        raise ValueError(f"--env {name}: only names that begin with {', '.join(PREFIXES)}")
    if not _VALUE.fullmatch(value):
        raise ValueError(f"--env {name}: the value is not up to 200 printable ASCII characters")
    return name, value


def parse_delay(dataset: Dataset, text: str) -> Delay:
    """The delay in `text`; ValueError tells the forms, or the groups of the rank."""
    place, _, seconds = text.strip().rpartition(":")
    if not _SECONDS.fullmatch(seconds) or not place:
        raise ValueError(f"--delay {plain(text, 60)}: not RANK:SECONDS or RANK:GROUP#SEQ:SECONDS")
    if place.isascii() and place.isdecimal() and len(place) < 10:
        return Delay(int(place), (), float(seconds))
    return Delay(*parse_place(dataset, place), float(seconds))


def check_delays(conditions: ReplayConditions, schedule: Schedule) -> None:
    """ValueError if a rank that is to sleep, or the operation before which it does, is not in the schedule."""
    for delay in conditions.delays:
        steps = schedule.steps.get(delay.rank)
        if steps is None:
            known = ranks_text(sorted(schedule.steps))
            raise ValueError(f"--delay: rank {delay.rank} is not in the replay, which has {known}")
        if delay.key and all(step.key != delay.key for step in steps):
            raise ValueError(f"--delay: the replay of rank {delay.rank} does not hold that operation")
