"""How much of any stretch of time is covered by something: what lets a frame cost the same for ten spans or millions.

Intervals of one key are merged until they are apart, and their lengths are summed up once. Then the part of a cell
that is covered is the difference of two sums, found by two binary searches.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from rankscope.tui.bins import find

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Cover:
    """Intervals that do not touch each other, sorted by key, then by time."""

    bounds: Ints
    """Key i holds intervals `bounds[i]:bounds[i+1]`."""
    start: Ints
    end: Ints
    before: Ints
    """Length of all intervals before each one, of other keys too; one more than there are intervals."""

    def until(self, keys: Ints, times: Ints) -> Ints:
        """How much of each key is covered up to these times, as keys x times."""
        low = np.broadcast_to(self.bounds[keys][:, None], times.shape)
        high = np.broadcast_to(self.bounds[keys + 1][:, None], times.shape)
        at = find(self.start, low, high, times)
        last = np.maximum(at - 1, 0)
        cut = np.where(at > low, np.maximum(self.end[last] - times, 0), 0) if len(self.end) else 0
        covered: Ints = self.before[at] - self.before[low] - cut
        return covered

    def within(self, keys: Ints, edges: Ints) -> Ints:
        """How much of each cell between neighbouring edges is covered, as keys x cells; edges are keys x edges."""
        return np.diff(self.until(keys, edges), axis=1)


def merged(key: NDArray[np.integer], start: Ints, end: Ints) -> pl.DataFrame:
    """Intervals with those that touch or overlap made one: key, start, end, sorted by key, then start."""
    table = pl.DataFrame({"key": key, "start": start, "end": end}).filter(pl.col("end") > pl.col("start"))
    table = table.sort("key", "start").with_columns(top=pl.col("end").cum_max().over("key"))
    apart = (pl.col("start") > pl.col("top").shift(1)) | (pl.col("key") != pl.col("key").shift(1))
    runs = table.with_columns(run=apart.fill_null(True).cum_sum())
    return (
        runs.group_by("run", maintain_order=True)
        .agg(pl.col("key").first(), pl.col("start").first(), pl.col("top").last().alias("end"))
        .drop("run")
    )


def cover_of(table: pl.DataFrame, keys: int) -> Cover:
    """The cover of merged intervals (see `merged`) of keys from 0 up to `keys`."""
    start, end = (table[name].to_numpy().astype(np.int64) for name in ("start", "end"))
    bounds = np.searchsorted(table["key"].to_numpy(), np.arange(keys + 1)).astype(np.int64)
    return Cover(bounds, start, end, np.concatenate([[0], np.cumsum(end - start)]).astype(np.int64))
