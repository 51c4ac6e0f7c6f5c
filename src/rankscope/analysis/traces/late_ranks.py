"""Ranks that are late by more than chance, by their own lateness in each unit.

In a healthy job some rank is last in nearly every collective, by a little. A rank is accused only if it is late by
itself in most units, if the lower end of a 95 % bootstrap interval of its median lateness is above a floor, and if that
is several times the lateness of the others. With few units all of them must agree.

Periodic work of a program (a checkpoint, a log, garbage collection) makes a rank late in every n-th step. Such a rank
is accused too, if it is late by itself in all of these steps and in no others.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import polars as pl

from rankscope.analysis.arrays import median_interval

FLOOR_NS, HOST_FLOOR_NS = 500_000, 5_000_000
"""Smaller lateness is not told. On hosts that compute and communicate themselves (gloo), the scheduler gives each
process time slices of milliseconds, and one process may get less for a while."""
FLOOR_SHARE, HOST_FLOOR_SHARE = 0.02, 0.05
"""The same floors as shares of a unit."""
INTERVAL_RATIO = 5
"""Largest ratio of the upper to the lower end of the interval; a wider spread is not a rank's own lateness."""
FEWEST_UNITS = 3
"""Fewest units for "again and again"."""
LATE_SHARES = ((20, 0.6), (5, 0.8), (0, 1.0))
"""(units, share of them in which the rank must be late), by decreasing number of units."""
ABOVE, ABOVE_PARTS = 3, 4
"""Smallest ratio to the lateness of the others; the second if units are not steps, because chance then adds up."""
OTHERS, OTHERS_FEW, FEW = 0.5, 0.9, 5
"""Quantile of the others' lateness for that ratio; with fewer than FEW units, where chance alone picks a rank,
OTHERS_FEW."""
AGAIN, EXCEPT = 4, 0.1
"""Fewest occurrences of a periodic lateness, and the share of other steps (or one of a few) that may be late by
chance."""


@dataclass(frozen=True)
class LateRank:
    """A rank that is late by itself."""

    rank: int
    channel: int
    """The channel that shows it best."""
    spot: int | None
    """Index of the collective in each step; None if units are not steps of the program."""
    units: int
    late_in: int
    median_ns: int
    low_ns: int
    high_ns: int
    cost_ns: int
    """Median time that the job lost per unit."""
    unit_ns: int
    """Length of a unit: the median, or the mean if only some units are late."""
    every: int = 1
    """Period in steps: it is late in steps with number % every == `phase`."""
    phase: int = 0

    def rows(self, rows: pl.DataFrame) -> pl.DataFrame:
        """The rows of the collectives that show it."""
        here = rows.filter((pl.col("channel") == self.channel) & self.units_of)
        return here if self.spot is None else here.filter(pl.col("spot") == self.spot)

    @property
    def units_of(self) -> pl.Expr:
        """The units that `every` refers to."""
        return pl.col("unit") % self.every == self.phase


def find_late_ranks(rows: pl.DataFrame, on_host: bool = False, by_step: bool = True) -> list[LateRank]:
    """The ranks that are late by themselves, the costliest first.

    `rows` of blocking matches with all members, with `unit`, `own_ns`, `cost_ns`; `on_host`: hosts communicate
    themselves; `by_step`: units are steps of the program.
    """
    rows = rows.filter(pl.col("unit").is_not_null())
    if rows.is_empty():
        return []
    by_channel = rows.group_by("window", "unit", "rank", "channel").agg(pl.col("own_ns", "cost_ns").sum())
    # the same delay appears in every group of the rank: the largest counts
    units = ["window", "unit", "rank"]
    table = by_channel.group_by(units).agg(pl.col("own_ns", "cost_ns").max()).sort(units)
    unit_ns, mean_ns = _unit_ns(rows)
    floor_ns, share = (HOST_FLOOR_NS, HOST_FLOOR_SHARE) if on_host else (FLOOR_NS, FLOOR_SHARE)
    judge = _LatenessTest(rows, table, unit_ns, mean_ns, max(floor_ns, share * unit_ns), by_step)
    late = [found for rank in sorted(table["rank"].unique()) if (found := judge.late(rank))]
    return sorted(late, key=lambda one: -one.cost_ns)


def _unit_ns(rows: pl.DataFrame) -> tuple[int, int]:
    """Median and mean time from the first end of a unit to that of the next; the length of a lone unit."""
    firsts = (
        rows.group_by("window", "unit").agg(pl.col("ended_ns").min(), last=pl.col("ended_ns").max()).sort("ended_ns")
    )
    gaps = firsts.filter(pl.len().over("window") > 1).select(pl.col("ended_ns").diff().over("window")).drop_nulls()
    lengths = gaps.to_series() if gaps.height else (firsts["last"] - firsts["ended_ns"]).top_k(1)
    values = lengths.to_numpy()
    return (int(np.median(values)), int(values.mean())) if len(values) else (0, 0)


@dataclass(frozen=True)
class _LatenessTest:
    rows: pl.DataFrame
    table: pl.DataFrame
    """own_ns and cost_ns of each rank and unit."""
    unit_ns: int
    mean_ns: int
    floor_ns: float
    by_step: bool

    def late(self, rank: int) -> LateRank | None:
        """The rank if it is late by itself."""
        own = self.table.filter(pl.col("rank") == rank)
        values = own["own_ns"].to_numpy()
        others = self.table.filter(pl.col("rank") != rank)["own_ns"].to_numpy()
        if len(values) < FEWEST_UNITS or not len(others):
            return None
        needed = next(share for count, share in LATE_SHARES if len(values) >= count) * len(values)
        usual = float(np.quantile(others, OTHERS_FEW if len(values) < FEW else OTHERS))
        always = LateRank(rank, -1, None, len(values), 0, 0, 0, 0, 0, self.unit_ns)
        found = self._steadily(always, own, usual) if (values > self.floor_ns).sum() >= needed else None
        return self._now_and_then(rank, own, others) if found is None and self.by_step else found

    def _now_and_then(self, rank: int, own: pl.DataFrame, others: npt.NDArray[np.int64]) -> LateRank | None:
        """The rank if it is late by itself in every n-th step, by more than the floor on average over all steps."""
        units, values = own["unit"].to_numpy(), own["own_ns"].to_numpy()
        usual = float(np.quantile(others, OTHERS_FEW))
        for every in range(2, len(values) // AGAIN + 1):
            for phase in range(every):
                on = units % every == phase
                if on.sum() < AGAIN or on.all() or values[on].min() <= every * self.floor_ns:
                    continue
                among = LateRank(rank, -1, None, len(values), 0, 0, 0, 0, 0, self.mean_ns, every, phase)
                found = self._steadily(among, own.filter(pl.Series(on)), usual)
                if found is not None and (values[~on] * ABOVE > found.low_ns).sum() <= np.ceil(EXCEPT * (~on).sum()):
                    return found
        return None

    def _steadily(self, late: LateRank, own: pl.DataFrame, usual: float) -> LateRank | None:
        """The rank if it is late by similar amounts in these units, and by several times the `usual` amount."""
        values = own["own_ns"].to_numpy()
        low, high = median_interval(values)
        above = ABOVE if self.by_step else ABOVE_PARTS
        if low < max(self.floor_ns, above * usual) or high > INTERVAL_RATIO * low:
            return None
        channel, spot = _best(self.rows.filter((pl.col("rank") == late.rank) & late.units_of))
        return replace(
            late, channel=channel, spot=spot if self.by_step else None,
            late_in=int((values > self.floor_ns).sum()), median_ns=int(np.median(values)), low_ns=low, high_ns=high,
            cost_ns=int(np.median(own["cost_ns"].to_numpy())) // late.every,
        )  # fmt: skip


def _best(rows: pl.DataFrame) -> tuple[int, int]:
    """The channel and the spot in it at which a rank is latest."""
    spots = rows.group_by("channel", "spot").agg(pl.col("own_ns").sum()).sort("own_ns", "channel", "spot")
    channel, spot, _ = spots.row(-1)
    return channel, spot
