"""Text is redacted in every column of every table, but in those that the schema calls rankscope's own."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import polars as pl
import pytest

from rankscope.analysis.model import Analysis, GroupRef
from rankscope.analysis.traces.model import TraceAnalysis
from rankscope.report.redact import redact
from rankscope.schema import Dataset
from rankscope.schema.tables import HOLDS, text_columns
from tests.report import samples

TABLES = [f.name for f in fields(Dataset) if f.type == "pl.DataFrame"]
OF_TRACES = [f.name for f in fields(TraceAnalysis) if f.type == "pl.DataFrame"]
HOST, PATH = "node07.corp.example", "/home/alice/apollo/x of node07"
SECRETS = ("node07", "corp", "alice", "apollo")


def _filled(name: str, empty: pl.DataFrame) -> pl.DataFrame:
    """A row of a table with a name in each of its columns of text, and in one that nobody has thought of."""
    table = empty.clear(1).with_columns(note=pl.lit(None, pl.String))
    held = text_columns(name, table.schema)
    return table.with_columns(
        pl.lit(HOST if what == "host" else PATH).cast(table.schema[column]).alias(column)
        for column, what in held.items()
    )


def _shown(table: pl.DataFrame) -> str:
    return str(table.rows())


@pytest.mark.parametrize("name", TABLES)
def test_of_a_job(name: str) -> None:
    dataset, analysis = samples.hang()
    full = _filled(name, getattr(dataset, name))
    assert all(secret in _shown(full) for secret in SECRETS if "host" in full.columns or secret != "corp")
    changed: dict[str, Any] = {name: full}
    redacted, _ = redact(replace(dataset, **changed), analysis, [HOST])
    assert [secret for secret in SECRETS if secret in _shown(getattr(redacted, name))] == []
    assert getattr(redacted, name).drop("note").schema == getattr(dataset, name).schema


@pytest.mark.parametrize("name", OF_TRACES)
def test_of_the_analysis_of_traces(name: str) -> None:
    dataset, analysis = samples.hang()
    changed: dict[str, Any] = {name: _filled(name, getattr(TraceAnalysis(), name))}
    traces = replace(TraceAnalysis(), **changed)
    _, redacted = redact(dataset, replace(analysis, traces=traces), [HOST])
    assert [secret for secret in SECRETS if secret in _shown(getattr(redacted.traces, name))] == []


def test_of_groups() -> None:
    dataset, analysis = samples.hang()
    group = GroupRef("alice_node07", f"{HOST} tp", (2, 3), key=1)
    told = replace(analysis, findings=(replace(analysis.findings[0], group=group),))
    groups = dataset.groups.with_columns(name=pl.lit("alice_node07"))
    renamed, redacted = redact(replace(dataset, groups=groups), told, [HOST], ["alice"])
    assert redacted.findings[0].group == GroupRef("user-1_host-1", "host-1 tp", (2, 3), key=1)
    assert set(renamed.groups["name"]) == {"user-1_host-1"}


def test_what_is_unknown_gets_no_stand_in() -> None:
    dataset, analysis = samples.hang()
    redacted, _ = redact(replace(dataset, files=dataset.files.with_columns(host=pl.lit(""))), analysis)
    assert set(redacted.files["host"]) == {""}


def test_the_schema_names_columns_that_there_are() -> None:
    dataset = samples.hang()[0]
    tables = {name: getattr(dataset, name) for name in TABLES} | {n: getattr(TraceAnalysis(), n) for n in OF_TRACES}
    for name, columns in HOLDS.items():
        assert all(tables[name].schema[column] in (pl.String, pl.Categorical) for column in columns), name
    kinds = {dtype.base_type() for table in tables.values() for dtype in table.schema.values()}
    assert kinds & {pl.Struct, pl.Object} == set()
    lists = [
        dtype for table in tables.values() for dtype in table.schema.values() if isinstance(dtype, pl.List | pl.Array)
    ]
    assert {dtype.inner for dtype in lists} == {pl.Int32, pl.Int64}, "text in a list is not redacted"


def test_the_analysis_has_no_other_tables() -> None:
    assert [f.name for f in fields(Analysis) if "DataFrame" in str(f.type)] == []
