"""Whether a rank is late by more than chance, from how late it was by its own doing in each unit.

In a healthy job some rank is last in nearly every collective, by a little. A rank is accused only if it is late by
itself in most units, if the lower end of a 95 % bootstrap interval of its median lateness is above a floor, and if
that is several times what the others are late by. With few units all of them must agree.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

FLOOR_NS, HOST_FLOOR_NS = 500_000, 5_000_000
"""What is late by less is not worth a word. Where hosts compute and communicate themselves (gloo), their schedulers
give each process turns of milliseconds, and one may get the shorter end for a while."""
FLOOR_SHARE, HOST_FLOOR_SHARE = 0.02, 0.05
"""The same as a share of a unit."""
STEADY = 5
"""The upper end of the interval may be so many times the lower: what is late by anything is not late by itself."""
LEAST = 3
"""Units needed to speak of "again and again"."""
MOSTLY = ((20, 0.6), (5, 0.8), (0, 1.0))
"""With so many units, the share of them in which it must be late."""
ABOVE, ABOVE_PARTS = 3, 4
"""So many times what the others are late by; where units are no steps, in which chance adds up more, so many."""
OTHERS, OTHERS_FEW, FEW = 0.5, 0.9, 5
"""Which quantile of the others' lateness that is; below so many units, in which chance alone picks somebody, which."""
ROUNDS = 500


@dataclass(frozen=True)
class Late:
    """A rank that is late by itself."""

    rank: int
    channel: int
    """Where it is seen best."""
    spot: int | None
    """Which of the collectives of the channel in each step; None where units are no steps of the program."""
    units: int
    late_in: int
    median_ns: int
    low_ns: int
    high_ns: int
    cost_ns: int
    """Median of what the job lost in a unit."""
    unit_ns: int
    """Median length of a unit."""

    def rows(self, rows: pl.DataFrame) -> pl.DataFrame:
        """The rows of the collectives at which it is seen."""
        here = rows.filter(pl.col("channel") == self.channel)
        return here if self.spot is None else here.filter(pl.col("spot") == self.spot)


def find_late(rows: pl.DataFrame, on_host: bool = False, by_step: bool = True) -> list[Late]:
    """The ranks that are late by themselves, the costliest first.

    `rows` of blocking matches that all members are seen in, with `unit`, `own_ns`, `cost_ns`; `on_host`: of hosts that
    communicate themselves; `by_step`: units are steps of the program.
    """
    rows = rows.filter(pl.col("unit").is_not_null())
    if rows.is_empty():
        return []
    by_channel = rows.group_by("window", "unit", "rank", "channel").agg(pl.col("own_ns", "cost_ns").sum())
    # the same delay is seen in every group of the rank: the largest counts
    units = ["window", "unit", "rank"]
    table = by_channel.group_by(units).agg(pl.col("own_ns", "cost_ns").max()).sort(units)
    unit_ns = _unit_ns(rows)
    floor_ns, share = (HOST_FLOOR_NS, HOST_FLOOR_SHARE) if on_host else (FLOOR_NS, FLOOR_SHARE)
    judge = _Judge(rows, table, unit_ns, max(floor_ns, share * unit_ns), by_step)
    late = [found for rank in sorted(table["rank"].unique()) if (found := judge.late(rank))]
    return sorted(late, key=lambda one: -one.cost_ns)


def _unit_ns(rows: pl.DataFrame) -> int:
    """Median time from the first end of a unit to that of the next; of a lone unit its own length."""
    firsts = (
        rows.group_by("window", "unit").agg(pl.col("ended_ns").min(), last=pl.col("ended_ns").max()).sort("ended_ns")
    )
    gaps = firsts.filter(pl.len().over("window") > 1).select(pl.col("ended_ns").diff().over("window")).drop_nulls()
    found = gaps.to_series().median() if gaps.height else (firsts["last"] - firsts["ended_ns"]).max()
    return int(found) if isinstance(found, int | float) else 0


@dataclass(frozen=True)
class _Judge:
    rows: pl.DataFrame
    table: pl.DataFrame
    """own_ns and cost_ns of each rank and unit."""
    unit_ns: int
    floor_ns: float
    by_step: bool

    def late(self, rank: int) -> Late | None:
        """The rank if it is late by itself."""
        own = self.table.filter(pl.col("rank") == rank)
        values = own["own_ns"].to_numpy()
        others = self.table.filter(pl.col("rank") != rank)["own_ns"].to_numpy()
        needed = next(share for count, share in MOSTLY if len(values) >= count)
        late_in = int((values > self.floor_ns).sum())
        if len(values) < LEAST or late_in < needed * len(values) or not len(others):
            return None
        low, high = _interval(values)
        usual = float(np.quantile(others, OTHERS_FEW if len(values) < FEW else OTHERS))
        above = ABOVE if self.by_step else ABOVE_PARTS
        if low < max(self.floor_ns, above * usual) or high > STEADY * low:
            return None
        channel, spot = _best(self.rows.filter(pl.col("rank") == rank))
        return Late(
            rank, channel, spot if self.by_step else None, len(values), late_in, int(np.median(values)), low, high,
            int(np.median(own["cost_ns"].to_numpy())), self.unit_ns,
        )  # fmt: skip


def _best(rows: pl.DataFrame) -> tuple[int, int]:
    """The channel and the spot in it at which a rank is late most."""
    spots = rows.group_by("channel", "spot").agg(pl.col("own_ns").sum()).sort("own_ns", "channel", "spot")
    channel, spot, _ = spots.row(-1)
    return channel, spot


def _interval(values: npt.NDArray[np.int64]) -> tuple[int, int]:
    """2.5 % and 97.5 % of the bootstrapped median."""
    rng = np.random.default_rng(0)
    medians = np.median(rng.choice(values, size=(ROUNDS, len(values))), axis=1)
    return int(np.quantile(medians, 0.025)), int(np.quantile(medians, 0.975))
