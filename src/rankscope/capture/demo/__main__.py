"""Runner of the demo job: `python -m rankscope.capture.demo SCENARIO SCRATCH STEP`; its dumps are in SCRATCH/dumps.

It lives as long as its standard input is open, even without its parent, and removes SCRATCH at its end.
"""

from __future__ import annotations

import importlib
import multiprocessing
import os
import shutil
import signal
import sys
import threading
import time
from pathlib import Path

import torch
import torch.distributed as dist

from .. import start
from .job import SCENARIOS, Trainer

WORLD_SIZE = 4
INTERVAL_S = 0.5
"""Seconds between dumps: short enough to watch."""
LONGEST_S = 3600.0


def main(argv: list[str]) -> None:
    """Starts the ranks and waits for the end of standard input."""
    scenario, scratch, step = argv[0], Path(argv[1]), int(argv[2])
    _preload()
    context = multiprocessing.get_context("fork")
    ranks = [context.Process(target=_rank, args=(scenario, scratch, step, r), daemon=True) for r in range(WORLD_SIZE)]
    for process in ranks:
        process.start()
    _wait_for_the_end()
    for process in ranks:
        process.kill()
    for process in ranks:
        process.join()
    shutil.rmtree(scratch, ignore_errors=True)


def _preload() -> None:
    """Makes torch import the modules that name frames once, before the fork of the ranks."""
    try:
        importlib.import_module("torch._inductor")
    except ImportError:
        return


def _rank(scenario: str, scratch: Path, step: int, rank: int) -> None:
    """Runs one rank: after its part it stays, like a rank that hangs later."""
    threading.Thread(target=_die_at_the_end, daemon=True).start()
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(WORLD_SIZE), LOCAL_RANK=str(rank))
    torch.set_num_threads(1)
    start(scratch / "dumps", interval=INTERVAL_S, share=1.0)
    dist.init_process_group("gloo", init_method=f"file://{scratch}/store", rank=rank, world_size=WORLD_SIZE)
    trainer = Trainer(rank, WORLD_SIZE, step, scratch / "dumps")
    trainer.make_groups()
    SCENARIOS[scenario](trainer)
    time.sleep(LONGEST_S)


def _wait_for_the_end() -> None:
    while os.read(0, 4096):
        pass


def _die_at_the_end() -> None:
    _wait_for_the_end()
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main(sys.argv[1:])
