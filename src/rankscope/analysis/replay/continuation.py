"""Lets a changed schedule run on behind its records: a rank that comes to its end issues what its peers wait for.

The records end where the job hung. What a rank would have issued next is in none of them, but its peers that came
further tell it. An operation is put in only if it can end with that: each of its members has come to it, or is free.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from rankscope.analysis.replay.schedule import Key, Schedule, Step
from rankscope.analysis.replay.simulator import Outcome, Setting, fits, simulate

MOST_ROUNDS = 100
"""Rounds in which operations are put in."""


@dataclass(frozen=True)
class Continuation:
    """A schedule with what was put in, and where its ranks stop."""

    schedule: Schedule
    outcome: Outcome
    added: Mapping[int, tuple[Key, ...]]
    """The operations that each rank issues beyond its record."""


def stopped_ranks(schedule: Schedule, outcome: Outcome, suspects: tuple[int, ...]) -> frozenset[int]:
    """Ranks that come to their end while others wait, and do not go on: of the suspects, or of all without any."""
    ended = frozenset(rank for rank, left in outcome.pending.items() if not left)
    return ended & frozenset(suspects) if suspects else ended - schedule.silent


def continued(
    schedule: Schedule, setting: Setting, stopped: frozenset[int], eager: int | None = None,
    barred: tuple[int, Key] | None = None,
) -> Continuation:  # fmt: skip
    """Runs a schedule, and on behind its records. Ranks in `stopped` do not go on.

    `eager` is a rank that also issues what its peers wait for where it waits itself, before that. `barred` is an
    operation that its rank does not issue.
    """
    added: dict[int, list[Key]] = {}
    outcome = simulate(schedule, setting)
    for _ in range(MOST_ROUNDS):
        put_in = list(_lacking(schedule, setting, outcome, stopped, eager, barred))
        if not put_in:
            break
        steps = dict(schedule.steps)
        for rank, step in put_in:
            at = outcome.pending[rank][0] if outcome.pending[rank] else len(schedule.steps[rank])
            at += len(steps[rank]) - len(schedule.steps[rank])
            steps[rank] = (*steps[rank][:at], step, *steps[rank][at:])
            added.setdefault(rank, []).append(step.key)
        schedule = replace(schedule, steps=steps)
        outcome = simulate(schedule, setting)
    return Continuation(schedule, outcome, {rank: tuple(keys) for rank, keys in added.items()})


def _lacking(
    schedule: Schedule, setting: Setting, outcome: Outcome, stopped: frozenset[int], eager: int | None,
    barred: tuple[int, Key] | None,
) -> Iterator[tuple[int, Step]]:  # fmt: skip
    """The operations that end if free ranks issue them, each rank once: the rank, and its step."""
    free = {r for r, left in outcome.pending.items() if (not left and r not in stopped) or r == eager}
    has = {rank: {step.key for step in schedule.steps[rank]} for rank in free}
    came: dict[Key, dict[int, Step]] = {}
    for rank in schedule.steps:
        for step in _reached(schedule, setting, outcome, rank):
            came.setdefault(step.key, {})[rank] = step
    for key, there in sorted(came.items()):
        lacking = [rank for rank in schedule.members[key] if rank not in there]
        steps = list(there.values())
        if key in setting.frozen or not fits(steps) or (barred and barred[1] == key and barred[0] in lacking):
            continue
        if not all(rank in free and key not in has[rank] for rank in lacking):
            continue
        for rank in lacking:
            free.discard(rank)
            yield rank, side_of(steps[0], rank)


def _reached(schedule: Schedule, setting: Setting, outcome: Outcome, rank: int) -> Iterator[Step]:
    """The steps that a rank has come to, and that have not ended."""
    left, steps = outcome.pending[rank], schedule.steps[rank]
    if not left or rank in setting.holds:
        return
    if setting.order == "streams":
        seen: set[Key] = set()
        for at in left:
            if steps[at].stream not in seen:
                seen.add(steps[at].stream)
                yield steps[at]
        return
    first = steps[left[0]]
    yield first
    for at in left[1:]:
        if first.together is None or steps[at].together != first.together:
            return
        yield steps[at]


def side_of(peer: Step, rank: int) -> Step:
    """The step of a rank that belongs to the one of a peer: a receive to its send, or the same collective."""
    op = peer.op if not peer.is_p2p else "send" if rank == peer.key[1] else "recv"
    return replace(peer, op=op, batch=-1, run=-1, filled=True, pending=True, splits=None)
