"""A small trainer that knows nothing of rankscope: `benchmarks.one_cause_pairs` runs copies of it, a rank each.

A transformer of 50,000 parameters learns random words on gloo, with DDP. Options are printed in one line, and each step
with six digits. OTHER marks the line that a pair with a hidden change of code replaces.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

try:
    # a package of the pair's own folder, whose versions differ
    from small_kernels import activation  # type: ignore[import-not-found]
except ImportError:
    activation = nn.functional.gelu

WORDS, LENGTH, TEXTS = 64, 32, 256
LOSS_SCALE = 1.0  # OTHER


def options(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The options of a run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--data-seed", type=int, default=1)
    parser.add_argument("--dropout", type=float, default=0.0)
    parser.add_argument("--precision", default="fp32")
    parser.add_argument("--beta2", type=float, default=0.999)
    parser.add_argument("--grad-accum", type=int, default=1)
    parser.add_argument("--init-std", type=float, default=0.02)
    parser.add_argument("--bucket-cap-mb", type=float, default=25.0)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--steps", type=int, default=24)
    parser.add_argument("--output-dir", default="out")
    return parser.parse_args(arguments)


class Block(nn.Module):  # type: ignore[misc]
    """One layer."""

    def __init__(self, width: int, dropout: float) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(width, 2, dropout=dropout, batch_first=True)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        """x: (batch, LENGTH, width)."""
        mask = torch.triu(torch.ones(LENGTH, LENGTH, dtype=torch.bool), 1)
        y = self.first(x)
        x = x + self.dropout(self.attention(y, y, y, attn_mask=mask, need_weights=False)[0])
        return x + self.dropout(self.down(activation(self.up(self.second(x)))))


class Model(nn.Module):  # type: ignore[misc]
    """Embedding, two layers, head."""

    def __init__(self, dropout: float, std: float, width: int = 48) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, width), nn.Embedding(LENGTH, width)
        self.blocks = nn.ModuleList(Block(width, dropout) for _ in range(2))
        self.head = nn.Linear(width, WORDS)
        for one in (self.words, self.places, self.head):
            nn.init.normal_(one.weight, std=std)

    def forward(self, words: Tensor) -> Tensor:
        """words: (batch, LENGTH); the scores of the next words."""
        x = self.words(words) + self.places(torch.arange(LENGTH))
        for block in self.blocks:
            x = block(x)
        scores: Tensor = self.head(x)
        return scores


def batches(asked: argparse.Namespace) -> Iterator[Tensor]:
    """The global batch of each step."""
    texts = torch.randint(0, WORDS, (TEXTS, LENGTH + 1), generator=torch.Generator().manual_seed(7))
    generator = torch.Generator().manual_seed(asked.data_seed)
    while True:
        order = torch.randperm(TEXTS, generator=generator)
        for begin in range(0, TEXTS, asked.batch_size):
            yield texts[order[begin : begin + asked.batch_size]]


def step(model: nn.Module, batch: Tensor, asked: argparse.Namespace) -> Tensor:
    """The loss of this rank's part of the batch, whose gradients are accumulated."""
    total = torch.zeros(())
    for part in batch[dist.get_rank() :: dist.get_world_size()].chunk(asked.grad_accum):
        with torch.autocast("cpu", torch.bfloat16, enabled=asked.precision == "bf16"):
            scores = model(part[:, :-1])
            loss = nn.functional.cross_entropy(scores.flatten(0, 1).float(), part[:, 1:].flatten())
        loss = LOSS_SCALE * loss / asked.grad_accum
        loss.backward()
        total += loss.detach()
    return total


def main(arguments: Sequence[str] | None = None) -> None:
    """Trains."""
    asked = options(arguments)
    torch.manual_seed(asked.seed)
    dist.init_process_group("gloo")
    model = Model(asked.dropout, asked.init_std)
    parallel = DistributedDataParallel(model, bucket_cap_mb=asked.bucket_cap_mb)
    optimizer = torch.optim.AdamW(parallel.parameters(), lr=asked.lr, betas=(0.9, asked.beta2))
    is_first = dist.get_rank() == 0
    if is_first:
        print(asked, flush=True)
    source = batches(asked)
    for number in range(1, asked.steps + 1):
        total = step(parallel, next(source), asked)
        norm = nn.utils.clip_grad_norm_(parallel.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        dist.all_reduce(total)
        if is_first:
            mean, rate = float(total) / dist.get_world_size(), optimizer.param_groups[0]["lr"]
            print(f"step: {number} | loss: {mean:.6f} | grad_norm: {float(norm):.6f} | lr: {rate:.6e}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
