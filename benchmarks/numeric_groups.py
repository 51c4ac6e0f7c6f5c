"""Groups of a small parallel job on gloo, operations between their members, and the fault that is planted in them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from benchmarks.numeric_plan import FAULTY_RANK, Layout


class Planted:
    """The fault of this rank, and the moment at which it is first made."""

    def __init__(self, name: str, rank: int, begin: int, now: Callable[[], int]) -> None:
        self.name, self.rank, self.begin, self.step = name, rank, begin, 0
        self._now = now
        self.marks: list[tuple[int, int]] = []
        """Steps of the first wrong numbers, and how many tensors were recorded before each."""

    def here(self, name: str, *, later: bool = False) -> bool:
        """Whether the rank with the fault must do this wrongly now; `later` if the moment is noted elsewhere."""
        return self.rank == FAULTY_RANK and self.everywhere(name, later=later)

    def everywhere(self, name: str, *, later: bool = False) -> bool:
        """Whether every rank must do this wrongly now."""
        if self.name != name or self.step < self.begin:
            return False
        if not later:
            self.note()
        return True

    def once(self, name: str, *, later: bool = False) -> bool:
        """As `here`, in the first step of the fault only."""
        return self.step == self.begin and self.here(name, later=later)

    def note(self) -> None:
        """Notes that now is a moment of the fault, in its first step and the one after."""
        if self.step <= self.begin + 1:
            self.marks.append((self.step, self._now()))


@dataclass(frozen=True)
class Mesh:
    """Groups and places of a rank; ranks are ordered pipeline, data, tensor."""

    layout: Layout
    rank: int
    tensor: Any
    data: Any
    ends: Any
    """The first and the last stage, which have the same embedding."""

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
    t, d, p = layout.tensor, layout.data, layout.pipeline
    ranks = [[[(k * d + i) * t + j for j in range(t)] for i in range(d)] for k in range(p)]
    tensor = [one for stage in ranks for one in stage]
    data = [[row[j] for row in stage] for stage in ranks for j in range(t)]
    ends = [[ranks[0][i][j], ranks[-1][i][j]] for i in range(d) for j in range(t)]
    return Mesh(
        layout, rank, _own(tensor, rank, "TENSOR_PARALLEL"), _own(data, rank, "DATA_PARALLEL"),
        _own(ends, rank, "EMBEDDING") if p > 1 and layout.tied else None,
    )  # fmt: skip


def _own(groups: Sequence[Sequence[int]], rank: int, called: str) -> Any:
    """The new group of this rank; None for groups of one member."""
    found = None
    for members in groups:
        group = dist.new_group(list(members), group_desc=called) if len(members) > 1 else None
        found = group if rank in members else found
    return found


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
        if name == "blocks.0.mlp" and planted.here("early-read", later=True):
            work = dist.all_reduce(whole, group=at.tensor, async_op=True)
            read = x.contiguous().clone()  # before the wait
            work.wait()
            planted.note()
            return read
        dist.all_reduce(whole, group=at.tensor)
        return whole

    @staticmethod
    def backward(_ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None]:
        return grad, None, None, None


Move = Callable[[Tensor, Mesh], Tensor]


class Moved(torch.autograd.Function):  # type: ignore[misc]
    """A move of parts of the sequence over the tensor group; its backward is the other given move."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, at: Mesh, there: Move, back: Move) -> Tensor:
        ctx.at, ctx.back = at, back
        return there(x, at)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None]:
        return ctx.back(grad, ctx.at), None, None, None


def gather(x: Tensor, at: Mesh) -> Tensor:
    """Parts of the sequence to the whole of it; its backward scatters the sum."""
    return Moved.apply(x, at, _gathered, _scattered)


def scatter(x: Tensor, at: Mesh) -> Tensor:
    """The sum of the tensor group, each with its part of the sequence; its backward gathers."""
    return Moved.apply(x, at, _scattered, _gathered)


def whole_of(x: Tensor, at: Mesh) -> Tensor:
    """Parts of the sequence to the whole of it; its backward takes the own part."""
    return Moved.apply(x, at, _gathered, _own_part)


def _own_part(x: Tensor, at: Mesh) -> Tensor:
    return x.chunk(at.layout.tensor, 0)[at.tensor_rank].contiguous()


def _gathered(part: Tensor, at: Mesh) -> Tensor:
    whole = part.new_empty(at.layout.tensor * part.shape[0], *part.shape[1:])
    dist.all_gather_into_tensor(whole, part.contiguous(), group=at.tensor)
    return whole


def _scattered(whole: Tensor, at: Mesh) -> Tensor:
    part = whole.new_empty(whole.shape[0] // at.layout.tensor, *whole.shape[1:])
    dist.reduce_scatter_tensor(part, whole.contiguous(), group=at.tensor)
    return part
