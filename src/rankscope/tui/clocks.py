"""Alignment of the clocks of hosts: a collective ends for all its members at about the same moment."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from rankscope.schema import Dataset
from rankscope.text.wording import duration, plural

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
        steps = _differences(ends, total).group_by("clock").agg(pl.col("late").median().alias("step"), scatter)
        total = total.join(steps, on="clock", how="left").select(
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
        (pl.col("state") == "completed")
        & pl.col("completed_ns").is_not_null()
        & ~pl.col("is_p2p")
        & pl.col("seq").is_not_null()
    ).select("group", "seq", _clock(), "completed_ns")
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
