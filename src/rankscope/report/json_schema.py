"""JSON Schema, draft 2020-12, of the JSON report and of the lines of `rankscope watch`.

Objects come from `report_objects`, and keys of features from their rows in `kinds.features`.
"""

from __future__ import annotations

from typing import Any

import msgspec
import polars as pl

from rankscope.kinds.features import FEATURES
from rankscope.kinds.functions import function
from rankscope.report.report_objects import JobReport, ReportError, WatchLine

DRAFT = "https://json-schema.org/draft/2020-12/schema"
REF = "#/$defs/{name}"
Json = dict[str, Any]


def report_schema() -> Json:
    """The schema of `rankscope report --format json`, also of an error."""
    (report, error), parts = msgspec.json.schema_components([JobReport, ReportError], ref_template=REF)
    for feature in FEATURES.values():
        if feature.schema:
            keys, definitions = function(feature.schema)()
            parts |= definitions
            parts["JobReport"]["properties"] |= keys
    return {
        "$schema": DRAFT,
        "title": "rankscope report --format json",
        "description": "The verdict on a distributed job, or an error. Keys may be added; see docs/report.md.",
        "oneOf": [report, error],
        "$defs": dict(sorted(parts.items())),
    }


def watch_schema() -> Json:
    """The schema of a line of `rankscope watch --format json`."""
    (line,), parts = msgspec.json.schema_components([WatchLine], ref_template=REF)
    return {
        "$schema": DRAFT,
        "title": "a line of rankscope watch --format json",
        "description": "The state of a job that is followed; see docs/report.md.",
        **line,
        "$defs": dict(sorted(parts.items())),
    }


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
