"""One identity for each process group over all ranks: its name and its members.

pg_id is a counter of each process and joins nothing; what a file does not say about a group another one may.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import NamedTuple

from rankscope.assemble.sources import SourceFile, common_members
from rankscope.parsers.flight_recorder.model import Dump, GroupConfig, RecordedCall
from rankscope.parsers.members import NO_MEMBERS

DEFAULT_GROUP = "default_pg"
NO_DESCRIPTION = ("", "undefined")


class GroupKey(NamedTuple):
    """What makes two ranks' groups the same one. `members` is None where they have to be inferred."""

    name: str
    members: tuple[int, ...] | None
    library: str = ""
    """Set where two recorders of a process count the same group apart."""
    ordinal: int = 0
    """Format 1.x has no names: which of the groups with these members it is, counted by pg_id."""


@dataclass
class GroupRow:
    """A group in the making."""

    key: GroupKey
    names: list[str] = field(default_factory=list)
    descriptions: list[str] = field(default_factory=list)
    users: set[int] = field(default_factory=set)
    """Ranks that have operations on it."""


@dataclass
class GroupIndex:
    """All groups, and how each source gets at them."""

    rows: list[GroupRow]
    members: list[tuple[int, ...]]
    by_call: dict[int, list[int]]
    """For each source (by its place) the group of each of its calls."""
    by_name: dict[int, dict[str, int]]
    """For each source the groups it names, used or not."""


def call_group(call: RecordedCall) -> str:
    """The group of an operation, by its name, else by its number in formats that have no names."""
    return call.name if call.name is not None else "" if call.pg_id is None else str(call.pg_id)


def resolve_groups(sources: list[SourceFile], world: int) -> GroupIndex:
    """The groups that the sources (with ranks) speak of, in order of name and members."""
    known = _known(sources)
    contested = _contested(sources)
    keys = [_keys_of(source, known, contested) for source in sources]
    rows: dict[GroupKey, GroupRow] = {}
    for source, named in zip(sources, keys, strict=True):
        _note(source, named, rows)
    order = sorted(rows, key=_order)
    index = {key: i for i, key in enumerate(order)}
    by_name = {i: {name: index[key] for name, key in named.items()} for i, named in enumerate(keys)}
    by_call = {i: calls_of(source, by_name[i]) for i, source in enumerate(sources) if source.dump}
    members = [_members(rows[key], world) for key in order]
    return GroupIndex([rows[key] for key in order], members, by_call, by_name)


def calls_of(source: SourceFile, by_name: dict[str, int]) -> list[int]:
    """The group of each call of a source."""
    return [by_name[call_group(call)] for call in source.dump.calls] if source.dump is not None else []


def group_description(row: GroupRow) -> str:
    """The description that most ranks give."""
    told = [d for d in row.descriptions if d not in NO_DESCRIPTION]
    return common_members(told) or common_members(row.descriptions)


def group_label(row: GroupRow) -> str:
    """The name to show."""
    return row.key.name or common_members(row.names)


def _order(key: GroupKey) -> tuple[bool, int, str, tuple[int, ...], str, int]:
    number = int(key.name) if key.name.isascii() and key.name.isdigit() and len(key.name) < 18 else -1
    return (number < 0, number, key.name, key.members or (), key.library, key.ordinal)


def _known(sources: list[SourceFile]) -> dict[str, Counter[tuple[int, ...]]]:
    known: dict[str, Counter[tuple[int, ...]]] = defaultdict(Counter)
    for source in sources:
        for group in source.stated:
            if group.pg_id is None:
                known[group.name][group.ranks or NO_MEMBERS] += 1
    return known


def _contested(sources: list[SourceFile]) -> dict[str, set[str]]:
    """Names of groups that two recorders of one process both have entries for, with the libraries' own counters."""
    users: dict[tuple[int | None, str], set[int]] = defaultdict(set)
    for i, source in enumerate(sources):
        for call in source.dump.calls if source.dump else ():
            users[source.rank, call_group(call)].add(i)
    contested: dict[str, set[str]] = defaultdict(set)
    for (_, name), places in users.items():
        if len(places) > 1:
            contested[name] |= {_library(sources[i]) for i in places}
    return contested


def _library(source: SourceFile) -> str:
    return common_members(sorted(source.libraries))


def _keys_of(
    source: SourceFile, known: dict[str, Counter[tuple[int, ...]]], contested: dict[str, set[str]]
) -> dict[str, GroupKey]:
    dump = source.dump or Dump()
    keys = dict(_by_number(source.stated))
    for group in source.stated:
        if group.pg_id is None:
            keys[group.name] = GroupKey(group.name, group.ranks or NO_MEMBERS)
    for name in {call_group(call) for call in dump.calls} - keys.keys():
        fitting = [m for m in known.get(name, ()) if source.rank in m]
        best = min(fitting, key=lambda m: (-known[name][m], m)) if fitting else None
        keys[name] = GroupKey(name, best)
    library = _library(source)
    return {
        name: key._replace(library=library) if library in contested.get(name, ()) else key for name, key in keys.items()
    }


def _by_number(stated: list[GroupConfig]) -> list[tuple[str, GroupKey]]:
    """Groups of format 1.x: by their members, and by their order among those with the same."""
    seen: Counter[tuple[int, ...]] = Counter()
    keys = []
    for group in sorted((g for g in stated if g.pg_id is not None), key=lambda g: g.pg_id or 0):
        members = group.ranks or NO_MEMBERS
        keys.append((group.name, GroupKey("", members, ordinal=seen[members])))
        seen[members] += 1
    return keys


def _note(source: SourceFile, keys: dict[str, GroupKey], rows: dict[GroupKey, GroupRow]) -> None:
    dump = source.dump or Dump()
    for name, key in keys.items():
        rows.setdefault(key, GroupRow(key)).names.append(name)
    for group in [*dump.config, *source.carded]:
        if group.name in keys:
            rows[keys[group.name]].descriptions.append(group.description)
    for name, description in {(call_group(c), c.description) for c in dump.calls}:
        row = rows[keys[name]]
        row.descriptions.append(description or "")
        if source.rank is not None:
            row.users.add(source.rank)


def _members(row: GroupRow, world: int) -> tuple[int, ...]:
    if row.key.members is not None:
        return row.key.members
    return tuple(range(world)) if group_description(row) == DEFAULT_GROUP else tuple(sorted(row.users))
