"""What several dumps of one recorder say of the time between them: that nothing moved, or that something did."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import polars as pl

from rankscope.schema import Dataset

Span = tuple[int, int]
"""When the earlier and when the later of two dumps was written, in nanoseconds since the epoch."""


@dataclass(frozen=True)
class Repeats:
    """The pairs of dumps of a Dataset; only those whose times can be believed."""

    dataset: Dataset

    @cached_property
    def unchanged(self) -> dict[int, Span]:
        """By rank the longest time over which none of its operations was issued, started or completed."""
        return self._spans(pl.col("progressed").eq(False), pl.col("written_ns").min())

    @cached_property
    def moved(self) -> dict[int, Span]:
        """By rank the latest time within which one of its operations was issued, started or completed."""
        return self._spans(pl.col("progressed").eq(True), pl.col("written_ns").max())

    def _spans(self, chosen: pl.Expr, since: pl.Expr) -> dict[int, Span]:
        known = self.dataset.repeats.filter(chosen & pl.col("written_ns").is_not_null() & pl.col("rank").is_not_null())
        spans = known.group_by("rank").agg(since, pl.col("later_ns").max()).sort("rank")
        return {rank: (written, later) for rank, written, later in spans.iter_rows()}

    @cached_property
    def still(self) -> Span | None:
        """When the whole job stood still: the time that the unchanged dumps of all ranks have in common.

        None unless most ranks have two dumps that show the same, and no other rank shows an event in that time. Of one
        that was not dumped any more when the others stood still nothing is known but that it moved before.
        """
        seen, unchanged = self.dataset.seen_ranks, self.unchanged
        if 2 * len(unchanged) <= len(seen):
            return None
        since, until = max(s for s, _ in unchanged.values()), min(u for _, u in unchanged.values())
        if any(later > since for rank, (_, later) in self.moved.items() if rank not in unchanged):
            return None
        return (since, until) if since < until and self._quiet_since(since) else None

    def _quiet_since(self, since: int) -> bool:
        """Whether the ranks with one dump only show no event after a moment."""
        others = self.dataset.ops.filter(~pl.col("rank").is_in(list(self.unchanged)))
        newest = others.select(pl.max_horizontal("created_ns", "completed_ns", "started_ns").max()).item()
        return newest is None or newest <= since
