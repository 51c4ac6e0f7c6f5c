"""Writes records of models as the capture does, for jobs with and without a fault."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any

from rankscope.assemble.assembly import assemble
from rankscope.assemble.sources import SourceFile
from rankscope.features.model.model_records import decode_model
from rankscope.schema import Dataset

Row = dict[str, Any]
BLOCK = {"attention": (256, 256), "up": (1024, 256), "down": (256, 1024)}


def parameter(name: str, shape: Sequence[int], parts: int = 1, **values: Any) -> Row:
    """A parameter of a rank; `parts`: how many shards its first dimension has."""
    local = [shape[0] // parts, *shape[1:]]
    size = prod(local) * 4
    placed = {"wrapper": "fsdp2", "mesh": 0, "placements": ["S(0)"]} if parts > 1 else {"wrapper": None}
    return {
        "name": name, "shape": list(shape), "local": local, "dtype": "float32", "requires_grad": True,
        "device": "cuda:0", **placed, "bytes": size, "gradient_bytes": size, "state_bytes": 2 * size, **values,
    }  # fmt: skip


def buffer(name: str, shape: Sequence[int]) -> Row:
    """A buffer of a rank."""
    sizes = {"bytes": prod(shape) * 4, "gradient_bytes": 0, "state_bytes": 0}
    return parameter(name, shape, buffer=True, requires_grad=False, **sizes)


def transformer(parts: int, **values: Any) -> list[Row]:
    """An embedding, two blocks and a norm."""
    shapes = {"embed": (2048, 256), **{f"{at}.{name}": shape for at in range(2) for name, shape in BLOCK.items()}}
    return [parameter(name, shape, parts, **values) for name, shape in {**shapes, "norm": (256,)}.items()]


def model_file(rank: int, rows: Sequence[Mapping[str, Any]], ranks: Sequence[int] = ()) -> bytes:
    """The record of a rank; `ranks`: the members of its mesh."""
    meshes = [{"names": ["dp"], "shape": [len(ranks)], "ranks": [[rank, 1, 1] for rank in ranks]}] if ranks else []
    held = sum(not row.get("buffer") for row in rows)
    head = {
        "rankscope_model": 1, "rank": rank, "host": "node1", "parameters": held, "buffers": len(rows) - held,
        "meshes": meshes,
    }  # fmt: skip
    return b"".join(json.dumps(line).encode() + b"\n" for line in (head, *rows))


def described_job(rows: Callable[[int], list[Row]], meshes: Sequence[Sequence[int]] = (range(4),)) -> Dataset:
    """The Dataset of a job of four ranks whose rank `r` holds `rows(r)`, on the mesh of `meshes` that has it."""
    sources = []
    for rank in range(4):
        shared = next((list(mesh) for mesh in meshes if rank in mesh), [])
        data = model_file(rank, rows(rank), shared)
        sources.append(SourceFile(f"model_rank_{rank}.jsonl", "model", len(data), 0, None, decode_model(data)))
    return assemble(sources, "", None, None, None)
