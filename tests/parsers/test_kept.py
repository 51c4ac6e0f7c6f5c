"""A second reading, of all that traces hold, reads nothing else again."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from rankscope.assemble import read_parts
from rankscope.assemble.held_sources import SparseReading
from rankscope.assemble.load import LoadOptions, load
from rankscope.schema import Dataset
from tests.features.traces.read.documents import about, all_reduce, document, x
from tests.parsers.dumps import job as recorders
from tests.parsers.dumps import named

SPARSE = LoadOptions(detail="collectives")


@pytest.fixture
def job(tmp_path: Path) -> Path:
    """Two ranks, each with a dump and a trace."""
    members = recorders(2)
    for recorder in members:
        for _ in range(3):
            recorder.collective()
    for name, data in named(members).items():
        (tmp_path / name).write_bytes(data)
    for rank in range(2):
        events = [*all_reduce(1000, 7), x("cpu_op", "aten::mm", 2000, 50)]
        (tmp_path / f"rank{rank}.json").write_bytes(document(events, about(rank)))
    return tmp_path


def same(one: Dataset, other: Dataset) -> bool:
    """Whether they hold the same."""
    tables = ("ops", "traced", "spans", "tracks", "groups", "traces", "frontiers", "files")
    return all(getattr(one, name).equals(getattr(other, name)) for name in tables)


def test_only_traces_are_read_again(job: Path) -> None:
    whole, kept = load([job]), SparseReading()
    first = load([job], SPARSE, kept=kept)
    assert first.spans.height < whole.spans.height
    for path in job.glob("nccl_trace_*"):
        stat = path.stat()
        path.write_bytes(b"x" * stat.st_size)
        os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert same(load([job], kept=kept), whole)


def test_what_has_changed_meanwhile_is_read_again(job: Path) -> None:
    kept = SparseReading()
    first = load([job], SPARSE, kept=kept)
    path = job / "nccl_trace_rank_1"
    path.write_bytes(b"x" * path.stat().st_size)
    os.utime(path, ns=(0, 0))
    second = load([job], kept=kept)
    assert first.ops["rank"].unique().sort().to_list() == [0, 1]
    assert second.ops["rank"].unique().to_list() == [0]


def test_long_dumps_give_their_last_entries_first(job: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read_parts, "FEWEST_EARLY_ROWS", 6)
    monkeypatch.setattr(read_parts, "EARLY_ENTRIES", 2)
    kept = SparseReading()
    first = load([job], SPARSE, kept=kept)
    assert first.ops.group_by("rank").len()["len"].to_list() == [2, 2]
    assert (first.parts.words, first.parts.whole_follows) == ("the last 2 entries of each dump", True)
    second = load([job], kept=kept)
    assert same(second, load([job]))
    assert not second.parts.whole_follows
    dumps = sorted(job.glob("nccl_trace_*"))
    assert not load(dumps, replace(SPARSE, last=2), kept=SparseReading()).parts.whole_follows, "the user asked for it"
    monkeypatch.setattr(read_parts, "FEWEST_EARLY_ROWS", 7)
    assert load([job], SPARSE, kept=SparseReading()).ops.height == 6


def test_without_a_first_reading_everything_is_read(job: Path) -> None:
    assert same(load([job], kept=SparseReading()), load([job]))
