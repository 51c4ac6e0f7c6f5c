"""A small training job on four ranks with a device of their own: the host goes on, and waits for the loss of a step.

Every function here stands in the stacks of the dumps, so names are those of a training script.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
import torch.distributed as dist

STEPS = 6
BROKEN_STEP = 3
"""The step in which the fault happens, where there is one; a healthy job is looked at in the middle of it."""


@dataclass
class Steps:
    """One rank: two by two in tensor and in data parallel groups, all four in a ring."""

    rank: int
    world_size: int
    synchronize: Callable[[], None]
    """Waits for the device."""
    look: Callable[[], None]
    """Called in the middle of a step."""
    beat: int = 0
    groups: list[dist.ProcessGroup] = field(default_factory=list)
    gradients: torch.Tensor = field(default_factory=lambda: torch.ones(64, 32))

    def make_groups(self) -> None:
        """The process groups of every rank, which all ranks have to make."""
        pairs = {"tensor_parallel": ([0, 1], [2, 3]), "data_parallel": ([0, 2], [1, 3])}
        for description, both in pairs.items():
            made = [dist.new_group(ranks, group_desc=description) for ranks in both]
            self.groups += [group for group, ranks in zip(made, both, strict=True) if self.rank in ranks]

    def forward(self) -> None:
        """Adds what each of a pair computed of a layer."""
        dist.all_reduce(self.gradients, group=self.groups[0])

    def exchange(self, sends: bool) -> None:
        """Hands the activations on to the next rank of the ring, and takes those of the one before."""
        after, before = (self.rank + 1) % self.world_size, (self.rank - 1) % self.world_size
        operations = [dist.P2POp(dist.isend, torch.ones(32), after)] if sends else []
        operations.append(dist.P2POp(dist.irecv, torch.empty(32), before))
        for work in dist.batch_isend_irecv(operations):
            work.wait()

    def backward(self) -> None:
        """Sums the gradients over the replicas."""
        dist.all_reduce(self.gradients, group=self.groups[1])

    def log_loss(self) -> None:
        """Sums the loss over all ranks and waits for it."""
        dist.all_reduce(torch.ones(1))
        self.synchronize()


def load_batch() -> None:
    """A file system that never answers."""
    time.sleep(3600)


def train(steps: Steps, fault: str) -> None:
    """All steps, with what goes wrong in one of them."""
    for step in range(STEPS):
        broken = fault if step == BROKEN_STEP else ""
        if broken == "host_stuck" and steps.rank == 2:
            load_batch()
        steps.forward()
        if broken == "healthy" and steps.rank < 2:
            steps.look()
        steps.exchange(sends=broken != "lost_send" or steps.rank != 1)
        steps.backward()
        if broken == "healthy" and steps.rank >= 2:
            steps.look()
        steps.log_loss()
        steps.beat += 1
