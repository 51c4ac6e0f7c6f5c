"""JSON Schema of the key `traces` of a report: rows come from the columns of their tables, which do not stand twice."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import polars as pl

from rankscope.features.traces.rules import model as traces
from rankscope.report.json_schema import REF, Json, closed_object, json_type
from rankscope.report.report_objects import ReportPart

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


def trace_schema() -> tuple[Json, Json]:
    """The schema of the key `traces`, by the key, and the definitions that it refers to."""
    (clock, cause, pattern), parts = msgspec.json.schema_components(
        [ClockObject, CauseObject, PatternObject], ref_template=REF
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
    key = {"anyOf": [{"type": "null"}, {"$ref": REF.format(name="TracesObject")}]}
    return {"traces": key}, {**parts, "TracesObject": closed_object(whole, "Results of profilers' traces.")}


def _row(table: str, columns: traces.Columns, left_out: Sequence[str]) -> Json:
    properties = {
        name: {"type": ["string" if name in _NAMED else json_type(dtype), "null"]}
        for name, dtype in columns.items()
        if name not in left_out
    }
    if table in _KINDS:
        properties["kind"] = {"enum": list(_KINDS[table])}
    return closed_object(properties)
