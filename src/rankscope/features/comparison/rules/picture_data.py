"""Data of pictures from a comparison: series, lanes around the first difference, heat maps and ranks, each thinned."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
import polars as pl

from rankscope.analysis.arrays import Ints, Mask
from rankscope.features.comparison.rules.model import (
    CellKind,
    ComparisonPictures,
    HeatMap,
    LaneCell,
    LanePair,
    MapRow,
    RankDot,
    RankScatter,
    RunLine,
    SeriesPicture,
    SettingRow,
)
from rankscope.features.comparison.rules.schedule_comparison import (
    Alignment,
    RankParting,
    ScheduleComparison,
    ScheduleRows,
)
from rankscope.features.comparison.rules.series_comparison import (
    LEAST_BASELINES,
    OUTSIDE_STEPS,
    Curves,
    Floats,
    SeriesComparison,
    SeriesKey,
    curves,
    newest_values,
)
from rankscope.features.comparison.rules.settings_differences import SettingsComparison
from rankscope.features.comparison.rules.time_comparison import TimeComparison, matched_times
from rankscope.text.tensors import tensors
from rankscope.text.wording import group_name, ranks_text

MOST_SERIES = 4
MOST_COMPARED = 64
"""Most series and lanes that are looked at, before ranks that are alike share one."""
MOST_POINTS = 400
"""Buckets of a thinned series; each keeps its extremes."""
MOST_COLUMNS = 80
"""Most columns of a heat map."""
MOST_ROWS = 24
"""Most rows of a heat map."""
MOST_LANES = 4
MOST_APART = 4
"""Most operations of a parting that are drawn."""
BEFORE = 3
"""Equal operations before a parting, and as many behind it."""
_EQUAL_TOO = ("grad_norm", "loss")
"""Series that are drawn also if they are equal."""
_CUTS = 30
"""Longest label of ranks."""


def comparison_pictures(
    schedule: ScheduleComparison | None,
    settings: SettingsComparison,
    series: SeriesComparison,
    times: TimeComparison | None,
    tables: Sequence[tuple[str, pl.DataFrame]],
) -> ComparisonPictures:
    """The data of all pictures; `tables` are the series of each run by its label, those of A first."""
    wanted = _wanted(series, tables[0][1]) if tables and not any(table.is_empty() for _, table in tables) else []
    values = _all_series(wanted[:MOST_COMPARED], tables) if wanted else []
    matched = pl.DataFrame() if schedule is None or schedule.apart else matched_times(schedule)
    maps = (_schedule_map(schedule), _values_map(values, len(wanted)), _times_map(matched))
    # the first series of each name, at most `MOST_SERIES`
    firsts = {one.name: one for one in reversed(values)}
    one_each = [one for one in values if firsts[one.name] is one][:MOST_SERIES]
    return ComparisonPictures(
        tuple(map(_thinned, one_each)),
        (*times.steps, *times.parts[:20]) if times is not None else (),
        tuple(one for one in maps if one is not None),
        tuple(_lanes(schedule)) if schedule is not None else (),
        _scatter(matched, schedule),
        tuple(SettingRow(one.name, one.weight, *pair, one.effect) for one in settings.changes for pair in one.changes),
    )


def _wanted(found: SeriesComparison, table: pl.DataFrame) -> list[SeriesKey]:
    """The series to draw: those that differ, the first of each name first, then equal ones of the first run."""
    differing = [SeriesKey(one.name, one.rank) for one in found.differences]
    firsts = dict[str, SeriesKey]()
    for key in differing:
        firsts.setdefault(key.name, key)
    equal = newest_values(table, _EQUAL_TOO).select("name", "rank").unique().sort("name", "rank")
    return list(dict.fromkeys([*firsts.values(), *differing, *map(SeriesKey._make, equal.iter_rows())]))


def _all_series(wanted: Sequence[SeriesKey], runs: Sequence[tuple[str, pl.DataFrame]]) -> list[SeriesPicture]:
    """The wanted series that all runs have."""
    labels, tables = [label for label, _ in runs], [table for _, table in runs]
    baselines = sum(label[0] == labels[0][0] for label in labels)
    found = curves(tables, wanted, baselines)
    return [_series(one, labels) for one in found if one.known.any(axis=1).all()]


def _series(found: Curves, labels: Sequence[str]) -> SeriesPicture:
    """One series of all runs at all steps of any."""
    differs = found.both & _outside(found) if found.baselines >= LEAST_BASELINES else found.differs
    sizes = np.where(differs, np.where(np.isfinite(found.relative), found.relative, np.inf), 0.0)
    steps: list[int] = found.steps.tolist()
    lines = tuple(RunLine(*one) for one in zip(labels, map(_known, found.values, found.known), strict=True))
    first = steps[int(differs.argmax())] if differs.any() else None
    return SeriesPicture(
        *found.key, tuple(steps), lines, _known(sizes, found.both), tuple(differs.tolist()), first, len(steps)
    )


def _outside(found: Curves) -> Mask:
    """Where B stays away from its baselines: see `series_comparison.beyond_noise`."""
    own = found.values[: found.baselines]
    noise = own.max(axis=0) - own.min(axis=0)
    distance = np.abs(own - found.b).min(axis=0)
    stays = np.convolve(distance > 2 * noise, np.ones(OUTSIDE_STEPS), "valid") == OUTSIDE_STEPS
    outside: Mask = np.convolve(stays, np.ones(OUTSIDE_STEPS)) > 0
    return outside[: len(noise)]


def _known(values: Floats, known: Mask) -> tuple[float | None, ...]:
    """The values, None where they are not known."""
    return tuple(value if is_known else None for value, is_known in zip(values.tolist(), known.tolist(), strict=True))


def _thinned(one: SeriesPicture) -> SeriesPicture:
    """The series with the extremes of each run and of the difference in each of `MOST_POINTS` buckets."""
    if len(one.steps) <= 2 * MOST_POINTS:
        return one
    keep = {0, len(one.steps) - 1, *([one.steps.index(one.first)] if one.first is not None else [])}
    columns = [_numbers(values) for values in (*(line.values for line in one.lines), one.relative)]
    edges = np.linspace(0, len(one.steps), MOST_POINTS + 1).astype(int).tolist()
    for start, end in pairwise(edges):
        for part in (column[start:end] for column in columns):
            if not np.isnan(part).all():
                keep |= {start + int(np.nanargmin(part)), start + int(np.nanargmax(part))}
    at = sorted(keep)
    lines = tuple(RunLine(line.label, tuple(line.values[i] for i in at)) for line in one.lines)
    return SeriesPicture(
        one.name, one.rank, tuple(one.steps[i] for i in at), lines, tuple(one.relative[i] for i in at),
        tuple(one.differs[i] for i in at), one.first, one.count,
    )  # fmt: skip


def _numbers(values: Sequence[float | None]) -> Floats:
    return np.array([np.nan if value is None else value for value in values], np.float64)


def _values_map(series: Sequence[SeriesPicture], count: int) -> HeatMap | None:
    """Relative differences by series and step, of `count` series; ranks that are alike share a row."""
    if len(series) < 2 or not any(one.first is not None for one in series):
        return None
    first, last = min(one.steps[0] for one in series), max(one.steps[-1] for one in series)
    alike = dict[tuple[str, tuple[float | None, ...]], list[int]]()
    for one in series:
        places = np.array(one.steps, np.int64) - first
        cells = _binned(places, _numbers(one.relative), last - first + 1)
        alike.setdefault((one.name, cells), []).extend([] if one.rank is None else [one.rank])
    rows = [MapRow(f"{name}, {ranks_text(of, _CUTS)}" if of else name, cells) for (name, cells), of in alike.items()]
    left = sum(max(len(of), 1) for of in list(alike.values())[MOST_ROWS:])
    return HeatMap("values", tuple(rows[:MOST_ROWS]), first, last, left + max(0, count - len(series)))


def _binned(places: Ints, values: Floats, size: int) -> tuple[float | None, ...]:
    """The largest value in each of at most `MOST_COLUMNS` equal parts of `size` places; NaN counts as no value."""
    count = min(size, MOST_COLUMNS)
    cells = np.full(count, -np.inf)
    known = ~np.isnan(values)
    np.maximum.at(cells, places[known] * count // size, values[known])
    return tuple(None if np.isneginf(cell) else float(cell) for cell in cells)


def _schedule_map(found: ScheduleComparison | None) -> HeatMap | None:
    """The share of operations that differ by rank and place; ranks that are alike share a row."""
    if found is None or not found.partings:
        return None
    ranks = [rank for rank, one in found.alignments.items() if one.placed != "none"]
    # the number of a rank's first operation, or 0 if it is unknown
    starts = {rank: max(int(found.a.numbers[found.a.bounds[rank][0]]), 0) for rank in ranks}
    ends = {rank: starts[rank] + found.a.bounds[rank][1] - found.a.bounds[rank][0] for rank in ranks}
    first, last = min(starts.values()), max(ends.values()) - 1
    alike = dict[tuple[float | None, ...], list[int]]()
    for rank in ranks:
        marks = _marks(found.alignments[rank], ends[rank] - starts[rank])
        places = np.arange(len(marks)) + starts[rank] - first
        # the mean of the marks in each part: one that differs among equal ones still shows
        count, known = min(last - first + 1, MOST_COLUMNS), ~np.isnan(marks)
        bins = places[known] * count // (last - first + 1)
        total, differing = np.bincount(bins, minlength=count), np.bincount(bins, marks[known], minlength=count)
        shares = tuple(float(d / n) if n else None for n, d in zip(total.tolist(), differing.tolist(), strict=True))
        alike.setdefault(shares, []).append(rank)
    early = {rank: place for place, rank in enumerate(one.rank for one in found.partings)}
    ordered = sorted(alike.items(), key=lambda row: (min(early.get(rank, len(early)) for rank in row[1]), row[1]))
    # the last row is that of equal ranks
    drawn = ordered if len(ordered) <= MOST_ROWS else [*ordered[: MOST_ROWS - 1], ordered[-1]]
    rows = tuple(MapRow(ranks_text(of, _CUTS), cells) for cells, of in drawn)
    return HeatMap("schedule", rows, first, last, len(ranks) - sum(len(of) for _, of in drawn))


def _marks(one: Alignment, size: int) -> Floats:
    """For each operation of A: 0 if it is equal in B, 1 if the runs differ there, NaN if B's dump does not hold it."""
    marks = np.zeros(size)
    marks[: one.start[0]] = np.nan
    for parting in one.partings:
        marks[parting.at_a : parting.at_a + max(parting.length_a, 1)] = 1
    if one.left_a:
        marks[size - one.left_a :] = np.nan
    if one.shift and one.start[0] < size:
        marks[one.start[0]] = 1
    return marks


def _scatter(matched: pl.DataFrame, found: ScheduleComparison | None) -> RankScatter | None:
    if found is None or matched.is_empty() or matched["rank"].n_unique() < 2:
        return None
    means = matched.group_by("rank").agg(pl.col("a").mean(), pl.col("b").mean()).sort("rank")
    return RankScatter(bool(matched["is_wait"][0]), tuple(RankDot(*row) for row in means.iter_rows()))


def _times_map(matched: pl.DataFrame) -> HeatMap | None:
    """Seconds of B less those of A by rank and place in the run, for the ranks that change most."""
    if matched.is_empty() or matched["rank"].n_unique() < 2:
        return None
    size = int(matched["place"].max()) + 1  # type: ignore[arg-type]
    count = min(size, MOST_COLUMNS)
    bins = (pl.col("place") * count // size).alias("bin")
    cells = matched.group_by("rank", bins).agg((pl.col("b").mean() - pl.col("a").mean()).alias("more"))
    change = cells.group_by("rank").agg(pl.col("more").mean().alias("mean"))
    middle = change["mean"].median()
    far = change.sort((pl.col("mean") - middle).abs(), "rank", descending=[True, False])["rank"].to_list()
    kept = cells.filter(pl.col("rank").is_in(far[:MOST_ROWS]))
    by_rank = {rank: dict(zip(of["bin"], of["more"], strict=True)) for (rank,), of in kept.group_by("rank")}
    rows = tuple(
        MapRow(f"rank {rank}", tuple(by_rank[rank].get(i) for i in range(count))) for rank in sorted(far[:MOST_ROWS])
    )
    return HeatMap("times", rows, 0, size - 1, len(far) - len(rows))


def _lanes(found: ScheduleComparison) -> Iterator[LanePair]:
    """The ranks that part first, in their order; those with the same operations share a pair of lanes."""
    alike = dict[LanePair, list[int]]()
    for one in found.partings[:MOST_COMPARED]:
        if one.aspect != "earlier":
            alike.setdefault(_lane_pair(found, one), []).append(one.rank)
    for pair, ranks in list(alike.items())[:MOST_LANES]:
        yield replace(pair, ranks=tuple(ranks))


def _lane_pair(found: ScheduleComparison, one: RankParting) -> LanePair:
    """The operations around a parting, a few equal ones on both sides; without ranks."""
    parting, alignment = one.parting, found.alignments[one.rank]
    before = min(BEFORE, parting.at_a - alignment.start[0], parting.at_b - alignment.start[1])
    apart = min(max(parting.length_a, parting.length_b), MOST_APART)
    lanes = []
    for run, at, length in ((found.a, parting.at_a, parting.length_a), (found.b, parting.at_b, parting.length_b)):
        cells = [_cell(run, one.rank, at + i, "equal") for i in range(-before, 0)]
        cells += [_cell(run, one.rank, at + i, "differs") if i < length else LaneCell("absent") for i in range(apart)]
        lanes.append(cells)
    if parting.meets and apart >= max(parting.length_a, parting.length_b):
        behind = _equal_behind(found, one)
        lanes[0] += [_cell(found.a, one.rank, parting.at_a + parting.length_a + i, "equal") for i in range(behind)]
        lanes[1] += [_cell(found.b, one.rank, parting.at_b + parting.length_b + i, "equal") for i in range(behind)]
    left = max(parting.length_a, parting.length_b) - apart
    return LanePair((), one.operation - before, tuple(lanes[0]), tuple(lanes[1]), left)


def _equal_behind(found: ScheduleComparison, one: RankParting) -> int:
    """The number of equal operations behind a parting that are drawn: up to the next one, or to an end."""
    partings = found.alignments[one.rank].partings
    following = [other.at_a for other in partings if other.at_a > one.parting.at_a]
    sizes = [run.bounds[one.rank][1] - run.bounds[one.rank][0] for run in (found.a, found.b)]
    left_a = min([*following, sizes[0]]) - one.parting.at_a - one.parting.length_a
    left_b = sizes[1] - one.parting.at_b - one.parting.length_b
    return max(0, min(BEFORE, left_a, left_b))


def _cell(run: ScheduleRows, rank: int, at: int, kind: CellKind) -> LaneCell:
    """The operation of a rank at this place of its rows, counted from 0."""
    row = run.rows.row(run.bounds[rank][0] + at, named=True)
    texts = [None if row[name] is None else str(row[name]) for name in ("in_sizes", "in_dtypes")]
    outs = [None if row[name] is None else str(row[name]) for name in ("out_sizes", "out_dtypes")]
    place = ""
    if row["group"] is not None:
        group = run.dataset.group_list[row["group"]]
        number = f" #{row['seq']}" if row["seq"] is not None and not row["is_p2p"] else ""
        place = f"{group.description or group_name(group.name, '')}{number}"
    peer = f" rank {row['peer']}" if row["peer"] is not None else ""
    is_open = row["state"] in ("scheduled", "started") and not row["retired"]
    return LaneCell(kind, f"{row['op']}{peer}", tensors(*texts) or tensors(*outs), place, is_open)
