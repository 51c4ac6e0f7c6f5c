"""The key `traces` of the JSON report: results of profilers' traces in full; files by their paths, groups by names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import polars as pl
from msgspec import Meta

from rankscope.analysis.model import Analysis
from rankscope.features.traces.path_section import pattern_table
from rankscope.features.traces.rules import model as traces
from rankscope.features.traces.rules.collective_costs import COLLECTIVE_RESULTS, SIZES, CollectiveCosts
from rankscope.features.traces.rules.critical_path import path_totals, top_names
from rankscope.report.json import Json, ReportPart, one_of
from rankscope.schema import Dataset

MOST_KERNELS = 20
"""Most kernels of each file and kind."""
MOST_NAMES, MOST_PATTERNS, MOST_COUNTERS, MOST_RANGES = 50, 50, 1000, 100
"""Most rows of `critical_names`, over all steps, of `patterns`, `counters`, and of `ranges` by file and kind."""


def row_schema(columns: traces.Columns, *left_out: str, **values: Sequence[str]) -> Meta:
    """The schema of a row with these columns, which do not stand twice; `values` are those of a column, if few."""
    properties: Json = {
        name: {"type": [_json_type(name, dtype), "null"]} for name, dtype in columns.items() if name not in left_out
    }
    properties.update((name, {"enum": list(known)}) for name, known in values.items())
    row = {"properties": properties, "required": sorted(properties), "additionalProperties": False}
    return Meta(extra_json_schema=row)


def _json_type(name: str, dtype: pl.DataType | type[pl.DataType]) -> str:
    """The type in JSON of the values of a column; files and groups are no numbers of rows, but paths and names."""
    if dtype == pl.Boolean:
        return "boolean"
    if dtype.is_integer() and name not in ("file", "group"):
        return "integer"
    return "number" if dtype.is_float() else "string"


class ClockObject(ReportPart):
    """The clock of a file."""

    file: str | None
    offset_ns: int
    residual_ns: int | None


class CauseObject(ReportPart):
    """The cause why a rank is late."""

    rank: int
    cause: Annotated[str, one_of(traces.CAUSES)]
    what: str
    where: str
    detail: str
    share: float
    stack: Sequence[str]


class PatternObject(ReportPart):
    """Kernels that an operator launches again and again."""

    operator: str | None
    kernels: Sequence[str]
    length: int
    count: int
    total_ns: int
    ranks: Sequence[int]


_PATH = row_schema(
    {**traces.PATH, "total_ns": pl.Int64, "share": pl.Float64},
    *("path", "file", "row", "start_ns", "end_ns"),
    kind=traces.PATH_KINDS,
)
_PATH_NAMES = row_schema({**traces.PATH_NAMES, "share": pl.Float64}, "path", "step", kind=traces.PATH_KINDS)


_BANDWIDTH = {
    name: SIZES[name]
    for name in ("group", "op", "bytes", "count", "median_ns", "algbw", "busbw", "low", "high")
}  # fmt: skip


class TracesObject(ReportPart):
    """Results of profilers' traces."""

    clocks: Sequence[ClockObject]
    clock_error_ns: int | None
    refused: Sequence[str]
    matched: int
    recorded: int | None
    causes: Sequence[CauseObject]
    steps: list[Annotated[Json, row_schema(traces.STEPS)]]
    idle: list[Annotated[Json, row_schema(traces.IDLE, "track", kind=traces.IDLE_KINDS)]]
    queues: list[Annotated[Json, row_schema(traces.QUEUES)]]
    launches: list[Annotated[Json, row_schema(traces.LAUNCHES)]]
    bandwidth: list[Annotated[Json, row_schema(_BANDWIDTH)]]
    last: list[Annotated[Json, row_schema(traces.LAST)]]
    kernels: list[Annotated[Json, row_schema(traces.KERNELS, kind=traces.PATH_KINDS[:3])]]
    critical_path: list[Annotated[Json, _PATH]]
    critical_names: list[Annotated[Json, _PATH_NAMES]]
    critical_waits: list[Annotated[Json, row_schema(traces.HANDOVERS, "path")]]
    patterns: list[PatternObject]
    counters: list[Annotated[Json, row_schema(traces.COUNTERS)]]
    step_launches: list[Annotated[Json, row_schema(traces.STEP_LAUNCHES)]]
    copies: list[Annotated[Json, row_schema(traces.COPIES)]]
    ranges: list[Annotated[Json, row_schema(traces.RANGES, kind=traces.RANGE_KINDS)]]


class TraceKeys(ReportPart):
    """The key of traces in the JSON report."""

    traces: TracesObject | None


def table_rows(dataset: Dataset, table: pl.DataFrame) -> list[Json]:
    """The rows of a table, with paths of files and names of groups in place of their numbers."""
    numbers: dict[str, dict[int, str]] = {}
    if "file" in table.columns:
        numbers["file"] = dict(dataset.files.select("file", "path").iter_rows())
    if "group" in table.columns:
        numbers["group"] = {group.id: group.name for group in dataset.group_list}
    nameless = "rank" in table.columns and dataset.is_rankless
    named = table.drop("track", "row", strict=False).to_dicts()
    for row in named:
        if nameless:
            row["rank"] = None
        for column, known in numbers.items():
            row[column] = known.get(row[column])
    return named


def json_keys(dataset: Dataset, analysis: Analysis) -> TraceKeys:
    """All results; of kernels, names, patterns and counters those with most time."""
    results = traces.TRACE_RESULTS.find(analysis)
    if results is None:
        return TraceKeys(None)
    paths = dict(dataset.files.select("file", "path").iter_rows())
    nameless = dataset.is_rankless

    def rows(table: pl.DataFrame) -> list[Json]:
        return table_rows(dataset, table)

    of_most_time = pl.col("total_ns").rank("ordinal", descending=True).over("file", "kind") <= MOST_KERNELS
    patterns = pattern_table(results).head(MOST_PATTERNS)
    if nameless:
        patterns = patterns.with_columns(ranks=pl.lit([], dtype=pl.List(pl.Int32)))
    whole = TracesObject(
        clocks=[
            ClockObject(paths.get(file), offset, results.residuals.get(file))
            for file, offset in results.offsets.items()
        ],
        clock_error_ns=results.clock_error_ns,
        refused=results.refused,
        matched=results.matched["match"].n_unique(),
        recorded=results.recorded,
        causes=list(map(CauseObject.of, results.causes.values())),
        steps=rows(results.steps),
        idle=rows(results.idle),
        queues=rows(results.queues),
        launches=rows(results.launches),
        bandwidth=rows(_bandwidths(analysis)),
        last=rows(results.last),
        kernels=rows(results.kernels.filter(of_most_time)),
        critical_path=rows(path_totals(results.path)),
        critical_names=rows(top_names(results.path_names).head(MOST_NAMES)),
        critical_waits=rows(results.handovers.drop("path")),
        patterns=PatternObject.of_rows(patterns.with_columns(pl.col("kernels").str.split(traces.PATTERN_JOINT))),
        counters=rows(results.counters.head(MOST_COUNTERS)),
        step_launches=rows(results.step_launches),
        copies=rows(results.copies),
        ranges=rows(results.ranges.filter(pl.int_range(pl.len()).over("file", "kind") < MOST_RANGES)),
    )
    return TraceKeys(whole)


def _bandwidths(analysis: Analysis) -> pl.DataFrame:
    """The columns of `collectives` that stand with the traces, too, where a speed is known."""
    costs = COLLECTIVE_RESULTS.find(analysis) or CollectiveCosts()
    return costs.sizes.filter(pl.col("busbw").is_not_null()).select(list(_BANDWIDTH)).sort(
        "group", pl.col("op").cast(pl.String), "bytes"
    )  # fmt: skip
