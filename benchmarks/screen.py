"""How long it takes from the shell until the app shows something, on a real pseudo terminal read by an emulator."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median

import pyte

LIMIT_S = 20.0
LONG_LIMIT_S = 600.0
COLUMNS, LINES = 100, 30


def first_screen(folder: Path, runner: Sequence[str], times: int = 5) -> str:
    """A sentence on the time until anything, and until the verdict, stands on the screen."""
    report = subprocess.run([*runner, "report", str(folder), "--format", "json"], capture_output=True, check=False)
    verdict = " ".join(json.loads(report.stdout)["verdict"].split()[:3])
    seen = [_watch([*runner, str(folder)], verdict) for _ in range(times)]
    anything, told = (median(s[k] for s in seen) for k in (0, 1))
    ranks = len(list(folder.iterdir()))
    return (
        f"First screen of a folder of {ranks} ranks, from starting the command on a pseudo terminal: "
        f"anything after {anything:.2f} s, the verdict after {told:.2f} s (medians of {times})."
    )


def verdict_after(folder: Path, verdict: str) -> float:
    """Seconds from the shell until the app shows the verdict."""
    return _watch([sys.executable, "-m", "rankscope", str(folder)], verdict, LONG_LIMIT_S)[1]


def _watch(command: Sequence[str], wanted: str, limit: float = LIMIT_S) -> tuple[float, float]:
    """Seconds until the screen shows any letter, and until it shows `wanted`."""
    begin = time.perf_counter()
    pid, terminal = pty.fork()
    if pid == 0:
        os.execvpe(command[0], list(command), {**os.environ, "TERM": "xterm-256color", "COLORTERM": "truecolor"})
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
    try:
        return _read(terminal, wanted, begin, limit)
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(terminal)


def _read(terminal: int, wanted: str, begin: float, limit: float) -> tuple[float, float]:
    screen = pyte.Screen(COLUMNS, LINES)
    stream = pyte.ByteStream(screen)
    anything: float | None = None
    while (passed := time.perf_counter() - begin) < limit:
        if not select.select([terminal], [], [], 0.01)[0]:
            continue
        stream.feed(os.read(terminal, 1 << 16))
        text = "\n".join(screen.display)
        if anything is None and any(c.isalpha() for c in text):
            anything = time.perf_counter() - begin
        if wanted in text:
            return anything or passed, time.perf_counter() - begin
    raise SystemExit(f"the app did not show {wanted!r} within {limit} s; it shows:\n{text}")
