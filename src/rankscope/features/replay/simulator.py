"""Runs a schedule in memory: which operations end, and where each rank stops.

An operation ends when each of its ranks has come to it with the same operation, sizes and type. `serial`: a rank comes
to an operation when all before it have ended. `streams`: it comes to it when those before it in the same group, or in
the same direction of a pair of ranks, have ended.

The records end where the job hung. What a rank would have issued next is in none of them, but its peers that came
further tell it. An operation is put in only if it can end with that: each of its members has come to it, or is free.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from rankscope.analysis.signatures import UNTOLD_OPS
from rankscope.features.replay.schedule import Key, Schedule, Splits, Step

Order = Literal["serial", "streams"]


@dataclass(frozen=True)
class Setting:
    """How a schedule is run."""

    order: Order = "serial"
    holds: frozenset[int] = frozenset()
    """Ranks whose device stops before their first operation that the dumps call pending.

    If peers have seen it completed, the rank takes part in all that peers have seen completed, and sees no end.
    """
    frozen: frozenset[Key] = frozenset()
    """Operations that never end."""


@dataclass(frozen=True)
class Outcome:
    """The steps of each rank that have not ended, by their places."""

    pending: Mapping[int, tuple[int, ...]]

    @property
    def waiting(self) -> int:
        """How many ranks do not come to their end."""
        return sum(map(bool, self.pending.values()))

    def stops_at(self, schedule: Schedule, rank: int) -> dict[Key, Key]:
        """The first operation of each stream that has not ended, as `Schedule.recorded`."""
        first: dict[Key, Key] = {}
        for at in self.pending[rank]:
            step = schedule.steps[rank][at]
            first.setdefault(step.stream, step.key)
        return first

    def head(self, schedule: Schedule, rank: int) -> Step | None:
        """The first step that has not ended; None if the rank comes to the end."""
        left = self.pending[rank]
        return schedule.steps[rank][left[0]] if left else None


@dataclass
class _Simulation:
    schedule: Schedule
    setting: Setting
    lines: dict[int, list[deque[list[int]]]] = field(default_factory=dict)
    """For each rank its lines of steps that wait for each other; those in one inner list are issued together."""
    there: dict[Key, dict[int, int]] = field(default_factory=dict)
    """Who has come to an operation, and at which of its steps."""
    ended: dict[int, set[int]] = field(default_factory=dict)
    deaf: dict[int, int] = field(default_factory=dict)
    """For each rank that sees no end any more, the first such step."""

    def arrive(self, rank: int, places: Iterable[int]) -> list[Key]:
        """A rank comes to steps; the operations that all ranks have come to."""
        full = []
        for place in places:
            key = self.schedule.steps[rank][place].key
            came = self.there.setdefault(key, {})
            came[rank] = place
            if len(came) == len(self.schedule.members[key]):
                full.append(key)
        return full

    def end(self, key: Key) -> list[Key]:
        """An operation ends, if it can; the operations that are complete because of it."""
        came = self.there[key]
        steps = [self.schedule.steps[rank][came[rank]] for rank in self.schedule.members[key]]
        if key in self.setting.frozen or (not fits(steps) and any(step.pending for step in steps)):
            return []
        full = []
        for rank, place in came.items():
            self.ended[rank].add(place)
            for line in self.lines[rank]:
                if line and place in line[0] and self.ended[rank].issuperset(line[0]):
                    line.popleft()
                    full += self.arrive(rank, line[0]) if line else []
        return full


def simulate(schedule: Schedule, setting: Setting) -> Outcome:
    """Runs a schedule until nothing moves."""
    run = _Simulation(schedule, setting)
    full: deque[Key] = deque()
    for rank, steps in schedule.steps.items():
        until = len(steps)
        if rank in setting.holds and (first := first_pending(steps)) is not None:
            run.deaf[rank] = first
            until = next((at for at in range(first, until) if steps[at].key not in schedule.over), until)
        run.lines[rank], run.ended[rank] = _lines(schedule, rank, setting.order, until), set()
    for rank, lines in run.lines.items():
        for line in lines:
            full.extend(run.arrive(rank, line[0]))
    while full:
        full.extend(run.end(full.popleft()))
    left = {
        rank: tuple(at for at in range(len(steps)) if at not in run.ended[rank] or at >= run.deaf.get(rank, len(steps)))
        for rank, steps in schedule.steps.items()
    }
    return Outcome(left)


def first_pending(steps: Sequence[Step]) -> int | None:
    """The first step that the dumps call pending."""
    return next((at for at, step in enumerate(steps) if step.pending), None)


def _lines(schedule: Schedule, rank: int, order: Order, until: int) -> list[deque[list[int]]]:
    """The steps of a rank before `until`, in the lines in which they wait for each other."""
    steps = schedule.steps[rank]
    units, at = [], 0
    for unit in schedule.units(rank):
        units.append([place for place in range(at, at + len(unit)) if place < until])
        at += len(unit)
    if order == "serial":
        return [deque(unit for unit in units if unit)] if any(units) else []
    streams: dict[Key, deque[list[int]]] = {}
    for place in (place for unit in units for place in unit):
        streams.setdefault(steps[place].stream, deque()).append([place])
    return list(streams.values())


def fits(steps: list[Step]) -> bool:
    """Whether the steps of all ranks of an operation agree, so that it can end."""
    names = {"p2p" if step.is_p2p else step.op for step in steps if step.op not in UNTOLD_OPS}
    sizes = {step.elements for step in steps if step.elements is not None}
    types = {step.dtype for step in steps if step.dtype is not None}
    return max(len(names), len(sizes), len(types)) <= 1 and _meet([step.splits for step in steps])


def _meet(splits: list[Splits | None]) -> bool:
    """Whether what each member sends is what the other expects; `splits` are in the order of the group."""
    known = [one for one in splits if one is not None and len(one[0]) == len(splits)]
    if len(known) < len(splits):
        return True
    return all(known[i][0][j] == known[j][1][i] for i in range(len(known)) for j in range(len(known)))


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
    schedule: Schedule,
    setting: Setting,
    stopped: frozenset[int],
    eager: int | None = None,
    barred: tuple[int, Key] | None = None,
) -> Continuation:
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
    schedule: Schedule,
    setting: Setting,
    outcome: Outcome,
    stopped: frozenset[int],
    eager: int | None,
    barred: tuple[int, Key] | None,
) -> Iterator[tuple[int, Step]]:
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
