"""A small trainer of four gloo ranks that goes wrong in one of eight ways: `torchrun ... gloo_job.py KIND`.

It needs torch alone, of any version, so that `benchmarks.gloo_jobs` can start it with other interpreters. Each kind is
a function, whose docstring says what goes wrong.
"""

from __future__ import annotations

import argparse
import datetime
import logging
import os
import signal
import tempfile
import time
from collections.abc import Callable, Sequence

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

WIDTH, STEPS, PAUSE_S, FOREVER_S = 32, 60, 0.02, 1e6
log = logging.getLogger("train")


class Block(nn.Module):  # type: ignore[misc]
    """Two layers beside a residual connection."""

    def __init__(self, width: int = WIDTH) -> None:
        super().__init__()
        self.up = nn.Linear(width, 4 * width, bias=False)
        self.down = nn.Linear(4 * width, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """The block's output, of the shape of its input."""
        output: Tensor = x + self.down(torch.relu(self.up(x)))
        return output


def fsdp2_tp(rank: int) -> None:
    """FSDP2 by tensor parallel, where rank 3 leaves out the backward pass of one batch."""
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    model = nn.Sequential(*[Block() for _ in range(3)])
    for block in model:
        parallelize_module(block, mesh["tp"], {"up": ColwiseParallel(), "down": RowwiseParallel()})
        fully_shard(block, mesh=mesh["dp"])
    fully_shard(model, mesh=mesh["dp"])
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    for step in range(STEPS):
        loss = model(torch.randn(8, WIDTH)).pow(2).mean()
        if rank == 3 and step == 21:
            log.info("rank %d step %d skips a bad batch", rank, step)
            continue
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        time.sleep(PAUSE_S)


def pipeline_1f1b(rank: int) -> None:
    """A pipeline of four stages, whose rank 2 stands still in its own code."""
    module, last = Block(), dist.get_world_size() - 1
    stage = PipelineStage(module, rank, last + 1, torch.device("cpu"))
    schedule = Schedule1F1B(stage, 8, loss_fn=lambda output, target: (output - target).pow(2).mean())
    optimizer = torch.optim.SGD(module.parameters(), 1e-2)
    step = 0

    def read_more(*_: object) -> None:
        if rank == 2 and step == 12:
            time.sleep(FOREVER_S)

    module.register_forward_pre_hook(read_more)
    for step in range(STEPS):
        optimizer.zero_grad()
        inputs = [torch.randn(16, WIDTH)] if rank == 0 else []
        schedule.step(*inputs, **({"target": torch.zeros(16, WIDTH)} if rank == last else {}))
        optimizer.step()
        if rank == last and step % 10 == 0:
            log.info("step %d", step)


def uneven_all_to_all(rank: int) -> None:
    """Tokens of experts, of which rank 1 once sends rank 2 three more than it said before."""
    for step in range(STEPS):
        counts = torch.randint(1, 9, (dist.get_world_size(),))
        received = torch.empty_like(counts)
        dist.all_to_all_single(received, counts)
        if rank == 1 and step == 17:
            counts[2] += 3
        tokens, output = torch.randn(int(counts.sum()), 16), torch.empty(int(received.sum()), 16)
        dist.all_to_all_single(output, tokens, received.tolist(), counts.tolist())
        dist.all_reduce(torch.ones(64))
        time.sleep(PAUSE_S)


class DataParallel:
    """A model under DistributedDataParallel and its optimizer."""

    def __init__(self) -> None:
        self.model = nn.parallel.DistributedDataParallel(
            nn.Sequential(*[Block(64) for _ in range(3)]), bucket_cap_mb=0.05
        )
        self.optimizer = torch.optim.AdamW(self.model.parameters(), 1e-3)

    def step(self) -> Tensor:
        """One step; returns the loss."""
        loss: Tensor = self.model(torch.randn(8, 64)).pow(2).mean()
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        time.sleep(PAUSE_S)
        return loss.detach()


def checkpoint_barrier(rank: int) -> None:
    """A barrier inside of the checkpoint that only rank 0 writes."""
    job = DataParallel()

    def save(step: int) -> None:
        with tempfile.NamedTemporaryFile() as file:
            torch.save(job.model.module.state_dict(), file.name)
        log.info("saved step %d", step)
        dist.barrier()

    for step in range(STEPS):
        job.step()
        if step == 20 and rank == 0:
            save(step)


def short_loader(rank: int) -> None:
    """Rank 3 has three batches fewer in an epoch."""
    job = DataParallel()
    for epoch in range(2):
        total = torch.zeros(1)
        for _ in range(41 if rank == 3 else 44):
            total += job.step()
        dist.all_reduce(total)
        if rank == 0:
            log.info("epoch %d loss %.3f", epoch, total.item())


def sigkill(rank: int) -> None:
    """The kernel kills rank 2."""
    job = DataParallel()
    for step in range(STEPS):
        if rank == 2 and step == 30:
            os.kill(os.getpid(), signal.SIGKILL)
        job.step()


def retry(rank: int) -> None:
    """Rank 1 catches an error behind its forward pass under FSDP2, and does the step once more."""
    model = nn.Sequential(Block(), nn.Linear(WIDTH, WIDTH), Block())
    for block in model:
        fully_shard(block)
    fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)

    def forward(step: int, attempt: int) -> Tensor:
        output: Tensor = model(torch.randn(8, WIDTH))
        if rank == 1 and step == 19 and attempt == 0:
            raise MemoryError("no room for the loss")
        return output.pow(2).mean()

    for step in range(STEPS):
        for attempt in range(2):
            try:
                loss = forward(step, attempt)
                break
            except MemoryError as error:
                log.warning("rank %d step %d: %s; once more", rank, step, error)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        time.sleep(PAUSE_S)


def elastic_restart(rank: int) -> None:
    """Rank 1 raises in the first attempt; gloo gets no connection in the second."""
    job = DataParallel()
    for step in range(STEPS):
        if rank == 1 and step == 25 and os.environ.get("TORCHELASTIC_RESTART_COUNT") == "0":
            raise ValueError("a label of -100 where 0 to 9 are known")
        job.step()


KINDS: dict[str, Callable[[int], None]] = {
    job.__name__: job
    for job in (
        fsdp2_tp, pipeline_1f1b, uneven_all_to_all, checkpoint_barrier, short_loader, sigkill, retry, elastic_restart
    )
}  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs one rank, as torchrun starts it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("--timeout", type=float, default=20, help="seconds after which a collective gives up")
    given = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=given.timeout))
    KINDS[given.kind](dist.get_rank())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
