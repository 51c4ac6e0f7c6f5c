"""Groups of the dumps, and those that only logs tell of, in one table."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from rankscope import schema
from rankscope.parsers.assemble.logs.scene import Life, Scene

DEFAULT = "default_pg"


class Groups:
    """Rows of `groups`; new ones go behind those that are there."""

    def __init__(self, table: pl.DataFrame) -> None:
        rows = table.sort("group").rows(named=True)
        self.names: list[str] = [row["name"] for row in rows]
        self.descriptions: list[str] = [row["description"] for row in rows]
        self.members: list[tuple[int, ...]] = [tuple(row["ranks"]) for row in rows]
        self.stated: list[bool] = [row["membership"] == "config" for row in rows]
        self.has_p2p: list[bool] = [row["has_p2p"] for row in rows]
        self.known = len(rows)
        """So many are of dumps."""
        self._by_name: dict[str, list[int]] = defaultdict(list)
        self._by_members: dict[tuple[int, ...], list[int]] = defaultdict(list)
        for i, (name, members) in enumerate(zip(self.names, self.members, strict=True)):
            self._by_name[name].append(i)
            self._by_members[members].append(i)
        self._seats: dict[int, dict[int, int]] = defaultdict(dict)

    def add(self, name: str, description: str, members: tuple[int, ...], stated: bool) -> int:
        """A new row; its number."""
        at = len(self.names)
        self.names.append(name)
        self.descriptions.append(description)
        self.members.append(members)
        self.stated.append(stated)
        self.has_p2p.append(False)
        self._by_name[name].append(at)
        self._by_members[members].append(at)
        return at

    def of_members(self, members: tuple[int, ...]) -> list[int]:
        """The groups with just these ranks, in this order."""
        return self._by_members.get(members, [])

    def seated(self, seats: dict[int, int], size: int) -> list[int]:
        """The groups of a size in which the given places are taken by the given ranks."""
        return [
            i for i, members in enumerate(self.members)
            if len(members) == size and all(p < size and members[p] == rank for p, rank in seats.items())
        ]  # fmt: skip

    def of_report(self, name: str, description: str, rank: int, place: int | None, world: int) -> int:
        """The group that a line of c10d names, in which `rank` has `place`; made if there is none yet."""
        fitting = [
            i for i in self._by_name.get(name, [])
            if not self.stated[i] or (rank in self.members[i] and place in (None, self.members[i].index(rank)))
        ]  # fmt: skip
        default = DEFAULT in (description, self.descriptions[fitting[0]] if fitting else "")
        if fitting:
            at = fitting[0]
            self.descriptions[at] = self.descriptions[at] or description
        else:
            at = self.add(name, description, tuple(range(world)) if default else (), default)
        if not self.stated[at]:
            self._seat(at, rank, place)
        return at

    def _seat(self, at: int, rank: int, place: int | None) -> None:
        """Notes a member of a group whose members nobody wrote down."""
        seats = self._seats[at]
        seats[rank] = len(seats) if place is None else place
        self._by_members[self.members[at]].remove(at)
        self.members[at] = tuple(sorted(set(self.members[at]) | {rank}, key=lambda r: (seats.get(r, r), r)))
        self._by_members[self.members[at]].append(at)

    def widen(self, at: int, size: int) -> None:
        """Fills a group of a known size up, if all of its known members stand at the place of their own number."""
        seats = self._seats.get(at, {})
        if not self.stated[at] and seats and all(rank == place < size for rank, place in seats.items()):
            self._by_members[self.members[at]].remove(at)
            self.members[at] = tuple(range(size))
            self._by_members[self.members[at]].append(at)

    def named_by(self, values: Mapping[str, Any], rank: int | None) -> int | None:
        """The group that a line names, if it is known and has the rank."""
        number, guid = values.get("pg_id"), values.get("pg_guid")
        name = guid or (str(number) if number is not None else "")
        if not name:
            return None
        found = [i for i in self._by_name.get(name, []) if rank is None or rank in self.members[i]]
        return found[0] if len(found) == 1 else None

    def settle(self, scene: Scene) -> None:
        """Gives groups of which only some members spoke those of the only communicator that they fit in."""
        full = [slots for slots in map(_slots, scene.identities().values()) if slots is not None]
        for at, seats in self._seats.items():
            fitting = {m for m in full if all(p < len(m) and m[p] == rank for rank, p in seats.items())}
            if not self.stated[at] and len(fitting) == 1:
                self._by_members[self.members[at]].remove(at)
                self.members[at], self.stated[at] = fitting.pop(), True
                self._by_members[self.members[at]].append(at)

    def frame(self) -> pl.DataFrame:
        """The table."""
        rows: list[dict[str, Any]] = [
            {
                "group": i, "name": self.names[i], "description": self.descriptions[i], "ranks": list(self.members[i]),
                "membership": "config" if self.stated[i] else "inferred", "has_p2p": self.has_p2p[i],
            }
            for i in range(len(self.names))
        ]  # fmt: skip
        return pl.DataFrame(rows, schema=dict(schema.GROUPS))


def place_communicators(scene: Scene, groups: Groups, named: dict[str, tuple[str, str]]) -> list[str]:
    """Sets `group` of every life whose members are known; the identities of those whose are not.

    `named` gives name and description of the process group for identities that a line of c10d connects with one.
    """
    unplaced = []
    for identity, lives in sorted(scene.identities().items()):
        size = lives[0].comm.nranks or 0
        if size < 2:
            continue
        at = _place(scene, groups, identity, lives, named)
        if at is None:
            unplaced.append(identity)
            continue
        for life in lives:
            life.group = at
        groups.has_p2p[at] = groups.has_p2p[at] or any(life.comm.p2p for life in lives)
    return unplaced


def _place(
    scene: Scene, groups: Groups, identity: str, lives: Sequence[Life], named: dict[str, tuple[str, str]]
) -> int | None:
    size = lives[0].comm.nranks or 0
    members = _slots(lives) or (tuple(range(size)) if size == scene.world and _all_of(lives) else None)
    if members is None:
        seats = {life.comm.rank: life.rank for life in lives if life.comm.rank is not None and life.rank is not None}
        found = groups.seated(seats, size) if seats else []
        return found[0] if len(found) == 1 else None
    name, description = named.get(identity, ("", ""))
    same = groups.of_members(members)
    if name:
        same = [i for i in same if groups.names[i] == name]
    if len(same) == 1:
        return same[0]
    return groups.add(name or identity, description, members, True)


def _all_of(lives: Sequence[Life]) -> bool:
    """Whether all known ranks in a communicator are the global ones."""
    return all(life.comm.rank in (None, life.rank) for life in lives) and any(life.rank is not None for life in lives)


def _slots(lives: Sequence[Life]) -> tuple[int, ...] | None:
    """The global ranks of a communicator in its order; None unless all are known."""
    size = lives[0].comm.nranks or 0
    slots = {life.comm.rank: life.rank for life in lives if life.rank is not None and life.comm.rank is not None}
    if size < 2 or len(slots) != size or not all(place in slots for place in range(size)):
        return None
    return tuple(slots[place] for place in range(size))
