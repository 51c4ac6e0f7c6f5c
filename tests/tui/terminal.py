"""A terminal for tests: a process on a real pty, its screen kept by an emulator."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import termios
import time
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType

import pyte

_UNKNOWN = re.compile(rb"\x1b\[[<>=][0-9;]*[a-zA-Z]|\x1b\[\?[0-9;]*\$p")
"""Sequences that the emulator would print: keyboard protocols and questions about modes."""
_ASK = b"\x1b[6n"
LONGEST_S = 300.0
"""So long a test waits for what has to come: a machine may be busy."""


class Terminal:
    """Runs a command until the block ends."""

    def __init__(
        self, command: Sequence[str], env: Mapping[str, str], size: tuple[int, int] = (80, 24), answers: bool = True
    ) -> None:
        self.screen = pyte.Screen(*size)
        self._stream = pyte.ByteStream(self.screen)
        self._answers = answers
        self.received = b""
        self.exit_code: int | None = None
        self._pid, self._fd = pty.fork()
        if not self._pid:
            os.execvpe(command[0], list(command), {**os.environ, **env})
        self.resize(*size)

    def __enter__(self) -> Terminal:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.exit_code is None:
            os.kill(self._pid, signal.SIGKILL)
            os.waitpid(self._pid, 0)
        os.close(self._fd)

    @property
    def pid(self) -> int:
        """The process."""
        return self._pid

    @property
    def text(self) -> str:
        """The screen."""
        return "\n".join(line.rstrip() for line in self.screen.display)

    def resize(self, width: int, height: int) -> None:
        """Changes the size, as a window manager does."""
        fcntl.ioctl(self._fd, termios.TIOCSWINSZ, struct.pack("HHHH", height, width, 0, 0))
        self.screen.resize(height, width)

    def press(self, keys: str) -> None:
        """Types keys."""
        os.write(self._fd, keys.encode())

    def read(self, seconds: float) -> int:
        """Takes what is written within some seconds; how many bytes it was."""
        count, end = 0, time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            if not select.select([self._fd], [], [], min(left, 0.05))[0]:
                continue
            try:
                data = os.read(self._fd, 65536)
            except OSError:
                break
            if not data:
                break
            count += len(data)
            self._take(data)
        return count

    def _take(self, data: bytes) -> None:
        self.received += data
        if self._answers and _ASK in data:
            os.write(self._fd, b"\x1b[2;1R" * data.count(_ASK))
        self._stream.feed(_UNKNOWN.sub(b"", data).replace(_ASK, b""))

    def until(self, what: str | Callable[[str], bool], seconds: float = LONGEST_S) -> None:
        """Reads until the screen holds a text; fails with the screen if it never does."""
        holds = what if callable(what) else lambda text: what in text
        end = time.monotonic() + seconds
        while not holds(self.text):
            assert time.monotonic() < end, f"{what} is not on the screen:\n{self.text}"
            self.read(0.05)

    def wait(self, seconds: float = LONGEST_S) -> int:
        """Waits for the process to end; its exit code."""
        end = time.monotonic() + seconds
        while self.exit_code is None:
            self.read(0.05)
            pid, status = os.waitpid(self._pid, os.WNOHANG)
            if pid:
                self.exit_code = os.waitstatus_to_exitcode(status)
            assert time.monotonic() < end, f"still running:\n{self.text}"
        return self.exit_code
