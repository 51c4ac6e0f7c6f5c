"""Makes the sample data: runs each job of `job.py` for real on four gloo ranks and dumps their flight recorders.

    python sample_data/make.py [--out DIRECTORY] [SCENARIO...]

gloo never dumps by itself: a thread of each rank does until the rank stands still. Then the job is killed. The jobs of
`traced.py` end by themselves and leave traces of torch's profiler.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import re
import resource
import signal
import sys
import sysconfig
import tempfile
import threading
import time
from collections.abc import Sequence
from multiprocessing.process import BaseProcess
from pathlib import Path

import job
import torch
import torch.distributed as dist
import traced
from torch._C._profiler import gather_traceback, symbolize_tracebacks

WORLD_SIZE = 4
STILL_S = 2.0
"""A rank that gets through no step for so long has finished or hangs."""
DUMP_EVERY_S = 0.2
LONGEST_S = 60.0
HERE = Path(__file__).resolve().parent
TRACED = {"slow_loader": traced.slow_loader}
"""Jobs that leave traces and no dumps."""
NEUTRAL = {
    str(HERE): "/job",
    sysconfig.get_path("purelib"): "/venv/lib/python3.11/site-packages",
    sysconfig.get_path("stdlib"): "/usr/lib/python3.11",
}
"""Directories of the machine that made the dumps, and what stands for them in stacks."""


def make(scenario: str, out: Path) -> None:
    """Runs one scenario and leaves its four dumps in `out`."""
    out.mkdir(parents=True, exist_ok=True)
    context = multiprocessing.get_context("fork")
    with tempfile.TemporaryDirectory() as scratch:
        given = [(scenario, rank, Path(scratch), out) for rank in range(WORLD_SIZE)]
        # daemons end with this process
        ranks = [context.Process(target=_run_rank, args=each, daemon=True) for each in given]
        for process in ranks:
            process.start()
        _wait(ranks, Path(scratch))
        for process in ranks:
            process.kill()
            process.join()
    path_of = traced.trace_path if scenario in TRACED else dump_path
    missing = [r for r in range(WORLD_SIZE) if not path_of(out, r).exists()]
    if missing:
        raise SystemExit(f"{scenario}: nothing of ranks {missing}")


def _wait(ranks: Sequence[BaseProcess], scratch: Path) -> None:
    """Until every rank has written its last dump or died."""
    end = time.monotonic() + LONGEST_S
    while time.monotonic() < end:
        time.sleep(0.05)
        if all((scratch / f"still_{r}").exists() or not process.is_alive() for r, process in enumerate(ranks)):
            return


def dump_path(out: Path, rank: int) -> Path:
    """Where the dump of a rank is written."""
    return out / f"comm_lib_trace_rank_{rank}"


def _run_rank(scenario: str, rank: int, scratch: Path, out: Path) -> None:
    """One rank: a thread for the job, and beside it the dumps, for the job may hang or die."""
    if scenario in TRACED:
        TRACED[scenario](rank, WORLD_SIZE, scratch, out)
        return
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    os.environ["TORCH_FR_BUFFER_SIZE"] = str(job.BUFFERS.get(scenario, 2000))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{scratch}/store", rank=rank, world_size=WORLD_SIZE)
    trainer = job.Trainer(rank, WORLD_SIZE)
    threading.Thread(target=_train, args=(scenario, trainer), daemon=True).start()
    _dump_until_still(trainer, out)
    (scratch / f"still_{rank}").touch()
    time.sleep(LONGEST_S)


def _train(scenario: str, trainer: job.Trainer) -> None:
    try:
        job.SCENARIOS[scenario](trainer)
    except RuntimeError as error:
        print(f"{scenario}: rank {trainer.rank}: {str(error).splitlines()[0]}", file=sys.stderr)


def _dump_until_still(trainer: job.Trainer, out: Path) -> None:
    beat, since = -1, time.monotonic()
    while time.monotonic() - since < STILL_S:
        if trainer.beat != beat:
            beat, since = trainer.beat, time.monotonic()
        time.sleep(DUMP_EVERY_S)
        dump = torch._C._distributed_c10d._dump_fr_trace()
        write_atomically(dump_path(out, trainer.rank), neutral(dump, NEUTRAL))


def warm_up() -> None:
    """Lets torch load what it needs to name frames: over a second in the first dump of a process, none in its forks."""
    symbolize_tracebacks([gather_traceback(python=True, script=False, cpp=False)])


def write_atomically(path: Path, content: bytes) -> None:
    """Puts a file in its place in one step, so that nobody reads half of it."""
    part = path.with_name(f".{path.name}.part")
    part.write_bytes(content)
    part.replace(path)


def neutral(dump: bytes, directories: dict[str, str]) -> bytes:
    """The same pickle with other directories at the beginning of its strings.

    A string is written as `X`, its length in four bytes, and its UTF-8: the length is written anew, all else stays as
    the recorder wrote it.
    """
    for old, new in sorted(directories.items(), key=lambda pair: -len(pair[0])):
        dump = _with_prefix(dump, old.encode(), new.encode())
    return dump


def _with_prefix(dump: bytes, old: bytes, new: bytes) -> bytes:
    def string(match: re.Match[bytes]) -> bytes:
        length = int.from_bytes(match[1], "little") - len(old) + len(new)
        return b"X" + length.to_bytes(4, "little") + new

    return re.sub(b"X(....)" + re.escape(old), string, dump, flags=re.DOTALL)


def main(arguments: Sequence[str] | None = None) -> None:
    """Makes the scenarios named, or all of them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scenarios", nargs="*", metavar="SCENARIO", help=", ".join((*job.SCENARIOS, *TRACED)))
    parser.add_argument("--out", type=Path, default=HERE, help="where the directories are made")
    options = parser.parse_args(arguments)
    warm_up()
    for scenario in options.scenarios or (*job.SCENARIOS, *TRACED):
        make(scenario, options.out / scenario)
        print(f"{scenario}: {sum(p.stat().st_size for p in (options.out / scenario).iterdir()):,} bytes")


if __name__ == "__main__":
    for number in (signal.SIGHUP, signal.SIGTERM):
        signal.signal(number, lambda number, _: sys.exit(128 + number))
    main()
