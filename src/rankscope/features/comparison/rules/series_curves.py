"""Training series that runs have in common, from one source each, as arrays over the steps that any of them has.

A run may tell its loss several times: on the console, in TensorBoard and in a wandb file, and under several names. One
is compared, the same in all runs, so that rounding of a print does not look like a difference.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import polars as pl

from rankscope.analysis.arrays import Ints, Mask
from rankscope.features.comparison.rules.series_comparison import (
    LEAST_BASELINES,
    VALUE_NAMES,
    Floats,
    SeriesComparison,
    newest_values,
    unequal,
)

SOURCE = ["source", "raw_name"]
_SAME_STEPS = 0.5
"""Share of common steps from which on two files of one attempt tell the same steps."""


class CommonSeries(NamedTuple):
    """The series of several runs, from the same source in each."""

    tables: tuple[pl.DataFrame, ...]
    """For each run a table with the columns of `series_comparison.COLUMNS`."""
    notes: tuple[str, ...]
    """Sentences on sources that differ, and on files that are left out."""


def common_series(runs: Sequence[pl.DataFrame]) -> CommonSeries:
    """The series of all `runs`, each a table of `parsers.series.scalar_rows.SCALARS` or one without rows."""
    if any(run.is_empty() for run in runs):
        return CommonSeries(tuple(pl.DataFrame() for _ in runs), ())
    names = set.intersection(*(set(run["name"].unique()) for run in runs))
    tables, notes = [list[pl.DataFrame]() for _ in runs], dict[str, None]()
    for name in sorted(names):
        own = _one_rank_each([run.filter(pl.col("name") == name) for run in runs])
        for number, (rows, source) in enumerate(zip(own, _sources(own), strict=True)):
            chosen = rows.filter(pl.col("source") == source[0], pl.col("raw_name") == source[1])
            for one in chosen.partition_by("rank", maintain_order=True):
                kept, left = _one_series(one)
                tables[number].append(kept)
                notes |= {_left_text(name, file): None for file in left}
        told = {source[0] for source in _sources(own)}
        if len(told) > 1:
            notes[f"{name}: of {' and '.join(sorted(told))}, the runs have no source in common"] = None
    return CommonSeries(tuple(pl.concat(one) if one else pl.DataFrame() for one in tables), tuple(notes))


def _one_rank_each(runs: Sequence[pl.DataFrame]) -> Sequence[pl.DataFrame]:
    """The rows without ranks if one rank prints in each run, and not the same: it speaks for all ranks."""
    ranks = [run["rank"].unique().to_list() for run in runs]
    if all(len(one) == 1 for one in ranks) and len({one[0] for one in ranks}) > 1:
        return [run.with_columns(pl.lit(None, pl.Int32).alias("rank")) for run in runs]
    return runs


def _sources(runs: Sequence[pl.DataFrame]) -> list[tuple[str, str]]:
    """The source and raw name of one series for each run: the same if all runs have one."""
    costs = [_costs(run) for run in runs]
    shared = set.intersection(*map(set, costs))
    if shared:
        best = min(shared, key=lambda one: (sum(cost[one][0] for cost in costs), *_fewest(costs, one), one))
        return [best] * len(runs)
    return [min(cost, key=lambda one: (*cost[one], one)) for cost in costs]


def _fewest(costs: Sequence[dict[tuple[str, str], tuple[float, int]]], source: tuple[str, str]) -> tuple[int]:
    return (max(cost[source][1] for cost in costs),)


def _costs(rows: pl.DataFrame) -> dict[tuple[str, str], tuple[float, int]]:
    """For each source and raw name: the middle resolution, and the negative number of steps."""
    table = rows.group_by(*SOURCE).agg(
        pl.col("resolution").fill_null(0.0).median().alias("coarse"), pl.col("step").n_unique().alias("steps")
    )
    return {(source, raw): (coarse, -steps) for source, raw, coarse, steps in table.iter_rows()}


def _one_series(rows: pl.DataFrame) -> tuple[pl.DataFrame, list[str]]:
    """The rows of one rank with their restarts counted over files, and the files that are left out.

    Files go on from each other, or begin again after a restart. Of those that tell the same steps at the same time,
    such as the logs of several nodes, one is kept.
    """
    files = rows.partition_by("attempt", "file", maintain_order=True)
    files.sort(key=lambda one: (one["attempt"][0], _first(one), one["file"][0]))
    kept, left = list[pl.DataFrame](), list[str]()
    for one in files:
        twin = next((number for number, other in enumerate(kept) if _tell_the_same(one, other)), None)
        if twin is None:
            kept.append(one)
            continue
        more, fewer = sorted((kept[twin], one), key=lambda file: (-file.height, file["file"][0]))
        kept[twin] = more
        left.append(str(fewer["file"][0]))
    numbered = pl.concat([one.with_columns(pl.lit(number).alias("part")) for number, one in enumerate(kept)])
    segment = pl.struct("part", "segment").rle_id().alias("segment")
    return numbered.select(segment, "rank", "step", "step_hi", "name", "value", "resolution"), left


def _first(rows: pl.DataFrame) -> tuple[int, int]:
    """The time of the first value, or else its step."""
    time, step = rows["time_ns"].min(), rows["step"].min()
    return (time if isinstance(time, int) else 0, step if isinstance(step, int) else 0)


def _tell_the_same(one: pl.DataFrame, other: pl.DataFrame) -> bool:
    """Whether two files of one attempt tell the same steps, and no restart lies between them."""
    if one["attempt"][0] != other["attempt"][0]:
        return False
    steps, others = set(one["step"].drop_nulls()), set(other["step"].drop_nulls())
    shared = len(steps & others) >= _SAME_STEPS * max(min(len(steps), len(others)), 1)
    times = [(file["time_ns"].min(), file["time_ns"].max()) for file in (one, other)]
    if shared and all(isinstance(end, int) for ends in times for end in ends):
        (begin, end), (begin_other, end_other) = times
        return bool(begin <= end_other and begin_other <= end)  # type: ignore[operator]
    return shared


def _left_text(name: str, file: str) -> str:
    return f"{name}: {file} tells the same steps as another file of the run and is left out"


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
