"""Shards that the job declares: which plain tensors are parts of a larger one, and where each part lies in it.

DTensors say it themselves. Parameters of Megatron-LM say along which dimension they are split (`tensor_model_parallel`,
`partition_dim`, `partition_stride`), and not over which group.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Any, Literal

import torch

from .linear_hash import ShardPlace

Sharded = Literal["parameters", "inputs", "outputs", "activations"]
"""Parameters with their gradients and states; inputs of modules; their outputs with the gradients; both."""
SHARDED: tuple[Sharded, ...] = ("parameters", "inputs", "outputs", "activations")
_OF_PARAMETERS = ("gradient", "parameter", "optimizer")
_OF_MODULES = ("forward", "backward")
_MEGATRON = "megatron.core.parallel_state"


@dataclass(frozen=True)
class ShardRule:
    """A declaration: tensors of these names are split along a dimension."""

    what: Sharded
    pattern: str
    """Name of a module or parameter, with wildcards of a shell; names of wrappers before it do not count."""
    dim: int
    place: int
    """Number of the own part."""
    parts: int

    def is_about(self, site: str, name: str, slot: str) -> bool:
        """Whether the rule is about a tensor."""
        if site in _OF_PARAMETERS:
            kinds: tuple[str, ...] = ("parameters",)
        elif site in _OF_MODULES:
            is_input = site == "forward" and slot.startswith("in")
            kinds = ("inputs" if is_input else "outputs", "activations")
        else:
            return False
        return self.what in kinds and _matches(self.pattern, name)


class DeclaredShards:
    """All declarations of the process."""

    def __init__(self) -> None:
        self._rules: list[ShardRule] = []

    def add(self, rule: ShardRule) -> None:
        """Adds a rule. Rules for several dimensions of a tensor work together; of two for one dimension the later
        counts."""
        self._rules.append(rule)

    def place(self, own: ShardPlace, site: str, name: str, slot: str) -> ShardPlace:
        """The place of a tensor of which no DTensor tells it."""
        split: dict[int, tuple[int, int]] = {}
        for rule in self._rules:
            if -len(own.shape) <= rule.dim < len(own.shape) and rule.is_about(site, name, slot):
                split[rule.dim % len(own.shape)] = rule.place, rule.parts
        if not split:
            return own
        offsets, size = list(own.offsets), list(own.global_shape)
        for dim, (place, parts) in split.items():
            offsets[dim], size[dim] = own.shape[dim] * place, own.shape[dim] * parts
        return ShardPlace(own.shape, tuple(offsets), tuple(size))


def parameter_rules(named: Iterable[tuple[str, Any]], names: str = "*", group: Any = None) -> Iterator[ShardRule]:
    """Rules for the parameters of these names that say along which dimension they are split for tensor parallelism.

    `group` is the group of that; by default the one of Megatron-LM, if the job uses it. Parts that are interleaved
    (`partition_stride`) and weights of experts, which have groups of their own, are left out.
    """
    group = _tensor_group() if group is None else group
    if group is None or group.size() < 2:
        return
    for name, parameter in named:
        is_split = getattr(parameter, "tensor_model_parallel", False) and getattr(parameter, "allreduce", True)
        is_split = is_split and _matches(names, name)
        if is_split and getattr(parameter, "partition_stride", 1) == 1 and getattr(parameter, "partition_dim", -1) >= 0:
            dim = int(parameter.partition_dim)
            yield ShardRule("parameters", name, dim, int(group.rank()), int(group.size()))


def _tensor_group() -> Any:
    megatron = sys.modules.get(_MEGATRON)
    if megatron is None or not torch.distributed.is_initialized():
        return None
    try:
        return megatron.get_tensor_model_parallel_group()
    except AssertionError:  # its groups are not made
        return None


@lru_cache(1 << 16)
def _matches(pattern: str, name: str) -> bool:
    return fnmatchcase(name, pattern) or fnmatchcase(name, f"*.{pattern}")
