"""The published frame: every table and column of a Dataset, with enums, units and descriptions."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from rankscope import schema
from rankscope.assemble.load import load
from rankscope.report import frame_schema as module
from rankscope.report.frame_schema import NoSourceError, frame_schema
from rankscope.schema import Dataset
from tests.report import samples

ROOT = Path(__file__).parents[2]
TABLES: dict[str, Any] = frame_schema()["tables"]


def columns(table: str) -> dict[str, dict[str, Any]]:
    return {column["name"]: column for column in TABLES[table]["columns"]}


@pytest.mark.parametrize("sample", ["two_groups", "slow_loader"])
def test_loaded_tables_have_these_columns(sample: str) -> None:
    dataset = load([ROOT / "sample_data" / sample])
    named = {field.name for field in fields(Dataset) if isinstance(getattr(dataset, field.name), pl.DataFrame)}
    assert named == set(TABLES)
    for name in named:
        table: pl.DataFrame = getattr(dataset, name)
        told = {one: column["dtype"] for one, column in columns(name).items()}
        assert told == {one: str(dtype).partition("(categories")[0] for one, dtype in table.schema.items()}, name


def test_enums_have_the_values_of_the_code() -> None:
    assert columns("ops")["state"]["enum"] == list(schema.STATES)
    assert columns("files")["recorder"]["enum"] == list(schema.RECORDERS)
    enums = [c for name in TABLES for c in columns(name).values() if c["dtype"] == "Enum"]
    assert len(enums) > 10 and all(column["enum"] for column in enums)


def test_units_follow_names_and_comments() -> None:
    units = {(name, c["name"]): c.get("unit") for name in TABLES for c in columns(name).values()}
    assert all(unit == "ns" for (_, column), unit in units.items() if column.endswith("_ns"))
    assert units["ops", "timeout_ms"] == "ms"
    assert units["memory", "reserved"] == units["files", "size"] == units["parameters", "state_bytes"] == "bytes"
    assert units["memory", "line"] is None


def test_descriptions_are_the_comments_beside_the_columns() -> None:
    assert columns("ops")["group"]["description"] == "row of `groups`"
    assert columns("frontiers")["last_started"]["description"].startswith("collective sequence numbers")
    assert "description" not in columns("frontiers")["filtered"], "the comment above is about other columns"
    assert columns("spans")["category"]["description"].endswith("without being described")
    assert TABLES["messages"]["description"].startswith("One row for each relevant line of a log")
    assert columns("traced")["peer"] == columns("ops")["peer"]


def test_without_source_the_reason_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    class BareLoader:
        def get_source(self, _name: str) -> None:
            return None

    class BareSpec:
        loader = BareLoader()

    module._descriptions.cache_clear()
    monkeypatch.setattr(module, "find_spec", lambda _name: BareSpec())
    with pytest.raises(NoSourceError, match=r"rankscope\.schema\.tables: installed without its source"):
        frame_schema()


def test_samples_are_jobs() -> None:
    assert samples.healthy()[0].ops.columns == list(columns("ops"))
