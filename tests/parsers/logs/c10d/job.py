"""A small job of four gloo ranks in which rank 2 does what its argument says: `torchrun job.py crash`."""

from __future__ import annotations

import datetime
import os
import signal
import sys
import time

import torch
import torch.distributed as dist


def main(fault: str) -> None:
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=20))
    ones = torch.ones(2, 3)
    dist.all_reduce(ones)
    dist.barrier()
    if dist.get_rank() == 2:
        broken(fault, ones)
    elif fault == "late":
        dist.monitored_barrier(timeout=datetime.timedelta(seconds=1), wait_all_ranks=True)
    dist.all_reduce(ones)


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
    main(sys.argv[1])
