"""Steps of a job as its trainer printed them, for people and programs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from msgspec import UNSET, UnsetType

from rankscope.analysis.model import Analysis
from rankscope.features.series.rules.model import TRAINING_RESULTS, PrintedSeries, TrainingResults
from rankscope.features.series.rules.training_findings import WORDS, number_text, steps_text
from rankscope.report.blocks import Grid, Section
from rankscope.report.json import Count, ReportPart
from rankscope.schema import Dataset

HEAD = ("quantity", "prints", "first", "median", "last", "lowest", "highest", "not finite", "of")
MOST_ROWS = 12
"""Most series that a report for people lists."""


class PrintedSeriesObject(ReportPart):
    """The values of one quantity of one printer; those that are not finite are null and counted."""

    name: str
    raw_name: str
    file: int
    printer: int | None
    rank: int | None
    prints: Count
    first_step: int | None
    last_step: int | None
    restarts: Count
    first: float | None
    median: float | None
    last: float | None
    lowest: float | None
    highest: float | None
    not_finite: Count
    first_not_finite_step: int | None


class TrainingObject(ReportPart):
    """Steps of a job as its trainer printed them."""

    steps: str
    series: Sequence[PrintedSeriesObject]


class TrainingKeys(ReportPart):
    """The key of the steps in the JSON report, only where logs hold some."""

    training: TrainingObject | UnsetType = UNSET


def json_keys(_: Dataset, analysis: Analysis) -> TrainingKeys:
    """The steps in the JSON report."""
    results = TRAINING_RESULTS.find(analysis)
    if results is None:
        return TrainingKeys()
    return TrainingKeys(
        TrainingObject(steps=steps_text(results), series=[_object(series) for series in _named(results)])
    )


def section(dataset: Dataset, analysis: Analysis) -> Iterator[Section]:
    """The series of a job, in a report for people."""
    results = TRAINING_RESULTS.find(analysis)
    series = [] if results is None else list(_named(results))
    if results is None or not series:
        return
    paths = dict(dataset.files.select("file", "path").iter_rows())
    several = len({(one.file, one.printer) for one in series}) > 1
    rows = [_cells(one, paths.get(one.file, "") if several else "") for one in series[:MOST_ROWS]]
    left = len(series) - len(rows)
    grid = Grid(
        head=HEAD if several else HEAD[:-1],
        rows=[row if several else row[:-1] for row in rows],
        numbers=tuple(range(1, 8)),
        narrow=6,
        more=f"{left:,} more series are in the JSON report" if left > 0 else "",
    )
    yield Section(f"Steps as the trainer printed them: {steps_text(results)}", (grid,))


def _named(results: TrainingResults) -> Iterator[PrintedSeries]:
    """The series whose values are all kept, the loss first."""
    order = list(WORDS)
    known = [series for series in results.series if series.name in order]
    yield from sorted(known, key=lambda series: (series.file, series.printer or 0, order.index(series.name)))


def _cells(series: PrintedSeries, path: str) -> tuple[str, ...]:
    told = _object(series)
    numbers = (told.first, told.median, told.last, told.lowest, told.highest)
    of = path if series.printer is None else f"{path}, lines of {series.printer}"
    return (
        WORDS[series.name], f"{told.prints:,}", *("" if n is None else number_text(n) for n in numbers),
        f"{told.not_finite:,}" if told.not_finite else "", of,
    )  # fmt: skip


def _object(series: PrintedSeries) -> PrintedSeriesObject:
    values, good = series.values, np.isfinite(series.values)
    finite, steps = values[good], series.steps
    first_bad = None if good.all() else int((~good).argmax())

    def step(at: int | None) -> int | None:
        return int(steps[at]) if at is not None and np.isfinite(steps[at]) else None

    def number(value: float) -> float | None:
        return float(value) if np.isfinite(value) else None

    return PrintedSeriesObject(
        name=series.name, raw_name=series.raw_name, file=series.file, printer=series.printer, rank=series.rank,
        prints=values.size, first_step=step(0), last_step=step(-1), restarts=series.restarts, first=number(values[0]),
        median=float(np.median(finite)) if finite.size else None, last=number(values[-1]),
        lowest=float(finite.min()) if finite.size else None, highest=float(finite.max()) if finite.size else None,
        not_finite=int((~good).sum()), first_not_finite_step=step(first_bad),
    )  # fmt: skip
