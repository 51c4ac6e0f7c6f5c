"""Ranks by steps or times, from samples of memory: frozen arrays, from which the rows in view are cut.

A series is one device of a rank. Columns are cut once, at most `MOST_COLUMNS`; a cell holds the most bytes of its
samples, and a cell between two samples that of the sample before.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from rankscope.features.memory.rules.memory_growth import WARM_UP
from rankscope.features.memory.rules.memory_peers import kind_of, sample_rows
from rankscope.schema.tables import HOST

Ints = NDArray[np.int64]
Bytes = NDArray[np.float32]
Codes = NDArray[np.uint8]
MOST_COLUMNS = 256
SIZES = ("allocated", "reserved", "peak")
GROWTH = "growth"
LEAST_GROWTH = 0.01
"""Least growth that the highest digit stands for, as a share of the most bytes: smaller growth is noise."""
DIGITS = 10
SECOND_NS = 1_000_000_000


@dataclass(frozen=True, eq=False)
class MemoryGrid:
    """Memory of all ranks on one kind of device. Bytes are NaN where nothing is known."""

    kind: str
    """The kind of device: "cuda", "host"."""
    samples: pl.DataFrame
    """Rows of `Dataset.memory`, those of each series together."""
    ends: Ints
    """Series i has the samples `ends[i]` up to `ends[i + 1]`."""
    ranks: Ints
    """The rank of each series, rising."""
    stages: Ints
    """The pipeline stage of each series; 0 where none is known."""
    by_step: bool
    """Whether the columns are steps; else they are times."""
    places: NDArray[np.int16]
    """The column of each sample."""
    starts: Ints
    """The first step of each column, or its first time in nanoseconds since the epoch."""
    bytes: Mapping[str, Bytes]
    """Bytes by the names of `SIZES` that are known, and their `GROWTH`; each of shape (series, columns)."""
    scales: Mapping[str, Bytes]
    """Bytes that ten tenths stand for, of each series."""
    has_capacity: bool
    """Whether the scales are capacities."""

    @property
    def column_ns(self) -> int:
        """Nanoseconds from one column to the next; a second, where columns are steps."""
        is_wide = not self.by_step and len(self.starts) > 1
        return max(int(self.starts[1] - self.starts[0]), 1) if is_wide else SECOND_NS

    def shares(self, name: str, low: int, high: int) -> Bytes:
        """The shares of their scale of some series, shape (high - low, columns)."""
        return self.bytes[name][low:high] / self.scales[name][low:high, None]

    def codes(self, name: str, low: int, high: int, per: int) -> Codes:
        """The tenths of the worst of some series in each `per` columns, plus one; 0 where nothing is known."""
        worst = np.fmax.reduce(self.shares(name, low, high), axis=0)
        worst = np.fmax.reduceat(worst, np.arange(0, len(worst), per))
        tenths = np.clip(np.nan_to_num(worst) * DIGITS, 0, DIGITS - 1).astype(np.uint8)
        return np.where(np.isnan(worst), 0, tenths + 1).astype(np.uint8)

    def worst_series(self, name: str, low: int, high: int, columns: slice) -> int:
        """The series with the largest share in some columns, among those from `low` up to `high`."""
        shares = np.nan_to_num(self.shares(name, low, high)[:, columns], nan=-1.0)
        return low + int(shares.max(axis=1).argmax())

    def worst_column(self, name: str, low: int, high: int) -> int:
        """The column with the largest share of some series."""
        return int(np.nan_to_num(self.shares(name, low, high), nan=-1.0).max(axis=0).argmax())

    def sample_at(self, series: int, columns: slice, name: str) -> int | None:
        """The row in `samples` of the sample with most bytes in some columns, else of the last one before them."""
        first = int(self.ends[series])
        places = self.places[first : int(self.ends[series + 1])]
        inside = np.flatnonzero((places >= columns.start) & (places < columns.stop))
        if not len(inside):
            before = np.flatnonzero(places < columns.start)
            return first + int(before[-1]) if len(before) else None
        key = held_name(self.kind) if name == GROWTH else name
        most = self.samples[key][first + int(inside[0]) : first + int(inside[-1]) + 1].fill_null(-1)
        sizes = most.to_numpy()[inside - inside[0]]
        return first + int(inside[int(sizes.argmax())])

    def samples_of(self, series: int) -> pl.DataFrame:
        """The samples of a series."""
        first = int(self.ends[series])
        return self.samples[first : int(self.ends[series + 1])]

    def peers_median(self, name: str, series: int, columns: slice) -> float | None:
        """The median of the other ranks of the stage in some columns; None without any."""
        peers = (self.stages == self.stages[series]) & (self.ranks != self.ranks[series])
        worst = np.fmax.reduce(self.bytes[name][peers, columns], axis=1, initial=np.float32(np.nan))
        known = worst[~np.isnan(worst)]
        return float(np.median(known)) if len(known) else None


def held_name(kind: str) -> str:
    """The name of what a process holds on a kind of device: in tensors; on the host all that is resident."""
    return "reserved" if kind == HOST else "allocated"


def row_bounds(ranks: Ints, alone: NDArray[np.bool_], per: int) -> Ints:
    """Bounds of rows of neighbours, in which ranks share a row if their numbers divided by `per` are the same.

    Series that are `alone` share none. Row i holds the series `bounds[i]` up to `bounds[i + 1]`.
    """
    apart = np.diff(ranks // per) != 0
    apart |= alone[1:] | alone[:-1]
    return np.concatenate(([0], np.flatnonzero(apart) + 1, [len(ranks)])).astype(np.int64)


def memory_grids(memory: pl.DataFrame, stages: Mapping[int, int]) -> list[MemoryGrid]:
    """A grid for each kind of device in `Dataset.memory`, the host last; ranks have the pipeline stages `stages`."""
    rows = sample_rows(memory).drop_nulls("rank")
    by_kind: dict[str, list[str]] = {}
    for device in rows["device"].drop_nulls().unique().to_list():
        by_kind.setdefault(kind_of(device), []).append(device)
    grids = [
        _grid(kind, rows.filter(pl.col("device").is_in(by_kind[kind])), stages)
        for kind in sorted(by_kind, key=lambda kind: (kind == HOST, kind))
    ]
    return [grid for grid in grids if grid is not None]


def _grid(kind: str, rows: pl.DataFrame, stages: Mapping[int, int]) -> MemoryGrid | None:
    """The grid of one kind of device; None if no sample has a place and a size."""
    step = rows["step"]
    by_step = 2 * step.null_count() < len(step) and step.n_unique() - (step.null_count() > 0) > 1
    key = "step" if by_step else "time_ns"
    rows = rows.filter(pl.col(key).is_not_null() & pl.any_horizontal(pl.col(SIZES).is_not_null()))
    if rows.is_empty():
        return None
    changes = [(rows[name] != rows[name].shift()).fill_null(value=True).to_numpy() for name in ("rank", "device")]
    first = np.flatnonzero(changes[0] | changes[1])
    ends = np.append(first, rows.height).astype(np.int64)
    ranks = rows["rank"].to_numpy()[first].astype(np.int64)
    places, starts = _columns(rows[key], by_step=by_step, most=int(np.diff(ends).max()))
    sizes = {name: _most(rows[name], ends, places, len(starts)) for name in SIZES}
    known = {name: size for name, size in sizes.items() if not np.isnan(size).all()}
    # the capacity of the device of each series; 0 where it is not known
    capacity = np.maximum.reduceat(rows["capacity"].fill_null(0).to_numpy(), first).astype(np.float32)
    scales = {name: _scale(size, capacity) for name, size in known.items()}
    if held_name(kind) in known:
        known[GROWTH] = _growth(known[held_name(kind)])
        least = LEAST_GROWTH * float(np.nanmax(known[held_name(kind)]))
        scales[GROWTH] = np.full(len(ranks), max(float(np.nanmax(known[GROWTH])), least, 1.0), np.float32)
    stage_of = np.array([stages.get(rank, 0) for rank in ranks.tolist()], np.int64)
    has_capacity = bool((capacity > 0).any())
    return MemoryGrid(kind, rows, ends, ranks, stage_of, by_step, places, starts, known, scales, has_capacity)


def _columns(at: pl.Series, *, by_step: bool, most: int) -> tuple[NDArray[np.int16], Ints]:
    """The column of each sample, and the begin of each column; a column of steps holds steps that some rank has."""
    if by_step:
        steps = at.unique().sort().to_numpy()
        count = min(len(steps), MOST_COLUMNS)
        columns = np.searchsorted(steps, at.to_numpy()) * count // len(steps)
        return columns.astype(np.int16), steps[-(-np.arange(count) * len(steps) // count)].astype(np.int64)
    count = max(min(most, MOST_COLUMNS), 1)
    times = at.to_numpy()
    low, high = int(times.min()), int(times.max())
    size = max((high - low) / count, 1.0)
    columns = np.minimum((times.astype(np.float64) - low) / size, count - 1)
    starts = [low + round(column * size) for column in range(count)]
    return columns.astype(np.int16), np.array(starts, np.int64)


def _most(sizes: pl.Series, ends: Ints, places: NDArray[np.int16], count: int) -> Bytes:
    """The most bytes of each series in each column, those before in columns between two samples."""
    series = np.repeat(np.arange(len(ends) - 1), np.diff(ends))
    out = np.full((len(ends) - 1) * count, -1, np.float32)
    np.maximum.at(out, series * count + places, sizes.fill_null(-1).to_numpy().astype(np.float32))
    most = out.reshape(-1, count)
    known = most >= 0
    last = np.maximum.accumulate(np.where(known, np.arange(count, dtype=np.int16), -1), axis=1)
    is_over = np.logical_or.accumulate(known[:, ::-1], axis=1)[:, ::-1]
    filled = np.take_along_axis(most, np.maximum(last, 0), axis=1)
    return np.where((last >= 0) & is_over, filled, np.nan).astype(np.float32)


def _scale(sizes: Bytes, capacity: Bytes) -> Bytes:
    """The capacity of each series, where one is not known the most bytes of all."""
    return np.where(capacity > 0, capacity, max(float(np.nanmax(sizes)), 1.0)).astype(np.float32)


def _growth(held: Bytes) -> Bytes:
    """Bytes above the least in the quarter behind the warm-up, where the growth of a leak begins to count."""
    count = held.shape[1]
    begin = int(WARM_UP * count)
    behind: Bytes = np.fmin.reduce(held[:, begin : max(2 * begin, begin + 1)], axis=1)
    base: Bytes = np.where(np.isnan(behind), np.fmin.reduce(held, axis=1), behind)
    grown: Bytes = np.maximum(held - base[:, None], np.float32(0))
    grown[:, :begin] = np.minimum(grown[:, :begin], 0)
    return grown
