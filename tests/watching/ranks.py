"""A real gloo job of three ranks that captures itself: `python -m tests.watching.ranks hang|pause DIRECTORY`.

In step 40 rank 1 stops for good, or for PAUSE_S seconds, as one does that writes a checkpoint. A job that only
pauses ends once ENOUGH lies in the directory.
"""

from __future__ import annotations

import importlib
import multiprocessing
import os
import sys
import time
from itertools import count
from pathlib import Path

import torch
import torch.distributed as dist

from rankscope import capture

RANKS = 3
ENOUGH = "enough"
CULPRIT, BROKEN = 1, 40
PAUSE_S = 3.0


def rank(number: int, mode: str, directory: Path) -> None:
    """One of them."""
    os.environ.update(GLOO_SOCKET_IFNAME="lo", RANK=str(number), WORLD_SIZE=str(RANKS), LOCAL_RANK=str(number))
    torch.set_num_threads(1)
    capture.start(str(directory / "dumps"), interval=0.3, share=1.0)
    dist.init_process_group("gloo", init_method=f"file://{directory}/store", rank=number, world_size=RANKS)
    for step in count():
        if step == BROKEN and number == CULPRIT:
            time.sleep(PAUSE_S if mode == "pause" else 3600)
        asked = torch.full((8,), float((directory / ENOUGH).exists()))
        dist.all_reduce(asked)
        if asked[0]:
            break
        time.sleep(0.02)
    time.sleep(3600)


def main() -> None:
    """Starts them, and waits until it is killed."""
    # what torch names frames with takes seconds to import: here once, before the ranks are forked
    importlib.import_module("torch._inductor.codecache")
    context = multiprocessing.get_context("fork")
    processes = [context.Process(target=rank, args=(i, sys.argv[1], Path(sys.argv[2]))) for i in range(RANKS)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()


if __name__ == "__main__":
    main()
