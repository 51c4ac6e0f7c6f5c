"""A small training job on four ranks, and the ways in which one of them can break it.

Every function here stands in the stacks of the dumps, so names are those of a training script.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
import torch.distributed as dist

STEPS = 12
BROKEN_STEP = 9
"""The step in which the fault happens, where there is one."""


@dataclass
class Trainer:
    """One rank of the job; `beat` counts what it has got through."""

    rank: int
    world_size: int
    beat: int = 0
    gradients: torch.Tensor = field(default_factory=lambda: torch.ones(64, 32))

    def train(self, train_step: Callable[[Trainer, int], bool], steps: int = STEPS) -> None:
        """Runs steps until the last, or until one says stop."""
        for step in range(steps):
            if not train_step(self, step):
                return
            self.beat += 1

    def backward(self) -> None:
        """Sums the gradients over all ranks."""
        dist.all_reduce(self.gradients)

    def log_loss(self) -> None:
        """Collects the loss of every rank."""
        loss = torch.zeros(1)
        dist.all_gather([torch.zeros(1) for _ in range(self.world_size)], loss)


def healthy(trainer: Trainer) -> None:
    """Nothing goes wrong."""

    def train_step(trainer: Trainer, step: int) -> bool:
        trainer.backward()
        if step % 4 == 0:
            trainer.log_loss()
        return True

    dist.broadcast(trainer.gradients, src=0)
    trainer.train(train_step)
    dist.barrier()


def early_return(trainer: Trainer) -> None:
    """Rank 3 finds its loss not to be a number and leaves the loop; the others wait in the next all_reduce."""

    def train_step(trainer: Trainer, step: int) -> bool:
        if step == BROKEN_STEP and trainer.rank == 3:
            return False
        trainer.backward()
        trainer.log_loss()
        return True

    trainer.train(train_step)


def wrong_collective(trainer: Trainer) -> None:
    """Rank 2 takes a branch of its own and broadcasts where the others sum."""

    def train_step(trainer: Trainer, step: int) -> bool:
        if step == BROKEN_STEP and trainer.rank == 2:
            save_checkpoint(trainer)
        else:
            trainer.backward()
        trainer.log_loss()
        return True

    trainer.train(train_step)


def save_checkpoint(trainer: Trainer) -> None:
    """Sends its weights to everybody, which nobody expects."""
    dist.broadcast(trainer.gradients, src=trainer.rank)


def size_mismatch(trainer: Trainer) -> None:
    """Rank 1 has a last batch that is short, is early with it, and sums a smaller tensor; gloo aborts its process."""

    def train_step(trainer: Trainer, step: int) -> bool:
        if step == BROKEN_STEP and trainer.rank == 1:
            trainer.gradients = trainer.gradients[:48].clone()
        elif step == BROKEN_STEP:
            time.sleep(1.0)
        trainer.backward()
        return True

    trainer.train(train_step)


def two_groups(trainer: Trainer) -> None:
    """Rank 3 is stuck in its data loader; rank 2 waits for it in their pair, ranks 0 and 1 for both in the others."""
    tensor_parallel = [dist.new_group(ranks, group_desc="tensor_parallel") for ranks in ([0, 1], [2, 3])]
    data_parallel = [dist.new_group(ranks, group_desc="data_parallel") for ranks in ([0, 2], [1, 3])]
    pair, column = tensor_parallel[trainer.rank // 2], data_parallel[trainer.rank % 2]

    def train_step(trainer: Trainer, step: int) -> bool:
        if step == BROKEN_STEP and trainer.rank == 3:
            load_batch()
        forward(trainer, pair)
        dist.all_reduce(trainer.gradients, group=column)
        if step % 3 == 2:
            trainer.log_loss()
        return True

    dist.broadcast(trainer.gradients, src=0)
    trainer.train(train_step)


def forward(trainer: Trainer, pair: dist.ProcessGroup) -> None:
    """Adds what each of a pair computed of a layer."""
    dist.all_reduce(trainer.gradients, group=pair)


def load_batch() -> None:
    """A file system that never answers."""
    time.sleep(3600)


def ring_wrapped(trainer: Trainer) -> None:
    """Rank 2 leaves early; the rings are small, and ranks 0 and 1, which do more, have overwritten more of theirs."""
    busy = dist.new_group([0, 1], group_desc="tensor_parallel")

    def train_step(trainer: Trainer, step: int) -> bool:
        if step == 3 * BROKEN_STEP and trainer.rank == 2:
            return False
        trainer.backward()
        if trainer.rank < 2:
            dist.all_reduce(trainer.gradients, group=busy)
        return True

    trainer.train(train_step, steps=4 * STEPS)


def straggler(trainer: Trainer) -> None:
    """Rank 1 takes 40 ms longer for every step; nothing hangs, everybody waits."""

    def train_step(trainer: Trainer, _step: int) -> bool:
        if trainer.rank == 1:
            time.sleep(0.04)
        trainer.backward()
        return True

    trainer.train(train_step, steps=3 * STEPS)


SCENARIOS: dict[str, Callable[[Trainer], None]] = {
    job.__name__: job
    for job in (healthy, early_return, wrong_collective, size_mismatch, two_groups, ring_wrapped, straggler)
}
BUFFERS = {"ring_wrapped": 24}
"""TORCH_FR_BUFFER_SIZE of the scenarios that set it."""
