"""Processes that a benchmark starts: they end with it, also when it is stopped."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import NoReturn, TypeVar

T = TypeVar("T")
R = TypeVar("R")

LOOK_S = 0.05
"""Interval of the looks at running processes."""
STOPS = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)


def run_program(main: Callable[[], int | None]) -> NoReturn:
    """Runs a program and exits with its code. All processes below it end with it if a signal or an error stops it."""
    for number in STOPS:
        # nohup has SIGHUP ignored, and a shell SIGINT of what runs behind it
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, _stop)
    try:
        code = main()
    except BaseException:
        kill_children()
        raise
    raise SystemExit(code)


def mapped(function: Callable[[T], R], jobs: Iterable[T], processes: int) -> Iterator[R]:
    """What a function makes of each job, in their order, by so many processes; by this one if it is 1."""
    if processes == 1:
        yield from map(function, jobs)
        return
    with ProcessPoolExecutor(processes) as pool:
        yield from pool.map(function, jobs)


def _stop(number: int, _: object) -> NoReturn:
    # threads wait for processes, and the program for its threads: those may start more until they notice
    threading.Thread(target=_kill_all_that_start, daemon=True).start()
    for other in STOPS:
        signal.signal(other, signal.SIG_IGN)
    raise SystemExit(128 + number)


def _kill_all_that_start() -> NoReturn:
    while True:
        kill_children()
        time.sleep(LOOK_S)


def kill_children() -> None:
    """Kills all processes below this one, in whatever session or process group they are."""
    for pid in process_tree(os.getpid())[1:]:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def process_tree(pid: int) -> list[int]:
    """A process and all below it."""
    found = [pid]
    for parent in found:
        for task in Path(f"/proc/{parent}/task").glob("*/children"):
            with suppress(OSError):
                found += map(int, task.read_text().split())
    return found


def run_ranks(command: Sequence[str], ranks: int, folder: Path, environment: Mapping[str, str], limit_s: float) -> None:
    """Runs a command as each rank of a job to the end, with RANK, LOCAL_RANK and WORLD_SIZE set.

    The output of each goes to `output_RANK` in the folder.

    Leaves no process behind. Raises RuntimeError with the end of the output of a rank that fails, or of the first one
    that still runs after `limit_s` seconds; the others are killed then.
    """
    processes: list[subprocess.Popen[bytes]] = []
    outputs = [folder / f"output_{rank}" for rank in range(ranks)]
    end = time.monotonic() + limit_s
    try:
        for rank, output in enumerate(outputs):
            own = {**os.environ, **environment, "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(ranks)}
            with output.open("wb") as sink:
                processes.append(subprocess.Popen(command, env=own, stdout=sink, stderr=sink, start_new_session=True))
        codes: list[int | None] = [None]
        while None in codes and not any(codes) and time.monotonic() < end:
            time.sleep(LOOK_S)
            codes = [process.poll() for process in processes]
    finally:
        for process in processes:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
    if any(codes) or None in codes:
        failed = next((rank for rank, code in enumerate(codes) if code), codes.index(None) if None in codes else 0)
        told = outputs[failed].read_text(errors="replace")[-3000:]
        raise RuntimeError(f"{' '.join(command)}: ranks ended with {codes}; rank {failed}:\n{told}")
