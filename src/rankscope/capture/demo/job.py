"""Job of four ranks that train, two by two in tensor and data parallel groups, until one of them makes a fault.

Every function here appears in the shown stacks, so names are those of a training script.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
import torch.distributed as dist

STEP_S = 0.25
"""Computing time of a step: slow enough to watch."""
STEPS = 1_000_000


@dataclass
class Trainer:
    """One rank of the job."""

    rank: int
    world_size: int
    broken_step: int
    """The step in which the fault happens."""
    tensor_parallel: dist.ProcessGroup | None = None
    data_parallel: dist.ProcessGroup | None = None
    gradients: torch.Tensor = field(default_factory=lambda: torch.ones(64, 32))

    def make_groups(self) -> None:
        """Makes the process groups of all ranks; every rank must make all of them."""
        half = self.world_size // 2
        for place in range(half):
            pair = dist.new_group([2 * place, 2 * place + 1], group_desc="tensor_parallel")
            self.tensor_parallel = pair if self.rank // 2 == place else self.tensor_parallel
        for place in range(2):
            column = dist.new_group(list(range(place, self.world_size, 2)), group_desc="data_parallel")
            self.data_parallel = column if self.rank % 2 == place else self.data_parallel

    def train(self, train_step: Callable[[int], bool], steps: int = STEPS) -> None:
        """Runs steps until one returns False."""
        for step in range(steps):
            load_batch(STEP_S)
            if not train_step(step):
                return

    def forward(self) -> None:
        """Adds the parts of a layer that each rank of a pair computed."""
        dist.all_reduce(self.gradients, group=self.tensor_parallel)

    def backward(self) -> None:
        """Sums the gradients over the replicas."""
        dist.all_reduce(self.gradients, group=self.data_parallel)

    def clip_gradients(self) -> None:
        """Sums the gradient norm over all ranks."""
        dist.all_reduce(torch.ones(1))

    def log_loss(self) -> None:
        """Collects the loss of every rank."""
        dist.all_gather([torch.zeros(1) for _ in range(self.world_size)], torch.zeros(1))


def load_batch(seconds: float) -> None:
    """Reads the next batch."""
    time.sleep(seconds)


def save_checkpoint(trainer: Trainer) -> None:
    """Sends its weights to all ranks, which nobody expects."""
    dist.broadcast(trainer.gradients, src=trainer.rank)


def skip(trainer: Trainer) -> None:
    """Rank 2 gets a loss that is not a number and leaves the loop; the others wait for it."""

    def train_step(step: int) -> bool:
        if step == trainer.broken_step and trainer.rank == 2:
            return False
        trainer.forward()
        trainer.backward()
        trainer.clip_gradients()
        return True

    trainer.train(train_step)


def mismatch(trainer: Trainer) -> None:
    """Rank 1 saves a checkpoint and broadcasts where the others sum."""

    def train_step(step: int) -> bool:
        trainer.forward()
        trainer.backward()
        if step == trainer.broken_step and trainer.rank == 1:
            save_checkpoint(trainer)
        else:
            trainer.clip_gradients()
        trainer.log_loss()
        return True

    trainer.train(train_step)


def straggler(trainer: Trainer) -> None:
    """Rank 1 takes longer for every step; nothing hangs, but all others wait."""

    def train_step(_step: int) -> bool:
        if trainer.rank == 1:
            load_batch(STEP_S / 2)
        trainer.clip_gradients()
        return True

    trainer.train(train_step)


def order(trainer: Trainer) -> None:
    """Rank 3 clips its gradients before it adds those of its pair: rank 2 waits for it, and the others for rank 2."""

    def train_step(step: int) -> bool:
        phases = [trainer.forward, trainer.clip_gradients]
        if step == trainer.broken_step and trainer.rank == trainer.world_size - 1:
            phases.reverse()
        for phase in phases:
            phase()
        return True

    trainer.train(train_step)


def slow(trainer: Trainer) -> None:
    """Rank 0 reads its batches more and more slowly, and the last one never arrives."""

    def train_step(step: int) -> bool:
        if trainer.rank == 0:
            late = step - trainer.broken_step // 2
            load_batch(3600.0 if step == trainer.broken_step else 0.05 * max(0, late))
        trainer.forward()
        trainer.backward()
        trainer.clip_gradients()
        return True

    trainer.train(train_step)


SCENARIOS: dict[str, Callable[[Trainer], None]] = {
    "skip": skip,
    "mismatch": mismatch,
    "straggler": straggler,
    "order-deadlock": order,
    "slow": slow,
}
