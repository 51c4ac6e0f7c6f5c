"""Memory of ranks on the time axis of the lanes: arrays of samples, from which the cells of rows in view are cut."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from rankscope.features.memory.rules.memory_peers import sample_rows
from rankscope.schema.tables import HOST
from rankscope.text.wording import byte_count
from rankscope.tui.lane_cells import LaneCells
from rankscope.tui.letters import HELD, Codes, find, worst

Ints = NDArray[np.int64]
TENTHS = 10
_TEXT = np.frombuffer(b" 0123456789", np.uint8)
_STYLES = np.array([0, *(HELD + tenth // 2 for tenth in range(TENTHS))], np.uint8)


@dataclass(frozen=True, eq=False)
class MemoryTrack:
    """Samples of the fullest device of each rank, on the aligned clock of its lane; of the host where no device is."""

    places: Mapping[int, int]
    """The place of each rank in `bounds`."""
    bounds: Ints
    """The rank at place i has the samples `bounds[i]` up to `bounds[i + 1]`, by time."""
    time: Ints
    """Nanoseconds since the epoch."""
    held: Ints
    """Bytes in tensors; of the host what is resident."""
    code: Codes
    """Tenths of the capacity, or of the most that any rank holds, plus one."""
    note: str
    """The bytes and their scale in words."""

    def cells(self, ranks: Sequence[Sequence[int]], edges: Ints) -> LaneCells:
        """Tenths for rows of ranks, the fullest of each; `edges` are rows x (cells + 1), or one row for all.

        Between two samples the earlier one counts; before the first and behind the last is nothing.
        """
        rows, cells = len(ranks), edges.shape[1] - 1
        codes = np.zeros((rows, cells), np.uint8)
        known = [(row, self.places[r]) for row, members in enumerate(ranks) for r in members if r in self.places]
        if known:
            row, place = (np.array(part, np.int64) for part in zip(*known, strict=True))
            shape = (len(row), edges.shape[1])
            low, high = (np.broadcast_to(self.bounds[place + at][:, None], shape) for at in (0, 1))
            wanted = edges[row] if len(edges) > 1 else np.broadcast_to(edges, shape)
            at = find(self.time, low, high, wanted)
            of_rank = np.maximum(worst(self.code, at), self._before(at, low, high))
            starts = np.flatnonzero(np.diff(row, prepend=-1))
            codes[row[starts]] = np.maximum.reduceat(of_rank, starts, axis=0)
        return LaneCells(_TEXT[codes], _STYLES[codes], codes)

    def _before(self, at: Ints, low: Ints, high: Ints) -> Codes:
        """The code of the last sample before each cell; 0 where none is before it, or none after its begin."""
        before = at[:, :-1] - 1
        has_both = (before >= low[:, :-1]) & (at[:, :-1] < high[:, :-1])
        return np.where(has_both, self.code[np.maximum(before, 0)], 0).astype(np.uint8)

    def held_at(self, ranks: Sequence[int], before: int) -> str:
        """The most bytes of some ranks in their last sample before a time; "" where none is."""
        sizes = []
        for place in (self.places[rank] for rank in ranks if rank in self.places):
            low, high = self.bounds[place], self.bounds[place + 1]
            at = low + int(np.searchsorted(self.time[low:high], before))
            sizes += [int(self.held[at - 1])] if at > low else []
        return byte_count(max(sizes)) if sizes else ""


def build_track(memory: pl.DataFrame, offsets: Mapping[int, int]) -> MemoryTrack | None:
    """The samples of `Dataset.memory` with times less the offset of each rank; None where no sample has a time."""
    rows = (
        sample_rows(memory)
        .filter(pl.col("time_ns").is_not_null())
        .with_columns(
            kind=pl.col("device").str.split(":").list.first(),
            held=pl.when(pl.col("device") == HOST).then(pl.coalesce("reserved", "allocated")).otherwise("allocated"),
        )
    )
    rows = rows.filter(pl.col("held").is_not_null())
    if (rows["kind"] != HOST).any():
        rows = rows.filter(pl.col("kind") != HOST)
    if rows.is_empty():
        return None
    most = rows.group_by("rank", "device").agg(pl.col("held").max()).sort("rank", "held", "device")
    fullest = most.unique("rank", keep="last", maintain_order=True).select("rank", "device")
    shifts = pl.DataFrame(
        {"rank": list(offsets), "offset": list(offsets.values())}, {"rank": pl.Int32, "offset": pl.Int64}
    )
    rows = rows.join(fullest, on=["rank", "device"]).join(shifts, on="rank", how="left")
    return _track(rows.with_columns(time=pl.col("time_ns") - pl.col("offset").fill_null(0)).sort("rank", "time"))


def _track(rows: pl.DataFrame) -> MemoryTrack:
    """The track of rows of one device of each rank, sorted by rank and time."""
    ranks, first = np.unique(rows["rank"].to_numpy(), return_index=True)
    held = rows["held"].to_numpy().astype(np.int64)
    has_capacity = not rows["capacity"].has_nulls()
    scale = rows["capacity"].to_numpy() if has_capacity else np.full(len(held), held.max())
    tenths = np.clip(TENTHS * held // np.maximum(scale, 1), 0, TENTHS - 1)
    kind = str(rows["kind"][0])
    of = "the capacity" if has_capacity else f"{byte_count(int(held.max()))}, the most"
    return MemoryTrack(
        {int(rank): at for at, rank in enumerate(ranks)},
        np.append(first, len(held)).astype(np.int64),
        rows["time"].to_numpy().astype(np.int64),
        held,
        (1 + tenths).astype(np.uint8),
        f"{kind} in tenths of {of}",
    )
