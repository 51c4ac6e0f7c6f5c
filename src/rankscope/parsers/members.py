"""Members of process groups: equal lists of ranks of all files share one object.

Every rank writes down all members of its groups: in a job of 16,384 ranks those are 268 million numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property, lru_cache
from typing import Any, NamedTuple, TypeAlias

REMEMBERED_LISTS = 4096
"""Number of remembered lists, the last ones: neighbours are in the same groups, and files come in order."""
Packed: TypeAlias = str | list[int]
"""Members in messages between processes: "first:step:count" for ranks in equal steps, else the list."""


class Members(tuple[int, ...]):
    """Global ranks; the position is the rank within the group. Hash and set are computed once."""

    @cached_property
    def _hash(self) -> int:
        return super().__hash__()

    def __hash__(self) -> int:
        """The hash of the tuple, computed once."""
        return self._hash

    def __eq__(self, other: object) -> bool:
        """Whether the ranks are equal."""
        return self is other or super().__eq__(other)

    @cached_property
    def as_set(self) -> frozenset[int]:
        """The ranks as a set."""
        return frozenset(self)

    @cached_property
    def highest(self) -> int:
        """The highest rank; -1 without one."""
        return max(self, default=-1)

    @cached_property
    def packed(self) -> Packed:
        """The members in the form for messages."""
        step = self[1] - self[0] if len(self) > 1 else 1
        if self and step > 0 and self == tuple(range(self[0], self[0] + step * len(self), step)):
            return f"{self[0]}:{step}:{len(self)}"
        return list(self)


NO_MEMBERS = Members()


def shared_members(ranks: Iterable[int]) -> Members:
    """The shared object with these ranks in this order."""
    return _cached_members(tuple(ranks))


def unpack_members(packed: Packed) -> Members:
    """The members from their form in messages."""
    return _steps(packed) if isinstance(packed, str) else shared_members(packed)


@lru_cache(maxsize=REMEMBERED_LISTS)
def _steps(packed: str) -> Members:
    first, step, count = map(int, packed.split(":"))
    return shared_members(range(first, first + step * count, step))


@lru_cache(maxsize=REMEMBERED_LISTS)
def _cached_members(ranks: tuple[int, ...]) -> Members:
    return Members(ranks)


class GroupConfig(NamedTuple):
    """A row of pg_config. `ranks` is None if unreadable; `pg_id` is set in format 1.x, which has no names."""

    name: str
    description: str
    ranks: Members | None
    pg_id: int | None = None

    def row(self) -> tuple[Any, ...]:
        """The row as JSON values."""
        return (self.name, self.description, None if self.ranks is None else self.ranks.packed, self.pg_id)


def config_from(row: Sequence[Any]) -> GroupConfig:
    """The config whose `row()` this is."""
    name, description, ranks, pg_id = row
    return GroupConfig(name, description, None if ranks is None else unpack_members(ranks), pg_id)
