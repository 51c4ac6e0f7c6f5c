"""Changes of a schedule: an operation less, one more, two in another order, one as its peers have it, a rank let go.

A changed schedule answers one question: does it still hang with this change? That it does not is evidence that the
change touches the cause; the job's own code may need another one.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

from rankscope.analysis.replay.schedule import Key, Schedule, Step
from rankscope.analysis.replay.simulator import Outcome, Setting, fits, simulate

EditKind = Literal["skip", "insert", "swap", "match", "release", "complete"]


@dataclass(frozen=True)
class Edit:
    """A change of one rank; `complete` is one of all ranks: each also issues what its peers have."""

    kind: EditKind
    rank: int
    key: Key = ()
    """The operation: it is left out, put in, put after `other`, or made equal to that of its peers."""
    other: Key = ()


@dataclass(frozen=True)
class Trial:
    """A change, with the schedule and the setting that were simulated, and what that shows."""

    edit: Edit
    schedule: Schedule
    setting: Setting
    outcome: Outcome

    @property
    def waiting(self) -> int:
        """How many ranks do not come to their end."""
        return self.outcome.waiting


def tried(schedule: Schedule, setting: Setting, edit: Edit) -> Trial:
    """Simulates a schedule with a change; ValueError if it cannot be made."""
    changed = apply_edit(schedule, edit)
    if edit.kind == "complete":
        # places of what is put in among other groups are not known: only what is missing is asked
        setting = Setting("streams")
    elif edit.kind == "release":
        setting = replace(setting, holds=setting.holds - {edit.rank})
    return Trial(edit, changed, setting, simulate(changed, setting))


def apply_edit(schedule: Schedule, edit: Edit) -> Schedule:
    """The schedule with a change; ValueError if the rank or the operation is not there."""
    if edit.rank not in schedule.steps:
        raise ValueError(f"rank {edit.rank} is not in the schedule")
    if edit.kind == "complete":
        return _completed(schedule)
    steps = list(schedule.steps[edit.rank])
    changes = {"skip": _skip, "insert": _insert, "swap": _swap, "match": _match}
    if edit.kind in changes:
        steps = changes[edit.kind](schedule, steps, edit)
    return replace(schedule, steps={**schedule.steps, edit.rank: tuple(steps)})


def _place(steps: list[Step], rank: int, key: Key) -> int:
    found = next((at for at, step in enumerate(steps) if step.key == key), None)
    if found is None:
        raise ValueError(f"rank {rank} has no operation {key_text(key)}")
    return found


def key_text(key: Key) -> str:
    """`3#1121` for collective 1121 of group 3, `3:5>7:2` for the third from rank 5 to rank 7."""
    return f"{key[0]}#{key[1]}" if len(key) == 2 else f"{key[0]}:{key[1]}>{key[2]}:{key[3]}"


def _skip(_: Schedule, steps: list[Step], edit: Edit) -> list[Step]:
    at = _place(steps, edit.rank, edit.key)
    return [*steps[:at], *_shifted(steps[at + 1 :], steps[at].stream, -1)]


def _insert(schedule: Schedule, steps: list[Step], edit: Edit) -> list[Step]:
    """The operation as a peer has it, before what comes later in its line; numbers after it move on if they must."""
    peer = next((s for r, own in schedule.steps.items() if r != edit.rank for s in own if s.key == edit.key), None)
    if peer is None:
        raise ValueError(f"no other rank has an operation {key_text(edit.key)}")
    if peer.is_p2p:
        peer = replace(peer, op="send" if edit.rank == peer.key[1] else "recv")
    later = [at for at, s in enumerate(steps) if s.stream == peer.stream and s.key[-1] >= peer.key[-1]]
    first_pending = next((at for at, step in enumerate(steps) if step.pending), len(steps))
    at = later[0] if later else first_pending
    taken = any(step.key == edit.key for step in steps)
    after = _shifted(steps[at:], peer.stream, 1) if taken else steps[at:]
    return [*steps[:at], replace(peer, batch=-1, filled=True), *after]


def _completed(schedule: Schedule) -> Schedule:
    """Each rank also issues each operation of its groups, and each other side of a transfer, that only peers have."""
    every: dict[Key, Step] = {}
    for own in schedule.steps.values():
        for step in own:
            every.setdefault(step.key, step)
    steps = {}
    for rank, own in schedule.steps.items():
        has = {step.key for step in own}
        lacking = [step for key, step in every.items() if key not in has and rank in schedule.members[key]]
        sides = (
            "send" if step.is_p2p and rank == step.key[1] else "recv" if step.is_p2p else step.op for step in lacking
        )
        added = [replace(s, op=op, batch=-1, filled=True) for s, op in zip(lacking, sides, strict=True)]
        steps[rank] = tuple(sorted((*own, *added), key=lambda s: (s.stream, s.key[-1])))
    return replace(schedule, steps=steps)


def _swap(_: Schedule, steps: list[Step], edit: Edit) -> list[Step]:
    one, other = _place(steps, edit.rank, edit.key), _place(steps, edit.rank, edit.other)
    steps = list(steps)
    steps[one], steps[other] = steps[other], steps[one]
    return steps


def _match(schedule: Schedule, steps: list[Step], edit: Edit) -> list[Step]:
    """The operation with the name, size and type that most of its peers give it."""
    at = _place(steps, edit.rank, edit.key)
    peers = [s for r, own in schedule.steps.items() if r != edit.rank for s in own if s.key == edit.key]
    if not peers:
        raise ValueError(f"no other rank has an operation {key_text(edit.key)}")
    (op, elements, dtype), _ = Counter((s.op, s.elements, s.dtype) for s in peers).most_common(1)[0]
    op = steps[at].op if steps[at].is_p2p else op
    return [*steps[:at], replace(steps[at], op=op, elements=elements, dtype=dtype), *steps[at + 1 :]]


def _shifted(steps: list[Step], stream: Key, by: int) -> list[Step]:
    """Steps whose numbers in one line are moved."""
    return [replace(s, key=(*s.key[:-1], s.key[-1] + by)) if s.stream == stream else s for s in steps]


def sweep(schedule: Schedule, setting: Setting, suspects: tuple[int, ...]) -> list[Trial]:
    """One change at a time, of the suspects and then of all; those that leave the fewest ranks waiting come first."""
    every = [Edit("complete", rank) for rank in suspects[:1]]
    edits = dict.fromkeys((*every, *(edit for rank in suspects for edit in _candidates(schedule, setting, rank))))
    found = []
    for edit in edits:
        try:
            found.append(tried(schedule, setting, edit))
        except ValueError:
            # a change that the schedule has no place for is none
            continue
    return sorted(found, key=lambda trial: (trial.waiting, trial.edit.kind == "complete"))


def _candidates(schedule: Schedule, setting: Setting, rank: int) -> Iterator[Edit]:
    """The changes of a rank that could matter: each of its operations, and those that only its peers have."""
    own = schedule.steps.get(rank, ())
    if rank in setting.holds:
        yield Edit("release", rank)
    keys = {step.key for step in own}
    for key, members in sorted(schedule.members.items()):
        if rank in members and key not in keys:
            yield Edit("insert", rank, key)
    came: dict[Key, list[Step]] = {}
    for steps in schedule.steps.values():
        for step in steps:
            came.setdefault(step.key, []).append(step)
    for step in own:
        if not fits(came[step.key]):
            yield Edit("match", rank, step.key)
    for step in own:
        yield Edit("skip", rank, step.key)
        if len(came[step.key]) > 1:
            yield Edit("insert", rank, step.key)
    for one, other in itertools.pairwise(own):
        yield Edit("swap", rank, one.key, other.key)
