"""Fewer ranks that stop where they stopped among all: a collective waits for all of its members, so those that had come
to it can be left out.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from dataclasses import replace

from rankscope.analysis.model import Analysis
from rankscope.analysis.replay.fitting import Fit
from rankscope.analysis.replay.schedule import Key, Schedule, Step
from rankscope.analysis.replay.simulator import Outcome, simulate


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
