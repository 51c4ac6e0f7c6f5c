"""What single lines of c10d name: an operation, and the process group it is of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from rankscope.assemble.logs.grouping import DEFAULT
from rankscope.parsers.flight_recorder.values import RANK_LIMIT
from rankscope.parsers.logs.event import Event

_SECOND = 1_000_000_000
MOST_ELEMENTS = 1 << 62


class Place(NamedTuple):
    """The process group as a line names it."""

    name: str
    description: str
    rank: int | None
    """In the group."""


def not_before(printed: int | None, before: int | None) -> int | None:
    """A time that is not before that of the line above: torch reads second and fraction apart, and may be one off."""
    if printed is None or before is None:
        return printed
    return printed + _SECOND if 0 < before - printed < _SECOND else printed


def work_of(event: Event) -> tuple[Any, ...] | None:
    """Number, operation and elements of a timeout; None of another event."""
    values = event.values
    if event.kind != "watchdog-timeout" or values.get("seq") is None:
        return None
    return values["seq"], values.get("op"), values.get("numel_in"), values.get("numel_out")


def place_of(event: Event) -> Place | None:
    """The group that a line names; None if it names none."""
    values = event.values
    number, guid = values.get("pg_id"), values.get("pg_guid")
    name = guid or (str(number) if number is not None else "")
    description = values.get("pg_desc") or (DEFAULT if name == "0" else "")
    rank = values.get("pg_rank")
    if not name and not description:
        return None
    return Place(name, description, rank if isinstance(rank, int) and rank >= 0 else None)


def flat(elements: int | None, shape: Sequence[int] | None = None) -> str | None:
    """JSON text of the sizes of one tensor; None where they are not known or beyond belief."""
    if shape:
        return f"[{list(shape)}]"
    return None if elements is None or elements > MOST_ELEMENTS else f"[[{elements}]]"


def ratio(op: str | None, sent: int | None, received: int | None) -> int | None:
    """How many members a gather or scatter has."""
    if not sent or not received or op not in ("_all_gather_base", "_reduce_scatter_base", "all_gather"):
        return None
    large, small = (sent, received) if op == "_reduce_scatter_base" else (received, sent)
    return large // small if large % small == 0 and 1 < large // small < RANK_LIMIT else None
