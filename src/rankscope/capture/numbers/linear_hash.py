"""Weights of the linear hash and of the projection, and the sampled places of a tensor.

A tensor is taken as rows (all dimensions but the last) and columns (the last one). Its hash is the sum over elements of
(v_i + w_j) * bits mod 2^64, with v_i = mix(2i + 1) | 1, w_j = mix(2j + 2) | 1, of global rows i and columns j, so that
hashes of shards add up. Its projection is the sum of (a_i + b_j / 2) * x, with signs a_i, b_j by the lowest bits of
mix(2i + 3), mix(2j + 4): 0 is +1. `mix` is the finaliser of splitmix64 (Steele, Lea, Flood 2014).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import prod
from typing import Any, NamedTuple

import torch

MASK = (1 << 64) - 1
_GAMMA, _FIRST, _SECOND = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
ROW, COLUMN = 1, 2
"""Kinds of weights, by the number that stands beside the doubled index."""
TABLE_LENGTH = 1 << 23
"""Longest table of weights: 96 MB of a device; longer ranges are computed block by block."""
_SHORTEST = 1024
_CPU_STEP = 1 << 15
"""Weights that are computed at once: their temporaries stay in the cache."""
SAMPLES = 64
_ENDS = 4
"""Samples at the ends: the first two elements and the last two."""


def mix(x: int) -> int:
    """The mixed 64-bit number."""
    x = (x + _GAMMA) & MASK
    x = ((x ^ (x >> 30)) * _FIRST) & MASK
    x = ((x ^ (x >> 27)) * _SECOND) & MASK
    return x ^ (x >> 31)


def _signed(x: int) -> int:
    return x - (1 << 64) if x >> 63 else x


def _shifted(x: Any, bits: int) -> Any:
    """The logical shift to the right of int64."""
    return (x >> bits).bitwise_and_((1 << (64 - bits)) - 1)


def mixed(x: Any) -> Any:
    """The mixed numbers of an int64 tensor; int64 wraps."""
    x = x + _signed(_GAMMA)
    x = (x ^ _shifted(x, 30)).mul_(_signed(_FIRST))
    x = (x ^ _shifted(x, 27)).mul_(_signed(_SECOND))
    return x ^ _shifted(x, 31)


class Weights(NamedTuple):
    """Weights of rows or columns."""

    hash: Any
    """int64."""
    sign: Any
    """float32, +1 or -1."""

    def part(self, begin: int, end: int) -> Weights:
        """The weights of a range of places."""
        return Weights(self.hash[begin:end], self.sign[begin:end])


def weights_of(index: Any, kind: int) -> Weights:
    """The weights of global indices, an int64 tensor."""
    sign = mixed(index * 2 + (kind + 2)).bitwise_and_(1)
    return Weights(mixed(index * 2 + kind).bitwise_or_(1), (1 - 2 * sign).to(torch.float32))


class WeightTables:
    """The weights of the first indices on one device; they grow as they are needed."""

    def __init__(self, device: Any) -> None:
        self._device = device
        self._tables: dict[int, Weights] = {}

    def range(self, kind: int, begin: int, end: int) -> Weights:
        """The weights of the indices from `begin` to `end`, exclusive."""
        if end > TABLE_LENGTH:
            return weights_of(torch.arange(begin, end, device=self._device), kind)
        table = self._tables.get(kind)
        if table is None or len(table.hash) < end:
            length = max(_SHORTEST, 1 << (end - 1).bit_length())
            step = length if self._device.type != "cpu" else _CPU_STEP
            parts = [
                weights_of(torch.arange(at, min(at + step, length), device=self._device), kind)
                for at in range(0, length, step)
            ]
            table = Weights(torch.cat([part.hash for part in parts]), torch.cat([part.sign for part in parts]))
            self._tables[kind] = table
        return table.part(begin, end)


class ShardPlace(NamedTuple):
    """Where a local tensor lies in the whole one."""

    shape: tuple[int, ...]
    offsets: tuple[int, ...]
    global_shape: tuple[int, ...]

    @property
    def is_whole(self) -> bool:
        """Whether the local tensor is the whole one."""
        return self.shape == self.global_shape

    def rows(self, device: Any) -> Any:
        """Global indices of the rows: (first, end) where they follow each other, else an int64 tensor."""
        local, begin, whole = self.shape[:-1], self.offsets[:-1], self.global_shape[:-1]
        if local[1:] == whole[1:]:
            width = prod(whole[1:])
            first = (begin[0] if begin else 0) * width
            return first, first + prod(local)
        index = torch.zeros((), dtype=torch.int64, device=device)
        for size, offset, length in zip(local, begin, whole, strict=True):
            index = index.unsqueeze(-1) * length + torch.arange(offset, offset + size, device=device)
        return index.reshape(-1)


def whole(shape: Sequence[int]) -> ShardPlace:
    """The place of a tensor that is not sharded."""
    return ShardPlace(tuple(shape), (0,) * len(shape), tuple(shape))


def _flat(k: int, count: int) -> int:
    """The flat index of sample k of `count` elements."""
    if count <= SAMPLES:
        return k
    return (0, 1, count - 2, count - 1)[k] if k < _ENDS else mix(k - _ENDS) % count


@lru_cache(4096)
def sampled(place: ShardPlace, most: int = SAMPLES) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Flat local indices of the samples that a place holds, and their numbers k, below `most`."""
    count = prod(place.global_shape)
    numbers = range(min(count, most, SAMPLES))
    if place.is_whole:
        return tuple(_flat(k, count) for k in numbers), tuple(numbers)
    places = [(local, k) for k in numbers if (local := _local(_flat(k, count), place)) is not None]
    return tuple(local for local, _ in places), tuple(k for _, k in places)


def _local(flat: int, place: ShardPlace) -> int | None:
    """The flat local index of a flat global one; None where another shard holds it."""
    found, stride = 0, 1
    for size, offset, length in zip(
        reversed(place.shape), reversed(place.offsets), reversed(place.global_shape), strict=True
    ):
        flat, at = divmod(flat, length)
        if not 0 <= at - offset < size:
            return None
        found += (at - offset) * stride
        stride *= size
    return found
