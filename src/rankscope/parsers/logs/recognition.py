"""The recogniser of one log, made when it is first needed: getting it ready takes longer than most logs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from rankscope.parsers.logs.c10d.known_errors import Screen
from rankscope.parsers.logs.event import Event
from rankscope.parsers.logs.record import Record
from rankscope.parsers.logs.records import LINE_BYTES, WORDS

if TYPE_CHECKING:
    from rankscope.parsers.logs.c10d.recogniser import Recogniser


class Recognition:
    """A log of nothing but operations does without it. It knows nothing of who asks, so as to go away with them."""

    def __init__(self) -> None:
        self.problem: str | None = None
        """What is wrong with the table of known errors."""
        self._recogniser: Recogniser | None = None

    @property
    def busy(self) -> bool:
        """Whether something goes on that any line may belong to."""
        return self._recogniser is not None and self._recogniser.busy

    def literals(self) -> list[str]:
        """Words without which a line tells nothing."""
        return self._ready().literals

    def events(self, records: Sequence[Record]) -> list[Event]:
        """The events that are complete with these records."""
        return self._ready().feed_all(records)

    def finish(self) -> list[Event]:
        """What was still going on at the end."""
        return [] if self._recogniser is None else self._recogniser.finish()

    def _ready(self) -> Recogniser:
        if self._recogniser is None:
            from rankscope.parsers.logs.c10d.recogniser import Recogniser
            from rankscope.parsers.logs.c10d.table import current

            table, self.problem = current()
            self._recogniser = Recogniser(table)
        return self._recogniser


# Lines in which nobody looks for anything: what programs print of their own, most of many logs.

FEW = 64
"""Fewer lines are read the usual way: getting ready takes longer."""
_SIGNS = ("NCCL", "RCCL", "opCount", " WARN", "_perf", '"peer"', "Job summary", "Communicators...", "PEER_")
"""What the readers of operations, of heads, of JSON and of RAS look for."""
_TELLING = ("\x1b", "Rank ", *WORDS)
"""Beside the words of the recogniser: what words may stand behind, or in pieces; "Rank " ends a line whose rank is that
of the next one."""


class Plain:
    """Tells them apart. `literals` gives the words of the recogniser, once they are needed."""

    def __init__(self, literals: Callable[[], Sequence[str]]) -> None:
        self._literals = literals
        self._screens: tuple[Screen, Screen] | None = None

    def many(self, lines: Sequence[bytes]) -> tuple[list[bool], list[bool]]:
        """For each line whether it is one of them, and whether a word of the recogniser is in it."""
        if len(lines) < FEW:
            return [False] * len(lines), [True] * len(lines)
        if self._screens is None:
            self._screens = Screen(_SIGNS), Screen((*_TELLING, *self._literals()))
        texts = [line.decode("utf-8", "replace") for line in lines]
        signs, telling = (screen.many(texts) for screen in self._screens)
        rows = zip(signs, telling, lines, strict=True)
        return [not sign and not tells and len(line) <= LINE_BYTES for sign, tells, line in rows], telling
