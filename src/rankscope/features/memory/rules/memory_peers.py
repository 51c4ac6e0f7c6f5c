"""Fullness of ranks beside that of their peers: who holds more than the others, by how much."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

import numpy as np
import polars as pl

from rankscope.analysis.model import Mesh
from rankscope.features.memory.rules.model import FullRank
from rankscope.schema.tables import HOST

FEWEST_PEERS = 4
"""Fewest ranks that are compared; of three, two may be the odd ones."""
SHARE = {True: 0.25, False: 0.15}
LEAST = {True: 64 << 20, False: 64 << 20}
"""Least excess over the median of the peers, on the host (True) and on devices: a share of it, and bytes."""
SPREADS = 5.0
"""Least excess in spreads of the peers (median absolute deviation, scaled to a standard deviation)."""
_TO_DEVIATION = 1.4826


def held_by_rank(memory: pl.DataFrame) -> pl.DataFrame:
    """Memory that each rank held, a row for each device: rank, device, host, samples, peak, last, reserved, capacity,
    last_ns. Bytes on a device are those in tensors, on the host all of the process.
    """
    is_host = pl.col("device") == HOST
    held = pl.when(is_host).then(pl.coalesce("reserved", "allocated")).otherwise("allocated")
    rows = sample_rows(memory).with_columns(held=held, most=pl.max_horizontal("peak", held))
    return (
        rows.drop_nulls("held")
        .group_by("rank", "device", maintain_order=True)
        .agg(
            pl.col("host").first(), samples=pl.col("samples").fill_null(1).sum(),
            peak=pl.col("most").max(), last=pl.col("held").last(),
            reserved=pl.col("reserved").max(), capacity=pl.col("capacity").max(), last_ns=pl.col("time_ns").max(),
        )
        .sort("rank", "device")
    )  # fmt: skip


def sample_rows(memory: pl.DataFrame) -> pl.DataFrame:
    """Samples of the capture, and of ranks without any those of traces, in the order of `Dataset.memory`.

    Rows of messages are left out.
    """
    is_sample = pl.col("source") == "capture"
    captured = memory.filter(is_sample)["rank"].unique().implode()
    return memory.filter(is_sample | ((pl.col("source") == "profiler") & ~pl.col("rank").is_in(captured)))


def kind_of(device: str) -> str:
    """The kind of a device: "cuda" of "cuda:3"."""
    return device.partition(":")[0]


def find_full_ranks(held: pl.DataFrame, mesh: Mesh | None) -> list[FullRank]:
    """The ranks that hold more than their peers: those of the same stage, where the mesh has stages.

    Where several ranks of eight hold more, the program is made so. Rank 0 may hold more on the host, for it mostly
    writes logs and checkpoints.
    """
    stages = (mesh.along("pp") if mesh is not None else None) or {}
    found = []
    for rows in _cohorts(held, stages).values():
        found += _outliers(rows)
    return sorted(found)


def _cohorts(held: pl.DataFrame, stages: Mapping[int, int]) -> dict[tuple[str, int], list[tuple[int, str, int, int]]]:
    """Rank, device, peak and capacity by kind of device and stage; of several devices of a rank the fullest."""
    best: dict[tuple[str, int], tuple[int, str, int, int]] = {}
    for row in held.select("rank", "device", "peak", "capacity").iter_rows():
        key = kind_of(row[1]), row[0]
        if key not in best or row[2] > best[key][2]:
            best[key] = row
    out: dict[tuple[str, int], list[tuple[int, str, int, int]]] = defaultdict(list)
    for (kind, rank), row in best.items():
        out[kind, stages.get(rank, 0)].append(row)
    return out


def _outliers(rows: Sequence[tuple[int, str, int, int]]) -> list[FullRank]:
    if len(rows) < FEWEST_PEERS:
        return []
    peaks = np.array([row[2] for row in rows], np.float64)
    median = float(np.median(peaks))
    spread = _TO_DEVIATION * float(np.median(np.abs(peaks - median)))
    is_host = rows[0][1] == HOST
    least = median + max(SHARE[is_host] * median, LEAST[is_host], SPREADS * spread)
    above = [row for row in rows if row[2] > least]
    if len(above) > max(1, len(rows) // 8):
        return []
    peers = sorted(row[2] for row in rows if row[2] <= least)
    return [
        FullRank(rank, device, peak, peers[0], peers[-1], round(median), len(peers), capacity)
        for rank, device, peak, capacity in above
        if not (is_host and rank == 0)
    ]
