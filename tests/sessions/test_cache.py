"""The user's cache: files that did not change are not read again, and it stays small."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from rankscope.assemble import held_sources, read_parts
from rankscope.assemble.held_sources import SparseReading
from rankscope.assemble.load import LoadOptions, load, walk
from rankscope.commands import source
from rankscope.commands.source import JobSource
from rankscope.parsers.files.directory_walk import SESSION_FILE
from rankscope.sessions import session_cache
from rankscope.sessions.session_cache import CacheEntry, cache_entry, entry_name
from tests.sessions.written import SAMPLES, report_of

NOW_NS = 2_000_000_000_000_000_000


@pytest.fixture
def job(tmp_path: Path) -> Path:
    """A job whose files can be changed."""
    return Path(shutil.copytree(SAMPLES / "two_groups", tmp_path / "job"))


@pytest.fixture
def used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache for the smallest inputs, filled before a read returns."""
    monkeypatch.setattr(source, "_FEWEST_CACHED_BYTES", 1)
    monkeypatch.setattr(session_cache, "_runs_from_sources", lambda: False)
    monkeypatch.setattr(CacheEntry, "keep_later", CacheEntry.keep)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv(session_cache.OFF, raising=False)
    return tmp_path / "cache" / "rankscope" / "sessions"


def _report(job: Path, **options: object) -> bytes:
    return report_of(replace(JobSource((str(job),)), **options).read(lambda _step: None))  # type: ignore[arg-type]


def test_a_second_read_opens_no_file(job: Path, used: Path) -> None:
    first = _report(job)
    assert len(list(used.iterdir())) == 1
    for path in job.iterdir():
        about = path.stat()
        path.write_bytes(b"\0" * about.st_size)  # the same file to a stat
        os.utime(path, ns=(about.st_atime_ns, about.st_mtime_ns))
    assert _report(job) == first
    with pytest.raises(Exception, match="no dump, stack, log or trace"):
        _report(job, no_cache=True)


def test_a_changed_file_is_read(job: Path, used: Path) -> None:
    first = _report(job)
    shutil.copy2(SAMPLES / "healthy" / "comm_lib_trace_rank_3", job)
    assert _report(job) != first
    assert len(list(used.iterdir())) == 2


def test_options_have_entries_of_their_own(job: Path, used: Path) -> None:
    _report(job)
    assert _report(job, world_size=6) == report_of(load([job], LoadOptions(world_size=6)))
    assert len(list(used.iterdir())) == 2


def test_a_damaged_entry_is_read_anew(job: Path, used: Path) -> None:
    first = _report(job)
    (entry,) = used.iterdir()
    (entry / "ops.parquet").write_bytes(b"PAR1")
    assert _report(job) == first
    (entry / SESSION_FILE).write_text("{}")
    assert _report(job) == first


def test_an_entry_of_another_version_is_not_used(job: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = entry_name(walk([job]), LoadOptions())
    monkeypatch.setattr("rankscope.__version__", "9.9")
    assert entry_name(walk([job]), LoadOptions()) != name


def test_files_that_may_change_unseen_have_no_entry(job: Path, used: Path) -> None:
    found = walk([job])
    newest = max(one.mtime_ns or 0 for one in found)
    assert cache_entry(found, LoadOptions(), newest + session_cache.YOUNG_NS - 1, {}) is None
    assert cache_entry(found, LoadOptions(), newest - 60_000_000_000, {}) is None  # a clock ahead of this one
    assert cache_entry(found, LoadOptions(), newest + session_cache.YOUNG_NS, {}) is not None
    assert cache_entry(found, LoadOptions(), newest + session_cache.YOUNG_NS, {session_cache.OFF: "1"}) is None


def test_a_program_in_its_sources_has_no_cache(job: Path) -> None:
    assert cache_entry(walk([job]), LoadOptions(), NOW_NS, {}) is None


def test_the_least_recently_used_go_first(tmp_path: Path) -> None:
    job = load([SAMPLES / "two_groups"])
    CacheEntry(tmp_path / "first", LoadOptions()).keep(job)
    size = sum(path.stat().st_size for path in (tmp_path / "first").iterdir())
    for number, name in enumerate(("first", "second", "third", "fourth")):
        CacheEntry(tmp_path / name, LoadOptions()).keep(job)
        os.utime(tmp_path / name / SESSION_FILE, (number, number))
    assert CacheEntry(tmp_path / "first", LoadOptions()).dataset() is not None
    CacheEntry(tmp_path / "fifth", LoadOptions(), most_bytes=int(4.5 * size)).keep(job)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["fifth", "first", "fourth", "third"]


def test_a_job_too_large_for_the_cache_is_not_kept(tmp_path: Path) -> None:
    CacheEntry(tmp_path / "c" / "entry", LoadOptions(), most_bytes=100).keep(load([SAMPLES / "two_groups"]))
    assert list((tmp_path / "c").iterdir()) == []


def test_a_cache_that_cannot_be_written_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    entry = CacheEntry(tmp_path / "file" / "entry", LoadOptions())
    entry.keep(load([SAMPLES / "two_groups"]))
    assert entry.dataset() is None


def test_an_early_verdict_is_not_kept(job: Path, used: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read_parts, "FEWEST_EARLY_ROWS", 1)
    early = JobSource((str(job),)).read(lambda _step: None, detail="collectives", kept=SparseReading())
    assert early.parts.whole_follows
    assert not used.exists() or not list(used.iterdir())


def test_a_job_cut_to_the_memory_is_not_kept(job: Path, used: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = load([job])
    monkeypatch.setattr(held_sources, "SMALL_BYTES", 0)
    monkeypatch.setattr(held_sources, "ENTRY_BYTES", 1 << 20)
    monkeypatch.setattr(held_sources, "entry_bytes", lambda: 48 << 20)
    cut = JobSource((str(job),)).read(lambda _step: None)
    assert cut.ops.height < whole.ops.height and "as memory is short" in cut.parts.words
    assert not used.exists() or not list(used.iterdir())
