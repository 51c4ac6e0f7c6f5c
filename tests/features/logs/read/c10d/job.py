"""A small job of four gloo ranks in which rank 2 does what the argument says: `torchrun job.py raises`.

With a file behind the argument no launcher is needed: the ranks meet in that file, forked from one process, which
imports torch only once.
"""

from __future__ import annotations

import datetime
import os
import signal
import sys
import time

import torch
import torch.distributed as dist

RANKS = 4


def main(fault: str, meeting: str | None = None) -> None:
    rank = -1 if meeting is None else forked_rank()
    dist.init_process_group(
        "gloo", timeout=datetime.timedelta(seconds=20), rank=rank, world_size=-1 if meeting is None else RANKS,
        init_method=None if meeting is None else f"file://{meeting}",
    )  # fmt: skip
    ones = torch.ones(2, 3)
    dist.all_reduce(ones)
    dist.barrier()
    if dist.get_rank() == 2:
        broken(fault, ones)
    elif fault == "late":
        dist.monitored_barrier(timeout=datetime.timedelta(seconds=1), wait_all_ranks=True)
    dist.all_reduce(ones)


def forked_rank() -> int:
    """The rank of a new process; the first process ends with them, and never returns."""
    for rank in range(RANKS):
        if os.fork() == 0:
            return rank
    sys.exit(max(os.waitstatus_to_exitcode(os.wait()[1]) for _ in range(RANKS)))


def broken(fault: str, ones: torch.Tensor) -> None:
    if fault == "mismatch":
        dist.broadcast(ones, 0)
    elif fault == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    elif fault == "late":
        time.sleep(3)
    elif fault == "raises":
        rates: dict[str, float] = {}
        try:
            ones *= rates["rate"]
        except KeyError as e:
            raise ValueError("no learning rate\nin the configuration") from e


if __name__ == "__main__":
    main(*sys.argv[1:])
