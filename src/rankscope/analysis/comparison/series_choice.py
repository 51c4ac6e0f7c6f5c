"""The one source of each series that several runs have in common: exact values before printed ones.

A run may tell its loss several times: on the console, in TensorBoard and in a wandb file, and under several names. One
is compared, the same in all runs, so that rounding of a print does not look like a difference.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import polars as pl

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
