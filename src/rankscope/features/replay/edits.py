"""Changes of a schedule: an operation less, one more, two in another order, one with other values, a rank let go.

A changed schedule answers one question: does it still hang with this change? That it does not is evidence that the
change touches the cause; the job's own code may need another one. Ranks that come to the end of their records go on
(`continued`), but not those that stopped there: only `release` lets them.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from rankscope.features.replay.schedule import Key, Schedule, Splits, Step
from rankscope.features.replay.simulator import Outcome, Setting, continued, fits, side_of, simulate, stopped_ranks
from rankscope.schema import Dataset
from rankscope.schema.dataset import Group
from rankscope.text.escaping import plain
from rankscope.text.wording import ranks_text

EditKind = Literal["skip", "insert", "swap", "match", "set", "release", "fill", "complete"]
LAST_KINDS: tuple[EditKind, ...] = ("fill", "complete")
"""Changes of many operations: they are listed behind those of one."""
SETTABLE = ("op", "size", "dtype")
"""Values of an operation that `set` changes."""


@dataclass(frozen=True)
class Edit:
    """A change of one rank; `complete` is one of all ranks: each also issues what its peers have.

    `fill` is one of a rank that waits: it first issues what its peers wait for.
    """

    kind: EditKind
    rank: int
    key: Key = ()
    """The operation: it is left out, put in, put after `other`, made equal to that of its peers, or given `values`."""
    other: Key = ()
    """The operation that comes first then; of an inserted one that before which it is put, if that is named."""
    values: tuple[tuple[str, str], ...] = ()
    """Names of SETTABLE, and what they become."""


@dataclass(frozen=True)
class Trial:
    """A change, with the schedule and the setting that were simulated, and what that shows."""

    edit: Edit
    schedule: Schedule
    setting: Setting
    outcome: Outcome
    further: int = 0
    """Operations that ranks issue beyond their records, because their peers wait for them."""

    @property
    def waiting(self) -> int:
        """How many ranks do not come to their end."""
        return self.outcome.waiting


def tried(schedule: Schedule, setting: Setting, edit: Edit, suspects: tuple[int, ...] = ()) -> Trial:
    """Simulates a schedule with a change; ValueError if it cannot be made.

    Of the ranks that stop at their end, `suspects` do not go on; without any, none does.
    """
    return _tried(schedule, setting, edit, stopped_ranks(schedule, simulate(schedule, setting), suspects))


def _tried(schedule: Schedule, setting: Setting, edit: Edit, stopped: frozenset[int]) -> Trial:
    changed = apply_edit(schedule, edit)
    if edit.kind == "complete":
        # places of what is put in among other groups are not known: only what is missing is asked
        setting = Setting("streams")
        return Trial(edit, changed, setting, simulate(changed, setting))
    if edit.kind == "release":
        if edit.rank not in setting.holds | stopped:
            raise ValueError(f"rank {edit.rank} does not stop by itself: it waits for others")
        setting, stopped = replace(setting, holds=setting.holds - {edit.rank}), stopped - {edit.rank}
    if edit.kind == "fill" and edit.rank in setting.holds | stopped:
        raise ValueError(f"rank {edit.rank} stops by itself: it is released")
    barred = (edit.rank, edit.key) if edit.kind == "skip" and _is_shared(schedule, edit.key) else None
    found = continued(changed, setting, stopped, edit.rank if edit.kind == "fill" else None, barred)
    return Trial(edit, found.schedule, setting, found.outcome, sum(map(len, found.added.values())))


def _is_shared(schedule: Schedule, key: Key) -> bool:
    """Whether ranks have an operation in common: who leaves it out does not issue it later."""
    came = [step for steps in schedule.steps.values() for step in steps if step.key == key]
    return len(came) > 1 and fits(came)


def apply_edit(schedule: Schedule, edit: Edit) -> Schedule:
    """The schedule with a change; ValueError if the rank or the operation is not there."""
    if edit.rank not in schedule.steps:
        raise ValueError(f"rank {edit.rank} is not in the schedule")
    if edit.kind == "complete":
        return _completed(schedule)
    steps = list(schedule.steps[edit.rank])
    changes = {"skip": _skip, "insert": _insert, "swap": _swap, "match": _match, "set": _set}
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
    """The operation as a peer has it, before `other` or before what comes later in its line.

    Numbers after it move on if they must.
    """
    peer = next(
        (s for r, issued in schedule.steps.items() if r != edit.rank for s in issued if s.key == edit.key), None
    )
    if peer is None:
        raise ValueError(f"no other rank has an operation {key_text(edit.key)}")
    if edit.rank not in schedule.members[edit.key]:
        raise ValueError(f"rank {edit.rank} takes no part in operation {key_text(edit.key)}")
    later = [at for at, s in enumerate(steps) if s.stream == peer.stream and s.key[-1] >= peer.key[-1]]
    first_pending = next((at for at, step in enumerate(steps) if step.pending), len(steps))
    at = _place(steps, edit.rank, edit.other) if edit.other else later[0] if later else first_pending
    if later and at > later[0]:
        raise ValueError(f"rank {edit.rank} issues a later operation of that line before {key_text(edit.other)}")
    taken = any(step.key == edit.key for step in steps)
    after = _shifted(steps[at:], peer.stream, 1) if taken else steps[at:]
    return [*steps[:at], side_of(peer, edit.rank), *after]


def _completed(schedule: Schedule) -> Schedule:
    """Each rank also issues each operation of its groups, and each other side of a transfer, that only peers have."""
    every: dict[Key, Step] = {}
    for steps_of_rank in schedule.steps.values():
        for step in steps_of_rank:
            every.setdefault(step.key, step)
    steps = {}
    for rank, steps_of_rank in schedule.steps.items():
        has = {step.key for step in steps_of_rank}
        lacking = [step for key, step in every.items() if key not in has and rank in schedule.members[key]]
        added = [side_of(step, rank) for step in lacking]
        steps[rank] = tuple(sorted((*steps_of_rank, *added), key=lambda s: (s.stream, s.key[-1])))
    return replace(schedule, steps=steps)


def _swap(_: Schedule, steps: list[Step], edit: Edit) -> list[Step]:
    one, other = _place(steps, edit.rank, edit.key), _place(steps, edit.rank, edit.other)
    steps = list(steps)
    steps[one], steps[other] = steps[other], steps[one]
    return steps


def _match(schedule: Schedule, steps: list[Step], edit: Edit) -> list[Step]:
    """The operation with the name, size and type that most of its peers give it."""
    at = _place(steps, edit.rank, edit.key)
    op, elements, dtype = _peers_form(schedule, edit)
    op = steps[at].op if steps[at].is_p2p else op
    splits = _met(schedule, edit) if steps[at].splits is not None else None
    return [*steps[:at], replace(steps[at], op=op, elements=elements, dtype=dtype, splits=splits), *steps[at + 1 :]]


def _peers_form(schedule: Schedule, edit: Edit) -> tuple[str, int | None, str | None]:
    """Name, elements and type that most peers of a rank give an operation; ValueError if no peer has it."""
    peers = [s for r, steps in schedule.steps.items() if r != edit.rank for s in steps if s.key == edit.key]
    if not peers:
        raise ValueError(f"no other rank has an operation {key_text(edit.key)}")
    return Counter((s.op, s.elements, s.dtype) for s in peers).most_common(1)[0][0]


def _met(schedule: Schedule, edit: Edit) -> Splits | None:
    """The splits of an all_to_all with which a rank sends and gets what its peers expect; None if a peer's are lost."""
    members = schedule.members[edit.key]
    of = {r: s.splits for r in members for s in schedule.steps.get(r, ()) if s.key == edit.key}
    known = [of.get(rank) for rank in members]
    place = members.index(edit.rank)
    if any(splits is None or len(splits[0]) != len(members) for splits in known):
        return None
    mine = known[place]
    sent = tuple(mine[0][at] if at == place else splits[1][place] for at, splits in enumerate(known) if mine and splits)
    got = tuple(mine[1][at] if at == place else splits[0][place] for at, splits in enumerate(known) if mine and splits)
    return sent, got


def _set(_: Schedule, steps: list[Step], edit: Edit) -> list[Step]:
    """The operation with other values."""
    at = _place(steps, edit.rank, edit.key)
    step = steps[at]
    for name, value in edit.values:
        if name == "op" and step.is_p2p:
            raise ValueError(f"--set op: a {step.op} stays one, only collectives become others")
        if name == "size":
            step = replace(step, elements=int(value))
        elif name == "dtype":
            step = replace(step, dtype=f'["{value}"]' if (step.dtype or "").startswith("[") else value)
        else:
            step = replace(step, op=value)
    if step == steps[at]:
        raise ValueError(f"rank {edit.rank} issues that operation with these values already")
    return [*steps[:at], replace(step, pending=True), *steps[at + 1 :]]


def _shifted(steps: list[Step], stream: Key, by: int) -> list[Step]:
    """Steps whose numbers in one line are moved; they meet others now, so that what they did is open."""
    return [replace(s, key=(*s.key[:-1], s.key[-1] + by), pending=True) if s.stream == stream else s for s in steps]


def sweep(
    schedule: Schedule, setting: Setting, suspects: tuple[int, ...], ranks: tuple[int, ...] | None = None
) -> list[Trial]:
    """One change at a time, of the suspects and then of all; those that leave the fewest ranks waiting come first.

    `ranks` are changed instead of the suspects.
    """
    ranks = suspects if ranks is None else ranks
    every = [Edit("complete", rank) for rank in ranks[:1]]
    edits = dict.fromkeys((*every, *(edit for rank in ranks for edit in _candidates(schedule, rank))))
    before = simulate(schedule, setting)
    stopped = stopped_ranks(schedule, before, suspects)
    found = []
    for edit in edits:
        try:
            found.append(_tried(schedule, setting, edit, stopped))
        except ValueError:
            # a change that the schedule has no place for is none
            continue
    return sorted(found, key=lambda trial: (trial.waiting, edit_rank(trial.edit), trial.further))


def edit_rank(edit: Edit) -> int:
    """Where a kind of change stands among others that leave as many ranks waiting: 0 changes one operation."""
    return 1 + LAST_KINDS.index(edit.kind) if edit.kind in LAST_KINDS else 0


def _candidates(schedule: Schedule, rank: int) -> Iterator[Edit]:
    """The changes of a rank that could matter: each of its operations, and those that only its peers have."""
    issued = schedule.steps.get(rank, ())
    # refused of a rank that only waits
    yield Edit("release", rank)
    yield Edit("fill", rank)
    keys = {step.key for step in issued}
    for key, members in sorted(schedule.members.items()):
        if rank in members and key not in keys:
            yield Edit("insert", rank, key)
    came: dict[Key, list[Step]] = {}
    for steps in schedule.steps.values():
        for step in steps:
            came.setdefault(step.key, []).append(step)
    first = next((step for step in issued if step.pending), None)
    lines: dict[Key, Key] = {}
    for step in issued:
        if not fits(came[step.key]):
            yield Edit("match", rank, step.key)
        if first is None or first == step or not step.pending or len(came[step.key]) < 2:
            continue
        if lines.setdefault(step.stream, step.key) == step.key:
            # what is left out may belong far in front of the next one of its line
            yield Edit("insert", rank, step.key, first.key)
    for step in issued:
        yield Edit("skip", rank, step.key)
        if len(came[step.key]) > 1:
            yield Edit("insert", rank, step.key)
    for before, other in itertools.pairwise(issued):
        yield Edit("swap", rank, before.key, other.key)


FORMS = "RANK:GROUP#SEQ, or RANK:GROUP#FROM>TO:K for the K-th of the sends from one rank to another that are left"
TYPES = ("Float", "Double", "Half", "BFloat16", "Long", "Int", "Short", "Char", "Byte")
"""Types that a replay plays, as dumps name them."""
OPERATIONS = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce", "barrier")
"""Collectives that a replay plays as such."""
_PLACE = re.compile(r"(\d{1,9}):(.+)#(?:(\d{1,18})|(\d{1,9})>(\d{1,9}):(\d{1,9}))", re.ASCII)
_OPERATION = re.compile(r"(.+)#(\d{1,18})", re.ASCII)
_MOST_GROUPS = 8
"""Groups of one name that are listed."""
_SENTENCES: dict[EditKind, str] = {
    "skip": "rank {rank} leaves out {operation}",
    "insert": "rank {rank} also issues {operation}{before}",
    "swap": "rank {rank} first issues {operation}",
    "match": "rank {rank} issues {operation} as its peers do",
    "set": "rank {rank} issues {operation} with {values}",
    "release": "rank {rank} goes on",
    "fill": "rank {rank} first issues what its peers wait for",
    "complete": "every rank also issues what its peers wait for, in any order",
}


def parse_place(dataset: Dataset, text: str) -> tuple[int, Key]:
    """The rank and the operation in `text`; ValueError tells the forms."""
    found = _PLACE.fullmatch(text.strip())
    if found is None:
        raise ValueError(f"{plain(text, 60)}: not {FORMS}")
    rank = int(found[1])
    group = _group_named(dataset, found[2], rank).id
    if found[3] is not None:
        return rank, (group, int(found[3]))
    return rank, (group, int(found[4]), int(found[5]), int(found[6]))


def _group_named(dataset: Dataset, name: str, rank: int) -> Group:
    """The group of this name, description or number that holds the rank; ValueError lists those that do."""
    groups = [group for group in dataset.group_list if rank in group.ranks]
    for group in groups:
        if name in (group.name, group.description) or name == f"g{group.id}":
            return group
    known = ", ".join(plain(group.description or group.name, 40) for group in groups[:12]) or "none"
    raise ValueError(f"rank {rank} is in no group {plain(name, 40)}; its groups: {known}")


def parse_operation(dataset: Dataset, text: str) -> tuple[int, int]:
    """The group and the number of the collective in `text`, as `tp#12`; ValueError tells the form, or the groups."""
    found = _OPERATION.fullmatch(text.strip())
    if found is None:
        raise ValueError(f"{plain(text, 60)}: not GROUP#SEQ, as tp#12")
    name = found[1]
    named = [g for g in dataset.group_list if name in (g.name, f"g{g.id}")]
    named = named or [g for g in dataset.group_list if name == g.description]
    if len(named) == 1:
        return named[0].id, int(found[2])
    shown = [
        f"g{g.id}: {plain(g.description or g.name, 40)} of {ranks_text(g.ranks)}" for g in named or dataset.group_list
    ]
    several = f"{len(named)} groups have" if named else "no group has"
    known = "; ".join(shown[:_MOST_GROUPS]) or "none"
    raise ValueError(f"{several} the name {plain(name, 40)}; name one by number: {known}")


def edit_sentence(dataset: Dataset, schedule: Schedule, edit: Edit) -> str:
    """`rank 3 leaves out all_reduce #12 of tp`."""
    # what stood later is issued first
    key = edit.other if edit.kind == "swap" else edit.key
    if edit.kind == "match" and key and len(key) == 2:
        operation = f"{plain(_peers_form(schedule, edit)[0], 40)} {place_text(dataset, key)}"
    else:
        operation = _operation(dataset, schedule, key) if key else ""
    before = f", before {_operation(dataset, schedule, edit.other)}" if edit.kind == "insert" and edit.other else ""
    values = " and ".join(f"{name} {plain(value, 40)}" for name, value in edit.values)
    return _SENTENCES[edit.kind].format(rank=edit.rank, operation=operation, before=before, values=values)


def parse_values(texts: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """Values of an operation as typed: `size=8`, `dtype=Half`, `op=all_reduce`; ValueError tells the forms."""
    found: dict[str, str] = {}
    for text in texts:
        name, _, value = text.partition("=")
        if name not in SETTABLE:
            raise ValueError(f"--set {plain(text, 60)}: not size=N, dtype=TYPE or op=NAME")
        if name in found:
            raise ValueError(f"--set {name}: given twice")
        if name == "size" and not (value.isascii() and value.isdecimal() and 0 < len(value) < 16 and int(value)):
            raise ValueError(f"--set size={plain(value, 40)}: not a number of elements")
        known = {"dtype": TYPES, "op": OPERATIONS}.get(name)
        if known and value not in known:
            raise ValueError(f"--set {name}={plain(value, 40)}: not one of {', '.join(known)}")
        found[name] = value
    return tuple(found.items())


def place_text(dataset: Dataset, key: Key) -> str:
    """`#12 of tp`, or `the transfer 4->5 of tp`."""
    group = dataset.group_list[key[0]]
    name = plain(group.description or group.name, 40)
    return f"the transfer {key[1]}->{key[2]} of {name}" if len(key) == 4 else f"#{key[1]} of {name}"


def _operation(dataset: Dataset, schedule: Schedule, key: Key) -> str:
    place = place_text(dataset, key)
    if len(key) == 4:
        return place
    ops = (step.op for steps in schedule.steps.values() for step in steps if step.key == key)
    return f"{plain(next(ops, 'the operation'), 40)} {place}"
