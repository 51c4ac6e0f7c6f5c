"""What is kept of traces that were put together, to tell whether another one changes anything about them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from rankscope.parsers.assemble.traces import loops, ranks
from rankscope.parsers.assemble.traces.window import Window

GUESS = "guess"


class Seen(NamedTuple):
    """One trace."""

    rank: int
    how: str | None
    """How its rank is known."""
    begin_ns: int
    end_ns: int
    mark: tuple[object, ...]
    """Copies of it have the same."""
    loops_told: bool
    """It has no run loops of gloo, or it is known which groups these serve."""


def seen(window: Window) -> Seen:
    """What is kept of a window whose rank is settled."""
    told = bool(window.loops) or not loops.uses_loops(window)
    return Seen(window.rank, window.source.rank_source, *window.bounds, _mark(window), told)


def stands_alone(window: Window, others: Iterable[Seen], pattern: re.Pattern[str] | None) -> bool:
    """Gives a window that came later its rank, clock and loops; whether these are certain.

    Nothing about the `others` may hang on it either: none of them has a rank by its place in the order of all.
    """
    base, others = window.content.about.base_ns, list(others)
    if base is None or any(other.how == GUESS for other in others):
        return False
    window.base_ns = base
    ranks.claim(window, pattern)
    own = loops.group_of_loop(window) if loops.uses_loops(window) else None
    if not _is_certain(window, others) or own == {} or (own and not all(other.loops_told for other in others)):
        return False
    window.loops = own or {}
    begin, end = window.bounds
    at_once = (other for other in others if other.rank == window.rank and begin < other.end_ns and other.begin_ns < end)
    return next(at_once, None) is None and _mark(window) not in {other.mark for other in others}


def _is_certain(window: Window, others: Iterable[Seen]) -> bool:
    """Whether its rank is told, and there is no doubt whether names or contents are to be believed."""
    source = window.source
    if source.rank is None or source.rank_source != "content":
        return source.rank is not None
    lies = ranks.rank_in(source.shown) not in (None, source.rank)
    return not lies and all(other.how != "name" for other in others)


def _mark(window: Window) -> tuple[object, ...]:
    content = window.content
    times = content.column("start_ns"), content.column("duration_ns")
    return window.pid, content.rows, *(int(column.sum()) for column in times)
