"""Faults below the recording, on the wire: results of a work are changed before anybody reads them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from benchmarks.numeric_bits import flipped
from benchmarks.numeric_groups import Mesh, Planted
from benchmarks.numeric_plan import FAULTY_RANK

SPOILED = "blocks.1.mlp.first.weight"
"""The gradient whose sum is wrong."""


class WireChanges:
    """Changes that the next wait makes."""

    def __init__(self) -> None:
        self._waiting: list[Callable[[], object]] = []

    def add(self, planted: Planted | None, change: Callable[[], object]) -> None:
        """Adds a change, and notes its moment."""
        self._waiting += [change] if planted is None else [change, planted.note]

    def make(self) -> None:
        """Makes all of them."""
        while self._waiting:
            self._waiting.pop(0)()


changes = WireChanges()


def corrupt_wire() -> None:
    """Wraps the wait of every work; before a recording, so that it reads what the job reads."""
    from torch._C._distributed_c10d import Work

    wait: Callable[..., bool] = Work.wait

    def corrupted(self: Any, *args: Any, **options: Any) -> bool:
        done = wait(self, *args, **options)
        changes.make()
        return done

    Work.wait = corrupted  # type: ignore[method-assign]


def on_the_wire(planted: Planted, grad: Tensor, at: Mesh, name: str) -> None:
    """Adds what the next wait does to the sum of these gradients."""
    if name != SPOILED or at.tensor_rank != FAULTY_RANK % at.layout.tensor:
        return
    is_first = planted.step == planted.begin
    if planted.everywhere("dropped-contribution", later=True) or (
        is_first and planted.everywhere("wire-bit-flip", later=True)
    ):
        share = _shared(grad, at, planted.step)
        change = -share
        if planted.name == "wire-bit-flip":
            change = torch.zeros_like(grad)
            change.view(-1)[5] = flipped(share.view(-1)[5:6], -6) - share.view(-1)[5]
        changes.add(planted, partial(grad.add_, change))
    if planted.once("output-bit-flip", later=True):
        changes.add(planted, partial(_flip, grad))


def _flip(grad: Tensor) -> None:
    grad.view(-1)[7] = flipped(grad.view(-1)[7:8], -10)


def _shared(grad: Tensor, at: Mesh, step: int) -> Tensor:
    """The contribution of the last member, told through the store and not through an operation."""
    store = dist.distributed_c10d._get_default_store()
    members = dist.get_process_group_ranks(at.data)
    key = f"share {step} {members}"
    if at.rank == members[-1]:
        store.set(key, grad.to(torch.float32).numpy().tobytes())
    raw = store.get(key)
    return torch.frombuffer(bytearray(raw), dtype=torch.float32).view_as(grad).to(grad.dtype)
