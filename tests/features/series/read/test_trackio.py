"""Databases of trackio, written by the schema of its version 0.43."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from rankscope.features.series.read.trackio_files import read_trackio_file, trackio_config
from rankscope.features.series.rows import load_series


def database(path: Path, runs: dict[str, list[dict[str, object]]]) -> bytes:
    """A project with these runs, the oldest first."""
    with closing(sqlite3.connect(path)) as base:
        base.execute("PRAGMA journal_mode = WAL")
        base.execute(
            "CREATE TABLE metrics (id INTEGER PRIMARY KEY AUTOINCREMENT, run_id TEXT NOT NULL, timestamp TEXT NOT NULL,"
            " run_name TEXT NOT NULL, step INTEGER NOT NULL, metrics TEXT NOT NULL, log_id TEXT, space_id TEXT)"
        )
        base.execute(
            "CREATE TABLE configs (id INTEGER PRIMARY KEY AUTOINCREMENT, run_id TEXT NOT NULL, run_name TEXT NOT NULL,"
            " config TEXT NOT NULL, created_at TEXT NOT NULL, UNIQUE(run_id))"
        )
        for day, (name, rows) in enumerate(runs.items(), 1):
            base.execute(
                "INSERT INTO configs (run_id, run_name, config, created_at) VALUES (?, ?, ?, '')",
                (name, name, json.dumps({"lr": 0.1 * day, "_Username": "someone"})),
            )
            for step, row in enumerate(rows):
                base.execute(
                    "INSERT INTO metrics (run_id, timestamp, run_name, step, metrics) VALUES (?, ?, ?, ?, ?)",
                    (name, f"2026-03-0{day}T10:00:00+00:00", name, step, json.dumps(row)),
                )
        base.commit()
    return path.read_bytes()


def test_the_newest_run_of_a_project_is_read_exactly(tmp_path: Path) -> None:
    runs: dict[str, list[dict[str, object]]] = {
        "zeta": [{"train/loss": 9.0}],
        "alpha": [{"train/loss": 2.5, "grad_norm": 0.1}, {"train/loss": "NaN"}],
    }
    database(tmp_path / "project.db", runs)
    found = load_series([tmp_path])
    rows = found.scalars.select("name", "step", "value", "resolution", "source").rows()
    assert rows[:2] == [("loss", 0, 2.5, 0.0, "trackio"), ("grad_norm", 0, 0.1, 0.0, "trackio")]
    assert rows[2][:2] == ("loss", 1)
    assert [source.tree for source in found.options.sources] == [{"lr": 0.2}]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["project.db"]


@pytest.mark.parametrize("keep", [16, 100, 5000, 9000])
def test_a_damaged_database_has_no_more_rows(tmp_path: Path, keep: int) -> None:
    whole = database(tmp_path / "project.db", {"a": [{"loss": float(n)} for n in range(200)]})
    assert read_trackio_file(whole).height == 200
    assert read_trackio_file(whole[:keep] + b"\xff" * (len(whole) - keep)).height < 200
    assert trackio_config(whole[:keep]) in ({}, {"lr": 0.1})


def test_a_view_in_place_of_the_table_is_not_asked(tmp_path: Path) -> None:
    path = tmp_path / "endless.db"
    with closing(sqlite3.connect(path)) as base:
        base.execute(
            "CREATE VIEW metrics AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n)"
            " SELECT i AS id, 'a' AS run_name, i AS step, '' AS timestamp, '' AS metrics FROM n WHERE i < 0"
        )
        base.commit()
    assert read_trackio_file(path.read_bytes()).is_empty()
