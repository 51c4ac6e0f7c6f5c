"""Sessions of strangers: refused by name, or opened as plain data."""

from __future__ import annotations

import json
import os
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import zstandard
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rankscope.assemble.load import LoadOptions
from rankscope.parsers.files.directory_walk import SESSION_FILE
from rankscope.parsers.workers.protocol import send_message
from rankscope.report.json import render_json
from rankscope.report.markdown import render_markdown
from rankscope.report.text import render_text
from rankscope.sessions.opening import open_session
from rankscope.sessions.parquet_tables import SessionError
from rankscope.sessions.shares import Share
from tests.sessions.written import SAMPLES, parts_of, session_of

Change = Callable[[Path], object]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A session of tables that nobody changes."""
    return session_of(SAMPLES / "two_groups", tmp_path_factory.mktemp("whole") / "s")


@pytest.fixture
def session(whole: Path, tmp_path: Path) -> Path:
    """A session to change."""
    return Path(shutil.copytree(whole, tmp_path / "s"))


def _told(session: Path) -> str:
    with pytest.raises(SessionError) as error:
        open_session(session, LoadOptions())
    return str(error.value)


def _with_manifest(session: Path, **changed: Any) -> None:
    path = session / SESSION_FILE
    path.write_text(json.dumps({**json.loads(path.read_text()), **changed}))


def _with_column(session: Path, table: str, column: pl.Expr) -> None:
    path = session / f"{table}.parquet"
    pl.read_parquet(path).with_columns(column).write_parquet(path)


def _pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


class _Bomb:
    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, ("touch /tmp/rankscope-was-executed",)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda s: (s / "ops.parquet").unlink(), "ops.parquet: No such file"),
        (lambda s: (s / "ops.parquet").write_bytes(b""), "ops.parquet is no table of Parquet"),
        (lambda s: (s / "ops.parquet").write_bytes(pickle.dumps(_Bomb())), "ops.parquet is no table of Parquet"),
        (lambda s: (s / "ops.parquet").write_bytes((s / "ops.parquet").read_bytes()[:-300]), "no table of Parquet"),
        (lambda s: _pipe(s / "ops.parquet"), "ops.parquet is no regular file"),
        (lambda s: _with_column(s, "ops", pl.col("rank").cast(pl.Int64)), "column 'rank' of ops.parquet is Int64"),
        (lambda s: _with_column(s, "ops", pl.lit("x").alias("later")), "a column 'later' of a newer rankscope"),
        (lambda s: _with_column(s, "ops", (pl.col("group") + 99).alias("group")), "holds numbers beyond 5"),
        (lambda s: _with_column(s, "ops", pl.lit(-4, pl.Int32).alias("rank")), "column 'rank' of ops.parquet holds"),
        (lambda s: _with_column(s, "ops", pl.lit(1 << 30, pl.Int32).alias("rank")), "beyond 1,048,576"),
        (lambda s: _with_column(s, "groups", pl.lit([1 << 30], pl.List(pl.Int32)).alias("ranks")), "'ranks' of groups"),
        (lambda s: _with_column(s, "groups", (pl.col("group") + 1).alias("group")), "beyond 5"),
        (lambda s: _with_column(s, "files", pl.col("file").reverse().alias("file")), "files.parquet are not in order"),
        (lambda s: _with_manifest(s, rows={"ops": 12}), "ops.parquet has 93 rows, not 12"),
        (lambda s: _with_manifest(s, rows={"ops": 1 << 60}), "ops.parquet has 93 rows, not 1,152"),
        (lambda s: _with_manifest(s, rows={"files": 1 << 50}), "of memory, and there is "),
        (lambda s: _with_manifest(s, rows={"later": 1}), "'later' is of a newer rankscope"),
        (lambda s: _with_manifest(s, rows={"../../etc/passwd": 1}), "is of a newer rankscope"),
        (lambda s: _with_manifest(s, format=2, rankscope="9.9"), "it has form 2, of rankscope 9.9; this one reads 1"),
        (lambda s: _with_manifest(s, world_size=1 << 40), "is no manifest"),
        (lambda s: _with_manifest(s, left_out=[-1]), "is no manifest"),
        (lambda s: _with_manifest(s, parts=1 << 40), "is no manifest"),
        (lambda s: (s / SESSION_FILE).write_bytes(b"\xff\xfe" * 9), "is no manifest"),
        (lambda s: (s / SESSION_FILE).write_bytes(b"[" * 100_000), "is no manifest"),
        (lambda s: (s / SESSION_FILE).write_bytes(b" " * (17 << 20)), "too large for a manifest"),
    ],
)
def test_a_wrong_session_is_refused_with_its_reason(session: Path, change: Change, reason: str) -> None:
    change(session)
    told = _told(session)
    assert told.startswith(f"{session}: this session cannot be opened: ")
    assert reason in told
    assert not Path("/tmp/rankscope-was-executed").exists()


def test_a_column_that_its_writer_did_not_know_is_null(session: Path) -> None:
    path = session / "ops.parquet"
    pl.read_parquet(path).drop("timeout_ms").write_parquet(path)
    assert open_session(session, LoadOptions()).ops["timeout_ms"].null_count() == 93


def test_text_of_a_stranger_stays_text(session: Path) -> None:
    evil = "\x1b]0;owned\x07\x1b[2J[red]x[/red]<script>|"
    _with_column(session, "files", pl.lit(evil).alias("path"))
    _with_column(session, "groups", pl.lit(evil).alias("description"))
    _with_column(session, "stacks", pl.lit(evil).alias("function"))
    _with_manifest(session, root=evil)
    dataset = open_session(session, LoadOptions())
    from rankscope.analysis import analyse

    analysis = analyse(dataset)
    for text in (render_text(dataset, analysis), render_markdown(dataset, analysis)):
        assert "\x1b" not in text and "\x07" not in text
    assert b"\x1b" not in render_json(dataset, analysis, False)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_damage_anywhere_is_refused_or_opens(whole: Path, tmp_path: Path, data: st.DataObject) -> None:
    session = tmp_path / "damaged"
    shutil.rmtree(session, ignore_errors=True)
    shutil.copytree(whole, session)
    path = data.draw(st.sampled_from(sorted(session.iterdir())))
    content = bytearray(path.read_bytes())
    at = data.draw(st.integers(0, len(content) - 1))
    content[at : at + data.draw(st.integers(1, 40))] = data.draw(st.binary(max_size=40))
    path.write_bytes(content)
    try:
        open_session(session, LoadOptions())
    except SessionError as error:
        assert str(error).startswith(str(session))


# Parts.


def _part(path: Path, *headers: dict[str, Any], body: bytes = b"") -> None:
    with path.open("wb") as file, zstandard.ZstdCompressor().stream_writer(file) as out:
        for header in headers:
            send_message(out, header, [memoryview(body)])


HEAD = {"format": 1, "rankscope": "0.0", "root": "r", "found": []}
FILE = {"shown": "x", "kind": "flight-recorder", "size": 1, "mtime_ns": 1, "problem": None, "rows": 3,
        "decoded": {"calls": 7}, "other": False}  # fmt: skip


@pytest.mark.parametrize(
    ("headers", "reason"),
    [
        ([], "is cut short"),
        ([HEAD], "is of rankscope 0.0, this one is"),
        ([{**HEAD, "rankscope": None}], "is of rankscope None"),
        ([{"format": 1, "rankscope": ..., "found": 3}, FILE], "is no part of a session"),
        ([{**HEAD, "rankscope": ...}, FILE, {"end": 1}], "is no part of a session"),
        ([{**HEAD, "rankscope": ...}, {**FILE, "kind": "nothing"}, {"end": 1}], "is no part of a session"),
        ([{**HEAD, "rankscope": ...}, {"shown": 4}, {"end": 1}], "is no part of a session"),
        ([{**HEAD, "rankscope": ...}, {"end": 5}], "is cut short"),
    ],
)
def test_a_wrong_part_is_told(headers: list[dict[str, Any]], reason: str, tmp_path: Path) -> None:
    from rankscope import __version__

    session = parts_of(SAMPLES / "two_groups", tmp_path / "s", 1, lambda _one: 0)
    own = [{key: __version__ if value is ... else value for key, value in header.items()} for header in headers]
    _part(session / Share(0, 1).file_name, *own, body=b"\xff" * 64)
    assert reason in _told(session)


def test_a_part_of_other_paths_is_refused(tmp_path: Path) -> None:
    session = parts_of(SAMPLES / "two_groups", tmp_path / "s", 2, lambda one: int(one.shown[-1]) % 2)
    other = parts_of(SAMPLES / "healthy", tmp_path / "t", 2, lambda one: int(one.shown[-1]) % 2)
    name = Share(1, 2).file_name
    shutil.copy(other / name, session / name)
    assert "its parts are of different paths" in _told(session)


def test_a_part_larger_than_the_memory_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    session = parts_of(SAMPLES / "two_groups", tmp_path / "s", 1, lambda _one: 0)
    monkeypatch.setattr("rankscope.sessions.shard_parts.lent_bytes", lambda: 2000)
    assert "more than this machine has memory for" in _told(session)
