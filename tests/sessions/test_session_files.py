"""A session of tables holds all of a job, and opens with its report."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from rankscope.assemble.load import LoadOptions, load
from rankscope.parsers.files.directory_walk import is_session
from rankscope.schema import DumpsBeside
from rankscope.schema.tables import TABLES
from rankscope.sessions.manifest import ReadingOptions
from rankscope.sessions.opening import open_session
from rankscope.sessions.parquet_tables import SessionError
from rankscope.sessions.session_files import write_session
from tests.jobs.scenarios import SAMPLE_JOBS
from tests.sessions.written import ALL, SAMPLES, report_of, session_of


@pytest.mark.parametrize("name", SAMPLE_JOBS)
def test_a_session_gives_the_tables_and_the_report_of_the_files(name: str, tmp_path: Path) -> None:
    job = load([SAMPLES / name], ALL)
    write_session(job, tmp_path / "s", ReadingOptions())
    found = open_session(tmp_path / "s", LoadOptions())
    for table in TABLES:
        own, read = getattr(job, table), getattr(found, table)
        assert read.schema == own.select(read.columns).schema
        assert read.equals(own.select(read.columns)), table
    assert report_of(found) == report_of(load([SAMPLES / name]))


def test_all_tables_of_a_dataset_are_named() -> None:
    job = load([SAMPLES / "healthy"])
    assert {one.name for one in fields(job) if isinstance(getattr(job, one.name), pl.DataFrame)} == set(TABLES)


def test_facts_beside_the_tables_are_kept(tmp_path: Path) -> None:
    facts: dict[str, Any] = {
        "beside": DumpsBeside((2, 3), "there"),
        "left_out": frozenset({1}),
        "world_size": 7,
        "attempt": 2,
    }
    job = replace(load([SAMPLES / "two_groups"]), **facts)
    write_session(job, tmp_path / "s", ReadingOptions())
    found = open_session(tmp_path / "s", LoadOptions())
    assert {name: getattr(found, name) for name in facts} == facts


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (LoadOptions(attempt=3), "it holds attempt 0 only"),
        (LoadOptions(world_size=9), "it was read without this --world-size"),
        (LoadOptions(rank_from="(x)"), "it was read without this --rank-from"),
        (LoadOptions(errors=Path("e.tsv")), "--errors goes with ingest"),
    ],
)
def test_options_that_it_was_not_read_with_are_refused(options: LoadOptions, reason: str, tmp_path: Path) -> None:
    session = session_of(SAMPLES / "two_groups", tmp_path / "s")
    with pytest.raises(SessionError, match=reason):
        open_session(session, options)


def test_the_options_that_it_was_read_with_are_taken(tmp_path: Path) -> None:
    job = load([SAMPLES / "two_groups"], LoadOptions(world_size=9))
    write_session(job, tmp_path / "s", ReadingOptions(world_size=9))
    found = open_session(tmp_path / "s", LoadOptions(world_size=9, attempt=0))
    assert found.missing_ranks == (4, 5, 6, 7, 8)


def test_a_write_that_fails_leaves_the_old_session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    session = session_of(SAMPLES / "two_groups", tmp_path / "s")
    monkeypatch.setattr("rankscope.sessions.session_files.write_manifest", _full)
    with pytest.raises(OSError, match="No space left"):
        session_of(SAMPLES / "healthy", session)
    assert is_session(session)
    assert open_session(session, LoadOptions()).root.endswith("two_groups")
    assert [path.name for path in tmp_path.iterdir()] == ["s"]


def _full(*_: object) -> None:
    raise OSError(28, "No space left on device")
