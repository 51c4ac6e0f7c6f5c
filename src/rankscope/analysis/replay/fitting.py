"""The setting in which a simulated schedule stops where the dumps say that the job stopped, on most ranks."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from rankscope.analysis.model import Analysis
from rankscope.analysis.replay.schedule import Key, ReplayOperations, Schedule, schedule_of
from rankscope.analysis.replay.schedule_part import SchedulePart
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
