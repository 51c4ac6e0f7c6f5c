"""Attempts of which only sidecars are left: their processes ended before they recorded anything.

A sidecar without dumps is of the attempt it fits: the launcher counts the same, none of its processes has that rank,
and none had ended when another began. What fits none is an attempt of its own; what fits several is left alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath

from rankscope.assemble import naming
from rankscope.assemble.attempts import Attempt
from rankscope.assemble.sources import Source
from rankscope.parsers.sidecar.model import Card


class _Run:
    """What the sidecars of an attempt say of it."""

    def __init__(self, attempt: Attempt) -> None:
        self.attempt = attempt
        self._jobs: set[str] = set()
        self._attempts: set[int] = set()
        self._ranks: set[int] = set()
        self._started: dict[str, int] = {}
        """By host when the last of its processes began, ..."""
        self._ended: dict[str, int] = {}
        """... and when the first of them ended."""
        for source in attempt.sources:
            if source.card is not None:
                self._take(source.card)

    def add(self, source: Source, card: Card) -> None:
        """Takes a sidecar without dumps."""
        self.attempt.cards.append(source)
        self._take(card)

    def _take(self, card: Card) -> None:
        self._jobs |= {card.job} - {""}
        self._attempts |= {card.attempt} if card.attempt is not None else set()
        self._ranks.add(card.rank)
        if card.started_ns is not None:
            self._started[card.host] = max(card.started_ns, self._started.get(card.host, card.started_ns))
        if card.ended_ns is not None:
            self._ended[card.host] = min(card.ended_ns, self._ended.get(card.host, card.ended_ns))

    def fits(self, card: Card) -> bool:
        """Whether nothing speaks against its process being one of them."""
        begun, ended = self._started.get(card.host), self._ended.get(card.host)
        before = card.ended_ns is not None and begun is not None and card.ended_ns < begun
        after = card.started_ns is not None and ended is not None and ended < card.started_ns
        counted = card.attempt is None or self._attempts <= {card.attempt}
        return counted and card.rank not in self._ranks and not (before or after) and self._jobs <= {card.job, ""}


def with_silent(runs: Sequence[Attempt], sources: Sequence[Source]) -> list[Attempt]:
    """The runs that left dumps, with those that did not between them; sidecars without dumps are put to theirs.

    Where nothing left dumps, and there is only one run, there is none.
    """
    waiting = sorted(_without_dumps(sources), key=lambda found: (found[1].started_ns or 0, found[0].shown))
    if not waiting:
        return list(runs)
    known = [_Run(run) for run in runs]
    for source, card in waiting:
        fitting = [run for run in known if run.fits(card)]
        if not fitting and card.started_ns is not None:
            known.append(_Run(Attempt()))
            fitting = known[-1:]
        if len(fitting) == 1:
            fitting[0].add(source, card)
    if len(known) == 1 and not runs:
        return []
    return _in_order(runs, [run.attempt for run in known[len(runs) :]])


def _without_dumps(sources: Sequence[Source]) -> Iterator[tuple[Source, Card]]:
    telling = {id(source.card) for source in sources if source.card is not None}
    for source in sources:
        if isinstance(source.content, Card) and id(source.content) not in telling:
            yield source, source.content


def _in_order(runs: Sequence[Attempt], silent: Sequence[Attempt]) -> list[Attempt]:
    """Both, those without dumps in front of the first that began later."""
    found = list(runs)
    for one in silent:
        later = (i for i, run in enumerate(found) if (run.started_ns or 0) > (one.started_ns or 0))
        found.insert(next(later, len(found)), one)
    return found


def newest(runs: Sequence[Attempt]) -> int:
    """The attempt to be read if none is asked for, -1 without any: the newest of which there is something to read.

    Where others left dumps, one without is that if an exception ended one of its processes: else it may only just have
    begun.
    """
    if not any(run.sources for run in runs):
        return len(runs) - 1
    told = (i for i in reversed(range(len(runs))) if runs[i].sources or _failed(runs[i]))
    return next(told)


def _failed(run: Attempt) -> bool:
    return any(isinstance(source.content, Card) and source.content.ended == "exception" for source in run.cards)


# Brings the sidecars of the capture to the dumps they tell of: rank, host, and members of groups are certain then.

HISTORY = "history"
"""The directory with earlier dumps, below the one of the newest and of the sidecar."""
_NUMBERED = re.compile(r"^\d+_")


def settle(sources: Sequence[Source]) -> None:
    """Gives every dump that a sidecar names its card; the rank that the user's option gives is believed instead."""
    cards = {}
    for source in sources:
        if isinstance(source.content, Card):
            source.rank, source.rank_source = source.content.rank, "sidecar"
            source.used = True
            cards.update({(source.directory, name): source.content for name in source.content.dumps})
    for source in sources if cards else ():
        card = cards.get(_place(source)) if source.dump is not None else None
        if card is not None and (source.rank_source != "option" or source.rank == card.rank):
            source.card = card
            source.rank, source.rank_source = card.rank, "sidecar"


def place(sources: Sequence[Source]) -> None:
    """Gives sidecars the attempt of their dumps, and takes the history of a dump for no trouble."""
    attempts = {id(s.card): s.attempt for s in sources if s.card is not None and s.attempt is not None}
    for source in sources:
        if isinstance(source.content, Card):
            source.attempt = attempts.get(id(source.content), source.attempt)
        if source.note is not None and source.card is not None and source.newer is not None and _is_history(source):
            source.note = None


def _is_history(source: Source) -> bool:
    return PurePosixPath(source.directory).name == HISTORY


def _place(source: Source) -> tuple[str, str]:
    """(directory of its sidecar, its name there)."""
    name = PurePosixPath(source.shown.replace("!", "/")).name
    if not _is_history(source):
        return source.directory, name
    return naming.directory_of(source.directory), _NUMBERED.sub("", name)
