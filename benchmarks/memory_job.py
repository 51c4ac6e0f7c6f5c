"""One rank of a short training job on gloo whose memory is sampled: `benchmarks.healthy_memory` starts two of them.

Each variant uses memory in another way, and all but `leak` are healthy.
"""

from __future__ import annotations

import math
import os
import random
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn import functional
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, Dataset

import rankscope.capture
from benchmarks.child_processes import run_program
from benchmarks.healthy_memory import LEAKED_MIB, RANKS
from benchmarks.results import program_parser
from rankscope.capture import memory_record

LAYERS, BATCH = 4, 64
MIB_ELEMENTS = 1 << 18
"""Elements of a tensor of one MiB."""
KEYS = 120
"""Different entries of the cache: it has nearly all of them after a third of the steps."""


class Block(nn.Module):  # type: ignore[misc]
    """Two linear layers around a rest."""

    def __init__(self, width: int, checkpointed: bool) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.checkpointed = checkpointed

    def forward(self, batch: Tensor) -> Tensor:
        """The batch with what the layers add; shape [rows, width]."""
        if self.checkpointed:
            kept: Tensor = checkpoint(self._added, batch, use_reentrant=False)
            return kept
        return self._added(batch)

    def _added(self, batch: Tensor) -> Tensor:
        added: Tensor = self.down(functional.gelu(self.up(batch)))
        return batch + added


class Training(NamedTuple):
    """A wrapped model, and how it makes a step from a batch."""

    model: nn.Module
    optimizer: torch.optim.Optimizer
    step: Callable[[Tensor], object]


class RandomRows(Dataset[Tensor]):  # type: ignore[misc]
    """Rows for workers of a data loader."""

    def __init__(self, rows: int, width: int) -> None:
        self.rows, self.width = rows, width

    def __len__(self) -> int:
        return self.rows

    def __getitem__(self, at: int) -> Tensor:
        return torch.full((self.width,), at % 7 / 7.0)


def layers(width: int, checkpointed: bool) -> nn.Sequential:
    """The model of one rank before any wrapper."""
    torch.manual_seed(7)
    return nn.Sequential(*(Block(width, checkpointed) for _ in range(LAYERS)))


def wrapped(variant: str, rank: int, width: int) -> nn.Module:
    """The model as the variant shares it."""
    model = layers(width, variant == "checkpointing")
    mesh = init_device_mesh("cpu", (RANKS,), mesh_dim_names=("dp",))
    if variant == "fsdp2":
        for block in model:
            fully_shard(block, mesh=mesh)
        fully_shard(model, mesh=mesh)
        return model
    if variant == "fsdp1":
        return FullyShardedDataParallel(model, device_id=torch.device("cpu"), use_orig_params=True)
    if variant == "tp":
        plan = {f"{at}.up": ColwiseParallel() for at in range(LAYERS)}
        mixed: Any = plan | {f"{at}.down": RowwiseParallel() for at in range(LAYERS)}
        return parallelize_module(model, mesh, mixed)
    if variant == "pp":
        half = LAYERS // RANKS
        return nn.Sequential(*list(model)[rank * half : (rank + 1) * half])
    return nn.parallel.DistributedDataParallel(model)


def training(variant: str, rank: int, width: int) -> Training:
    """The training of a variant."""
    model = wrapped(variant, rank, width)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    if variant == "pp":
        schedule = ScheduleGPipe(PipelineStage(model, rank, RANKS, torch.device("cpu")), 4, loss_fn=_loss)
        return Training(model, optimizer, lambda batch: _staged(schedule, batch, rank))
    return Training(model, optimizer, lambda batch: _loss(model(batch), batch).backward())


def _loss(output: Tensor, target: Tensor) -> Tensor:
    return functional.mse_loss(output, target)


def _staged(schedule: ScheduleGPipe, batch: Tensor, rank: int) -> None:
    if rank == 0:
        schedule.step(batch)
    else:
        schedule.step(target=batch)


def batches(variant: str, steps: int, width: int) -> Iterator[Tensor]:
    """A batch for each step, [rows, width]."""
    if variant == "loader-workers":
        yield from DataLoader(RandomRows(steps * BATCH, width), BATCH, num_workers=2)
        return
    for step in range(steps):
        rows = BATCH // 4 if variant == "uneven-last-batch" and step % 20 == 19 else BATCH
        yield torch.rand(rows, width)


def train(variant: str, steps: int, rank: int, width: int) -> None:
    """All steps of one rank."""
    parts = training(variant, rank, width)
    kept: dict[int, Tensor] = {}
    chance = random.Random(rank)
    every = 4 if variant == "accumulation" else 1
    for step, batch in enumerate(batches(variant, steps, width)):
        parts.step(batch)
        if step % every == every - 1:
            parts.optimizer.step()
            if step < 3 * every:
                rankscope.capture.describe(parts.model, parts.optimizer)
            parts.optimizer.zero_grad()
        _hold(variant, rank, step, chance, kept)
        if variant == "evaluation" and step % 50 == 49:
            with torch.no_grad():
                parts.model(torch.rand(16 * BATCH, width))


def _hold(variant: str, rank: int, step: int, chance: random.Random, kept: dict[int, Tensor]) -> None:
    """What a variant keeps beyond a step: a cache on rank 0, or a leak on rank 1."""
    key = chance.randrange(KEYS) if variant == "cache" and rank == 0 else step
    if (variant == "cache" and rank == 0) or (variant == "leak" and rank == 1):
        kept.setdefault(key, torch.full((MIB_ELEMENTS * (LEAKED_MIB if variant == "leak" else 1),), 1.0))


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs a rank with the capture in it."""
    parser = program_parser(__spec__.name, f"{__doc__}\nRANK, WORLD_SIZE and STORE, a file, tell of the job.")
    parser.add_argument("variant")
    parser.add_argument("dumps")
    parser.add_argument("steps", type=int)
    sampled_help = "rarely, as in any job, or at each step, so that no speed of a machine counts"
    parser.add_argument("sampled", choices=("rarely", "always"), help=sampled_help)
    parser.add_argument("width", type=int, help="elements of a row of a batch")
    given = parser.parse_args(arguments)
    torch.set_num_threads(1)
    rank = int(os.environ["RANK"])
    if given.sampled == "always":
        memory_record.MOST_COST = math.inf
    rankscope.capture.start(given.dumps, memory=1e-9 if given.sampled == "always" else 0.02)
    store = f"file://{os.environ['STORE']}"
    dist.init_process_group("gloo", init_method=store, rank=rank, world_size=RANKS, timeout=timedelta(seconds=120))
    train(given.variant, given.steps, rank, given.width)
    dist.barrier()
    rankscope.capture.stop()
    dist.destroy_process_group()


if __name__ == "__main__":
    run_program(main)
