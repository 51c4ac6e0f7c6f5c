"""Ray Train with the capture in each worker; `hang_at` makes the last worker leave the loop.

python train.py /shared/dumps --workers 2
rankscope /shared/dumps --watch
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import torch
import torch.distributed as dist

import rankscope.capture


def train_loop(config: dict[str, Any]) -> None:
    """One worker: the process group is there, and everything after this line is recorded."""
    rankscope.capture.start(config["dumps"], interval=config.get("interval", 10.0))
    weights = torch.ones(64)
    for step in range(config.get("steps", 1_000)):
        if step == config.get("hang_at", -1) and dist.get_rank() == dist.get_world_size() - 1:
            time.sleep(config.get("hang_s", 3_600))
        dist.all_reduce(weights)
        weights /= dist.get_world_size()
        time.sleep(0.05)
    rankscope.capture.stop()


def main() -> None:
    """Starts the workers. All of them need to see the directory of dumps: a shared file system."""
    from ray.train import ScalingConfig
    from ray.train.torch import TorchConfig, TorchTrainer

    parser = argparse.ArgumentParser()
    parser.add_argument("dumps")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--steps", type=int, default=1_000)
    parser.add_argument("--hang-at", type=int, default=-1)
    parser.add_argument("--hang-s", type=float, default=3_600)
    options = parser.parse_args()
    gpu = torch.cuda.is_available()
    trainer = TorchTrainer(
        train_loop,
        train_loop_config={
            "dumps": options.dumps, "steps": options.steps, "hang_at": options.hang_at, "hang_s": options.hang_s,
        },
        torch_config=TorchConfig(backend="nccl" if gpu else "gloo"),
        scaling_config=ScalingConfig(num_workers=options.workers, use_gpu=gpu),
    )  # fmt: skip
    trainer.fit()


if __name__ == "__main__":
    main()
