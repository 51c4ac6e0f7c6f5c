"""Job of four ranks that train, two by two in tensor and data parallel groups, until one makes a fault.

Every function here appears in the shown stacks, so names are those of a training script.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import torch
import torch.distributed as dist

from .. import numbers

STEP_S = 0.25
"""Computing time of a step: slow enough to watch."""
FAST_STEP_S = 0.1
"""That of a step whose numbers are wrong: a loss takes more steps than a hang to be seen."""
STEPS = 1_000_000
STEPS_AFTER = 20
"""Steps from the wrong one on of which each is recorded; later one in so many is, so that the files stay small."""
FEATURES, CLASSES, BATCH = 32, 8, 16


@dataclass
class Trainer:
    """One rank of the job."""

    rank: int
    world_size: int
    broken_step: int
    """The step in which the fault happens."""
    dumps: Path
    """The directory for what it records itself."""
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

    def train(self, train_step: Callable[[int], bool], step_s: float = STEP_S) -> None:
        """Runs steps until one returns False."""
        for step in range(STEPS):
            load_batch(step_s)
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


def wrong_gradient(trainer: Trainer) -> None:
    """Rank 2 changes a gradient before it has waited for its sum: its weights part from those of the others."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(FEATURES, 64), torch.nn.ReLU(), torch.nn.Linear(64, CLASSES))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    samples = torch.Generator().manual_seed(trainer.rank)
    every_step = range(trainer.broken_step + STEPS_AFTER)
    numbers.start(model, optimizer, every=STEPS_AFTER, steps=every_step, dumps=trainer.dumps, level="collectives")

    def train_step(step: int) -> bool:
        inputs = torch.randn(BATCH, FEATURES, generator=samples)
        numbers.batch(inputs)
        loss = torch.nn.functional.cross_entropy(model(inputs), inputs[:, :CLASSES].argmax(1))
        numbers.loss(loss)
        loss.backward()
        average_gradients(model, too_early="2.weight" if step >= trainer.broken_step and trainer.rank == 2 else "")
        optimizer.step()
        optimizer.zero_grad()
        return True

    trainer.train(train_step, FAST_STEP_S)


def average_gradients(model: torch.nn.Module, too_early: str) -> None:
    """Sums all gradients at once, and divides each by the number of ranks; the named one before its wait, too."""
    world_size = dist.get_world_size()
    works = {}
    for name, parameter in model.named_parameters():
        works[name] = dist.all_reduce(parameter.grad, async_op=True)
    for name, parameter in model.named_parameters():
        if name == too_early:
            while not works[name].is_completed():
                time.sleep(0.001)
            parameter.grad.div_(world_size)
        works[name].wait()
        parameter.grad.div_(world_size)


SCENARIOS: dict[str, Callable[[Trainer], None]] = {
    "skip": skip,
    "mismatch": mismatch,
    "straggler": straggler,
    "order-deadlock": order,
    "slow": slow,
    "wrong-gradient": wrong_gradient,
}
