"""The screen of a big job that is watched: how fast it answers keys, how far it lags behind, whether its memory grows.

Run from the root of the repository: `python -m benchmarks.watch [--ranks 1024] [--entries 200] [--every 10] [--write]`.
"""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from tests.tui.terminal import Terminal

from benchmarks.child_processes import run_program
from benchmarks.echo import Echo
from benchmarks.make_dumps import make
from benchmarks.results import machine, program_parser, publish, table

KEY_EVERY_S = 0.5
LOOK_EVERY_S = 5.0
LONGEST_KEY_S = 5.0
LATE_S = 0.1
SETTLED_S = 60.0
"""Memory is compared from here on."""
ENV = {"TERM": "xterm-256color", "LC_ALL": "C.UTF-8", "COLORTERM": "truecolor"}
PARTS = ("screen", "follower", "workers")
"""The processes: the one that draws, the one that follows, and those that decode."""
LATE_PARTS = "drawing thread at work, waiting to run, the program that only answers"
_LAG = re.compile(r"([\d.]+) s lag")
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Look:
    """What the processes take, in the order of PARTS."""

    at: float
    """Seconds since the first update."""
    memory: tuple[int, int, int]
    """Bytes."""
    busy: tuple[float, float, float]
    """Seconds of processor time so far."""


@dataclass
class Seen:
    """What was measured, in seconds."""

    keys: list[float] = field(default_factory=list)
    late: list[tuple[float, ...]] = field(default_factory=list)
    """Of keys that took long: how long, how long the thread that draws worked, and waited for a processor, and how long
    a program that only answers took at the same moment."""
    echoes: list[float] = field(default_factory=list)
    """How long that took for each key."""
    lags: list[float] = field(default_factory=list)
    looks: list[Look] = field(default_factory=list)
    load: list[float] = field(default_factory=list)
    stolen: float = 0.0
    """Share of the processor time of this machine that its host gave to others."""


def watch(ranks: int, entries: int, every: float, minutes: float, varied: bool) -> Seen:
    """Watches a job that moves on, for some minutes."""
    seen = Seen()
    with tempfile.TemporaryDirectory() as scratch:
        source, target = Path(scratch, "source"), Path(scratch, "dumps")
        make(source, ranks, entries)
        target.mkdir()
        rounds = round(minutes * 60 / every) + 12
        command = [sys.executable, "-m", "benchmarks.moving_job", *map(str, (source, target, every, rounds))]
        command += ["--varied"] if varied else []
        writer = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert writer.stdout is not None and writer.stdout.readline() == "ready\n"
        try:
            app = [sys.executable, "-m", "rankscope", str(target), "--watch"]
            with Echo() as echo, Terminal(app, ENV, (120, 40)) as terminal:
                echo.got_at()
                terminal.until("WATCHING", 120)
                with _going_first():
                    _measure(terminal, echo, seen, minutes * 60)
        finally:
            writer.kill()
            writer.communicate()
    return seen


def _measure(terminal: Terminal, echo: Echo, seen: Seen, seconds: float) -> None:
    begin, turn, state, times = time.monotonic(), 0, "", _times()
    while (now := time.monotonic()) - begin < seconds:
        scheduled = _scheduled(terminal.pid)
        echo.press()
        pressed = time.monotonic()
        seen.keys.append(_key(terminal, "hF"[turn % 2]))
        seen.echoes.append(max(0.0, echo.got_at() - pressed))
        if seen.keys[-1] > LATE_S:
            worked, waited = (b - a for a, b in zip(scheduled, _scheduled(terminal.pid), strict=True))
            seen.late.append((seen.keys[-1], worked, waited, seen.echoes[-1]))
        turn += 1
        title = _line(terminal, 0)
        lag = _LAG.search(title)
        if lag is not None and title != state:
            state = title
            seen.lags.append(float(lag[1]))
        if not seen.looks or now - begin - seen.looks[-1].at >= LOOK_EVERY_S:
            seen.looks.append(_look(terminal.pid, now - begin))
            seen.load.append(os.getloadavg()[0])
        terminal.received = b""
        terminal.read(max(0.0, KEY_EVERY_S - (time.monotonic() - now)))
    took = [after - before for before, after in zip(times, _times(), strict=True)]
    seen.stolen = took[7] / sum(took[:8])


@contextlib.contextmanager
def _going_first() -> Iterator[None]:
    """Has this process read what the screen sends when it is sent; those that it has started stay as they are."""
    before = os.sched_getscheduler(0), os.sched_getparam(0)
    with contextlib.suppress(PermissionError):
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
    try:
        yield
    finally:
        os.sched_setscheduler(0, *before)


def _times() -> list[int]:
    """What all processors did so far, in ticks; proc(5), stat: the eighth was stolen by other guests of the host."""
    return [int(field) for field in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]]


def _key(terminal: Terminal, key: str) -> float:
    """Seconds from a key that moves away from the newest operations, or back to them, until the screen shows it.

    The cursor on the ruler moves first. Where an update has put it at the end, only the last line tells.
    """
    before = _place(terminal)
    begin = time.monotonic()
    terminal.press(key)
    while _place(terminal) == before and time.monotonic() - begin < LONGEST_KEY_S:
        terminal.read(0.002)
    return time.monotonic() - begin


def _scheduled(pid: int) -> tuple[float, float]:
    """How long the first thread of a process has run, and waited to run; proc(5), schedstat, in nanoseconds."""
    ran, waited, _ = Path(f"/proc/{pid}/task/{pid}/schedstat").read_text().split()
    return int(ran) / 1e9, int(waited) / 1e9


def _place(terminal: Terminal) -> tuple[int, bool]:
    """The column of the cursor, and whether the newest operations are followed."""
    lines = [_line(terminal, row) for row in range(2, 6)]
    cursor = max((line.rfind("v") for line in lines if "|" in line), default=-1)
    return cursor, "FOLLOWING" in _line(terminal, terminal.screen.lines - 1)


def _line(terminal: Terminal, row: int) -> str:
    """One line of the screen: all of them take longer than what is measured."""
    cells = terminal.screen.buffer[row]
    return "".join(cells[column].data for column in range(terminal.screen.columns))


def _look(pid: int, at: float) -> Look:
    followers = _children(pid)
    workers = [child for each in followers for child in _children(each)]
    processes = [[pid], followers, workers]
    memory = tuple(sum(map(_resident, each)) for each in processes)
    own, gone = zip(*(_busy(each) for each in processes), strict=True)
    # what workers took that were replaced is told with their parent
    return Look(at, (memory[0], memory[1], memory[2]), (own[0], own[1], own[2] + gone[1]))


def _children(pid: int) -> list[int]:
    return [int(child) for file in Path(f"/proc/{pid}/task").glob("*/children") for child in file.read_text().split()]


def _resident(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


def _busy(pids: list[int]) -> tuple[float, float]:
    """Processor time of processes, and of their children that have ended; proc(5), fields 14 to 17 of stat."""
    own = gone = 0.0
    for pid in pids:
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        own += (int(fields[11]) + int(fields[12])) / _TICKS
        gone += (int(fields[13]) + int(fields[14])) / _TICKS
    return own, gone


def summary(seen: Seen, ranks: int, entries: int, every: float, minutes: float) -> str:
    """The section of the results."""
    late = [look for look in seen.looks if look.at >= SETTLED_S]
    first, last = (late[0], late[-1]) if late else (seen.looks[0], seen.looks[-1])
    times, echoes = _spread(seen.keys), _spread(seen.echoes)
    late_ms = [" / ".join(f"{1000 * part:.0f}" for part in each) for each in seen.late]
    rounds = max((last.at - seen.looks[0].at) / every, 1e-9)
    cost = [(b - a) / rounds for a, b in zip(seen.looks[0].busy, last.busy, strict=True)]
    rows = [
        ["key to screen, median / 99 % / longest", times],
        ["keys above 100 ms", f"{len(late_ms)} of {len(seen.keys)}"],
        *([[f"each: ms until shown, {LATE_PARTS}", "; ".join(late_ms)]] * bool(late_ms)),
        ["key to a program that only answers, at the same moments", echoes],
        ["updates seen; lag shown, median / longest", f"{len(seen.lags)}; {median(seen.lags or [0]):.1f} s / "
         f"{max(seen.lags, default=0):.1f} s"],
        *([f"memory of the {part} after the first minute / at the end", f"{a >> 20} MB / {b >> 20} MB"]
          for part, a, b in zip(PARTS, first.memory, last.memory, strict=True)),
        ["processor time for each round, " + " / ".join(PARTS), " / ".join(f"{s:.2f} s" for s in cost)],
    ]  # fmt: skip
    head = (
        f"{ranks} files of {entries} entries rewritten every {every:g} s for {minutes:g} minutes, a key every "
        f"{KEY_EVERY_S:g} s; load of the machine {median(seen.load):.1f} (writer and terminal are part of it), "
        f"{100 * seen.stolen:.1f} % of its time given to others by its host. The terminal goes first where the system "
        "allows it: in life it is on another machine. The lag is the time from noticing a change to showing it."
    )
    return f"{head} {machine()}\n\n{table(['', ''], rows)}"


def _spread(seconds: list[float]) -> str:
    """Median, 99 % and longest."""
    known = sorted(seconds)
    chosen = median(known), known[int(0.99 * (len(known) - 1))], known[-1]
    return " / ".join(f"{1000 * s:.0f} ms" for s in chosen)


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs it and writes the section."""
    parser = program_parser(__spec__.name, __doc__, writes=True)
    parser.add_argument("--ranks", type=int, default=1024)
    parser.add_argument("--entries", type=int, default=200)
    parser.add_argument("--every", type=float, default=10.0)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--varied", action="store_true", help="every operation has sizes of its own")
    args = parser.parse_args(arguments)
    seen = watch(args.ranks, args.entries, args.every, args.minutes, args.varied)
    text = summary(seen, args.ranks, args.entries, args.every, args.minutes)
    publish("Watching", text, write=args.write)
    for look in seen.looks[:: max(1, len(seen.looks) // 40)]:
        print(f"{look.at:6.0f} s  MB {[each >> 20 for each in look.memory]}  s {[round(s, 1) for s in look.busy]}")


if __name__ == "__main__":
    run_program(main)
