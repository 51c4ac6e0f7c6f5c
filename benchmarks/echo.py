"""A program on a pseudo terminal that answers every key with the time at which it got it, and does nothing else.

Beside a program whose answers are measured it tells what of a long wait was the machine's.
"""

from __future__ import annotations

import os
import pty
import select
import time
import tty
from types import TracebackType


class Echo:
    """Runs until the block ends."""

    def __init__(self) -> None:
        self._pid, self._fd = pty.fork()
        if not self._pid:
            _answer()
        tty.setraw(self._fd)

    def __enter__(self) -> Echo:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._fd)
        os.waitpid(self._pid, 0)

    def press(self) -> None:
        """Sends a key."""
        os.write(self._fd, b"x")

    def got_at(self, seconds: float = 5.0) -> float:
        """When it got the key, by the monotonic clock. Raises TimeoutError."""
        told = b""
        while not told.endswith(b"\n"):
            if not select.select([self._fd], [], [], seconds)[0]:
                raise TimeoutError(f"no answer within {seconds:g} s")
            told += os.read(self._fd, 1 << 10)
        return float(told)


def _answer() -> None:
    """The program; never returns."""
    try:
        tty.setraw(0)
        os.write(1, b"0\n")
        while os.read(0, 1):
            os.write(1, f"{time.monotonic():.6f}\n".encode())
    finally:
        os._exit(0)
