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
FEW_SHARE = 0.1
"""With fewer than FEW steps a rank that is late by unequal amounts must lose this share of a step."""
UNSTEADY_SHARE, UNSTEADY_MEAN = 0.1, 0.2
"""Share of a unit that the latest rank loses in the median, or on average, for which a job is not called healthy."""
LOST_SHARE, LOST_BY_ONE = 0.25, 0.1
"""Share of a unit, in the median, that waiting for the last rank may cost in a job that is called healthy, as healthy
ranks take turns in coming last; and the share of most units that waiting for one rank may cost."""
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
    uneven: bool = False
    """It is late in each of a few steps by unequal amounts, which chance may do as well."""
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


@dataclass(frozen=True)
class UnsteadyRank:
    """A rank that loses much time by coming late, but not so that it can be told from chance."""

    rank: int
    lost_ns: int
    """Its lateness by itself: the median, or the mean over all units if it is late in a few of them only."""
    unit_ns: int
    late_in: int
    units: int
    most_ns: int
    """Its largest lateness in a unit."""


@dataclass(frozen=True)
class LostTime:
    """Time that is lost by waiting for the last rank, whoever is to blame."""

    rank: int | None
    """The rank that is last, if it is the same in most units."""
    lost_ns: int
    """Median over the units."""
    unit_ns: int
    last_in: int
    """Units in which waiting for the rank costs more than LOST_BY_ONE; 0 without a rank."""
    units: int


def lateness_test(rows: pl.DataFrame, on_host: bool, steps: pl.DataFrame) -> LatenessTest | None:
    """The test for the ranks of one job; None without any match in a unit.

    `rows` of blocking matches with all members, with `unit`, `own_ns`, `cost_ns`; `on_host`: hosts communicate
    themselves; `steps` (step, begin_ns, end_ns) of the program, which are the units; without any, units are parts.
    """
    rows = rows.filter(pl.col("unit").is_not_null())
    if rows.is_empty():
        return None
    by_channel = rows.group_by("window", "unit", "rank", "channel").agg(pl.col("own_ns", "cost_ns").sum())
    # the same delay appears in every group of the rank: the largest counts
    units = ["window", "unit", "rank"]
    table = by_channel.group_by(units).agg(pl.col("own_ns", "cost_ns").max()).sort(units)
    unit_ns, mean_ns = _unit_ns(rows, steps)
    floor_ns, share = (HOST_FLOOR_NS, HOST_FLOOR_SHARE) if on_host else (FLOOR_NS, FLOOR_SHARE)
    return LatenessTest(rows, table, unit_ns, mean_ns, max(floor_ns, share * unit_ns), not steps.is_empty())


def _unit_ns(rows: pl.DataFrame, steps: pl.DataFrame) -> tuple[int, int]:
    """Median and mean length of the steps; without steps, of the times from the first end of a unit to that of the
    next, or of a lone unit."""
    if steps.is_empty():
        firsts = rows.group_by("window", "unit").agg(pl.col("ended_ns").min(), last=pl.col("ended_ns").max())
        firsts = firsts.sort("ended_ns")
        gaps = firsts.filter(pl.len().over("window") > 1).select(pl.col("ended_ns").diff().over("window")).drop_nulls()
        lengths = gaps.to_series() if gaps.height else (firsts["last"] - firsts["ended_ns"]).top_k(1)
    else:
        known = steps.join(rows.select("file", step="unit").unique(), on=["file", "step"], how="semi")
        lengths = known["end_ns"] - known["begin_ns"]
    values = lengths.to_numpy()
    return (int(np.median(values)), int(values.mean())) if len(values) else (0, 0)


@dataclass(frozen=True)
class LatenessTest:
    """Judges the ranks of one job by their lateness in each unit."""

    rows: pl.DataFrame
    table: pl.DataFrame
    """own_ns and cost_ns of each rank and unit."""
    unit_ns: int
    mean_ns: int
    floor_ns: float
    by_step: bool

    def late_ranks(self) -> list[LateRank]:
        """The ranks that are late by themselves, the costliest first."""
        late = [found for rank in sorted(self.table["rank"].unique()) if (found := self._late(rank))]
        return sorted(late, key=lambda one: -one.cost_ns)

    def unsteady(self) -> UnsteadyRank | None:
        """The rank that loses most time, if it is a large share of the units."""
        if not self.unit_ns:
            return None
        own, count = pl.col("own_ns"), pl.len()
        table = self.table.group_by("rank").agg(
            usual=own.median(), mean=own.mean(), units=count, late_in=(own > self.floor_ns).sum(), most=own.max(),
        ).with_columns(lost=pl.max_horizontal(
            pl.when(pl.col("usual") >= UNSTEADY_SHARE * self.unit_ns).then("usual").otherwise(0.0),
            pl.when(pl.col("mean") >= UNSTEADY_MEAN * self.mean_ns).then("mean").otherwise(0.0),
        )).filter(pl.col("lost") > self.floor_ns).sort("lost", "rank", descending=[True, False])  # fmt: skip
        if table.is_empty():
            return None
        row = table.row(0, named=True)
        return UnsteadyRank(row["rank"], int(row["lost"]), self.unit_ns, row["late_in"], row["units"], row["most"])

    def lost(self) -> LostTime | None:
        """The time lost by waiting for the last rank, if it is a large share of the units; the rows have `lost_ns` and
        `alone_ns`, see `with_lost`."""
        columns = pl.col("lost_ns", "alone_ns")
        table = self.rows.group_by("window", "unit", "rank", "channel").agg(columns.sum())
        table = table.group_by("window", "unit", "rank").agg(columns.max())
        lost = table.group_by("window", "unit").agg(pl.col("lost_ns").sum())["lost_ns"].to_numpy()
        if len(lost) < FEWEST_UNITS or not self.unit_ns:
            return None
        much = pl.col("alone_ns") > max(self.floor_ns, LOST_BY_ONE * self.unit_ns)
        ranks = table.group_by("rank").agg(pl.col("alone_ns").median(), last_in=much.sum())
        rank, alone, last_in = ranks.sort("last_in", "alone_ns", "rank", descending=[True, True, False]).row(0)
        again = last_in >= _fewest(len(lost)) * len(lost)
        most = float(np.median(lost)) >= max(self.floor_ns, LOST_SHARE * self.unit_ns)
        # in a few steps chance alone makes one rank the last of all
        if again and (most or len(lost) >= FEW):
            return LostTime(rank, int(alone), self.unit_ns, last_in, len(lost))
        return LostTime(None, int(np.median(lost)), self.unit_ns, 0, len(lost)) if most else None

    def _late(self, rank: int) -> LateRank | None:
        """The rank if it is late by itself."""
        own = self.table.filter(pl.col("rank") == rank)
        values = own["own_ns"].to_numpy()
        others = self.table.filter(pl.col("rank") != rank)["own_ns"].to_numpy()
        if len(values) < FEWEST_UNITS or not len(others):
            return None
        needed = _fewest(len(values)) * len(values)
        usual = float(np.quantile(others, OTHERS_FEW if len(values) < FEW else OTHERS))
        always = LateRank(rank, -1, None, len(values), 0, 0, 0, 0, 0, self.unit_ns)
        late_rank = self._steadily(always, own, usual) if (values > self.floor_ns).sum() >= needed else None
        if late_rank is None and self.by_step:
            return self._in_few(always, own) if len(values) < FEW else self._now_and_then(rank, own, others)
        return late_rank

    def _in_few(self, late: LateRank, own: pl.DataFrame) -> LateRank | None:
        """The rank if it is the latest in each of a few steps, by unequal amounts that are a large share of a step."""
        values = own["own_ns"].to_numpy()
        others = self.table.filter(pl.col("rank") != late.rank)
        most = others.group_by("window", "unit").agg(most=pl.col("own_ns").max())
        ahead = own.join(most, on=["window", "unit"], how="left")["most"].fill_null(0).to_numpy()
        middle, usual = float(np.median(values)), float(np.quantile(others["own_ns"].to_numpy(), OTHERS_FEW))
        latest = bool((values > np.maximum(ahead, self.floor_ns)).all())
        if not latest or middle < max(ABOVE * usual, FEW_SHARE * self.unit_ns):
            return None
        return replace(self._told(late, own), low_ns=int(values.min()), high_ns=int(values.max()), uneven=True)

    def _now_and_then(self, rank: int, own: pl.DataFrame, others: npt.NDArray[np.int64]) -> LateRank | None:
        """The rank if it is late by itself in every n-th step, by more than the floor on average over all steps."""
        units, values = own["unit"].to_numpy(), own["own_ns"].to_numpy()
        usual = float(np.quantile(others, OTHERS_FEW))
        for every in range(2, len(values) // AGAIN + 1):
            for phase in range(every):
                on = units % every == phase
                if on.sum() < AGAIN or on.all() or values[on].min() <= every * self.floor_ns:
                    continue
                among = LateRank(rank, -1, None, len(values), 0, 0, 0, 0, 0, self.mean_ns, every=every, phase=phase)
                late_rank = self._steadily(among, own.filter(pl.Series(on)), usual)
                if late_rank is not None and (values[~on] * ABOVE > late_rank.low_ns).sum() <= np.ceil(
                    EXCEPT * (~on).sum()
                ):
                    return late_rank
        return None

    def _steadily(self, late: LateRank, own: pl.DataFrame, usual: float) -> LateRank | None:
        """The rank if it is late by similar amounts in these units, and by several times the `usual` amount."""
        values = own["own_ns"].to_numpy()
        low, high = median_interval(values)
        above = ABOVE if self.by_step else ABOVE_PARTS
        if low < max(self.floor_ns, above * usual) or high > INTERVAL_RATIO * low:
            return None
        return replace(self._told(late, own), low_ns=low, high_ns=high)

    def _told(self, late: LateRank, own: pl.DataFrame) -> LateRank:
        """The rank with its amounts, and the collective that shows it best."""
        values = own["own_ns"].to_numpy()
        # the channel and the spot in it at which a rank is latest
        rows = self.rows.filter((pl.col("rank") == late.rank) & late.units_of)
        spots = rows.group_by("channel", "spot").agg(pl.col("own_ns").sum()).sort("own_ns", "channel", "spot")
        channel, spot, _ = spots.row(-1)
        return replace(
            late,
            channel=channel,
            spot=spot if self.by_step else None,
            late_in=int((values > self.floor_ns).sum()),
            median_ns=int(np.median(values)),
            cost_ns=int(np.median(own["cost_ns"].to_numpy())) // late.every,
        )


def _fewest(units: int) -> float:
    """The share of `units` in which a rank must be late."""
    return next(share for count, share in LATE_SHARES if units >= count)
