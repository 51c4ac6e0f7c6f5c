"""Rows of `parameters`: what each rank holds of its model, and which ranks hold the same parameters."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from math import prod
from typing import Any

import polars as pl

from rankscope.assemble.gathering import RunChoice
from rankscope.assemble.rank_files import FileOwner, RankFile, newest_files, rank_files
from rankscope.assemble.sources import SourceFile
from rankscope.features.model.model_records import ModelRecord, ParameterLine, Run, layout_of
from rankscope.schema.tables import PARAMETERS, WRAPPERS
from rankscope.text.wording import plural

MOST_ROWS = 1 << 22
"""Most parameters of all ranks together; they take about a gigabyte."""
MOST_MEMBERS = 1 << 22
"""Most members of all different meshes and groups together."""
_TOO_MANY = f"not used: the files before it hold {plural(MOST_ROWS, 'parameter')}"
_OTHER = "other"
_BITS = re.compile(r"[0-9]{1,3}")


def add_parameters(tables: dict[str, pl.DataFrame], sources: Sequence[SourceFile], run: RunChoice) -> int:
    """Adds the parameters of the newest process of each rank; returns the number of ranks, 0 for none."""
    chosen, pattern = run.attempt, run.pattern
    newest = _newest(sources, max(0, chosen), pattern)
    peers = PeerSets()
    parts, rows, world = [], 0, 0
    for rank, (place, source, record) in sorted(newest.items()):
        rows += record.rows
        if rows > MOST_ROWS:
            source.note = _TOO_MANY
            continue
        source.used = True
        world = max(world, 1 + rank, record.head.world_size or 0)
        for mesh in record.head.meshes:
            peers.join(tuple(mesh.ranks or ()))
        parts.append(_frame(record, rank, place))
    if parts:
        peer_numbers = {rank: peers.number(rank) for rank in newest}
        peer_rows = pl.DataFrame(
            {"rank": list(peer_numbers), "peers": list(peer_numbers.values())}, {"rank": pl.Int32, "peers": pl.Int32}
        )
        table = pl.concat(parts).drop("peers").join(peer_rows, on="rank", how="left", maintain_order="left")
        tables["parameters"] = table.select(list(PARAMETERS))
    return world


def _newest(
    sources: Sequence[SourceFile], attempt: int, pattern: re.Pattern[str] | None
) -> dict[int, RankFile[ModelRecord]]:
    """The records of the newest process of each rank in an attempt."""
    files = rank_files(
        sources,
        ModelRecord,
        attempt,
        pattern,
        lambda _, one: FileOwner(one.head.rank, one.head.host or "", one.head.pid),
    )
    newest = newest_files(files, lambda file: file.content.head.time_ns or 0)
    return {file.content.head.rank if file.source.rank is None else file.source.rank: file for file in newest}


class PeerSets:
    """Sets of ranks that share a mesh or a group, directly or through others. A mesh of one rank shares nothing."""

    def __init__(self) -> None:
        self._above: dict[int, int] = {}
        self._seen: set[tuple[Run, ...]] = set()
        self._left = MOST_MEMBERS

    def join(self, runs: tuple[Run, ...]) -> None:
        """Notes that the ranks of a mesh or group share parameters."""
        size = sum(run[2] for run in runs)
        if runs in self._seen or size < 2 or size > self._left:
            return
        self._seen.add(runs)
        self._left -= size
        for first, step, count in runs:
            for at in range(count):
                self._unite(runs[0][0], first + step * at)

    def _unite(self, rank: int, other: int) -> None:
        first, second = self._root(rank), self._root(other)
        self._above[max(first, second)] = min(first, second)

    def number(self, rank: int) -> int | None:
        """The least rank of the set of a rank; None if it shares nothing."""
        return self._root(rank) if rank in self._above else None

    def _root(self, rank: int) -> int:
        while (above := self._above.setdefault(rank, rank)) != rank:
            self._above[rank] = rank = self._above[above]
        return rank


def _frame(record: ModelRecord, rank: int, place: int) -> pl.DataFrame:
    """The rows of a rank, without its peers."""
    rows = [_values(record, line) for line in record.parameters]
    same = {"rank": rank, "file": place}
    dtypes = {name: dtype for name, dtype in PARAMETERS.items() if name not in ("rank", "file", "line")}
    columns = zip(*rows, strict=True) if rows else ((),) * len(dtypes)
    table = pl.DataFrame(
        [pl.Series(name, column, dtype) for (name, dtype), column in zip(dtypes.items(), columns, strict=True)]
    ).with_row_index("line", 2)
    table = table.with_columns(**{name: pl.lit(value) for name, value in same.items()})
    return table.select(pl.col(name).cast(dtype) for name, dtype in PARAMETERS.items())


def _values(record: ModelRecord, line: ParameterLine) -> tuple[Any, ...]:
    """The values of a parameter, by the columns of `parameters` but rank, file and line."""
    meshes = record.head.meshes
    mesh = meshes[line.mesh] if line.mesh is not None and line.mesh < len(meshes) else None
    sizes = mesh.shape if mesh is not None else []
    layout = layout_of(line.placements, sizes)
    names = [*(mesh.names if mesh is not None else ()), *("",) * len(sizes)]
    return (
        line.name, line.shape, line.local, line.dtype, line.requires_grad, line.buffer, line.device,
        line.wrapper or "" if line.wrapper is None or line.wrapper in WRAPPERS else _OTHER,
        " ".join(line.placements or ()), _mesh_text(names, sizes), layout,
        _layout(line.gradient_placements, sizes, layout if line.gradient_bytes else None),
        _layout(line.state_placements, sizes, layout if line.state_bytes else None),
        None, prod(line.shape), prod(line.shape) * _width(line.dtype), line.bytes, line.gradient_bytes,
        line.state_bytes,
    )  # fmt: skip


def _layout(placements: Sequence[str] | None, sizes: Sequence[int], plain: str | None) -> str | None:
    return plain if placements is None else layout_of(placements, sizes)


def _width(dtype: str) -> int:
    """Bytes of an element, by the bits in the name of its type: "bfloat16", "float8_e4m3fn", "bool"."""
    bits = _BITS.search(dtype)
    return max(1, int(bits[0]) // 8) if bits is not None else 1


def _mesh_text(names: Iterable[str], sizes: Sequence[int]) -> str:
    """The dimensions of a mesh: "dp 4 x tp 2"."""
    return " x ".join(f"{name} {size}".strip() for name, size in zip(names, sizes, strict=False))
