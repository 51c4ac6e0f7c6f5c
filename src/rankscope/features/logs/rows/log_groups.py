"""Groups of dumps and groups of logs, in one table."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import polars as pl

from rankscope.features.logs.read.log_record import Event
from rankscope.features.logs.rows.log_processes import CommLife, LogScene
from rankscope.schema.tables import GROUPS

DEFAULT_GROUP = "default_pg"


class GroupMention(NamedTuple):
    """A process group as a line names it."""

    name: str
    description: str
    rank: int | None
    """Rank in the group."""


def mentioned_group(event: Event) -> GroupMention | None:
    """The group that a line names; None without one."""
    values = event.values
    number, guid = values.get("pg_id"), values.get("pg_guid")
    name = guid or (str(number) if number is not None else "")
    description = values.get("pg_desc") or (DEFAULT_GROUP if name == "0" else "")
    rank = values.get("pg_rank")
    if not name and not description:
        return None
    return GroupMention(name, description, rank if isinstance(rank, int) and rank >= 0 else None)


class LogGroups:
    """Rows of `groups`; new rows follow those of the dumps."""

    def __init__(self, table: pl.DataFrame, sized: bool = True) -> None:
        """`sized`: whether the number of ranks of the job is known, and not only the ranks of lines."""
        self._sized = sized
        rows = table.sort("group").rows(named=True)
        self.names: list[str] = [row["name"] for row in rows]
        self.descriptions: list[str] = [row["description"] for row in rows]
        self.members: list[tuple[int, ...]] = [tuple(row["ranks"]) for row in rows]
        self.stated: list[bool] = [row["membership"] == "config" for row in rows]
        self.has_p2p: list[bool] = [row["has_p2p"] for row in rows]
        self.known = len(rows)
        """The number of rows from dumps."""
        self._by_name: dict[str, list[int]] = defaultdict(list)
        self._by_members: dict[tuple[int, ...], list[int]] = defaultdict(list)
        for i, (name, members) in enumerate(zip(self.names, self.members, strict=True)):
            self._by_name[name].append(i)
            self._by_members[members].append(i)
        self._seats: dict[int, dict[int, int]] = defaultdict(dict)
        """For groups without written members: places in them by global rank."""
        self._sizes: dict[int, int] = {}
        self._sets: dict[int, frozenset[int]] = {}
        self._by_seat: dict[tuple[int, int, int], list[int]] = defaultdict(list)
        self._indexed = 0

    def add(self, name: str, description: str, members: tuple[int, ...], stated: bool) -> int:
        """Adds a row; returns its number."""
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
        """The groups with exactly these ranks, in this order."""
        return self._by_members.get(members, [])

    def seated(self, seats: dict[int, int], size: int) -> list[int]:
        """The groups of a size in which the given ranks have the given places."""
        if self._indexed < len(self.members):
            for at in range(self._indexed, len(self.members)):
                for place, rank in enumerate(self.members[at]):
                    self._by_seat[len(self.members[at]), place, rank].append(at)
            self._indexed = len(self.members)
        found = [set(self._by_seat.get((size, place, rank), ())) for place, rank in seats.items()]
        return sorted(set.intersection(*found)) if found else []

    def of_report(self, name: str, description: str, rank: int, place: int | None, world: int) -> int:
        """The group of a line of c10d, in which `rank` has `place`; made if it does not exist."""
        at = next((i for i in self._by_name.get(name, []) if self._may_have(i, rank, place)), None)
        if at is None:
            default = description == DEFAULT_GROUP
            at = self.add(name, description, tuple(range(world)) if default else (), default and self._sized)
        self.descriptions[at] = self.descriptions[at] or description
        if not self.stated[at] and at >= self.known and not self.members[at]:
            seats = self._seats[at]
            seats.setdefault(rank, len(seats) if place is None else place)
        return at

    def _may_have(self, at: int, rank: int, place: int | None) -> bool:
        if not self.stated[at]:
            return at >= self.known or rank in self._ranks(at)
        members = self.members[at]
        return rank in self._ranks(at) if place is None else place < len(members) and members[place] == rank

    def _ranks(self, at: int) -> frozenset[int]:
        if at not in self._sets:
            self._sets[at] = frozenset(self.members[at])
        return self._sets[at]

    def widen(self, at: int, size: int) -> None:
        """Notes the size of a group without written members."""
        self._sizes[at] = max(size, self._sizes.get(at, 0))

    def with_p2p(self) -> frozenset[int]:
        """Groups with sends or receives, and groups of the same description: their lines may lack them."""
        roles = {self.descriptions[at] for at, has in enumerate(self.has_p2p) if has} - {"", "undefined"}
        return frozenset(at for at, has in enumerate(self.has_p2p) if has or self.descriptions[at] in roles)

    def named_by(self, values: Mapping[str, Any], rank: int | None) -> int | None:
        """The group that a line names, if it is known and has the rank."""
        number, guid = values.get("pg_id"), values.get("pg_guid")
        name = guid or (str(number) if number is not None else "")
        found = self._by_name.get(name, []) if name else []
        if len(found) > 1 and rank is not None:
            found = [at for at in found if rank in self.members[at]]
        return found[0] if len(found) == 1 else None

    def member(self, values: Mapping[str, Any]) -> int | None:
        """The global rank of a line with a group and a place in it, if the members are written down."""
        at, place = self.named_by(values, None), values.get("pg_rank")
        if at is None or not self.stated[at] or not isinstance(place, int) or not 0 <= place < len(self.members[at]):
            return None
        return self.members[at][place]

    def settle_members(self, scene: LogScene) -> None:
        """Gives groups of c10d's lines their members: those of the only communicator that they fit.

        Without one, a group of known size gets all ranks below it if its members have the places of their own numbers;
        any other group gets the ranks with lines.
        """
        full: dict[tuple[int, int], set[tuple[int, ...]]] = defaultdict(set)
        for slots in filter(None, map(slots_of, scene.identities().values())):
            for place, rank in enumerate(slots):
                full[place, rank].add(slots)
        for at, seats in self._seats.items():
            size = self._sizes.get(at, 0)
            fitting = set.intersection(*(full.get((place, rank), set()) for rank, place in seats.items()))
            if len(fitting) == 1:
                self._fill(at, fitting.pop(), True)
            elif size and all(rank == place < size for rank, place in seats.items()):
                self._fill(at, tuple(range(size)), False)
            else:
                self._fill(at, tuple(sorted(seats, key=lambda rank: (seats[rank], rank))), False)

    def _fill(self, at: int, members: tuple[int, ...], stated: bool) -> None:
        self._by_members[self.members[at]].remove(at)
        self.members[at], self.stated[at] = members, stated
        self._by_members[members].append(at)

    def frame(self) -> pl.DataFrame:
        """The table `groups`."""
        rows: list[dict[str, Any]] = [
            {
                "group": i,
                "name": self.names[i],
                "description": self.descriptions[i],
                "ranks": list(self.members[i]),
                "membership": "config" if self.stated[i] else "inferred",
                "has_p2p": self.has_p2p[i],
            }
            for i in range(len(self.names))
        ]
        return pl.DataFrame(rows, schema=GROUPS)


def slots_of(lives: Sequence[CommLife]) -> tuple[int, ...] | None:
    """The global ranks of a communicator in order; None unless all are known."""
    size = lives[0].comm.nranks or 0
    slots = {life.comm.rank: life.rank for life in lives if life.rank is not None and life.comm.rank is not None}
    if size < 2 or len(slots) != size or not all(place in slots for place in range(size)):
        return None
    return tuple(slots[place] for place in range(size))
