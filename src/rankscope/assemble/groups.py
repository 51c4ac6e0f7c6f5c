"""Identity of process groups over all ranks: name and members.

pg_id is a counter of each process and joins nothing; facts that one file lacks may be in another.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import NamedTuple

from rankscope.assemble.sources import SourceFile, common_members
from rankscope.parsers.flight_recorder.model import Dump, RecordedCall
from rankscope.parsers.members import NO_MEMBERS, GroupConfig

DEFAULT_GROUP = "default_pg"
NO_DESCRIPTION = ("", "undefined")


class GroupKey(NamedTuple):
    """The key that equal groups of several ranks share. `members` is None if they must be inferred."""

    name: str
    members: tuple[int, ...] | None
    library: str = ""
    """Set if two recorders of a process count the same group separately."""
    ordinal: int = 0
    """Number of the group among those with the same members, in order of pg_id, for format 1.x without names."""


@dataclass
class GroupRow:
    """A row of the table of groups during assembly."""

    key: GroupKey
    names: list[str] = field(default_factory=list)
    descriptions: list[str] = field(default_factory=list)
    users: set[int] = field(default_factory=set)
    """Ranks with operations on it."""


@dataclass
class GroupIndex:
    """All groups, and the groups of each source."""

    rows: list[GroupRow]
    members: list[tuple[int, ...]]
    by_call: dict[int, list[int]]
    """For each source (by its index) the group of each of its calls."""
    by_name: dict[int, dict[str, int]]
    """For each source the groups that it names, used or not."""


def call_group(call: RecordedCall) -> str:
    """The group of an operation: its name, else its number in formats without names."""
    return call.name if call.name is not None else "" if call.pg_id is None else str(call.pg_id)


def resolve_groups(sources: list[SourceFile], world: int) -> GroupIndex:
    """The groups in the sources (with ranks), in order of name and members."""
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
    """The description from most ranks."""
    told = [d for d in row.descriptions if d not in NO_DESCRIPTION]
    return common_members(told) or common_members(row.descriptions)


def group_label(row: GroupRow) -> str:
    """The name for users."""
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
    """Names of groups with entries of two recorders of one process, and with the libraries' own counters."""
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
    """Groups of format 1.x: by their members, and by their order among groups with the same."""
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
