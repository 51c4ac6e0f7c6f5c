"""The screen of a big job that is watched: how fast it answers keys, how far it lags behind, whether its memory grows.

Run from the root of the repository: `python -m benchmarks.watch [--ranks 1024] [--every 10] [--minutes 10]`.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from tests.tui.terminal import Terminal

from benchmarks.make_dumps import make
from benchmarks.results import machine, put, table

ENTRIES = 200
KEY_EVERY_S = 0.5
LONGEST_KEY_S = 5.0
ENV = {"TERM": "xterm-256color", "LC_ALL": "C.UTF-8", "COLORTERM": "truecolor"}
_LAG = re.compile(r"([\d.]+) s lag")


@dataclass
class Seen:
    """What was measured, in seconds and bytes."""

    keys: list[float] = field(default_factory=list)
    lags: list[float] = field(default_factory=list)
    updates: set[str] = field(default_factory=set)
    memory: list[tuple[float, int, int]] = field(default_factory=list)
    """Time, bytes of the screen's process, bytes of its workers."""


def watch(ranks: int, every: float, minutes: float) -> Seen:
    """Watches a job that moves on, for some minutes."""
    seen = Seen()
    with tempfile.TemporaryDirectory() as scratch:
        source, target = Path(scratch, "source"), Path(scratch, "dumps")
        make(source, ranks, ENTRIES)
        target.mkdir()
        rounds = round(minutes * 60 / every) + 2
        command = [sys.executable, "-m", "benchmarks.moving_job", str(source), str(target), str(every), str(rounds)]
        writer = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert writer.stdout is not None and writer.stdout.readline() == "ready\n"
        try:
            with Terminal([sys.executable, "-m", "rankscope", str(target), "--watch"], ENV, (120, 40)) as terminal:
                terminal.until("WATCHING", 120)
                _measure(terminal, seen, minutes * 60)
        finally:
            writer.kill()
            writer.communicate()
    return seen


def _measure(terminal: Terminal, seen: Seen, seconds: float) -> None:
    begin = time.monotonic()
    turn = 0
    while (now := time.monotonic()) - begin < seconds:
        seen.keys.append(_key(terminal, "hl"[turn % 2]))
        turn += 1
        lag = _LAG.search(terminal.text.splitlines()[0])
        state = terminal.text.splitlines()[0]
        if lag is not None and state not in seen.updates:
            seen.updates.add(state)
            seen.lags.append(float(lag[1]))
        if turn % 10 == 0:
            seen.memory.append((now - begin, *_memory(terminal.pid)))
        terminal.received = b""
        terminal.read(max(0.0, KEY_EVERY_S - (time.monotonic() - now)))


def _key(terminal: Terminal, key: str) -> float:
    """Seconds from a key that moves the cursor until the ruler shows that it has moved."""
    before = _cursor(terminal)
    begin = time.monotonic()
    terminal.press(key)
    while _cursor(terminal) == before and time.monotonic() - begin < LONGEST_KEY_S:
        terminal.read(0.002)
    return time.monotonic() - begin


def _cursor(terminal: Terminal) -> int:
    lines = terminal.text.splitlines()
    return max((line.rfind("v") for line in lines[2:6] if "|" in line), default=-1)


def _memory(pid: int) -> tuple[int, int]:
    """Bytes in memory of a process, and of its children."""
    pids = [child for file in Path(f"/proc/{pid}/task").glob("*/children") for child in file.read_text().split()]
    return _resident(pid), sum(_resident(int(child)) for child in pids)


def _resident(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


def summary(seen: Seen, ranks: int, every: float, minutes: float) -> str:
    """The section of the results."""
    keys, late = sorted(seen.keys), [m for m in seen.memory if m[0] >= 60]
    after, end = (late[0], late[-1]) if late else (seen.memory[0], seen.memory[-1])
    mb = [f"{n >> 20} MB" for n in (after[1], end[1], after[2], end[2])]
    rows = [
        ["key to screen, median / 99 % / longest", " / ".join(f"{1000 * s:.0f} ms" for s in
         (median(keys), keys[int(0.99 * (len(keys) - 1))], keys[-1]))],
        ["lag shown, median / longest", f"{median(seen.lags or [0]):.1f} s / {max(seen.lags, default=0):.1f} s"],
        ["memory after the first minute, at the end", f"{mb[0]}, {mb[1]}"],
        ["memory of the workers then", f"{mb[2]}, {mb[3]}"],
    ]  # fmt: skip
    head = f"{ranks} files of {ENTRIES} entries rewritten every {every:g} s for {minutes:g} minutes, {len(keys)} keys"
    return f"{head}. The lag is the time from noticing a change to showing it. {machine()}\n\n{table(['', ''], rows)}"


def main() -> None:
    """Runs it and writes the section."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, default=1024)
    parser.add_argument("--every", type=float, default=10.0)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--dry", action="store_true", help="print only, leave results.md alone")
    args = parser.parse_args()
    seen = watch(args.ranks, args.every, args.minutes)
    text = summary(seen, args.ranks, args.every, args.minutes)
    print(text)
    for at, own, others in seen.memory:
        print(f"{at:6.0f} s  {own >> 20} MB, workers {others >> 20} MB")
    if not args.dry:
        put("Watching", text)


if __name__ == "__main__":
    main()
