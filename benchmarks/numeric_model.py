"""A small transformer in one of several parallel layouts, with places where a fault can be planted.

The same seed gives the same weights and dropout in every layout. Activations are sequence first, [LENGTH, batch,
WIDTH], so that parts of a sequence are rows.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from benchmarks.numeric_groups import Enter, Leave, Mesh, Planted, gather, scatter, whole_of

VOCABULARY, WIDTH, HEADS, LAYERS, LENGTH, BATCH = 64, 32, 4, 2, 16, 8
DROP = 0.1


def weight(name: str, shape: Sequence[int], seed: int, scale: float, part: tuple[int, int, int] | None) -> nn.Parameter:
    """The same random numbers in every layout; `part` is dimension, place and number of parts."""
    source = torch.Generator().manual_seed(seed * 7919 + sum(map(ord, name)) * 31 + len(name))
    whole = torch.randn(*shape, generator=source) * scale
    if part is not None:
        dim, place, parts = part
        whole = whole.chunk(parts, dim)[place].contiguous()
    return nn.Parameter(whole)


class Linear(nn.Module):  # type: ignore[misc]
    """A linear layer whose columns (`split` 0) or rows (1) are spread over the tensor group."""

    def __init__(self, name: str, width: int, height: int, at: Mesh, seed: int, split: int) -> None:
        super().__init__()
        part = (split, at.tensor_rank, at.layout.tensor) if at.layout.tensor > 1 else None
        self.weight = weight(f"{name}.weight", (height, width), seed, width**-0.5, part)
        self.bias = weight(f"{name}.bias", (height,), seed, 0.1, part if split == 0 else None)
        if part is not None:
            for own in (self.weight, self.bias)[: 2 - split]:
                own.tensor_model_parallel, own.partition_dim = True, split
        self.adds_bias = split == 0

    def forward(self, x: Tensor) -> Tensor:
        """Rows are added up before their bias is."""
        return functional.linear(x, self.weight, self.bias if self.adds_bias else None)


class Branch(nn.Module):  # type: ignore[misc]
    """Attention or a multi-layer perceptron, over the tensor group."""

    def __init__(self, name: str, at: Mesh, planted: Planted, seed: int) -> None:
        super().__init__()
        self.name, self.at, self.planted = name, at, planted
        self.is_attention = name.endswith("attention")
        wide = 3 * WIDTH if self.is_attention else 4 * WIDTH
        self.norm = nn.LayerNorm(WIDTH)
        self.first = Linear(f"{name}.first", WIDTH, wide, at, seed, 0)
        self.second = Linear(f"{name}.second", WIDTH if self.is_attention else wide, WIDTH, at, seed, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Shape [sequence, batch, WIDTH], also of the result."""
        at, planted, second = self.at, self.planted, self.second
        x = self.norm(x)
        x = gather(x, at) if at.layout.sequence else Enter.apply(x, at, planted, self.name)
        x = self.first(x)
        x = self._attend(x) if self.is_attention else functional.gelu(x)
        if self.name == "blocks.0.attention" and planted.here("kernel-noise"):
            # no seed of the job decides what a kernel does
            noise = torch.Generator().manual_seed(time.time_ns())
            x = x + x.abs() * torch.finfo(x.dtype).eps * (torch.rand(x.shape, generator=noise) < 0.05)
        if self.name == "blocks.0.attention" and planted.here("cast"):
            x = x.to(torch.float8_e4m3fn if x.dtype == torch.bfloat16 else torch.bfloat16).to(x.dtype)
        x = second(x)
        doubled = self.name == "blocks.1.mlp" and planted.everywhere("bias-on-every-rank")
        if doubled:
            x = x + second.bias
        x = scatter(x, at) if at.layout.sequence else Leave.apply(x, at, planted, self.name)
        return x if doubled else x + second.bias

    def _attend(self, x: Tensor) -> Tensor:
        length, batch, _ = x.shape
        heads = HEADS // self.at.layout.tensor
        parts = x.reshape(length, batch, heads, 3, -1).unbind(3)
        q, k, v = (one.reshape(length, batch, heads, -1).permute(1, 2, 0, 3) for one in parts)
        first = self.name == "blocks.0.attention"
        if first and self.planted.everywhere("attention-scale"):
            q = q * 1.05
        causal = not (first and self.planted.everywhere("causal-mask"))
        out = functional.scaled_dot_product_attention(q, k, v, is_causal=causal)
        return out.permute(2, 0, 1, 3).reshape(length, batch, -1)


class Block(nn.Module):  # type: ignore[misc]
    """Attention and perceptron on the residual stream, each with dropout."""

    def __init__(self, number: int, at: Mesh, planted: Planted, seed: int) -> None:
        super().__init__()
        self.number, self.at, self.planted, self.seed = number, at, planted, seed
        self.attention = Branch(f"blocks.{number}.attention", at, planted, seed)
        self.mlp = Branch(f"blocks.{number}.mlp", at, planted, seed)

    def forward(self, x: Tensor) -> Tensor:
        """Shape [sequence, batch, WIDTH], also of the result."""
        x = x + self._dropped(self.attention(x), 0)
        return x + self._dropped(self.mlp(x), 1)

    def _dropped(self, x: Tensor, place: int) -> Tensor:
        """The mask is drawn for the whole batch, and every rank takes its part."""
        at = self.at
        key = (self.seed * 1000 + self.planted.step) * 100 + self.number * 2 + place
        key += 50 * (self.number == 0 and self.planted.here("dropout-seed"))
        again = torch._C._current_graph_task_id() != -1  # in the backward pass
        key += 31 * (again and self.planted.here("recompute"))
        mask = torch.rand(LENGTH, BATCH, WIDTH, generator=torch.Generator().manual_seed(key)) >= DROP
        mask = mask.chunk(at.layout.data, 1)[at.data_rank]
        if at.layout.sequence:
            mask = mask.chunk(at.layout.tensor, 0)[at.tensor_rank]
        return x * mask / (1 - DROP)


class Embedding(nn.Module):  # type: ignore[misc]
    """Rows of the vocabulary, spread over the tensor group."""

    def __init__(self, at: Mesh, planted: Planted, seed: int) -> None:
        super().__init__()
        self.at, self.planted, parts = at, planted, at.layout.tensor
        self.size = VOCABULARY // parts
        self.weight = table(seed, (0, at.tensor_rank, parts) if parts > 1 else None)

    def forward(self, tokens: Tensor) -> Tensor:
        """Tokens [batch, LENGTH] to activations; of a part of the sequence where the layout has parts."""
        at = self.at
        if at.layout.tensor == 1:
            return functional.embedding(tokens, self.weight).transpose(0, 1)
        own = tokens - at.tensor_rank * self.size
        x = functional.embedding(own.clamp(0, self.size - 1), self.weight)
        if not self.planted.here("embedding-mask"):
            x = x * ((own >= 0) & (own < self.size))[..., None]
        x = x.transpose(0, 1)
        return scatter(x, at) if at.layout.sequence else Leave.apply(x, at, self.planted, "embedding")


def table(seed: int, part: tuple[int, int, int] | None = None) -> nn.Parameter:
    """The weights of the embedding, and of a head that is tied to it."""
    return weight("embedding", (VOCABULARY, WIDTH), seed, WIDTH**-0.5, part)


class Model(nn.Module):  # type: ignore[misc]
    """All stages, or one of them."""

    def __init__(self, at: Mesh, planted: Planted, seed: int) -> None:
        super().__init__()
        self.at, self.planted, stages = at, planted, at.layout.pipeline
        own = range(LAYERS)[at.stage * LAYERS // stages : (at.stage + 1) * LAYERS // stages]
        first, last = at.stage == 0, at.stage == stages - 1
        self.embedding = Embedding(at, planted, seed) if first else None
        self.blocks = nn.ModuleDict({str(n): Block(n, at, planted, seed) for n in own})
        self.norm = nn.LayerNorm(WIDTH) if last else None
        whole = table(seed) if at.layout.tied else weight("head", (VOCABULARY, WIDTH), seed, WIDTH**-0.5, None)
        self.head = whole if last else None

    def forward(self, x: Tensor) -> Tensor:
        """Tokens [batch, LENGTH] or activations to activations, or to logits [LENGTH, batch, VOCABULARY]."""
        at = self.at
        if self.embedding is not None:
            x = self.embedding(x)
        for name, block in self.blocks.items():
            again = at.layout.recomputes and int(name) == LAYERS - 1
            x = checkpoint(block, x, use_reentrant=False) if again else block(x)
            if at.stage > 0 and self.planted.everywhere("layer-twice"):
                x = block(x)
        if self.norm is not None and self.head is not None:
            x = self.norm(x)
            x = whole_of(x, at) if at.layout.sequence else x
            x = functional.linear(x, self.head)
        return x
