"""Signals for a thread, because a handler in Python never runs while the main thread hangs in C++.

The handler in C writes the number of the signal to a pipe (`signal.set_wakeup_fd`) and a thread reads the pipe.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

_STATUS = "/proc/self/status"


class Signals(threading.Thread):
    """Thread that calls `serve` with the number of each signal; it must be made in the main thread."""

    def __init__(self, numbers: list[signal.Signals], serve: Callable[[signal.Signals], None]) -> None:
        super().__init__(name="rankscope-signals", daemon=True)
        self._serve = serve
        self._pid = os.getpid()
        self._read, self._write = os.pipe()
        os.set_blocking(self._read, False)
        os.set_blocking(self._write, False)
        self._others = signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        self._before: dict[signal.Signals, Any] = {n: signal.signal(n, self._handler) for n in numbers}
        self._masks = threading.local()
        os.register_at_fork(before=self._block, after_in_parent=self._unblock, after_in_child=self._undo_in_child)

    def run(self) -> None:
        """Reads the pipe for ever."""
        while True:
            select.select([self._read], [], [])
            with contextlib.suppress(BlockingIOError):
                data = os.read(self._read, 512)
                if self._others >= 0:
                    with contextlib.suppress(OSError):
                        os.write(self._others, data)
                for number in self._before:
                    if number in data and self.owns(number):
                        self._serve(number)

    @property
    def lost(self) -> list[signal.Signals]:
        """Signals with a later handler of somebody else."""
        return [number for number in self._before if not self.owns(number)]

    def owns(self, number: signal.Signals) -> bool:
        """Whether nobody has set a later handler."""
        return signal.getsignal(number) == self._handler

    def restore(self) -> None:
        """Restores the earlier handlers; in the main thread."""
        for number, handler in self._before.items():
            if self.owns(number):
                signal.signal(number, handler)
        current = signal.set_wakeup_fd(self._others, warn_on_full_buffer=False)
        if current not in (self._write, -1):
            signal.set_wakeup_fd(current, warn_on_full_buffer=False)

    def _handler(self, number: int, _frame: FrameType | None) -> None:
        """Handler in the main thread, some time later: for a wakeup descriptor that another library replaced."""
        with contextlib.suppress(OSError):
            os.write(self._write, bytes([number]))

    def _block(self) -> None:
        """Blocks signals before a fork, until the child has its own handlers."""
        self._masks.before = signal.pthread_sigmask(signal.SIG_BLOCK, self._before)

    def _unblock(self) -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, self._masks.before)

    def _undo_in_child(self) -> None:
        """Removes the handlers in a forked child: it must neither survive a signal nor report its own to this
        process."""
        if os.getpid() != self._pid:
            with contextlib.suppress(ValueError, OSError):
                self.restore()
        self._unblock()


def is_free(number: int) -> bool:
    """Whether a signal has no handler, in Python or in C."""
    return signal.getsignal(number) is signal.SIG_DFL and not _caught_in_c(number)


def _caught_in_c(number: int) -> bool:
    with contextlib.suppress(OSError, ValueError):
        for line in Path(_STATUS).read_text().splitlines():
            if line.startswith("SigCgt:"):
                return bool(int(line.split()[1], 16) >> (number - 1) & 1)
    return False


def die_of(number: signal.Signals) -> None:
    """Ends this process by the signal's default action; from any thread."""
    ctypes.CDLL(None).signal(int(number), None)
    os.kill(os.getpid(), number)
