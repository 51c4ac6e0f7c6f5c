"""Spans as arrays, in the order of the table: a query of one thread or stream costs nothing for the others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from rankscope.features.traces.page.activity import activities
from rankscope.schema import Dataset
from rankscope.tui.letters import Codes

Ints = NDArray[np.int64]
LATEST = 2**61
"""Later times, and longer spans, are replaced by this: sums with it must not overflow."""
DEEPEST = 512
"""Most spans around a span that are looked for."""
NAMELESS = 2**32 - 1
"""Stands for the name of a span without one."""
BLOCK = 1024
"""Spans that a search for long ones skips at once."""


@dataclass(frozen=True)
class Spans:
    """The spans of all tracks. Times are those of each rank's own clock; `shift` aligns them."""

    numbers: Ints
    """The number of each track, rising."""
    bounds: Ints
    """Track i, counted from 0, holds spans `bounds[i]:bounds[i+1]`."""
    shift: Ints
    """By track, nanoseconds to add to its times."""
    start: Ints
    end: Ints
    depth: NDArray[np.uint16]
    activity: Codes
    op: Ints
    """The row of `traced` that a span executes; -1 for none."""
    longest: Ints
    """Duration of the longest of each BLOCK spans."""
    name: NDArray[np.uint32]
    """The index of each name in `names`."""
    names: Mapping[int, str]

    def name_of(self, span: int) -> str:
        """The name of a span; "?" if it has none."""
        return self.names.get(int(self.name[span]), "?")

    def track_of(self, span: int) -> int:
        """The track, counted from 0, that holds a span."""
        return int(np.searchsorted(self.bounds, span, side="right")) - 1

    def times(self, span: int) -> tuple[int, int]:
        """Start and end of a span, aligned."""
        shift = int(self.shift[self.track_of(span)])
        return int(self.start[span]) + shift, int(self.end[span]) + shift

    def around(self, span: int) -> list[int]:
        """The spans around one, the innermost first, without itself."""
        low = int(self.bounds[self.track_of(span)])
        out: list[int] = []
        while self.depth[span] and len(out) < DEEPEST:
            outer = self._last_of_depth(low, span, int(self.depth[span]) - 1)
            if outer is None:
                break
            out.append(outer)
            span = outer
        return out

    def _last_of_depth(self, low: int, before: int, depth: int) -> int | None:
        size = 256
        while before > low:
            first = max(before - size, low)
            found = np.flatnonzero(self.depth[first:before] == depth)
            if len(found):
                return first + int(found[-1])
            before, size = first, size * 4
        return None

    def at_least(self, begin: int, end: int, length: int) -> Ints:
        """Spans from `begin` up to `end` that take at least `length` nanoseconds."""
        blocks = np.arange(begin // BLOCK, -(-end // BLOCK))
        long = blocks[self.longest[blocks] >= length]
        at = (long[:, None] * BLOCK + np.arange(BLOCK)).ravel()
        at = at[(at >= begin) & (at < end)]
        found: Ints = at[self.end[at] - self.start[at] >= length]
        return found

    def active(self, track: int, time: int) -> list[int]:
        """The spans of a track that run at an aligned time, the innermost first."""
        low, high = int(self.bounds[track]), int(self.bounds[track + 1])
        own = time - int(self.shift[track])
        at = low + int(np.searchsorted(self.start[low:high], own, side="right")) - 1
        if at < low:
            return []
        return [span for span in [at, *self.around(at)] if self.end[span] > own]

    def between(self, track: int, first: int, last: int) -> tuple[int, int]:
        """The spans of a track that start from `first` up to `last`, as a range."""
        low, high = int(self.bounds[track]), int(self.bounds[track + 1])
        shift = int(self.shift[track])
        a, b = np.searchsorted(self.start[low:high], [first - shift, last - shift])
        return low + int(a), low + int(b)


def build_spans(dataset: Dataset, shift_of_file: dict[int, int]) -> Spans:
    """The arrays of a dataset's spans; `shift_of_file` gives the offset to the clock of each file."""
    table = dataset.spans
    numbers = dataset.tracks["track"].unique().sort().to_numpy().astype(np.int64)
    files = dict(dataset.tracks.select("track", "file").iter_rows())
    start = np.clip(table["start_ns"].to_numpy(), 0, LATEST)
    length = np.clip(table["duration_ns"].to_numpy(), 0, LATEST)
    bounds = np.searchsorted(table["track"].to_numpy(), np.append(numbers, int(numbers[-1]) + 1 if len(numbers) else 0))
    return Spans(
        numbers,
        bounds.astype(np.int64),
        np.array([shift_of_file.get(files[number], 0) for number in numbers.tolist()], np.int64),
        start,
        start + length,
        table["depth"].to_numpy(),
        activities(table, dataset.traced),
        table["op"].cast(pl.Int64).fill_null(-1).to_numpy(),
        np.maximum.reduceat(length, np.arange(0, len(length), BLOCK)) if len(length) else length,
        table["name"].to_physical().fill_null(NAMELESS).to_numpy(),
        _names(table["name"]),
    )


def _names(names: pl.Series) -> dict[int, str]:
    """The name of each physical code."""
    table = pl.DataFrame({"code": names.to_physical(), "name": names}).drop_nulls().unique("code")
    return dict(table.with_columns(pl.col("name").cast(pl.String)).iter_rows())
