"""The published frame: every table and column of a Dataset, with enums, units and descriptions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rankscope.report.frame_schema import frame_schema
from rankscope.schema.tables import RECORDERS, STATES
from tests.report import samples

ROOT = Path(__file__).parents[2]
TABLES: dict[str, Any] = frame_schema()["tables"]


def columns(table: str) -> dict[str, dict[str, Any]]:
    return {column["name"]: column for column in TABLES[table]["columns"]}


def test_enums_have_the_values_of_the_code() -> None:
    assert columns("ops")["state"]["enum"] == list(STATES)
    assert columns("files")["recorder"]["enum"] == list(RECORDERS)
    enums = [c for name in TABLES for c in columns(name).values() if c["dtype"] == "Enum"]
    assert len(enums) > 10 and all(column["enum"] for column in enums)


def test_units_follow_names_or_are_declared() -> None:
    units = {(name, c["name"]): c.get("unit") for name in TABLES for c in columns(name).values()}
    assert all(unit == "ns" for (_, column), unit in units.items() if column.endswith("_ns"))
    assert units["ops", "timeout_ms"] == "ms"
    assert units["memory", "reserved"] == units["files", "size"] == units["parameters", "state_bytes"] == "bytes"
    assert units["memory", "line"] is None


def test_tables_and_columns_have_descriptions() -> None:
    assert columns("ops")["group"]["description"] == "row of `groups`"
    assert columns("frontiers")["last_started"]["description"].startswith("collective sequence numbers")
    assert "description" not in columns("frontiers")["filtered"]
    assert columns("spans")["category"]["description"].endswith("without being described")
    assert TABLES["messages"]["description"].startswith("One row for each relevant line of a log")
    assert columns("traced")["peer"] == columns("ops")["peer"]


def test_samples_are_jobs() -> None:
    assert samples.healthy()[0].ops.columns == list(columns("ops"))
