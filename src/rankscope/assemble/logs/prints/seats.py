"""Members of groups from what the store of the job prints of their helpers.

With DETAIL each group has a helper that compares fingerprints; to find each other its ranks write an address each under
`…/pg_wrapper:NAME/TAG/PLACE`, and the server prints the key with the connection, which is the same in all of a process.
In the group of all, named 0, the place is the global rank.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple

from rankscope.parsers.flight_recorder.values import RANK_LIMIT
from rankscope.parsers.logs.event import Event

ALL = "0"
SHOWN = 8


class Named(NamedTuple):
    """A group."""

    name: str
    """As torch names it; "" where nothing tells."""
    members: tuple[int, ...]
    device: str = ""
    """Of its tensors, where the job has a group of this name for each of several kinds of device."""

    @property
    def ranks(self) -> str:
        """The members as a name, of many the first."""
        shown = [str(rank) for rank in self.members[:SHOWN]]
        return f"[{','.join(shown if len(self.members) <= SHOWN else [*shown, '…'])}]"


def named_groups(events: Iterable[Event]) -> list[Named] | None:
    """The groups in the order they were made; None if any member is not known, or if the group of all is missing."""
    seats: defaultdict[tuple[str, str], dict[int, str]] = defaultdict(dict)
    for event in events:
        values = event.values
        if values["place"] < RANK_LIMIT:
            seats[values["name"], values["device"]].setdefault(values["place"], values["address"])
    ranks: dict[str, int] = {}
    for (name, _), own in seats.items():
        if name == ALL:
            ranks |= {address: place for place, address in own.items()}
    if not ranks or sorted(ranks.values()) != list(range(len(ranks))):
        return None
    found = []
    devices = {device for _, device in seats}
    for (name, device), own in seats.items():
        members = tuple(ranks.get(own.get(place, ""), -1) for place in range(len(own)))
        if -1 in members:
            return None
        found.append(Named(name, members, device if len(devices) > 1 else ""))
    return found
