"""Summary of a tensor, computed on its device without waiting for it: hash, sum, norm, range, counts, samples.

Rows stand in a buffer of the device, one for each tensor, and come to the host together at the end of a step. A row has
73 words: the hash, eight statistics as the bits of float64, 64 samples as the bits of float64.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, NamedTuple

import torch

from .linear_hash import COLUMN, ROW, SAMPLES, ShardPlace, WeightTables, sampled, weights_of, whole

STATISTICS = ("sum", "l2", "min", "max", "zeros", "projection", "nan", "inf")
WIDTH = 1 + len(STATISTICS) + SAMPLES
"""Words of a row."""
CPU_BLOCK = 1 << 17
"""Elements of one block on a CPU: it stays in the cache."""
DEVICE_BLOCK = 1 << 22
"""Elements of one block on a device: temporaries of 32 MB, few kernels. Counts in float32 are exact up to 2^24."""
_SIGNED = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
_UNSIGNED = {1: torch.uint8, 2: torch.uint16, 4: torch.uint32, 8: torch.int64}
_SHORT = {
    "float32": "f32", "float64": "f64", "float16": "f16", "bfloat16": "bf16", "int64": "i64", "int32": "i32",
    "int16": "i16", "int8": "i8", "uint8": "u8", "uint16": "u16", "uint32": "u32", "uint64": "u64", "bool": "bool",
    "complex64": "c64", "complex128": "c128", "float8_e4m3fn": "f8e4m3", "float8_e5m2": "f8e5m2",
    "float8_e4m3fnuz": "f8e4m3fnuz", "float8_e5m2fnuz": "f8e5m2fnuz",
}  # fmt: skip


def short_name(dtype: Any) -> str:
    """The short name of an element type, as rankscope writes it: "bf16"; an unknown one keeps its name."""
    name = str(dtype).removeprefix("torch.")
    return _SHORT.get(name, name)


class LocatedTensor(NamedTuple):
    """The plain local tensor behind a tensor, and where it lies in the whole one."""

    local: Any
    place: ShardPlace
    facts: dict[str, Any]
    """Keys of the row: `placements` and `mesh` of a DTensor."""


def located(tensor: Any) -> LocatedTensor | None:
    """The local tensor of a tensor; None for one that cannot be read here.

    A fake tensor holds nothing, the tensor of an asynchronous collective is not there yet, and other subclasses with a
    dispatch of their own are not read.
    """
    if _is_plain(tensor):
        return LocatedTensor(tensor.detach(), whole(tensor.shape), {})
    module = sys.modules.get("torch.distributed.tensor")
    if module is None or not isinstance(tensor, module.DTensor):
        return None
    local, mesh = tensor._local_tensor.detach(), tensor.device_mesh
    if not _is_plain(local):
        return None
    offsets = module._utils.compute_local_shape_and_global_offset(tensor.shape, mesh, tensor.placements)[1]
    facts: dict[str, Any] = {"placements": " ".join(map(str, tensor.placements))}
    if mesh.mesh_dim_names:
        facts["mesh"] = ",".join(mesh.mesh_dim_names)
    return LocatedTensor(local, ShardPlace(tuple(local.shape), tuple(map(int, offsets)), tuple(tensor.shape)), facts)


def _is_plain(tensor: Any) -> bool:
    """Whether operations on a tensor are those of its memory, as for parameters: no subclass catches them."""
    return type(tensor).__torch_dispatch__ is torch.Tensor.__torch_dispatch__


def has_values(tensor: Any) -> bool:
    """Whether a plain tensor can be summarised: dense, with memory, not empty, of a known element type."""
    known = str(tensor.dtype).removeprefix("torch.") in _SHORT
    return known and tensor.layout == torch.strided and tensor.device.type != "meta" and tensor.numel() > 0


class RowBuffer:
    """Rows of summaries on one device, in pages that stay."""

    PAGE = 1024
    """Rows of a page: 0.6 MB."""

    def __init__(self, device: Any) -> None:
        self.device = device
        self.tables = WeightTables(device)
        self.count = 0
        self._pages: list[Any] = []
        self.block = CPU_BLOCK if device.type == "cpu" else DEVICE_BLOCK

    def add(self, tensor: Any, place: ShardPlace, most_samples: int) -> int:
        """Writes the summary of a tensor; returns the number of its row."""
        number = self.count
        if number // self.PAGE == len(self._pages):
            self._pages.append(torch.zeros((self.PAGE, WIDTH), dtype=torch.int64, device=self.device))
        summarize(tensor, place, most_samples, self._pages[number // self.PAGE][number % self.PAGE], self)
        self.count += 1
        return number

    def take(self) -> list[tuple[int, list[float]]]:
        """The hash, and statistics and samples, of each row; waits for the device. The buffer is empty then."""
        if self.device.type != "cpu":
            getattr(torch, self.device.type).synchronize(self.device)
        used = -(-self.count // self.PAGE)
        if not used:
            return []
        rows = torch.cat([page.cpu() for page in self._pages[:used]])[: self.count]
        self.count = 0
        return list(zip(rows[:, 0].tolist(), rows.view(torch.float64)[:, 1:].tolist(), strict=True))


def summarize(tensor: Any, place: ShardPlace, most_samples: int, row: Any, buffer: RowBuffer) -> None:
    """Writes the summary of a non-empty tensor into a row, int64 (WIDTH,)."""
    if tensor.is_complex():
        tensor, place = _as_real(tensor, place)
    values = tensor.contiguous().view(-1)
    bits = values.view(_SIGNED[values.element_size()])
    columns = tensor.shape[-1] if tensor.dim() else 1
    row[0], statistics = _reduced(values.view(-1, columns), bits.view(-1, columns), place, buffer)
    numbers = row.view(torch.float64)
    numbers[1 : len(STATISTICS) - 1] = statistics
    numbers[len(STATISTICS) - 1 : len(STATISTICS) + 1] = _nonfinite(values, statistics[0])
    local, _ = sampled(place, most_samples)
    if local:
        found = bits.index_select(0, _index(local, buffer.device)).view(values.dtype)
        numbers[-SAMPLES : len(local) - SAMPLES or None] = _exact(found).to(torch.float64)


def _as_real(tensor: Any, place: ShardPlace) -> tuple[Any, ShardPlace]:
    """A complex tensor as real numbers, with the last dimension doubled."""
    real = torch.view_as_real(tensor.resolve_conj())
    if tensor.dim() == 0:
        return real, ShardPlace((2,), (0,), (2,))
    sizes = ((*size[:-1], size[-1] * 2) for size in place)
    return real.flatten(-2), ShardPlace(*sizes)


@lru_cache(1024)
def _index(places: tuple[int, ...], device: Any) -> Any:
    return torch.tensor(places, dtype=torch.int64, device=device)


def _exact(values: Any) -> Any:
    """The values in the type in which they are added: float32 for narrow floats, float64 for integers."""
    if values.dtype in (torch.float32, torch.float64):
        return values
    return values.to(torch.float32 if values.is_floating_point() else torch.float64)


def _reduced(values: Any, bits: Any, place: ShardPlace, buffer: RowBuffer) -> tuple[Any, Any]:
    """The hash, int64 (), and the first six statistics, float64 (6,), of a matrix."""
    rows = place.rows(buffer.device)
    first = place.offsets[-1] if place.offsets else 0
    hashes, parts = [], []
    for across, down in _blocks(values.shape[0], values.shape[1], buffer.block):
        v = (
            buffer.tables.range(ROW, rows[0] + across.start, rows[0] + across.stop)
            if isinstance(rows, tuple)
            else weights_of(rows[across], ROW)
        )
        w = buffer.tables.range(COLUMN, first + down.start, first + down.stop)
        hashes.append(_hash(bits[across, down], v.hash, w.hash))
        parts.append(_statistics(_exact(values[across, down]), v.sign, w.sign).to(torch.float64))
    if len(parts) == 1:
        return hashes[0], parts[0]
    totals = torch.stack(parts)
    sums = totals.sum(0)
    norm = totals[:, 1].square().sum().sqrt()
    return torch.stack(hashes).sum(), torch.stack(
        [sums[0], norm, totals[:, 2].amin(), totals[:, 3].amax(), sums[4], sums[5]]
    )


def _blocks(rows: int, columns: int, size: int) -> Iterator[tuple[slice, slice]]:
    """Blocks of a matrix with at most `size` elements: of whole rows, or of parts of one row."""
    width = min(columns, size)
    height = size // width if width == columns else 1
    for top in range(0, rows, height):
        for left in range(0, columns, width):
            yield slice(top, min(top + height, rows)), slice(left, min(left + width, columns))


def _hash(bits: Any, v: Any, w: Any) -> Any:
    wide = bits.view(_UNSIGNED[bits.element_size()]).to(torch.int64)
    if len(wide) == 1:
        return (wide[0] * w).sum() + wide.sum() * v[0]
    return (wide.sum(0) * w).sum() + (wide.sum(1) * v).sum()


def _statistics(values: Any, a: Any, b: Any) -> Any:
    """Sum, norm, minimum, maximum, number of zeros, and projection of a block."""
    by_row = values.sum(1)
    low, high = torch.aminmax(values)
    # into floats: twice as fast on a CPU as counting bits
    zeros = torch.eq(values, 0, out=torch.empty_like(values)).sum()
    projection = (by_row * a).sum() + (values * b).sum() / 2
    return torch.stack([by_row.sum(), torch.linalg.vector_norm(values), low, high, zeros, projection])


def _nonfinite(values: Any, total: Any) -> Any:
    """Numbers of NaN and of Inf; on a CPU they are only counted if the sum tells of any, for that is slow there."""
    if not values.is_floating_point() or (total.device.type == "cpu" and math.isfinite(total.item())):
        return 0.0
    exact = _exact(values)
    return torch.stack([torch.isnan(exact).sum(), torch.isinf(exact).sum()]).to(torch.float64)
