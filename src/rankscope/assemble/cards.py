"""Brings the sidecars of the capture to the dumps they tell of: rank, host, and members of groups are certain then."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import PurePosixPath

from rankscope.assemble import naming
from rankscope.assemble.sources import Source
from rankscope.parsers.sidecar.model import Card

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
