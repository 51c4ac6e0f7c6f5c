"""Progress on one line of stderr, for whoever watches; a pipe sees none of it."""

from __future__ import annotations

import sys
import time

from rankscope.commands.source import Step
from rankscope.report.escape import plain

_INTERVAL_S = 0.1
_WIDTH = 79


class Narrator:
    """Says how far loading has come, and takes the line away at the end."""

    def __init__(self) -> None:
        self._shown = bool(sys.stderr) and sys.stderr.isatty()
        self._next = 0.0

    def __call__(self, step: Step) -> None:
        """Shows a step, unless the last one was just now."""
        now = time.monotonic()
        if self._shown and now >= self._next:
            self._next = now + _INTERVAL_S
            of = f" {step.done}/{step.total}" if step.total else ""
            self._write(plain(f"{step.what}{of}", _WIDTH))

    def close(self) -> None:
        """Clears the line."""
        if self._shown and self._next:
            self._write("")

    @staticmethod
    def _write(text: str) -> None:
        sys.stderr.write(f"\r{text}\x1b[K")
        sys.stderr.flush()
