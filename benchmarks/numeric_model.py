"""A small transformer in one of several parallel layouts on gloo, with places where a fault can be planted.

The same seed gives the same weights and dropout in every layout: a run on one rank is a reference for the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional

VOCABULARY, WIDTH, HEADS, LAYERS, LENGTH, BATCH = 64, 32, 4, 2, 16, 8
BEGIN = 2
"""Step of the first wrong number, from 0."""
DROP = 0.1
FAULTY_RANK = 1


@dataclass(frozen=True)
class Layout:
    """Degrees of parallelism, and who averages gradients."""

    tensor: int = 1
    data: int = 1
    pipeline: int = 1
    sequence: bool = False
    wrap: str = "manual"

    @property
    def ranks(self) -> int:
        """Number of ranks."""
        return self.tensor * self.data * self.pipeline


LAYOUTS = {
    "one": Layout(), "tp": Layout(2, 2), "sp": Layout(2, 2, sequence=True), "ddp": Layout(data=4, wrap="ddp"),
    "fsdp": Layout(data=4, wrap="fsdp"), "pp": Layout(data=2, pipeline=2),
}  # fmt: skip


class Planted:
    """The fault of this rank."""

    def __init__(self, name: str, rank: int) -> None:
        self.name, self.rank, self.step = name, rank, 0

    def here(self, name: str) -> bool:
        """Whether the rank with the fault must do this wrongly now."""
        return self.rank == FAULTY_RANK and self.everywhere(name)

    def everywhere(self, name: str) -> bool:
        """Whether every rank must do this wrongly now."""
        return self.name == name and self.step >= BEGIN

    def once(self, name: str) -> bool:
        """As `here`, in the first step of the fault only."""
        return self.here(name) and self.step == BEGIN


@dataclass(frozen=True)
class Mesh:
    """Groups and places of a rank; ranks are ordered pipeline, data, tensor."""

    layout: Layout
    rank: int
    tensor: Any
    data: Any

    @property
    def tensor_rank(self) -> int:
        """Place in the tensor group."""
        return self.rank % self.layout.tensor

    @property
    def data_rank(self) -> int:
        """Place in the data group."""
        return self.rank // self.layout.tensor % self.layout.data

    @property
    def stage(self) -> int:
        """Pipeline stage."""
        return self.rank // (self.layout.tensor * self.layout.data)


def mesh(layout: Layout, rank: int) -> Mesh:
    """All groups are made on every rank, in one order."""
    t, d, own = layout.tensor, layout.data, dict[str, Any]()
    for stage in range(layout.pipeline):
        base = stage * t * d
        for i in range(d):
            members = [base + i * t + j for j in range(t)]
            group = dist.new_group(members, group_desc="TENSOR_PARALLEL") if t > 1 else None
            own |= {"tensor": group} if rank in members else {}
        for j in range(t):
            members = [base + i * t + j for i in range(d)]
            group = dist.new_group(members, group_desc="DATA_PARALLEL") if d > 1 else None
            own |= {"data": group} if rank in members else {}
    return Mesh(layout, rank, own["tensor"], own["data"])


# Operations that move between the parts of a tensor group, and what goes wrong in them.


class Enter(torch.autograd.Function):  # type: ignore[misc]
    """Identity; its backward adds the gradients of the tensor group."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, at: Mesh, planted: Planted, name: str) -> Tensor:
        ctx.at, ctx.planted, ctx.name = at, planted, name
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None]:
        at: Mesh = ctx.at
        if at.tensor is None or (ctx.name == "blocks.1.attention" and ctx.planted.everywhere("missing-tp-sync")):
            return grad, None, None, None
        grad = grad.contiguous().clone()
        dist.all_reduce(grad, group=at.tensor)
        return grad, None, None, None


class Leave(torch.autograd.Function):  # type: ignore[misc]
    """Adds the parts of the tensor group; its backward is the identity."""

    @staticmethod
    def forward(_ctx: Any, x: Tensor, at: Mesh, planted: Planted, name: str) -> Tensor:
        if at.tensor is None:
            return x.view_as(x)
        whole = x.contiguous().clone()
        if name == "blocks.0.mlp" and planted.here("early-read"):
            work = dist.all_reduce(whole, group=at.tensor, async_op=True)
            read = x.contiguous().clone()  # before the wait
            work.wait()
            return read
        dist.all_reduce(whole, group=at.tensor)
        return whole

    @staticmethod
    def backward(_ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None]:
        return grad, None, None, None


class Gather(torch.autograd.Function):  # type: ignore[misc]
    """Parts of the sequence to the whole of it; its backward scatters the sum."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, at: Mesh) -> Tensor:
        ctx.at = at
        return _gathered(x, at)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return _scattered(grad, ctx.at), None


class Scatter(torch.autograd.Function):  # type: ignore[misc]
    """The sum of the tensor group, each with its part of the sequence; its backward gathers."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, at: Mesh) -> Tensor:
        ctx.at = at
        return _scattered(x, at)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return _gathered(grad, ctx.at), None


class Whole(torch.autograd.Function):  # type: ignore[misc]
    """Parts of the sequence to the whole of it; its backward takes the own part."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, at: Mesh) -> Tensor:
        ctx.at = at
        return _gathered(x, at)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        at: Mesh = ctx.at
        return grad.chunk(at.layout.tensor, 0)[at.tensor_rank].contiguous(), None


def _gathered(part: Tensor, at: Mesh) -> Tensor:
    whole = part.new_empty(at.layout.tensor * part.shape[0], *part.shape[1:])
    dist.all_gather_into_tensor(whole, part.contiguous(), group=at.tensor)
    return whole


def _scattered(whole: Tensor, at: Mesh) -> Tensor:
    part = whole.new_empty(whole.shape[0] // at.layout.tensor, *whole.shape[1:])
    dist.reduce_scatter_tensor(part, whole.contiguous(), group=at.tensor)
    return part


# The model. Activations are sequence first, [LENGTH, batch, WIDTH], so that parts of a sequence are rows.


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
        x = Gather.apply(x, at) if at.layout.sequence else Enter.apply(x, at, planted, self.name)
        x = self.first(x)
        x = self._attend(x) if self.is_attention else functional.gelu(x)
        if self.name == "blocks.0.attention" and planted.here("kernel-noise"):
            x = x + x.abs() * torch.finfo(x.dtype).eps * (torch.rand(x.shape) < 0.05)
        x = second(x)
        doubled = self.name == "blocks.1.mlp" and planted.everywhere("bias-on-every-rank")
        if doubled:
            x = x + second.bias
        x = Scatter.apply(x, at) if at.layout.sequence else Leave.apply(x, at, planted, self.name)
        return x if doubled else x + second.bias

    def _attend(self, x: Tensor) -> Tensor:
        length, batch, _ = x.shape
        heads = HEADS // self.at.layout.tensor
        parts = x.reshape(length, batch, heads, 3, -1).unbind(3)
        q, k, v = (one.reshape(length, batch, heads, -1).permute(1, 2, 0, 3) for one in parts)
        out = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
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
        mask = torch.rand(LENGTH, BATCH, WIDTH, generator=torch.Generator().manual_seed(key)) >= DROP
        mask = mask.chunk(at.layout.data, 1)[at.data_rank]
        if at.layout.sequence:
            mask = mask.chunk(at.layout.tensor, 0)[at.tensor_rank]
        return x * mask / (1 - DROP)


class Model(nn.Module):  # type: ignore[misc]
    """All stages, or one of them."""

    def __init__(self, at: Mesh, planted: Planted, seed: int) -> None:
        super().__init__()
        self.at, stages = at, at.layout.pipeline
        own = range(LAYERS)[at.stage * LAYERS // stages : (at.stage + 1) * LAYERS // stages]
        first, last = at.stage == 0, at.stage == stages - 1
        self.embedding = weight("embedding", (VOCABULARY, WIDTH), seed, 1.0, None) if first else None
        self.blocks = nn.ModuleDict({str(n): Block(n, at, planted, seed) for n in own})
        self.norm = nn.LayerNorm(WIDTH) if last else None
        self.head = weight("head", (VOCABULARY, WIDTH), seed, WIDTH**-0.5, None) if last else None

    def forward(self, x: Tensor) -> Tensor:
        """Tokens [batch, LENGTH] or activations to activations, or to logits [LENGTH, batch, VOCABULARY]."""
        at = self.at
        if self.embedding is not None:
            x = functional.embedding(x, self.embedding).transpose(0, 1)
            if at.layout.sequence:
                x = x.chunk(at.layout.tensor, 0)[at.tensor_rank]
        for block in self.blocks.values():
            x = block(x)
        if self.norm is not None and self.head is not None:
            x = self.norm(x)
            x = Whole.apply(x, at) if at.layout.sequence else x
            x = functional.linear(x, self.head)
        return x
