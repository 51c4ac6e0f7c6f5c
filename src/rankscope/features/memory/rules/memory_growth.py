"""Growth of memory over steps, with its slope and interval: who leaks.

A leak raises the floor of memory at a steady rate. Samples behind the warm-up are cut into blocks; the least memory of
each block must be above that of the block before, which by chance happens once in 40,320 times, and the second half
must grow nearly as fast as the first: caches that fill do not. The slope is that of Theil and Sen over these floors,
with its interval by Kendall's tau (scipy.stats.theilslopes).
"""

from __future__ import annotations

import numpy as np
import polars as pl

from rankscope.features.memory.rules.model import MemoryGrowth
from rankscope.schema.tables import HOST

BLOCKS = 8
FEWEST_SAMPLES = 2 * BLOCKS
"""Fewest samples behind the warm-up."""
WARM_UP = 0.25
"""Share of the steps in which caches and allocators may grow."""
STEADY = 0.7
"""Least growth of the second half, as a share of that of the first."""
LEAST_BYTES = {True: 32 << 20, False: 4 << 20}
LEAST_SHARE = {True: 0.02, False: 0.01}
"""Least growth on the host (True), where pages of libraries come and go, and on devices."""
CONFIDENCE = 0.95


def find_growths(memory: pl.DataFrame) -> list[MemoryGrowth]:
    """The ranks and devices whose memory grows and grows, by rank, in rows of `Dataset.memory`."""
    floors = _floors(memory).filter(pl.col("bytes").list.eval(pl.element().diff().drop_nulls() > 0).list.all())
    return [found for row in floors.iter_rows(named=True) if (found := _growth(**row)) is not None]


def slope_of(memory: pl.DataFrame) -> MemoryGrowth | None:
    """The slope of the floors of one rank and device, whether or not they rise; None for few samples."""
    floors = _floors(memory)
    return None if floors.is_empty() else _sloped(**floors.row(0, named=True))


def _floors(memory: pl.DataFrame) -> pl.DataFrame:
    """One row for each rank and device with enough samples: x and least bytes of each block."""
    key = ["rank", "device"]
    held = pl.when(pl.col("device") == HOST).then("reserved").otherwise("allocated")
    steps = (pl.col("step").max() > pl.col("step").min()).over(key)
    rows = (
        memory.filter(pl.col("source") == "capture")
        .with_columns(bytes=held, by_step=steps.fill_null(value=False))
        .with_columns(x=pl.when("by_step").then(pl.col("step")).otherwise(pl.col("time_ns") / 1e9).cast(pl.Float64))
        .drop_nulls(["bytes", "x"])
        # behind the last step a job gives its memory back, before it ends
        .filter(~pl.col("by_step") | (pl.col("step") < pl.col("step").max().over(key)))
        .with_columns(begin=pl.col("x").min().over(key), span=(pl.col("x").max() - pl.col("x").min()).over(key))
        .filter(pl.col("x") > pl.col("begin") + WARM_UP * pl.col("span"))
        .with_columns(samples=pl.len().over(key), place=pl.int_range(pl.len()).over(key))
        .filter(pl.col("samples") >= FEWEST_SAMPLES)
        .with_columns(block=pl.col("place") * BLOCKS // pl.col("samples"))
    )
    blocks = rows.group_by(*key, "block", maintain_order=True).agg(
        pl.col("x").mean(), pl.col("bytes").min(), pl.col("samples").first(), pl.col("by_step").first()
    )
    return blocks.group_by(key, maintain_order=True).agg(
        "x", "bytes", pl.col("samples").first(), pl.col("by_step").first()
    )


def _growth(
    rank: int, device: str, x: list[float], bytes: list[int], samples: int, by_step: bool
) -> MemoryGrowth | None:
    """The growth of rising floors; None if it is small, or comes to an end."""
    half = len(bytes) // 2
    early, late = bytes[half - 1] - bytes[0], bytes[-1] - bytes[half]
    is_host = device == HOST
    least = max(LEAST_BYTES[is_host], LEAST_SHARE[is_host] * bytes[0])
    if bytes[-1] - bytes[0] < least or late < STEADY * early:
        return None
    found = _sloped(rank, device, x, bytes, samples, by_step)
    return found if found.low > 0 else None


def _sloped(rank: int, device: str, x: list[float], bytes: list[int], samples: int, by_step: bool) -> MemoryGrowth:
    """The slope of floors with its interval."""
    from scipy.stats import theilslopes

    found = theilslopes(np.array(bytes, np.float64), np.array(x), CONFIDENCE)
    return MemoryGrowth(
        rank, device, float(found.slope), float(found.low_slope), float(found.high_slope),
        "step" if by_step else "second", bytes[0], bytes[-1], samples,
    )  # fmt: skip
