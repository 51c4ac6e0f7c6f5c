"""The lanes on the axis of wall clock time: starts and ends of all items, with aligned clocks."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from rankscope.schema import Dataset
from rankscope.text.wording import duration, plural
from rankscope.tui.bins import find
from rankscope.tui.letters import PENDING, SHIFT, Codes, Mark
from rankscope.tui.model import Model

Ints = NDArray[np.int64]
FOREVER = 2**62
LATEST = 2**61
"""Later times are replaced by this one: sums with it must not overflow. It is in the year 2043."""
TAIL = 16
"""The run shows this share of itself after its last event: there only operations without end go on."""


@dataclass(frozen=True)
class Times:
    """Items of a model that have a time, sorted by lane, then by start."""

    item: Ints
    """The index of each item in the model."""
    bounds: Ints
    """Lane i holds positions `bounds[i]:bounds[i+1]`."""
    start: Ints
    end: Ints
    """FOREVER for an item that never completed."""
    code: Codes
    longest: Ints
    """For each position, the position up to it in its lane with the latest end."""
    low: int
    high: int
    """The first start of all lanes, and a little after their last event."""
    note: str
    """A text about how reliable the clocks are."""

    def running(self, lanes: Ints, edges: Ints) -> tuple[Codes, Ints]:
        """The items that run across the left edge of each cell: codes (0 for none) and positions, as lanes x cells."""
        shape = (len(lanes), len(edges) - 1)
        low = np.broadcast_to(self.bounds[lanes][:, None], shape)
        high = np.broadcast_to(self.bounds[lanes + 1][:, None], shape)
        left = np.broadcast_to(edges[None, :-1], shape)
        before = find(self.start, low, high, left) - 1
        if not len(self.start):
            return np.zeros(shape, np.uint8), np.full(shape, -1, np.int64)
        position = self.longest[np.maximum(before, 0)]
        runs = (before >= low) & (self.end[position] > left)
        return np.where(runs, self.code[position], 0).astype(np.uint8), np.where(runs, position, -1)


def build_times(model: Model) -> Times:
    """Starts and ends of all items; an incomplete item ends with the next of its lane, or never if pending."""
    clocks = align_clocks(model.dataset)
    shift = np.array([clocks.offsets.get(rank, 0) for rank in model.ranks.tolist()], np.int64)
    items = model.items
    known = np.flatnonzero(items.created >= 0)
    moved = np.where(items.row[known] >= 0, shift[items.lane[known]], 0)
    start = np.clip(np.minimum(items.created[known], LATEST) - moved, 0, LATEST)
    order = np.lexsort((start, items.lane[known]))
    known, start = known[order], start[order]
    lane, code = items.lane[known], items.code[known]
    end = _ends(model, known, start, lane, shift)
    finite = end[end < FOREVER]
    bounds = np.searchsorted(lane, np.arange(len(model.ranks) + 1)).astype(np.int64)
    low = int(start.min()) if len(start) else 0
    last = max(int(start.max(initial=0)), int(finite.max(initial=0))) + 1
    high = last + (last - low) // TAIL
    return Times(known, bounds, start, end, code, _longest(end, lane), low, high, clocks.note)


def _ends(model: Model, known: Ints, start: Ints, lane: NDArray[np.int32], shift: Ints) -> Ints:
    """The end of each item."""
    rows = model.items.row[known]
    written = _written_ends(model)[np.maximum(rows, 0)] if model.dataset.ops.height else np.full(len(rows), -1)
    following = np.append(start[1:], FOREVER) if len(start) else start
    same = np.append(lane[1:] == lane[:-1], False) if len(lane) else np.zeros(0, np.bool_)
    mark = model.items.code[known] >> SHIFT
    pending = np.isin(mark, (*PENDING, Mark.MISMATCH_PENDING))
    end = np.where(same, following, start + 1)
    end = np.where((rows >= 0) & (written >= 0), np.clip(written - shift[lane], 0, LATEST), end)
    end = np.where(pending, FOREVER, np.maximum(end, start + 1))
    return np.where(rows < 0, start + 1, end).astype(np.int64)


def _written_ends(model: Model) -> Ints:
    """The end of each row of ops as its row tells it; -1 if it does not.

    A completion is noticed up to a tenth of a second late, so a duration that the device measured is added to the time
    of issue instead.
    """
    measured = pl.col("created_ns") + pl.col("duration_ns")
    ends = model.dataset.ops.select(pl.min_horizontal("completed_ns", measured).fill_null(-1).alias("end"))
    found: Ints = np.minimum(ends["end"].to_numpy(), LATEST)
    return found


def _longest(end: Ints, lane: NDArray[np.int32]) -> Ints:
    """For each position, the position up to it in its lane with the latest end; of several the last."""
    if not len(end):
        return np.zeros(0, np.int64)
    table = pl.DataFrame({"lane": lane, "end": end}).with_row_index("at")
    running = table.with_columns(pl.col("end").cum_max().over("lane").alias("top"))
    best = pl.when(pl.col("end") == pl.col("top")).then(pl.col("at").cast(pl.Int64)).otherwise(-1)
    return running.select(best.cum_max().alias("best"))["best"].to_numpy()


# Aligns the clocks of hosts: a collective ends for all its members at about the same moment.

ROUNDS = 4
"""Passes over all collectives; hosts without a common one are compared through others."""


@dataclass(frozen=True)
class Clocks:
    """Offsets to subtract from the times of each rank."""

    offsets: dict[int, int]
    """Nanoseconds per rank; other ranks have no offset."""
    residual_ns: int | None
    """Median difference between members in the end of a collective; None if nothing could be compared."""

    @property
    def note(self) -> str:
        """A few words about how reliable the clocks are."""
        if self.residual_ns is None:
            return "clocks as written"
        moved = sum(1 for ns in self.offsets.values() if ns)
        how = f"clocks of {plural(moved, 'rank')} moved" if moved else "clocks agree"
        return f"{how}, ends differ by {duration(self.residual_ns)}"


def align_clocks(dataset: Dataset) -> Clocks:
    """Offsets from the ends of collectives over several hosts, or over several ranks if no host is known.

    The offset of a host is the median delay of its ends of collectives after the others' median (formula: the clock
    offset estimate of NTP, with the shared end in place of the exchange). An offset that is not clearly larger than its
    scatter counts as none.
    """
    ends = _ends_of_rank(dataset)
    if ends.is_empty():
        return Clocks({}, None)
    total = pl.DataFrame({"clock": ends["clock"].unique()}, schema={"clock": ends.schema["clock"]}).with_columns(
        offset=pl.lit(0.0), scatter=pl.lit(0.0)
    )
    for _ in range(ROUNDS):
        scatter = (pl.col("late") - pl.col("late").median()).abs().median().alias("mad")
        found = _differences(ends, total).group_by("clock").agg(pl.col("late").median().alias("step"), scatter)
        total = total.join(found, on="clock", how="left").select(
            "clock", pl.col("offset") + pl.col("step").fill_null(0.0), pl.col("mad").fill_null(0.0).alias("scatter")
        )
    sure = total.with_columns(
        offset=pl.when(pl.col("offset").abs() > 2 * pl.col("scatter")).then("offset").otherwise(0.0)
    )
    residual = _differences(ends, sure)["late"].abs().median()
    return Clocks(_per_rank(dataset, sure), round(float(residual)) if isinstance(residual, float) else None)


def _clock() -> pl.Expr:
    return pl.coalesce(pl.col("host").cast(pl.String), pl.format("rank {}", "rank")).alias("clock")


def _ends_of_rank(dataset: Dataset) -> pl.DataFrame:
    """The ends of collectives on more than one clock: instance, clock, completed_ns."""
    done = dataset.ops.filter(
        (pl.col("state") == "completed") & pl.col("completed_ns").is_not_null() & ~pl.col("is_p2p")
        & pl.col("seq").is_not_null()
    ).select("group", "seq", _clock(), "completed_ns")  # fmt: skip
    several = done.group_by("group", "seq").agg(pl.col("clock").n_unique().alias("clocks")).filter(pl.col("clocks") > 1)
    return done.join(several.with_row_index("instance"), on=["group", "seq"]).select(
        "instance", "clock", "completed_ns"
    )


def _differences(ends: pl.DataFrame, offsets: pl.DataFrame) -> pl.DataFrame:
    """The delay of each clock's end of a collective after the median of its members."""
    at = pl.col("completed_ns") - pl.col("offset").round().cast(pl.Int64, strict=False).fill_null(0)
    since = pl.col("at") - pl.col("at").min().over("instance")
    late = (pl.col("since") - pl.col("since").median().over("instance")).alias("late")
    shifted = ends.join(offsets, on="clock").with_columns(at=at)
    return shifted.with_columns(since=since).select("clock", late)


def _per_rank(dataset: Dataset, offsets: pl.DataFrame) -> dict[int, int]:
    ranks = dataset.ops.select("rank", _clock()).unique(maintain_order=False)
    known = ranks.join(offsets, on="clock").filter(pl.col("rank").is_not_null())
    return {rank: round(offset) for rank, offset in known.select("rank", "offset").iter_rows()}
