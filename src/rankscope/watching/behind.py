"""The order in which files are put together: traces that came later stay behind the rest until all is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rankscope.parsers.assemble.sources import Source


def with_later_behind(whole: Sequence[Source], later: Sequence[str], sources: Sequence[Source]) -> list[Source]:
    """All `sources`: those that were put together as a whole, then traces that came `later`, then those that are new.

    As they are given, if anything is missing of what was put together, or anything but traces is new.
    """
    known = {source.shown: at for at, source in enumerate(whole)}
    front = sorted((source for source in sources if source.shown in known), key=lambda s: known[s.shown])
    place = {path: at for at, path in enumerate(later)}
    new = sorted(
        (source for source in sources if source.shown not in known), key=lambda s: place.get(s.shown, len(place))
    )
    fits = len(front) == len(whole) and all(source.trace is not None for source in new)
    return [*front, *new] if whole and fits else list(sources)


def stands_behind(before: Sequence[Source], now: Sequence[Source]) -> bool:
    """Whether traces stand behind what was there, and that is what was there."""
    same = len(now) > len(before) and all(a.shown == b.shown for a, b in zip(before, now, strict=False))
    return same and all(source.trace is not None for source in now[len(before) :])
