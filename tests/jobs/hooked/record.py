"""Runs a job over a backend that torch's FlightRecorderHook records, and leaves its dumps; torch 2.15 or later.

    python -m tests.jobs.hooked.record [RECORDING...]               all recordings of this directory anew, or some
    python -m tests.jobs.hooked.record JOB COMPLETION DUMPS OUT     one job, until standard input ends

JOB is one of `steps.py` or of `sample_data/job.py`; COMPLETION is late, never or without; DUMPS says who writes them:
capture (`rankscope.capture`), timeout (torch itself, where a rank waits for too long), look (in the middle of a step).
"""

from __future__ import annotations

import importlib
import multiprocessing
import os
import re
import signal
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from tests.jobs.hooked import relayed

HERE = Path(__file__).parent
ROOT = Path(__file__).parents[3]
SAMPLES = ROOT / "sample_data"
STEPS = ("healthy", "host_stuck", "lost_send")
"""The jobs of `steps.py`; all others are of the sample data."""
PACKAGES = "/venv/lib/python3.11/site-packages"
WORLD_SIZE = 4
TIMEOUT_S = 3.0
INTERVAL_S = 0.5
LONGEST_S = 60.0
SETTLED_S = 8.0
"""A job that is recorded goes on for so long after its last rank has left a dump: longer than ten intervals."""


class Recording(NamedTuple):
    """What is recorded of which job."""

    job: str
    completion: str
    """When its operations are noticed to end."""
    dumps: str
    """Who writes them."""
    ranks: int = 4
    """How many ranks leave one."""


RECORDINGS = {
    "healthy_mid_step": Recording("healthy", "late", "look"),
    "host_stuck": Recording("host_stuck", "late", "timeout", ranks=3),
    "lost_send": Recording("lost_send", "late", "timeout"),
    "two_groups": Recording("two_groups", "late", "capture"),
    "without_completion_healthy": Recording("healthy", "without", "capture"),
    "without_completion_stuck": Recording("host_stuck", "without", "capture"),
}


def run(job: str, completion: str, dumps: str, out: Path, waiting: Callable[[], None]) -> None:
    """Runs the ranks until `waiting` returns."""
    if completion != "without":
        relayed.build()
    # names frames, and takes seconds to import
    importlib.import_module("torch._inductor")
    out.mkdir(parents=True, exist_ok=True)
    sys.path.insert(0, str(SAMPLES))
    context = multiprocessing.get_context("fork")
    with tempfile.TemporaryDirectory() as scratch:
        given = (job, completion, dumps, out, Path(scratch))
        ranks = [context.Process(target=_rank, args=(rank, *given)) for rank in range(WORLD_SIZE)]
        for process in ranks:
            process.start()
        waiting()
        for process in ranks:
            process.kill()
        for process in ranks:
            process.join()


def _rank(rank: int, job: str, completion: str, dumps: str, out: Path, scratch: Path) -> None:
    """One rank; when its part is over it stays, as one does that waits for the others."""
    import torch
    import torch.distributed as dist

    threading.Thread(target=_die_with_the_parent, daemon=True).start()
    os.environ.update(GLOO_SOCKET_IFNAME="lo", TORCH_FR_DUMP_TEMP_FILE=f"{out}/comm_lib_trace_rank_")
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(WORLD_SIZE))
    torch.set_num_threads(1)
    if dumps == "capture":
        from rankscope import capture

        capture.start(out, interval=INTERVAL_S, keep=1, share=1.0, stacks="always")
    synchronize = relayed.register(completion, TIMEOUT_S if dumps == "timeout" else LONGEST_S)
    dist.init_process_group("relay", init_method=f"file://{scratch}/store", rank=rank, world_size=WORLD_SIZE)
    look = (lambda: _look(out, rank, relayed.NAMES[completion])) if dumps == "look" else _nothing
    _train(job, rank, synchronize, look)
    time.sleep(LONGEST_S)


def _train(job: str, rank: int, synchronize: Callable[[], None], look: Callable[[], None]) -> None:
    if job in STEPS:
        from tests.jobs.hooked import steps

        trainer = steps.Steps(rank, WORLD_SIZE, synchronize, look)
        trainer.make_groups()
        steps.train(trainer, job)
    else:
        samples = importlib.import_module("job")
        samples.SCENARIOS[job](samples.Trainer(rank, WORLD_SIZE))


def _look(out: Path, rank: int, backend: str) -> None:
    """Writes what the hook has recorded; each rank at another time of the second in which ends are noticed."""
    import torch

    time.sleep(0.2 * rank)

    make = importlib.import_module("make")
    make.write_atomically(
        out / f"comm_lib_trace_rank_{rank}", torch._C._distributed_c10d._dump_fr_trace(backend=backend)
    )


def _nothing() -> None:
    """Nobody looks at the job."""


def _die_with_the_parent() -> None:
    parent = os.getppid()
    while os.getppid() == parent:
        time.sleep(0.2)
    os.kill(os.getpid(), signal.SIGKILL)


def _until_input_ends() -> None:
    while sys.stdin.read(4096):
        pass


def record(name: str) -> None:
    """Makes one recording: an archive, which keeps the times of the files."""
    sys.path.insert(0, str(SAMPLES))
    import torch

    make = importlib.import_module("make")
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / name
        job, completion, dumps, ranks = RECORDINGS[name]
        run(job, completion, dumps, out, lambda: _until_settled(out, ranks))
        packages = Path(torch.__file__).parents[1]
        places = {**make.NEUTRAL, str(packages): PACKAGES, str(SAMPLES): "/job", str(HERE): "/job", str(ROOT): "/job"}
        files = sorted(path for path in out.rglob("*") if path.is_file())
        for path in files:
            _make_neutral(path, places, make.neutral)
        with tarfile.open(HERE / f"{name}.tar.gz", "w:gz") as archive:
            for path in files:
                archive.add(path, f"{name}/{path.relative_to(out)}", filter=_of_nobody)


def _until_settled(out: Path, ranks: int) -> None:
    end = time.monotonic() + LONGEST_S
    while len(list(out.glob("*_trace_rank_*"))) < ranks:
        if time.monotonic() > end:
            raise TimeoutError(f"{out.name}: not {ranks} ranks have left a dump after {LONGEST_S:g} s")
        time.sleep(0.1)
    time.sleep(SETTLED_S)


def _make_neutral(path: Path, places: dict[str, str], neutral: Callable[[bytes, dict[str, str]], bytes]) -> None:
    """Takes the names of this machine out of a file and keeps its time."""
    times = path.stat()
    if path.suffix == ".json":
        path.write_text(re.sub(r'"host": "[^"]*"', '"host": "node0"', path.read_text()))
    else:
        path.write_bytes(neutral(path.read_bytes(), places))
    os.utime(path, ns=(times.st_mtime_ns, times.st_mtime_ns))


def _of_nobody(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member


def main(argv: list[str]) -> None:
    """Runs one job, or makes recordings."""
    if argv[1:2] and argv[1] in relayed.NAMES:
        run(argv[0], argv[1], argv[2], Path(argv[3]), _until_input_ends)
        return
    for name in argv or RECORDINGS:
        # each in a process of its own: torch forks badly once it has groups
        subprocess.run(
            [sys.executable, "-c", f"from tests.jobs.hooked import record; record.record({name!r})"], check=True
        )
        print(f"{name}: {(HERE / f'{name}.tar.gz').stat().st_size:,} bytes")


if __name__ == "__main__":
    main(sys.argv[1:])
