"""Text is redacted in every column of every table of a job, but in those that are declared as rankscope's own."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import polars as pl
import pytest

from rankscope.report.redact import Redaction
from rankscope.schema.tables import TABLES
from tests.report import samples

HOST, PATH = "node07.corp.example", "/home/alice/apollo/x of node07"
SECRETS = ("node07", "corp", "alice", "apollo")


def _filled(name: str, empty: pl.DataFrame) -> pl.DataFrame:
    """A row of a table with a name in each of its columns of text, and in one that nobody has thought of."""
    table = empty.clear(1).with_columns(note=pl.lit(None, pl.String))
    held = TABLES[name].texts(table)
    return table.with_columns(
        pl.lit(HOST if what == "host" else PATH).cast(table.schema[column]).alias(column)
        for column, what in held.items()
    )


def _shown(table: pl.DataFrame) -> str:
    return str(table.rows())


@pytest.mark.parametrize("name", TABLES)
def test_of_a_job(name: str) -> None:
    dataset, _ = samples.hang()
    full = _filled(name, getattr(dataset, name))
    assert all(secret in _shown(full) for secret in SECRETS if "host" in full.columns or secret != "corp")
    changed: dict[str, Any] = {name: full}
    redacted = Redaction([HOST]).dataset(replace(dataset, **changed))
    assert [secret for secret in SECRETS if secret in _shown(getattr(redacted, name))] == []
    assert getattr(redacted, name).drop("note").schema == getattr(dataset, name).schema


def test_of_groups() -> None:
    dataset, _ = samples.hang()
    groups = dataset.groups.with_columns(name=pl.lit("alice_node07"))
    renamed = Redaction([HOST], ["alice"]).dataset(replace(dataset, groups=groups))
    assert set(renamed.groups["name"]) == {"user-1_host-2"}


def test_what_is_unknown_gets_no_stand_in() -> None:
    dataset, _ = samples.hang()
    redacted = Redaction().dataset(replace(dataset, files=dataset.files.with_columns(host=pl.lit(""))))
    assert set(redacted.files["host"]) == {""}
