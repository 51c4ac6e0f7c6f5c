"""Looking at files in a thread of its own: a file system that does not answer holds up whoever asks it, for hours."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from rankscope.watching.clock import CLOCK, Clock

PATIENCE_S = 5.0
"""After so long without an answer it is said that there is none."""
_T = TypeVar("_T")


class Asker(Generic[_T]):
    """Calls something again and again, once at a time; `done` is called in its thread when an answer is there."""

    def __init__(self, call: Callable[[], _T], done: Callable[[], None], clock: Clock = CLOCK) -> None:
        self._call, self._done, self._clock = call, done, clock
        self._wanted = threading.Semaphore(0)
        self._thread: threading.Thread | None = None
        self._asked_at: float | None = None
        self._answer: list[_T] = []
        self._error: BaseException | None = None

    @property
    def is_asking(self) -> bool:
        """Whether an answer is due."""
        return self._asked_at is not None

    @property
    def hangs(self) -> bool:
        """Whether the answer is due for longer than any that comes."""
        return self._asked_at is not None and self._clock.now() - self._asked_at >= PATIENCE_S

    def ask(self) -> None:
        """Asks, unless an answer is due already."""
        if self._asked_at is None:
            self._asked_at = self._clock.now()
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, daemon=True)
                self._thread.start()
            self._wanted.release()

    def take(self) -> list[_T]:
        """The answer, if one is there: a list of one. Raises what asking has raised."""
        if self._error is not None:
            raise self._error
        answer, self._answer = self._answer, []
        if answer:
            self._asked_at = None
        return answer

    def _run(self) -> None:
        while self._wanted.acquire():
            try:
                self._answer = [self._call()]
            except BaseException as error:  # noqa: BLE001 - raised where it is taken
                self._error = error
            self._done()
