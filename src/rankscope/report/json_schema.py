"""JSON Schema, draft 2020-12, of the JSON report and of the lines of `rankscope watch`.

Objects come from `report_objects`, rows of traces from the columns of their tables: neither stands twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import polars as pl

from rankscope.features.traces.rules import model as traces
from rankscope.report.report_objects import JobReport, ReportError, ReportPart, WatchLine

DRAFT = "https://json-schema.org/draft/2020-12/schema"
_REF = "#/$defs/{name}"
Json = dict[str, Any]
_TABLES: dict[str, tuple[traces.Columns, Sequence[str]]] = {
    "steps": (traces.STEPS, ()),
    "idle": (traces.IDLE, ("track",)),
    "queues": (traces.QUEUES, ()),
    "launches": (traces.LAUNCHES, ()),
    "bandwidth": (traces.BANDWIDTH, ()),
    "last": (traces.LAST, ()),
    "kernels": (traces.KERNELS, ()),
    "critical_path": ({**traces.PATH, "total_ns": pl.Int64, "share": pl.Float64},
                      ("path", "file", "row", "start_ns", "end_ns")),
    "critical_names": ({**traces.PATH_NAMES, "share": pl.Float64}, ("path", "step")),
    "critical_waits": (traces.HANDOVERS, ("path",)),
    "counters": (traces.COUNTERS, ()),
}  # fmt: skip
"""Columns of the rows below each key of `traces`, and those that rows leave out."""
_NAMED = ("file", "group")
"""Columns with numbers of rows, for which reports give paths and names."""
_KINDS = {"idle": traces.IDLE_KINDS, "critical_path": traces.PATH_KINDS, "critical_names": traces.PATH_KINDS,
          "kernels": traces.PATH_KINDS[:3]}  # fmt: skip
"""Values of the column `kind`."""


class ClockObject(ReportPart):
    """The clock of a file."""

    file: str | None
    offset_ns: int
    residual_ns: int | None


class CauseObject(ReportPart):
    """The cause why a rank is late."""

    rank: int
    cause: str
    what: str
    where: str
    detail: str
    share: float
    stack: list[str]


class PatternObject(ReportPart):
    """Kernels that an operator launches again and again."""

    operator: str | None
    kernels: list[str]
    length: int
    count: int
    total_ns: int
    ranks: list[int]


def report_schema() -> Json:
    """The schema of `rankscope report --format json`, also of an error."""
    (report, error), parts = msgspec.json.schema_components([JobReport, ReportError], ref_template=_REF)
    parts |= _trace_parts()
    parts["JobReport"]["properties"]["traces"] = {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/TracesObject"}]}
    return {
        "$schema": DRAFT,
        "title": "rankscope report --format json",
        "description": "The verdict on a distributed job, or an error. Keys may be added; see docs/report.md.",
        "oneOf": [report, error],
        "$defs": dict(sorted(parts.items())),
    }


def watch_schema() -> Json:
    """The schema of a line of `rankscope watch --format json`."""
    (line,), parts = msgspec.json.schema_components([WatchLine], ref_template=_REF)
    return {
        "$schema": DRAFT,
        "title": "a line of rankscope watch --format json",
        "description": "The state of a job that is followed; see docs/report.md.",
        **line,
        "$defs": dict(sorted(parts.items())),
    }


def _trace_parts() -> Json:
    """Definitions of the object below the key `traces`."""
    (clock, cause, pattern), parts = msgspec.json.schema_components(
        [ClockObject, CauseObject, PatternObject], ref_template=_REF
    )
    parts["CauseObject"]["properties"]["cause"] = {"enum": list(traces.CAUSES)}
    rows = {name: _row(name, columns, left_out) for name, (columns, left_out) in _TABLES.items()}
    lists = {"clocks": clock, "causes": cause, "patterns": pattern, "refused": {"type": "string"}, **rows}
    whole = {
        **{name: {"type": "array", "items": item} for name, item in lists.items()},
        "clock_error_ns": {"type": ["integer", "null"]},
        "matched": {"type": "integer"},
        "recorded": {"type": ["integer", "null"]},
    }
    return {**parts, "TracesObject": closed_object(whole, "Results of profilers' traces.")}


def _row(table: str, columns: traces.Columns, left_out: Sequence[str]) -> Json:
    properties = {
        name: {"type": ["string" if name in _NAMED else json_type(dtype), "null"]}
        for name, dtype in columns.items()
        if name not in left_out
    }
    if table in _KINDS:
        properties["kind"] = {"enum": list(_KINDS[table])}
    return closed_object(properties)


def closed_object(properties: Json, description: str = "") -> Json:
    """The schema of an object that has all of these keys, and no other."""
    told = {"description": description} if description else {}
    names = sorted(properties)
    return {"type": "object", **told, "properties": properties, "required": names, "additionalProperties": False}


def json_type(dtype: pl.DataType | type[pl.DataType]) -> str:
    """The type in JSON of the values of a column."""
    if dtype == pl.Boolean:
        return "boolean"
    if dtype.is_integer():
        return "integer"
    return "number" if dtype.is_float() else "string"
