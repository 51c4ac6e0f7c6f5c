"""Each table stands once: field, frame, redaction, Parquet and published schema are those of its declaration."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from rankscope.assemble.load import load
from rankscope.report.frame_schema import frame_schema
from rankscope.report.redact import Redaction
from rankscope.schema import Dataset, tables
from rankscope.schema.table import Column, Table
from rankscope.schema.tables import SCALARS, TABLES
from rankscope.sessions.parquet_tables import read_tables

SAMPLES = Path(__file__).parents[2] / "sample_data"


def test_every_table_of_a_job_has_a_row_under_its_name() -> None:
    frames = {name: value for name, value in vars(Dataset()).items() if isinstance(value, pl.DataFrame)}
    assert list(frames) == list(TABLES) == [table.name for table in TABLES.values()]
    declared = [value.name for value in vars(tables).values() if isinstance(value, Table) and value is not SCALARS]
    assert sorted(declared) == sorted(TABLES), "each declared table has a field in JobTables"
    assert {field.name for field in fields(Dataset) if field.type == "pl.DataFrame"} == set(TABLES)


@pytest.mark.parametrize("table", TABLES.values(), ids=list(TABLES))
def test_a_table_says_what_a_row_is_and_gives_its_empty_frame(table: Table) -> None:
    assert table.about.endswith(".")
    assert dict(getattr(Dataset(), table.name).schema) == dict(table.empty().schema) == dict(table)


@pytest.mark.parametrize("sample", ["two_groups", "slow_loader"])
def test_loaded_tables_have_the_declared_columns(sample: str) -> None:
    dataset = load([SAMPLES / sample])
    for name, table in TABLES.items():
        assert dict(getattr(dataset, name).schema) == dict(table), name


def test_a_session_without_rows_has_every_table(tmp_path: Path) -> None:
    assert list(read_tables(tmp_path, {}).tables) == list(TABLES)


@pytest.mark.parametrize("dtype", [pl.String, pl.Categorical, pl.Categorical()])
def test_text_says_whose_words_it_holds(dtype: Any) -> None:
    with pytest.raises(ValueError, match="column 'note' of power: a column of text"):
        Table("power", "One row for each sample.", rank=pl.Int32, note=dtype)
    with pytest.raises(ValueError, match="column 'note' of power: a column of text"):
        Table("power", "One row for each sample.", note=Column(dtype, "a remark"))


def test_numbers_hold_no_words() -> None:
    with pytest.raises(ValueError, match="column 'watts' of power: a column of text, and no other"):
        Table("power", "One row for each sample.", watts=Column(pl.Int64, holds="text"))


@pytest.mark.parametrize(
    "dtype", [pl.List(pl.String), pl.List(pl.List(pl.Categorical)), pl.Array(pl.String, 2), pl.Struct({"a": pl.Int8}),
              pl.List(pl.Struct({"a": pl.String})), pl.Object],
)  # fmt: skip
def test_text_inside_of_a_value_is_refused(dtype: Any) -> None:
    with pytest.raises(ValueError, match="column 'notes' of power: text inside"):
        Table("power", "One row for each sample.", notes=dtype)


def test_a_declaration_from_outside_is_redacted_and_described() -> None:
    power = Table(
        "power",
        "One row for each sample of a rank.",
        rank=pl.Int32,
        host=Column(pl.String, "where it was taken", holds="host"),
        sensor=Column(pl.Categorical, "as the driver calls it", holds="text"),
        source=Column(pl.String, '"nvml", "bmc"', holds="ours"),
        watts=pl.Float64,
    )
    row = {"rank": 0, "host": "node07", "sensor": "node07-psu", "source": "node07", "watts": 1.0}
    frame = pl.DataFrame([row], schema=power)
    assert frame.clear().equals(power.empty())
    assert Redaction(["node07"]).table(power, frame).row(0) == (0, "host-1", "host-1-psu", "node07", 1.0)


def test_the_published_frame_is_the_declaration() -> None:
    published: dict[str, Any] = frame_schema()["tables"]
    assert list(published) == list(TABLES)
    for name, table in TABLES.items():
        assert published[name]["description"] == table.about
        about = {column["name"]: column.get("description", "") for column in published[name]["columns"]}
        assert about == {column: row.about for column, row in table.columns.items()}
