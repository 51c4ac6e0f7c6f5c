"""What one sidecar says, and the form in which it crosses from a worker process."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple

from rankscope.parsers.members import Members, unpack


class CardGroup(NamedTuple):
    """A process group that the rank is in."""

    name: str
    """As in the recorder's entries."""
    description: str
    backend: str
    """As "nccl", or "cpu:gloo,cuda:nccl"; empty if not told."""
    ranks: Members
    """Global ranks; the position is the rank within the group."""


@dataclass
class Card:
    """One process of the job."""

    rank: int
    world_size: int | None = None
    host: str = ""
    pid: int | None = None
    job: str = ""
    attempt: int | None = None
    started_ns: int | None = None
    interval_ns: int | None = None
    """Between its dumps; None if not told."""
    delay_ns: int = 0
    """The longest that a dump took, or came late."""
    dumps: list[str] = field(default_factory=list)
    """Names of its dumps, which lie beside it."""
    ended: str = ""
    """"exit", "exception", "interrupted", "terminated"; empty while it ran, or if it was killed."""
    ended_ns: int | None = None
    error: str = ""
    """The exception that ended it."""
    cause: str = ""
    """The oldest exception that this one came of; empty if of none."""
    groups: list[CardGroup] = field(default_factory=list)
    problem: str | None = None

    @property
    def rows(self) -> int:
        """Number of groups."""
        return len(self.groups)

    def header(self) -> dict[str, Any]:
        """All of it, as JSON values."""
        told = {field.name: getattr(self, field.name) for field in fields(self)}
        return {**told, "groups": [(*group[:3], group.ranks.packed) for group in self.groups]}

    def body(self) -> list[memoryview]:
        """Nothing: it has no arrays."""
        return []


def card_from(header: dict[str, Any], *_: object) -> Card:
    """What `header()` was made from."""
    groups = [CardGroup(row[0], row[1], row[2], unpack(row[3])) for row in header["groups"]]
    return Card(**{**header, "groups": groups})
