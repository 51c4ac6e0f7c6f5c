"""Data of pictures from a comparison: series, lanes around the first difference, heat maps and ranks, each thinned."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from operator import itemgetter

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
    wanted, values = list[SeriesKey](), list[SeriesPicture]()
    if tables and not any(table.is_empty() for _, table in tables):
        # those that differ, the first of each name first, then equal ones of the first run
        differing = [SeriesKey(difference.name, difference.rank) for difference in series.differences]
        firsts = {key.name: key for key in reversed(differing)}
        equal = newest_values(tables[0][1], _EQUAL_TOO).select("name", "rank").unique().sort("name", "rank")
        first_of_each = [key for key in differing if firsts[key.name] is key]
        wanted = list(dict.fromkeys([*first_of_each, *differing, *map(SeriesKey._make, equal.iter_rows())]))
        labels = [label for label, _ in tables]
        baselines = sum(label[0] == labels[0][0] for label in labels)
        compared = curves([table for _, table in tables], wanted[:MOST_COMPARED], baselines)
        values = [_series(curve, labels) for curve in compared if curve.known.any(axis=1).all()]
    named = {picture.name: picture for picture in reversed(values)}
    drawn = [picture for picture in values if named[picture.name] is picture][:MOST_SERIES]
    matched = pl.DataFrame() if schedule is None or schedule.apart else matched_times(schedule)
    maps = (_schedule_map(schedule), _values_map(values, len(wanted)), _times_map(matched))
    scatter = None
    if not matched.is_empty() and matched["rank"].n_unique() > 1:
        means = matched.group_by("rank").agg(pl.col("a").mean(), pl.col("b").mean()).sort("rank")
        scatter = RankScatter(bool(matched["is_wait"][0]), tuple(RankDot(*row) for row in means.iter_rows()))
    return ComparisonPictures(
        series=tuple(map(_thinned, drawn)),
        times=(*times.steps, *times.parts[:20]) if times is not None else (),
        heat_maps=tuple(heat_map for heat_map in maps if heat_map is not None),
        lanes=tuple(_lanes(schedule)) if schedule is not None else (),
        scatter=scatter,
        settings=tuple(
            SettingRow(change.name, change.weight, *pair, change.effect)
            for change in settings.changes
            for pair in change.changes
        ),
    )


def _series(found: Curves, labels: Sequence[str]) -> SeriesPicture:
    """One series of all runs at all steps of any."""
    differs = found.differs
    if found.baselines >= LEAST_BASELINES:
        # where B stays away from its baselines: see `series_comparison.beyond_noise`
        baselines = found.values[: found.baselines]
        noise = baselines.max(axis=0) - baselines.min(axis=0)
        distance = np.abs(baselines - found.b).min(axis=0)
        stays = np.convolve(distance > 2 * noise, np.ones(OUTSIDE_STEPS), "valid") == OUTSIDE_STEPS
        differs = found.both & (np.convolve(stays, np.ones(OUTSIDE_STEPS)) > 0)[: len(noise)]
    sizes = np.where(differs, np.where(np.isfinite(found.relative), found.relative, np.inf), 0.0)
    steps: list[int] = found.steps.tolist()
    lines = tuple(RunLine(*line) for line in zip(labels, map(_known, found.values, found.known), strict=True))
    first = steps[int(differs.argmax())] if differs.any() else None
    relative = _known(sizes, found.both)
    return SeriesPicture(*found.key, tuple(steps), lines, relative, tuple(differs.tolist()), first, len(steps))


def _known(values: Floats, known: Mask) -> tuple[float | None, ...]:
    """The values, None where they are not known."""
    return tuple(value if is_known else None for value, is_known in zip(values.tolist(), known.tolist(), strict=True))


def _thinned(picture: SeriesPicture) -> SeriesPicture:
    """The series with the extremes of each run and of the difference in each of `MOST_POINTS` buckets."""
    steps = picture.steps
    if len(steps) <= 2 * MOST_POINTS:
        return picture
    keep = {0, len(steps) - 1, *([steps.index(picture.first)] if picture.first is not None else [])}
    columns = [_numbers(values) for values in (*(line.values for line in picture.lines), picture.relative)]
    for start, end in pairwise(np.linspace(0, len(steps), MOST_POINTS + 1).astype(int).tolist()):
        for part in (column[start:end] for column in columns):
            if not np.isnan(part).all():
                keep |= {start + int(np.nanargmin(part)), start + int(np.nanargmax(part))}
    kept = itemgetter(*sorted(keep))
    lines = tuple(RunLine(line.label, kept(line.values)) for line in picture.lines)
    return replace(
        picture, steps=kept(steps), lines=lines, relative=kept(picture.relative), differs=kept(picture.differs)
    )


def _numbers(values: Sequence[float | None]) -> Floats:
    return np.array([np.nan if value is None else value for value in values], np.float64)


def _values_map(series: Sequence[SeriesPicture], count: int) -> HeatMap | None:
    """Relative differences by series and step, of `count` series; ranks that are alike share a row."""
    if len(series) < 2 or not any(picture.first is not None for picture in series):
        return None
    first, last = min(picture.steps[0] for picture in series), max(picture.steps[-1] for picture in series)
    alike = dict[tuple[str, tuple[float | None, ...]], list[int]]()
    for picture in series:
        places = np.array(picture.steps, np.int64) - first
        cells = _binned(places, _numbers(picture.relative), last - first + 1)
        alike.setdefault((picture.name, cells), []).extend([] if picture.rank is None else [picture.rank])
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
    alignments = {rank: alignment for rank, alignment in found.alignments.items() if alignment.placed != "none"}
    # the number of a rank's first operation, or 0 if it is unknown
    starts = {rank: max(int(found.a.numbers[found.a.bounds[rank][0]]), 0) for rank in alignments}
    ends = {rank: starts[rank] + found.a.bounds[rank][1] - found.a.bounds[rank][0] for rank in alignments}
    first, last = min(starts.values()), max(ends.values()) - 1
    count = min(last - first + 1, MOST_COLUMNS)
    alike = dict[tuple[float | None, ...], list[int]]()
    for rank, alignment in alignments.items():
        # for each operation of A: 0 if it is equal in B, 1 if the runs differ there, NaN if B's dump does not hold it
        size = ends[rank] - starts[rank]
        marks = np.zeros(size)
        marks[: alignment.start[0]] = np.nan
        for parting in alignment.partings:
            marks[parting.at_a : parting.at_a + max(parting.length_a, 1)] = 1
        marks[size - alignment.left_a :] = np.nan
        if alignment.shift and alignment.start[0] < size:
            marks[alignment.start[0]] = 1
        # the mean of the marks in each part: one that differs among equal ones still shows
        known = ~np.isnan(marks)
        bins = (np.arange(size) + starts[rank] - first)[known] * count // (last - first + 1)
        total, differing = np.bincount(bins, minlength=count), np.bincount(bins, marks[known], minlength=count)
        shares = tuple(float(d / n) if n else None for n, d in zip(total.tolist(), differing.tolist(), strict=True))
        alike.setdefault(shares, []).append(rank)
    early = {parting.rank: place for place, parting in enumerate(found.partings)}
    ordered = sorted(alike.items(), key=lambda row: (min(early.get(rank, len(early)) for rank in row[1]), row[1]))
    # the last row is that of equal ranks
    drawn = ordered if len(ordered) <= MOST_ROWS else [*ordered[: MOST_ROWS - 1], ordered[-1]]
    rows = tuple(MapRow(ranks_text(of, _CUTS), cells) for cells, of in drawn)
    return HeatMap("schedule", rows, first, last, len(alignments) - sum(len(of) for _, of in drawn))


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
    for parting in found.partings[:MOST_COMPARED]:
        if parting.aspect != "earlier":
            alike.setdefault(_lane_pair(found, parting), []).append(parting.rank)
    for pair, ranks in list(alike.items())[:MOST_LANES]:
        yield replace(pair, ranks=tuple(ranks))


def _lane_pair(found: ScheduleComparison, first: RankParting) -> LanePair:
    """The operations around a parting, a few equal ones on both sides; without ranks."""
    rank, parting, alignment = first.rank, first.parting, found.alignments[first.rank]
    before = min(BEFORE, parting.at_a - alignment.start[0], parting.at_b - alignment.start[1])
    longest = max(parting.length_a, parting.length_b)
    apart = min(longest, MOST_APART)
    behind = 0
    if parting.meets and apart == longest:
        # equal operations up to the next parting, or to an end
        following = [other.at_a for other in alignment.partings if other.at_a > parting.at_a]
        sizes = [run.bounds[rank][1] - run.bounds[rank][0] for run in (found.a, found.b)]
        left_a = min([*following, sizes[0]]) - parting.at_a - parting.length_a
        left_b = sizes[1] - parting.at_b - parting.length_b
        behind = max(0, min(BEFORE, left_a, left_b))
    lanes = []
    for run, at, length in ((found.a, parting.at_a, parting.length_a), (found.b, parting.at_b, parting.length_b)):
        cells = [_cell(run, rank, at + i, "equal") for i in range(-before, 0)]
        cells += [_cell(run, rank, at + i, "differs") if i < length else LaneCell("absent") for i in range(apart)]
        lanes.append([*cells, *(_cell(run, rank, at + length + i, "equal") for i in range(behind))])
    return LanePair((), first.operation - before, tuple(lanes[0]), tuple(lanes[1]), longest - apart)


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
