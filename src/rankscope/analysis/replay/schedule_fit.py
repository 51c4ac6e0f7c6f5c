"""Schedules that stop where the job stopped: the setting of their simulation, and the fewest ranks that still do so.

A collective waits for all of its members, so those that had come to it can be left out.
"""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace

from rankscope.analysis.model import Analysis
from rankscope.analysis.replay.replay_source import SchedulePart
from rankscope.analysis.replay.schedule import Key, ReplayOperations, Schedule, Step, schedule_of
from rankscope.analysis.replay.simulator import Outcome, Setting, first_pending, simulate
from rankscope.schema import Dataset

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
    told = frozenset(schedule.steps) - schedule.silent
    exact = frozenset(rank for rank in told if outcome.stops_at(schedule, rank) == schedule.recorded(rank))
    # what follows may overlap with the first one in a way that is neither serial nor independent
    first = frozenset(rank for rank in told - exact if _stops_first(schedule, outcome, rank))
    return Fit(schedule, setting, outcome, exact | first, told, exact)


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
    for held in (culprits, *(frozenset((rank,)) for rank in sorted(culprits))):
        if held - setting.holds:
            yield replace(setting, holds=setting.holds | held)
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
