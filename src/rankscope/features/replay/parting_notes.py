"""Notes in the schedule of a replay: where ranks part, in words, behind the operation at which each rank stops."""

from __future__ import annotations

from collections.abc import Sequence

from rankscope.features.replay.replay_sizes import type_name
from rankscope.features.replay.schedule import Key, Schedule, Step
from rankscope.features.replay.schedule_fit import Fit
from rankscope.features.replay.simulator import fits
from rankscope.text.wording import ranks_text

_MOST = 3
"""Operations that are named at the end of a rank."""


def parting_notes(fit: Fit, schedule: Schedule) -> dict[int, str]:
    """A sentence for each rank that waits, and for each that ends while another waits for it."""
    heads = {rank: fit.outcome.head(fit.schedule, rank) for rank in schedule.steps}
    by_key = {rank: {step.key: step for step in steps} for rank, steps in schedule.steps.items()}
    notes = {}
    waited: dict[int, dict[Key, list[int]]] = {}
    for rank, head in heads.items():
        if head is None or head.key not in schedule.members:
            continue
        members = [member for member in schedule.members[head.key] if member in by_key]
        absent = [member for member in members if head.key not in by_key[member]]
        before = [m for m in members if m not in absent and not _is_at(heads[m], head.key)]
        for member in absent:
            waited.setdefault(member, {}).setdefault(head.key, []).append(rank)
        notes[rank] = f"waits here{_reason(fit, schedule, head.key, absent, before, by_key)}"
    for rank, keys in waited.items():
        if heads[rank] is None:
            lacking = [
                f"{_named(key)} that {ranks_text(sorted(of))} {_wait(of)} in" for key, of in sorted(keys.items())
            ]
            more = f", and {len(lacking) - _MOST} more" if len(lacking) > _MOST else ""
            notes[rank] = f"ends here, without {', '.join(lacking[:_MOST])}{more}"
    return notes


def _reason(
    fit: Fit,
    schedule: Schedule,
    key: Key,
    absent: Sequence[int],
    before: Sequence[int],
    by_key: dict[int, dict[Key, Step]],
) -> str:
    """The end of a sentence on why an operation does not end; empty where nothing of it is known."""
    if absent:
        past = [rank for rank in absent if any(_is_before(key, other) for other in by_key[rank])]
        are, issue = ("is" if len(past) == 1 else "are"), ("issues" if len(absent) == 1 else "issue")
        never = f"{ranks_text(absent)} never {issue} this"
        return f": {ranks_text(past)} {are} past this, as recorded" if past else f": {never}"
    if before:
        return f" for {ranks_text(before)}, held up before this"
    if key in fit.setting.frozen:
        return ": all have come, and it never ends"
    came = {rank: by_key[rank][key] for rank in schedule.members[key] if rank in by_key}
    stopped = sorted(fit.setting.holds & came.keys())
    if fits(list(came.values())):
        return f": the device of {ranks_text(stopped)} stops before this" if stopped else ""
    # only what differs
    values = [
        [step.op, "" if step.elements is None else f"{step.elements:,}", type_name(step)] for step in came.values()
    ]
    odd = [at for at in range(3) if len({value[at] for value in values}) > 1 and (at or len(key) == 2)]
    if not odd:
        return ": what one rank sends is not what another expects"
    sides: dict[str, list[int]] = {}
    for rank, value in zip(came, values, strict=True):
        sides.setdefault(" ".join(value[at] for at in odd), []).append(rank)
    return ": " + ", ".join(f"{side} on {ranks_text(ranks)}" for side, ranks in sides.items())


def _is_at(head: Step | None, key: Key) -> bool:
    return head is not None and head.key == key


def _is_before(key: Key, other: Key) -> bool:
    """Whether the other one is a later collective of the same group."""
    return len(key) == len(other) == 2 and key[0] == other[0] and key[1] < other[1]


def _wait(ranks: Sequence[int]) -> str:
    return "waits" if len(ranks) == 1 else "wait"


def _named(key: Key) -> str:
    return f"g{key[0]} {key[1]}>{key[2]}:{key[3]}" if len(key) == 4 else f"g{key[0]} #{key[1]}"
