"""Training series of several runs side by side, as arrays over the steps that any of them has."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import polars as pl

from rankscope.analysis.arrays import Ints, Mask
from rankscope.analysis.comparison.series_comparison import (
    LEAST_BASELINES,
    VALUE_NAMES,
    Floats,
    SeriesComparison,
    newest_values,
    unequal,
)


class SeriesKey(NamedTuple):
    """A series of one rank, or of the job."""

    name: str
    rank: int | None

    @property
    def shown(self) -> str:
        """The series in words."""
        return self.name if self.rank is None else f"{self.name} of rank {self.rank}"


def series_keys(tables: Sequence[pl.DataFrame], found: SeriesComparison) -> tuple[SeriesKey, ...]:
    """The series that all runs have: those that differ first, in the order of their first differing steps."""
    if not tables or any(table.is_empty() for table in tables):
        return ()
    known = [set(table.select("name", "rank").unique().iter_rows()) for table in tables]
    shared = {SeriesKey(*one) for one in set.intersection(*known)}
    first = {SeriesKey(one.name, one.rank): number for number, one in enumerate(found.differences)}
    order = {name: number for number, name in enumerate(VALUE_NAMES)}

    def place(key: SeriesKey) -> tuple[int, int, str, int]:
        rank = -1 if key.rank is None else key.rank
        return first.get(key, len(first)), order.get(key.name, len(order)), key.name, rank

    return tuple(sorted(shared, key=place))


@dataclass(frozen=True)
class Curves:
    """One series of several runs."""

    key: SeriesKey
    steps: Ints
    """Rising."""
    values: Floats
    """Runs x steps; NaN where a run has no value."""
    known: Mask
    """Runs x steps: whether the run has a value, which may be NaN itself."""
    resolutions: Floats
    baselines: int = 1
    """How many of the runs, the first ones, are baselines; the first of them is A, the first other run is B."""

    @property
    def _of_b(self) -> int:
        """The row of B; without another run A is compared with itself."""
        return self.baselines % len(self.values)

    @property
    def a(self) -> Floats:
        """The values of A."""
        values: Floats = self.values[0]
        return values

    @property
    def b(self) -> Floats:
        """The values of B."""
        values: Floats = self.values[self._of_b]
        return values

    @cached_property
    def both(self) -> Mask:
        """The steps that A and B have."""
        both: Mask = self.known[0] & self.known[self._of_b]
        return both

    @cached_property
    def differs(self) -> Mask:
        """The steps in which B differs from A by more than their digits."""
        return self.both & unequal(self.a, self.b, self.resolutions[0], self.resolutions[self._of_b])

    @cached_property
    def relative(self) -> Floats:
        """|a - b| / |a| by step; NaN where A is 0 or one of them is not known."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(self.a == 0, np.nan, np.abs(self.a - self.b) / np.abs(self.a))

    @cached_property
    def band(self) -> tuple[Floats, Floats] | None:
        """The least and the greatest value of the baselines in each step; None if there are too few of them."""
        own = self.values[: self.baselines]
        if len(own) < LEAST_BASELINES:
            return None
        empty = np.isnan(own).all(axis=0)
        filled = np.where(empty, 0.0, own)
        low, high = np.nanmin(filled, axis=0), np.nanmax(filled, axis=0)
        return np.where(empty, np.nan, low), np.where(empty, np.nan, high)


def curves(tables: Sequence[pl.DataFrame], keys: Sequence[SeriesKey], baselines: int = 1) -> list[Curves]:
    """The curves of each series; a run may lack some. `tables` have the columns of `series_comparison.COLUMNS`."""
    found = [_by_key(table, keys) for table in tables]
    return [_curves_of(key, [own.get(key) for own in found], baselines) for key in keys]


def _by_key(table: pl.DataFrame, keys: Sequence[SeriesKey]) -> dict[SeriesKey, pl.DataFrame]:
    """The values of a run that count, by series."""
    wanted = pl.DataFrame(keys, schema={"name": pl.String, "rank": pl.Int64}, orient="row")
    own = table.cast({"rank": pl.Int64}).join(wanted, on=["name", "rank"], how="semi", nulls_equal=True)
    rows = newest_values(own, {key.name for key in keys}).partition_by("name", "rank", as_dict=True)
    return {SeriesKey(*key): one for key, one in rows.items()}


def _curves_of(key: SeriesKey, runs: Sequence[pl.DataFrame | None], baselines: int) -> Curves:
    have = [(number, table) for number, table in enumerate(runs) if table is not None]
    steps = np.unique(np.concatenate([np.zeros(0, np.int64), *(table["step"].to_numpy() for _, table in have)]))
    values = np.full((len(runs), len(steps)), np.nan)
    known, resolutions = np.zeros(values.shape, np.bool_), np.zeros(values.shape)
    for number, table in have:
        at = np.searchsorted(steps, table["step"].to_numpy())
        values[number, at], known[number, at] = table["value"].to_numpy(), True
        resolutions[number, at] = table["resolution"].to_numpy()
    return Curves(key, steps, values, known, resolutions, baselines)
