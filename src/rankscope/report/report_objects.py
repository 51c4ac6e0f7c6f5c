"""The report with the keys of all features, and lines of `rankscope watch`: types, and JSON Schema, draft 2020-12.

A program in Python reads a report into them: `msgspec.json.decode(raw, type=JobReport)`. Keys that are not here are
refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast, get_type_hints

import msgspec

from rankscope.kinds.features import FEATURES
from rankscope.kinds.functions import function
from rankscope.report.json import CoreReport, Json, ReportError
from rankscope.report.watch_lines import WatchLine

DRAFT = "https://json-schema.org/draft/2020-12/schema"
REF = "#/$defs/{name}"


def _keys_of_features() -> Iterator[tuple[str, Any, Any]]:
    """Name, type and default of each key: those of the struct that the function of a row says that it returns."""
    for feature in FEATURES:
        if feature.record:
            for key in msgspec.structs.fields(get_type_hints(function(feature.record))["return"]):
                yield key.name, key.type, msgspec.field(default=key.default)


JobReport = cast(
    type[CoreReport],
    msgspec.defstruct(
        "JobReport", _keys_of_features(), bases=(CoreReport,), namespace={"__doc__": "The report on a job."}
    ),
)
"""The whole report; its keys are those of `CoreReport` and of all features."""


def report_schema() -> Json:
    """The schema of `rankscope report --format json`, also of an error."""
    (report, error), parts = msgspec.json.schema_components([JobReport, ReportError], ref_template=REF)
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
