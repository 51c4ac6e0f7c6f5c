"""A small real trainer on gloo, whose runs `benchmarks.real_pairs` compares: one rank of a job.

A transformer of 30,000 parameters learns a Markov chain. It sleeps where a trainer waits for its device, so that other
work on the machine moves its times less. Options are printed as trainers print theirs; a planted fault that no trainer
would print stands in the variable PAIR_FAULT, as JSON: `loader_s` (each batch comes late), `slow_rank` and `slow_s`
(its device is slow), `noise_step` (from there on one operation does not repeat in its last bit), `lost_optimizer`.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import os
import time
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

from benchmarks.child_processes import run_program
from benchmarks.pair_writers import Row, RunWriter
from benchmarks.results import program_parser

WORDS, LENGTH, WIDTH, SEQUENCES = 48, 24, 32, 512
SAVED_STEP = 24
"""The step behind which a run saves its state, where it is asked to."""


class Fault(NamedTuple):
    """What is planted, and not printed."""

    loader_s: float = 0.0
    slow_rank: int = -1
    slow_s: float = 0.0
    noise_step: int = 0
    lost_optimizer: bool = False


def options(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The options of a run."""
    parser = program_parser(__spec__.name, __doc__)
    parser.add_argument("--writer", default="megatron")
    parser.add_argument("--parallel", default="ddp", choices=["ddp", "fsdp", "manual"])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--data-seed", type=int, default=1)
    parser.add_argument("--learning-rate", type=float, default=2e-3)
    parser.add_argument("--dropout", type=float, default=0.0)
    parser.add_argument("--global-batch-size", type=int, default=16)
    parser.add_argument("--gradient-accumulation-steps", type=int, default=1)
    parser.add_argument("--ddp-bucket-mb", type=float, default=0.05)
    parser.add_argument("--train-iters", type=int, default=72)
    parser.add_argument("--step-s", type=float, default=0.03)
    parser.add_argument("--print-options", type=int, default=1)
    parser.add_argument("--batch-hash", type=int, default=0)
    parser.add_argument("--load", default="")
    parser.add_argument("--save", default="")
    parser.add_argument("--output-dir", required=True)
    return parser.parse_args(arguments)


class Block(nn.Module):  # type: ignore[misc]
    """One layer of a transformer; `noisy` moves one activation by its last bit, another in each run."""

    def __init__(self, dropout: float) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(WIDTH, 2, dropout=dropout, batch_first=True)
        self.grown, self.shrunk = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)
        self.first, self.second = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.dropout = nn.Dropout(dropout)
        self.noisy = False

    def forward(self, x: Tensor) -> Tensor:
        """x: (batch, LENGTH, WIDTH)."""
        mask = torch.triu(torch.ones(LENGTH, LENGTH, dtype=torch.bool), 1)
        y = self.first(x)
        x = x + self.dropout(self.attention(y, y, y, attn_mask=mask, need_weights=False)[0])
        inner = torch.relu(self.grown(self.second(x)))
        if self.noisy:
            signs = torch.frombuffer(bytearray(os.urandom(inner.numel())), dtype=torch.uint8).view(inner.shape) % 3
            inner = inner * (1 + (signs.float() - 1) * 2.0**-23)
        return x + self.dropout(self.shrunk(inner))


class Model(nn.Module):  # type: ignore[misc]
    """Embedding, two layers, head."""

    def __init__(self, dropout: float) -> None:
        super().__init__()
        self.embedding, self.places = nn.Embedding(WORDS, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.blocks = nn.ModuleList(Block(dropout) for _ in range(2))
        self.head = nn.Linear(WIDTH, WORDS)

    def forward(self, words: Tensor) -> Tensor:
        """words: (batch, LENGTH); the scores of the next words."""
        x = self.embedding(words) + self.places(torch.arange(LENGTH))
        for block in self.blocks:
            x = block(x)
        scores: Tensor = self.head(x)
        return scores


def corpus() -> Tensor:
    """(SEQUENCES, LENGTH + 1) words of a Markov chain, the same for all runs."""
    generator = torch.Generator().manual_seed(7)
    chances = torch.softmax(3 * torch.randn(WORDS, WORDS, generator=generator), 1)
    words = [torch.randint(0, WORDS, (SEQUENCES,), generator=generator)]
    for _ in range(LENGTH):
        words.append(torch.multinomial(chances[words[-1]], 1, generator=generator).squeeze(1))
    return torch.stack(words, 1)


def batches(asked: argparse.Namespace) -> Iterator[Tensor]:
    """The global batch of each step, from the first one on."""
    texts, generator = corpus(), torch.Generator().manual_seed(asked.data_seed)
    while True:
        order = torch.randperm(SEQUENCES, generator=generator)
        for begin in range(0, SEQUENCES - asked.global_batch_size + 1, asked.global_batch_size):
            yield texts[order[begin : begin + asked.global_batch_size]]


class Trainer:
    """A rank of the job."""

    def __init__(self, asked: argparse.Namespace, fault: Fault) -> None:
        self.asked, self.fault = asked, fault
        self.rank, self.ranks = dist.get_rank(), dist.get_world_size()
        torch.manual_seed(asked.seed)
        self.plain = Model(asked.dropout)
        self.model = self._parallel(self.plain)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=asked.learning_rate, weight_decay=0.01)
        self.done = 0
        if asked.load:
            self._load(Path(asked.load))

    def _parallel(self, model: Model) -> nn.Module:
        if self.asked.parallel == "ddp":
            return DistributedDataParallel(model, bucket_cap_mb=self.asked.ddp_bucket_mb)
        if self.asked.parallel == "fsdp":
            mesh = dist.init_device_mesh("cpu", (self.ranks,))
            for block in model.blocks:
                fully_shard(block, mesh=mesh)
            fully_shard(model, mesh=mesh)
        return model

    def _load(self, folder: Path) -> None:
        state = torch.load(folder / f"rank_{self.rank}.pt", weights_only=False)
        self.plain.load_state_dict(state["model"])
        torch.set_rng_state(state["random"])
        self.done = state["step"]
        if not self.fault.lost_optimizer:
            self.optimizer.load_state_dict(state["optimizer"])

    def _save(self) -> None:
        folder = Path(self.asked.save)
        folder.mkdir(parents=True, exist_ok=True)
        state = {
            "model": self.plain.state_dict(), "optimizer": self.optimizer.state_dict(),
            "random": torch.get_rng_state(), "step": self.done,
        }  # fmt: skip
        torch.save(state, folder / f"rank_{self.rank}.pt")

    def train(self, writer: RunWriter | None) -> None:
        """All steps; the writer gets what each of them tells."""
        source: Iterator[Tensor] = itertools.islice(batches(self.asked), self.done, None)
        if self.fault.loader_s:
            source = _late(source, self.fault.loader_s)
        while self.done < self.asked.train_iters:
            begin = time.perf_counter()
            batch = next(source)
            data_s = time.perf_counter() - begin
            loss, norm = self._step(batch)
            self.done += 1
            with torch.no_grad():
                size = math.sqrt(sum(float(one.double().square().sum()) for one in self._whole_parameters()))
            row = Row(
                self.done, loss, norm, self.optimizer.param_groups[0]["lr"], time.perf_counter() - begin, data_s, size,
                zlib.crc32(batch.numpy().tobytes()) if self.asked.batch_hash else None,
            )  # fmt: skip
            if writer is not None:
                writer.add(row)
            if self.asked.save and self.done == SAVED_STEP:
                self._save()

    def _whole_parameters(self) -> Iterator[Tensor]:
        for one in self.plain.parameters():
            yield one.to_local() if hasattr(one, "to_local") else one

    def _step(self, batch: Tensor) -> tuple[float, float]:
        """Loss over all ranks, and the norm of the averaged gradients."""
        warm = min(1.0, (self.done + 1) / 10)
        for group in self.optimizer.param_groups:
            group["lr"] = self.asked.learning_rate * warm
        noisy = 0 < self.fault.noise_step <= self.done + 1 and self.rank == 0
        for block in self.plain.blocks:
            block.noisy = noisy and block is self.plain.blocks[0]
        own, parts = batch[self.rank :: self.ranks], self.asked.gradient_accumulation_steps
        total = torch.zeros(())
        for part in own.chunk(parts):
            loss = nn.functional.cross_entropy(self.model(part[:, :-1]).flatten(0, 1), part[:, 1:].flatten()) / parts
            self._wait_for_device()
            loss.backward()
            total += loss.detach()
        if self.asked.parallel == "manual":
            self._reduce()
        norm: Any = nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        norm = norm.full_tensor() if hasattr(norm, "full_tensor") else norm
        self.optimizer.step()
        self.optimizer.zero_grad()
        dist.all_reduce(total)
        return float(total / self.ranks), float(norm)

    def _wait_for_device(self) -> None:
        """The time of the device for one part of the batch."""
        slow = self.fault.slow_s if self.rank == self.fault.slow_rank else 0.0
        time.sleep((self.asked.step_s + slow) / self.asked.gradient_accumulation_steps)

    def _reduce(self) -> None:
        """Gradients in buckets of --ddp-bucket-mb, each one sum over all ranks."""
        bucket, size = list[Tensor](), 0
        parameters = [one for one in reversed(list(self.plain.parameters())) if one.grad is not None]
        for number, one in enumerate(parameters, 1):
            assert one.grad is not None
            bucket.append(one.grad)
            size += one.numel() * 4
            if size >= self.asked.ddp_bucket_mb * (1 << 20) or number == len(parameters):
                flat = torch.cat([grad.flatten() for grad in bucket])
                dist.all_reduce(flat)
                flat /= self.ranks
                for grad, part in zip(bucket, flat.split([grad.numel() for grad in bucket]), strict=True):
                    grad.copy_(part.view_as(grad))
                bucket, size = [], 0


def _late(source: Iterator[Tensor], seconds: float) -> Iterator[Tensor]:
    for batch in source:
        time.sleep(seconds)
        yield batch


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs one rank, which RANK, WORLD_SIZE and the master's address tell."""
    asked = options(arguments)
    fault = Fault(**json.loads(os.environ.get("PAIR_FAULT", "{}")))
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    dist.init_process_group("gloo")
    trainer = Trainer(asked, fault)
    printer = dist.get_world_size() - 1 if asked.writer == "megatron" else 0
    if dist.get_rank() == printer:
        with RunWriter(asked, Path(asked.output_dir), trainer.done) as writer:
            trainer.train(writer)
    else:
        trainer.train(None)
    dist.destroy_process_group()


if __name__ == "__main__":
    run_program(main)
