"""Gradients that are averaged, and weights that are updated, by hand: over groups, or by owners (ZeRO, stage 1)."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from benchmarks.numeric_groups import Mesh, Planted
from benchmarks.numeric_wire import on_the_wire

_last: dict[str, Tensor] = {}
"""Gradients of the step before, by parameter."""


def average_gradients(model: nn.Module, at: Mesh, planted: Planted) -> None:
    """One all_reduce for each parameter over the data group; LayerNorms also over the tensor group with parts of a
    sequence, embeddings over both ends of a pipeline, or on one rank with all of it."""
    if at.layout.tied and at.layout.pipeline == 1:
        _join_ends(model)
    for name, one in model.named_parameters():
        grad = one.grad
        assert grad is not None
        in_parts = at.layout.sequence and (".norm." in f".{name}" or name.endswith("second.bias"))
        if in_parts and not (name == "blocks.1.mlp.norm.weight" and planted.everywhere("norm-not-synced")):
            dist.all_reduce(grad, group=at.tensor)
        if at.ends is not None and name in ("embedding.weight", "head") and not planted.everywhere("ends-not-synced"):
            dist.all_reduce(grad, group=at.ends)
        if name == "blocks.0.mlp.norm.weight" and planted.here("norm-scale"):
            grad.mul_(1 + max(1e-3, torch.finfo(grad.dtype).eps))
        if at.data is None or (name == "blocks.0.mlp.second.weight" and planted.everywhere("unsynced-parameter")):
            continue
        _average(grad, at, planted, name)


def _join_ends(model: nn.Module) -> None:
    """Gives both tied weights the sum of their gradients."""
    told = dict(model.named_parameters())
    ends = [grad for name in ("embedding.weight", "head") if (grad := told[name].grad) is not None]
    whole = ends[0] + ends[1]
    for grad in ends:
        grad.copy_(whole)


def _average(grad: Tensor, at: Mesh, planted: Planted, name: str) -> None:
    wrong = name == "blocks.1.attention.first.weight" and planted.everywhere("wrong-group")
    if planted.name == "stale-buffer":
        if name in _last and planted.here("stale-buffer"):
            grad.copy_(_last[name])
        _last[name] = grad.clone()
    on_the_wire(planted, grad, at, name)
    dist.all_reduce(grad, group=at.tensor if wrong else at.data)
    if not planted.everywhere("no-averaging"):
        grad.div_(at.layout.data)


def optimizer_of(model: nn.Module) -> torch.optim.Optimizer:
    """AdamW; LayerNorms and biases are not decayed."""
    _last.clear()
    named = list(model.named_parameters())
    return _adam([one for name, one in named if not _is_plain(name)], [one for name, one in named if _is_plain(name)])


def _is_plain(name: str) -> bool:
    return "norm" in name or name.endswith("bias")


def _adam(decayed: list[Any], plain: list[Any]) -> torch.optim.Optimizer:
    groups = [{"params": decayed, "weight_decay": 0.1}, {"params": plain, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=1e-3)


class ShardedUpdates:
    """Each parameter has an owner, which has the sum of its gradients and its weights in float32, and sends the new
    weights to all."""

    def __init__(self, model: nn.Module, at: Mesh, planted: Planted) -> None:
        self.model, self.at, self.planted = model, at, planted
        self.names = [name for name, _ in model.named_parameters()]
        own = [name for i, name in enumerate(self.names) if i % at.layout.data == at.rank]
        weights = dict(model.named_parameters())
        self.masters = {name: nn.Parameter(weights[name].detach().float().clone()) for name in own}
        self.optimizer = _adam([self.masters[n] for n in own if not _is_plain(n)],
                               [self.masters[n] for n in own if _is_plain(n)])  # fmt: skip

    def step(self) -> None:
        """Sums gradients, updates what this rank owns, and spreads the weights."""
        weights = dict(self.model.named_parameters())
        if not self.planted.everywhere("untied"):
            table, head = weights["embedding.weight"], weights["head"]
            head.grad = (table.grad + head.grad).contiguous()
            table.grad = head.grad.clone()
        for owner, name in self._owned():
            dist.reduce(weights[name].grad, dst=owner, group=self.at.data)
        for name, master in self.masters.items():
            master.grad = weights[name].grad.float() / self.at.layout.data
            if "mlp" in name and self.planted.here("master-cast"):
                master.data.copy_(master.data.to(torch.bfloat16))
        self.optimizer.step()
        for owner, name in self._owned():
            if owner == self.at.rank and not self.planted.here("update-lost"):
                weights[name].data.copy_(self.masters[name].data)
            dist.broadcast(weights[name].data, src=owner, group=self.at.data)

    def _owned(self) -> list[tuple[int, str]]:
        members = dist.get_process_group_ranks(self.at.data)
        return [(members[i % len(members)], name) for i, name in enumerate(self.names)]
