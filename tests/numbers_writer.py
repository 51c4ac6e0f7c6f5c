"""Writes records of tensor summaries as the capture does, from arrays, for jobs with and without faults."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from rankscope.assemble.assembly import assemble
from rankscope.assemble.sources import SourceFile
from rankscope.features.numbers.read.decode import decode_numbers
from rankscope.schema import Dataset

Floats = npt.NDArray[np.float64]
_BITS: dict[str, Any] = {"f32": np.uint32, "f16": np.uint16, "f64": np.uint64, "i64": np.uint64, "i32": np.uint32}
_TYPES: dict[str, Any] = {"f32": np.float32, "f16": np.float16, "f64": np.float64, "i64": np.int64, "i32": np.int32}


def mixed(x: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """The finaliser of splitmix64."""
    with np.errstate(over="ignore"):
        x = x + np.uint64(0x9E3779B97F4A7C15)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return x ^ (x >> np.uint64(31))


def cast(values: npt.ArrayLike, dtype: str) -> npt.NDArray[Any]:
    """Values rounded to nearest in a format; bf16 as float32 that holds only what bf16 can."""
    if dtype != "bf16":
        with np.errstate(over="ignore"):
            return np.asarray(values).astype(_TYPES[dtype])
    bits = np.asarray(values, np.float32).view(np.uint32).astype(np.uint64)
    even = (bits + np.uint64(0x7FFF) + ((bits >> np.uint64(16)) & np.uint64(1))) & np.uint64(0xFFFF0000)
    return even.astype(np.uint32).view(np.float32)


def bits_of(values: npt.NDArray[Any], dtype: str) -> npt.NDArray[np.uint64]:
    """The bits of each element as an unsigned number."""
    if dtype == "bf16":
        values = values.view(np.uint32) >> np.uint32(16)
        return values.astype(np.uint64)
    bits: npt.NDArray[np.uint64] = np.ascontiguousarray(values).view(_BITS[dtype]).astype(np.uint64)
    return bits


def linear_hash(values: npt.NDArray[Any], dtype: str, offsets: Sequence[int] = (), whole: Sequence[int] = ()) -> int:
    """The linear hash of a shard of at most two dimensions at its place in the whole."""
    matrix = bits_of(values, dtype).reshape(-1, values.shape[-1] if values.ndim else 1)
    begin = list(offsets) or [0, 0]
    rows = np.arange(matrix.shape[0], dtype=np.uint64) + np.uint64(begin[0] if len(begin) > 1 else 0)
    columns = np.arange(matrix.shape[1], dtype=np.uint64) + np.uint64(begin[-1])
    with np.errstate(over="ignore"):
        v = mixed(np.uint64(2) * rows + np.uint64(1)) | np.uint64(1)
        w = mixed(np.uint64(2) * columns + np.uint64(2)) | np.uint64(1)
        return int(((v[:, None] + w[None, :]) * matrix).sum(dtype=np.uint64))


def places(count: int) -> list[int]:
    """The flat indices of the samples of a tensor."""
    if count <= 64:
        return list(range(count))
    drawn = mixed(np.arange(60, dtype=np.uint64)) % np.uint64(count)
    return [0, 1, count - 2, count - 1, *map(int, drawn)]


def _number(value: float) -> Any:
    if math.isfinite(value):
        return float(value)
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def summary(
    values: npt.NDArray[Any], dtype: str, offsets: Sequence[int] = (), whole: Sequence[int] = ()
) -> dict[str, Any]:
    """The statistics of a tensor; of a shard if `offsets` and the shape of the whole are given."""
    with np.errstate(all="ignore"):
        exact = np.asarray(values, np.float64)
        signs = [1.0 - 2.0 * (mixed(np.arange(n, dtype=np.uint64) * np.uint64(2) + np.uint64(k)) & np.uint64(1))
                 for n, k in zip(exact.reshape(-1, exact.shape[-1]).shape, (3, 4), strict=True)]  # fmt: skip
        projection = ((signs[0][:, None] + signs[1][None, :] / 2) * exact.reshape(-1, exact.shape[-1])).sum()
        row: dict[str, Any] = {
            "dtype": dtype, "numel": exact.size, "shape": list(exact.shape),
            "hash": f"{linear_hash(values, dtype, offsets, whole):016x}", "sum": _number(exact.sum()),
            "l2": _number(np.sqrt((exact**2).sum())), "min": _number(exact.min()), "max": _number(exact.max()),
            "nan": int(np.isnan(exact).sum()), "inf": int(np.isinf(exact).sum()),
            "zeros": int((exact == 0).sum()), "projection": _number(projection),
        }  # fmt: skip
    if not whole:
        row["samples"] = [_number(exact.ravel()[i]) for i in places(exact.size)]
        return row
    index = np.full(tuple(whole), -1)
    index[tuple(slice(at, at + n) for at, n in zip(offsets, exact.shape, strict=True))] = np.arange(exact.size).reshape(
        exact.shape
    )
    held = [(k, int(index.ravel()[i])) for k, i in enumerate(places(index.size)) if index.ravel()[i] >= 0]
    row |= {"offsets": list(offsets), "global_shape": list(whole), "sample_at": [k for k, _ in held],
            "samples": [_number(exact.ravel()[i]) for _, i in held]}  # fmt: skip
    return row


class NumbersJob:
    """Collects the records of all ranks.

    >>> job = NumbersJob({"dp": [0, 1]})
    >>> job.all_reduce("dp", [np.ones(4), np.ones(4)])
    """

    def __init__(self, groups: dict[str, list[int]], run: str = "a1", level: str = "collectives") -> None:
        self.groups = groups
        self.world = 1 + max(rank for ranks in groups.values() for rank in ranks)
        self.step = 0
        self._order = [0] * self.world
        self._seq = dict.fromkeys(groups, 0)
        self._counts: dict[tuple[Any, ...], int] = {}
        self.lines: list[list[dict[str, Any]]] = [
            [
                {"rankscope_numbers": 1, "run": run, "rank": rank, "world_size": self.world,
                 "host": f"node{rank // 2}", "pid": 100 + rank, "level": level, "every": 1, "mode": "sync",
                 "time_ns": 1000, "part": 0},
                *({"group": name, "ranks": own, "description": name} for name, own in groups.items() if rank in own),
                {"stack": 1, "frames": [["step", "train.py", 12], ["main", "train.py", 40]]},
            ]
            for rank in range(self.world)
        ]  # fmt: skip

    def row(self, rank: int, site: str, slot: str, values: npt.NDArray[Any], dtype: str = "f32", **more: Any) -> None:
        """Adds one tensor of a rank."""
        place = {key: more.pop(key) for key in ("offsets", "whole") if key in more}
        key = (rank, self.step, site, more.get("op"), more.get("group"), more.get("name"), slot, more.get("slice"))
        self._counts[key] = occurrence = self._counts.get(key, -1) + 1
        self.lines[rank].append({
            "step": self.step, "order": self._order[rank], "site": site, "occurrence": occurrence, "slot": slot,
            **more, **summary(values, dtype, **place), "stack_id": 1,
        })  # fmt: skip
        self._order[rank] += 1

    def collective(
        self, op: str, group: str, ins: dict[int, Any], outs: dict[int, Any], dtype: str = "f32", **more: Any
    ) -> int:
        """Adds inputs, then outputs, by rank: an array, or a list of slices. Returns the sequence number."""
        self._seq[group] += 1
        told = {"group": group, "seq": self._seq[group], "op": op, **more}
        for slot, tensors in (("in0", ins), ("out0", outs)):
            for rank, values in tensors.items():
                for piece, own in enumerate(values) if isinstance(values, list) else [(None, values)]:
                    part = {} if piece is None else {"slice": piece}
                    self.row(rank, "collective", slot, own, dtype, **told, **part)
        return self._seq[group]

    def all_reduce(
        self, group: str, inputs: Sequence[npt.ArrayLike], dtype: str = "f32", reduce_op: str = "sum",
        spoil: Callable[[dict[int, Any], list[Any]], Any] | None = None,
        way: Callable[[Sequence[Any], str], Any] | None = None,
    ) -> int:  # fmt: skip
        """A reduction; `way` adds up in its own order, and `spoil` may change the outputs, by rank."""
        ranks, own = self.groups[group], [cast(one, dtype) for one in inputs]
        total = (way or in_order)(own, dtype)
        outs = {rank: total.copy() for rank in ranks}
        if reduce_op == "avg":
            outs = {rank: cast(one.astype(np.float64) / len(ranks), dtype) for rank, one in outs.items()}
        if spoil is not None:
            spoil(outs, own)
        return self.collective(
            "all_reduce", group, dict(zip(ranks, own, strict=True)), outs, dtype, reduce_op=reduce_op
        )

    def write(self, directory: Path) -> None:
        """Writes a file for each rank."""
        for rank, lines in enumerate(self.lines):
            text = "".join(json.dumps(line) + "\n" for line in [*lines, {"end": True, "dropped": 0}])
            (directory / f"numbers_rank_{rank}.jsonl").write_text(text)

    def dataset(self) -> Dataset:
        """The records as they are read, without a file."""
        sources = [
            SourceFile(f"numbers_rank_{rank}.jsonl", "numbers", 1, 1, None,
                       decode_numbers("".join(json.dumps(line) + "\n" for line in lines).encode()))
            for rank, lines in enumerate(self.lines)
        ]  # fmt: skip
        return assemble(sources, "run", None, None, None)


# Orders in which libraries add up.


def _added(a: Any, b: Any, dtype: str) -> Any:
    wide = np.int64 if dtype.startswith("i") else np.float32 if dtype in ("bf16", "f16", "f32") else np.float64
    with np.errstate(over="ignore"):
        return cast(a.astype(wide) + b.astype(wide), dtype)


def in_order(parts: Sequence[Any], dtype: str) -> Any:
    """One after the other."""
    total = parts[0]
    for part in parts[1:]:
        total = _added(total, part, dtype)
    return total


def tree(parts: Sequence[Any], dtype: str) -> Any:
    """In pairs."""
    while len(parts) > 1:
        pairs = [_added(a, b, dtype) for a, b in zip(parts[::2], parts[1::2], strict=False)]
        parts = [*pairs, *parts[len(pairs) * 2 :]]
    return parts[0]


def ring(parts: Sequence[Any], dtype: str) -> Any:
    """Each piece begins at another member."""
    n = len(parts)
    pieces = [np.array_split(part.ravel(), n) for part in parts]
    found = [in_order([pieces[(k + i) % n][k] for i in range(n)], dtype) for k in range(n)]
    return np.concatenate(found).reshape(parts[0].shape)


def wide(parts: Sequence[Any], dtype: str) -> Any:
    """In float32, rounded once."""
    return cast(sum(part.astype(np.float32) for part in parts), dtype)
