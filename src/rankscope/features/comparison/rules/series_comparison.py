"""Training series that two runs have in common: the first step at which they differ, and the kind of that difference.

A run may tell its loss several times: on the console, in TensorBoard and in a wandb file, and under several names. One
is compared, the same in all runs, so that rounding of a print does not look like a difference.

Two values are equal if they differ by at most half a last digit of each: both may be one value, printed twice. The
size of the first difference tells its kind, later ones do not, because training amplifies any difference.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Literal, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from rankscope.analysis.arrays import Ints, Mask

COLUMNS = ("segment", "rank", "step", "step_hi", "name", "value", "resolution")
"""Columns of a table of series: restart, rank, step (with its upper end if it is rounded), name, value, and half of the
last printed digit (0 or null: exact)."""
VALUE_NAMES = (
    "batch_hash", "lr", "grad_norm", "loss", "params_norm", "num_zeros", "loss_scale", "samples", "skipped", "nans",
)  # fmt: skip
"""Series that are compared, in this order at one step: the gradient norm shows faults that the loss hides."""
STEP_SECONDS = "step_s"
"""The series of step times."""
ROUNDING = 5e-7
"""Largest relative first difference of exact values that rounding explains."""
REAL = 1e-4
"""Smallest relative first difference that is certainly real. Both limits are measured on one small model in fp32."""
_SOON = 1e-3
"""Printed values that differ by more at the first common step differ really: rounding does not grow so far so soon."""
OUTSIDE_STEPS = 3
"""Successive logged steps outside the noise that count."""
LEAST_BASELINES = 3
_NOISES = {LEAST_BASELINES: 4.0}
"""Distance from the nearest baseline, in ranges of the baselines, by their number; 2 for more."""
_OUTSIDE_SHARE = 2 / 3
_NOISE_WINDOWS = 8
"""Noise holds on for this part of the series."""
_FACTOR_SPREAD = 2e-3
"""Largest spread of a ratio that counts as constant."""
_FACTOR_STEPS = 5

Onset = Literal["rounding", "undecided", "real", "unresolved"]
Floats = NDArray[np.float64]


class SeriesDifference(NamedTuple):
    """The first difference of one series of one rank."""

    name: str
    rank: int | None
    step: int
    value_a: float
    value_b: float
    relative: float
    """|a - b| / |a|; infinite if only one of them is a number."""
    onset: Onset
    exact: bool
    """Whether both values are exact, and not rounded for a print."""
    is_first: bool
    """Whether it is the first step that both runs have."""
    since_restart: int | None
    """Common steps from the last restart of a run to it: 0 for the first step behind that; None without a restart."""
    last_equal: int | None
    steps: int
    """Number of steps that both runs have."""
    ratio: float | None
    """b / a if it is constant from there on: a factor, not noise."""

    @property
    def after_restart(self) -> bool:
        """Whether a restart of one of the runs is right before it, or one step before."""
        return self.since_restart in (0, 1)


class SeriesComparison(NamedTuple):
    """The series of two runs side by side."""

    differences: tuple[SeriesDifference, ...]
    """The earliest step first; at one step in the order of `VALUE_NAMES`."""
    equal: tuple[tuple[str, int, float], ...]
    """Series without a difference: name, number of values, and the largest last digit relative to its value."""
    steps: int
    """Number of steps that both runs have."""
    rounded_steps: int = 0
    """Rows that are left out because their step is rounded."""


def compare_series(a: pl.DataFrame, b: pl.DataFrame, *, resumed: Collection[int] = ()) -> SeriesComparison:
    """The comparison of two tables of series with `COLUMNS`; it is empty if one has no rows.

    `resumed` are steps of checkpoints from which a run went on, where its trainer tells them.
    """
    if a.is_empty() or b.is_empty():
        return SeriesComparison((), (), 0)
    pairs = newest_values(a).join(newest_values(b), on=["rank", "name", "step"], nulls_equal=True, suffix="_b")
    pairs = pairs.sort("rank", "name", "step", nulls_last=True)
    restarts = {step + 1 for step in resumed}
    for table in (a, b):
        # the first steps of segments behind the first one
        later = table.filter(pl.col("segment").fill_null(0) > table["segment"].fill_null(0).min())
        restarts |= set(later.group_by("segment").agg(pl.col("step").min())["step"].to_list())
    begins = [table["step"].min() for table in (a, b)]
    known = [begin for begin in begins if isinstance(begin, int)]
    every = a["step"].unique().sort().diff().median()
    interval = every if isinstance(every, int | float) else 1
    # a run that goes on from another one begins later than the other, or not at the first step
    if len(known) == 2 and (known[0] != known[1] or max(known) > max(interval, 1)):
        restarts.add(max(known))
    differences, equal = list[SeriesDifference](), list[tuple[str, int, float]]()
    for rows in pairs.partition_by("rank", "name", maintain_order=True):
        first = _first_difference(rows, restarts)
        if first is not None:
            differences.append(first)
            continue
        # the largest last digit of a series relative to its values; 0 if all are exact
        sizes = rows["value"].abs().to_numpy()
        units = 2 * np.maximum(rows["resolution"].to_numpy(), rows["resolution_b"].to_numpy())
        sized = np.isfinite(sizes) & (sizes > 0)
        equal.append((str(rows["name"][0]), rows.height, float((units[sized] / sizes[sized]).max(initial=0.0))))
    differences.sort(key=lambda one: (one.step, VALUE_NAMES.index(one.name), -1 if one.rank is None else one.rank))
    rounded = sum(int(_is_rounded(table).sum()) for table in (a, b))
    return SeriesComparison(tuple(differences), tuple(equal), pairs["step"].n_unique(), rounded)


def _is_rounded(table: pl.DataFrame) -> pl.Series:
    return table.select((pl.col("step_hi").fill_null(pl.col("step")) != pl.col("step")).alias("rounded"))["rounded"]


def newest_values(table: pl.DataFrame, names: Collection[str] = VALUE_NAMES) -> pl.DataFrame:
    """rank, name, step, value, resolution: of each rank, name and step the newest segment, and there the most exact."""
    known = table.filter(~_is_rounded(table) & table["name"].is_in(names) & table["step"].is_not_null())
    known = known.with_columns(pl.col("resolution").fill_null(0.0), pl.col("segment").fill_null(0))
    ordered = known.sort(pl.col("segment"), -pl.col("resolution"), maintain_order=True)
    return ordered.unique(["rank", "name", "step"], keep="last").select("rank", "name", "step", "value", "resolution")


def unequal(a: Floats, b: Floats, resolution_a: Floats, resolution_b: Floats) -> NDArray[np.bool_]:
    """Where values differ by more than half a last digit of each; NaN equals NaN, infinity equals itself."""
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    with np.errstate(invalid="ignore"):
        # printed values have the error of double precision besides: 1.4 - 1.3 is not exactly 0.1
        digits = resolution_a + resolution_b
        near = np.abs(a - b) <= digits + np.where(digits > 0, 1e-9 * digits + 1e-15 * np.abs(a), 0)
    found: NDArray[np.bool_] = ~(same | near)
    return found


def _first_difference(rows: pl.DataFrame, restarts: set[int]) -> SeriesDifference | None:
    """The first difference of one series; None if all common values are equal."""
    a, b, of_a, of_b = (rows[name].to_numpy() for name in ("value", "value_b", "resolution", "resolution_b"))
    differs = unequal(a, b, of_a, of_b)
    if not differs.any():
        return None
    at = int(differs.argmax())
    steps = rows["step"].to_list()
    value_a, value_b = float(a[at]), float(b[at])
    exact = bool(of_a[at] == 0 and of_b[at] == 0)
    is_sized = np.isfinite(value_a) and np.isfinite(value_b) and value_a != 0
    relative = abs(value_a - value_b) / abs(value_a) if is_sized else float("inf")
    # the relative size of the last digits of both
    digits = 2 * float(of_a[at] + of_b[at]) / max(abs(value_a), 1e-300)
    # b / a over the first steps from there on, if it is constant, and not 1 by more than digits and rounding tell
    ratio, ones, others = None, a[at : at + _FACTOR_STEPS], b[at : at + _FACTOR_STEPS]
    if len(ones) == _FACTOR_STEPS and np.all(np.isfinite(ones) & np.isfinite(others) & (ones != 0)):
        middle, spread = float(np.median(others / ones)), float(np.ptp(others / ones))
        is_constant = middle and spread <= _FACTOR_SPREAD * abs(middle) < 1e6
        ratio = middle if is_constant and abs(middle - 1) > max(2 * spread, 2 * digits, REAL) else None
    resolved = exact or (digits < REAL if relative > REAL else digits <= ROUNDING)
    size: Onset = "real" if relative > REAL else "rounding" if relative <= ROUNDING else "undecided"
    is_real = ratio is not None or (at == 0 and relative - digits > _SOON)
    restart = max((step for step in restarts if step <= steps[at]), default=None)
    return SeriesDifference(
        name=str(rows["name"][0]),
        rank=rows["rank"][0],
        step=steps[at],
        value_a=value_a,
        value_b=value_b,
        relative=relative,
        onset="real" if is_real else size if resolved else "unresolved",
        exact=exact,
        is_first=at == 0,
        since_restart=None if restart is None else sum(step >= restart for step in steps[: at + 1]) - 1,
        last_equal=steps[at - 1] if at else None,
        steps=len(steps),
        ratio=ratio,
    )


def recomputed(table: pl.DataFrame) -> SeriesComparison:
    """Steps that a run computed again after a restart, compared with the first time: a free test of determinism."""
    if table.is_empty():
        return SeriesComparison((), (), 0)
    segments = sorted(table["segment"].fill_null(0).unique().to_list())
    tables = [table.filter(pl.col("segment").fill_null(0) == segment) for segment in segments]
    parts = [compare_series(before, after) for before, after in pairwise(tables)]
    differences = sorted(
        (difference for part in parts for difference in part.differences), key=lambda difference: difference.step
    )
    equal = tuple(name for part in parts for name in part.equal)
    return SeriesComparison(tuple(differences), equal, sum(part.steps for part in parts))


def beyond_noise(baselines: Sequence[pl.DataFrame], other: pl.DataFrame) -> Iterator[tuple[str, int]]:
    """Name and first step of each series that leaves the range of at least three baselines and stays outside.

    The noise of a step is the largest difference between two baselines there or in the eighth of the steps before it. A
    run leaves the range if it is further from the nearest baseline than `_NOISES` times that at three successive logged
    steps, and at two thirds of the steps from there on. With fewer baselines nothing is known of noise. Of 600 equal
    series of each kind (independent, correlated, walking and growing noise) 0 to 2.3 % leave it.
    """
    if len(baselines) < LEAST_BASELINES or other.is_empty():
        return
    joined = side_by_side([other, *baselines])
    names = [f"value {number}" for number in range(1, len(baselines) + 1)]
    for rows in joined.partition_by("rank", "name", maintain_order=True):
        values, usual = rows["value 0"].to_numpy(), rows.select(names).to_numpy()
        window = max(OUTSIDE_STEPS, len(values) // _NOISE_WINDOWS)
        padded = np.concatenate([np.zeros(window - 1), usual.max(axis=1) - usual.min(axis=1)])
        noise = np.lib.stride_tricks.sliding_window_view(padded, window).max(axis=1)
        distance = np.abs(usual - values[:, None]).min(axis=1)
        lost = ~np.isfinite(values) & np.isfinite(usual).all(axis=1)
        # digits that are not printed are noise
        limit = _NOISES.get(len(names), 2.0) * noise + 2 * rows["resolution 0"].to_numpy()
        outside = lost | (distance > limit)
        runs = np.convolve(outside, np.ones(OUTSIDE_STEPS), "valid") == OUTSIDE_STEPS
        if len(outside) < OUTSIDE_STEPS or not runs.any():
            continue
        at = int(runs.argmax())
        if outside[at:].mean() >= _OUTSIDE_SHARE:
            yield str(rows["name"][0]), int(rows["step"][at])


def side_by_side(tables: Sequence[pl.DataFrame]) -> pl.DataFrame:
    """rank, name, step, and of each run `value 0`, `resolution 0` and so on: the values that all runs have, sorted."""
    keys = ["rank", "name", "step"]
    joined = pl.DataFrame()
    for number, table in enumerate(tables):
        values = newest_values(table).rename({name: f"{name} {number}" for name in ("value", "resolution")})
        joined = joined.join(values, on=keys, nulls_equal=True) if number else values
    return joined.sort(keys, nulls_last=True)


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
        rows_of_runs = [run.filter(pl.col("name") == name) for run in runs]
        ranks = [rows["rank"].unique().to_list() for rows in rows_of_runs]
        if (
            all(len(ranks_of_run) == 1 for ranks_of_run in ranks)
            and len({ranks_of_run[0] for ranks_of_run in ranks}) > 1
        ):
            # one rank prints in each run, and not the same: it speaks for all ranks
            rows_of_runs = [rows.with_columns(pl.lit(None, pl.Int32).alias("rank")) for rows in rows_of_runs]
        sources = _sources(rows_of_runs)
        for table, rows, (source, raw_name) in zip(tables, rows_of_runs, sources, strict=True):
            chosen = rows.filter(pl.col("source") == source, pl.col("raw_name") == raw_name)
            for of_rank in chosen.partition_by("rank", maintain_order=True):
                kept, left = _one_series(of_rank)
                table.append(kept)
                for file in left:
                    notes[f"{name}: {file} tells the same steps as another file of the run and is left out"] = None
        kinds = sorted({source for source, _ in sources})
        if len(kinds) > 1:
            notes[f"{name}: of {' and '.join(kinds)}, the runs have no source in common"] = None
    return CommonSeries(tuple(pl.concat(table) if table else pl.DataFrame() for table in tables), tuple(notes))


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
        baselines = self.values[: self.baselines]
        if len(baselines) < LEAST_BASELINES:
            return None
        empty = np.isnan(baselines).all(axis=0)
        filled = np.where(empty, 0.0, baselines)
        low, high = np.nanmin(filled, axis=0), np.nanmax(filled, axis=0)
        return np.where(empty, np.nan, low), np.where(empty, np.nan, high)


def curves(tables: Sequence[pl.DataFrame], keys: Sequence[SeriesKey], baselines: int = 1) -> list[Curves]:
    """The curves of each series; a run may lack some. `tables` have the columns of `series_comparison.COLUMNS`."""
    tables_by_key = [_by_key(table, keys) for table in tables]
    return [_curves_of(key, [by_key.get(key) for by_key in tables_by_key], baselines) for key in keys]


def _by_key(table: pl.DataFrame, keys: Sequence[SeriesKey]) -> dict[SeriesKey, pl.DataFrame]:
    """The values of a run that count, by series."""
    wanted = pl.DataFrame(keys, schema={"name": pl.String, "rank": pl.Int64}, orient="row")
    wanted_rows = table.cast({"rank": pl.Int64}).join(wanted, on=["name", "rank"], how="semi", nulls_equal=True)
    rows = newest_values(wanted_rows, {key.name for key in keys}).partition_by("name", "rank", as_dict=True)
    return {SeriesKey(*key): table_of_key for key, table_of_key in rows.items()}


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
