"""The recogniser of one log, made when it is first needed: getting it ready takes longer than most logs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rankscope.parsers.logs.event import Event
from rankscope.parsers.logs.record import Record

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
