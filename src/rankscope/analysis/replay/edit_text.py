"""Changes of a schedule as people type and read them: `skip 3:tp#12` is collective 12 of group tp, on rank 3."""

from __future__ import annotations

import re
from collections.abc import Sequence

from rankscope.analysis.replay.edits import SETTABLE, Edit, EditKind
from rankscope.analysis.replay.schedule import Key, Schedule
from rankscope.schema import Dataset
from rankscope.schema.dataset import Group
from rankscope.text.escaping import plain
from rankscope.text.wording import ranks_text

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
    own = [group for group in dataset.group_list if rank in group.ranks]
    for group in own:
        if name in (group.name, group.description) or name == f"g{group.id}":
            return group
    known = ", ".join(plain(group.description or group.name, 40) for group in own[:12]) or "none"
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
