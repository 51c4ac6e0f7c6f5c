"""What the screen costs over a slow link: bytes of a move, and the time until it stands still after keys held down.

python -m benchmarks.slow_link DUMPS [--write]

The app runs on a pseudo terminal behind a link of RATE bytes a second and DELAY_S each way, whose buffer of BUFFER
bytes pushes back when it is full, as a connection over SSH does. An emulator at its end answers questions.
"""

from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import struct
import sys
import termios
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.child_processes import run_program
from benchmarks.results import machine, program_parser, publish, table

RATE, DELAY_S, BUFFER = 25_000, 0.04, 65_536
HELD_S, REPEAT_S, QUIET_S, LIMIT_S = 2.0, 0.033, 1.5, 60.0
"""Keys are held so long, and repeat so often; the screen stands still after so long without a byte."""
SIZES = ((80, 24), (200, 60))
_ASK, _ANSWER = b"\x1b[6n", b"\x1b[2;1R"
_FIRST = b"overview"
"""Words of the first screen with lanes."""
_REMOTE = {"TERM": "xterm-256color", "COLORTERM": "truecolor", "SSH_CONNECTION": "10.0.0.1 50000 10.0.0.2 22"}
DRIVERS: dict[str, dict[str, str]] = {"changed cells": {}, "stock": {"RANKSCOPE_FULL_FRAMES": "1"}}


@dataclass
class Link:
    """The link between the app and the terminal of the user."""

    terminal: int
    at: float = field(default_factory=time.monotonic)
    """The link is busy until then."""
    waiting: deque[tuple[float, bytes]] = field(default_factory=deque)
    """What is on its way to the user, with the time at which it arrives."""
    keys: deque[tuple[float, bytes]] = field(default_factory=deque)
    """What is on its way to the app."""
    got: int = 0
    text: bytes = b""
    """All that has come to the user."""
    arrived: float = 0.0
    """When the last byte came to the user."""

    def press(self, keys: bytes) -> None:
        """The user types."""
        self.keys.append((time.monotonic() + DELAY_S, keys))

    def run(self, seconds: float) -> None:
        """Carries bytes for some seconds."""
        end = time.monotonic() + seconds
        while (now := time.monotonic()) < end:
            while self.keys and self.keys[0][0] <= now:
                os.write(self.terminal, self.keys.popleft()[1])
            self._deliver(now)
            backlog = max(self.at - now, 0.0) * RATE
            ready = select.select([self.terminal] if backlog < BUFFER else [], [], [], 0.002)[0]
            if ready:
                data = os.read(self.terminal, 4096)
                self.at = max(self.at, now) + len(data) / RATE
                self.waiting.append((self.at + DELAY_S, data))

    def _deliver(self, now: float) -> None:
        while self.waiting and self.waiting[0][0] <= now:
            self.arrived, data = self.waiting.popleft()
            self.got += len(data)
            self.text += data
            for _ in range(data.count(_ASK)):
                self.press(_ANSWER)

    def still(self) -> None:
        """Runs until nothing has come for QUIET_S."""
        end = time.monotonic() + LIMIT_S
        self.run(QUIET_S)
        while self.waiting or time.monotonic() - self.arrived < QUIET_S:
            self.run(0.1)
            if time.monotonic() > end:
                raise SystemExit("the screen never stood still")


def measured(dumps: Path, size: tuple[int, int], environ: Mapping[str, str]) -> tuple[int, int, float]:
    """Bytes of the first screen and of one lane down, and seconds from the last of held keys until it stands still."""
    pid, terminal = pty.fork()
    if pid == 0:
        command = [sys.executable, "-m", "rankscope", str(dumps)]
        os.execvpe(command[0], command, {**os.environ, **_REMOTE, **environ})
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", size[1], size[0], 0, 0))
    link = Link(terminal)
    try:
        # a line tells of the loading before, and may stand still for long on a busy machine
        while _FIRST not in link.text:
            link.run(0.1)
        link.still()
        first = link.got
        link.press(b"U")
        link.still()
        return first, _scroll(link), _held(link)
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(terminal)


def _scroll(link: Link) -> int:
    """Bytes of one lane down that scrolls, after the keys that bring the cursor to the lower edge."""
    link.press(b"gg" + b"j" * 60)
    link.still()
    before = link.got
    link.press(b"j")
    link.still()
    return link.got - before


def _held(link: Link) -> float:
    end = time.monotonic() + HELD_S
    while time.monotonic() < end:
        link.press(b"j")
        link.run(REPEAT_S)
    released = time.monotonic()
    link.still()
    return max(link.arrived - released, 0.0)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measures both drivers at each size, and prints the table."""
    parser = program_parser(__spec__.name, __doc__, writes=True)
    parser.add_argument("dumps", type=Path)
    given = parser.parse_args(arguments)
    rows = []
    for width, height in SIZES:
        for name, environ in DRIVERS.items():
            first, scroll, settled = measured(given.dumps, (width, height), environ)
            rows.append([f"{width}x{height}", name, f"{first:,}", f"{scroll:,}", f"{settled:.2f}"])
    text = table(["screen", "driver", "first screen, bytes", "one lane down, bytes", "still after, s"], rows)
    link = (
        f"A link of {RATE / 1000:g} kB/s, {DELAY_S * 2000:g} ms there and back, with a buffer of {BUFFER // 1024} KiB"
    )
    how = f"{link}; all lanes unfolded; j held for {HELD_S:g} s, {REPEAT_S * 1000:g} ms apart. {machine()}"
    publish("The screen over a slow link", f"{how}\n\n{text}", write=given.write)


if __name__ == "__main__":
    run_program(main)
