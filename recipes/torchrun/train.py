"""A small training loop under torchrun; `--hang-at STEP` makes the last rank leave it, and the others wait for ever."""

from __future__ import annotations

import argparse
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def main() -> None:
    """Trains, and hangs if asked to."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=1_000)
    parser.add_argument("--hang-at", type=int, default=-1)
    options = parser.parse_args()
    dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    model = DistributedDataParallel(torch.nn.Linear(32, 8))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(options.steps):
        if step == options.hang_at and dist.get_rank() == dist.get_world_size() - 1:
            load_batch()
        optimizer.zero_grad()
        model(torch.randn(16, 32)).square().mean().backward()
        optimizer.step()
        time.sleep(0.05)
    dist.destroy_process_group()


def load_batch() -> None:
    """Stands for a data loader whose file server does not answer."""
    time.sleep(3_600)


if __name__ == "__main__":
    main()
