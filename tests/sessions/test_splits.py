"""Any split of the files among tasks gives the report of one task, byte for byte; a missing part accuses nobody."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rankscope.analysis import analyse
from rankscope.assemble.load import LoadOptions, load
from rankscope.sessions.opening import asked_of, open_session
from rankscope.sessions.session_files import write_session
from rankscope.sessions.shares import Share
from tests.sessions.written import SAMPLES, parts_of, report_of

LOG = """worker-1:77:90 [0] NCCL INFO NCCL version 2.27.5+cuda12.9
[rank1]:[E1120 22:00:20.000000000 ProcessGroupNCCL.cpp:685] [Rank 1] Watchdog caught collective operation timeout: \
WorkNCCL(SeqNum=10, OpType=ALLREDUCE, NumelIn=64, NumelOut=64, Timeout(ms)=600000) ran for 600010 milliseconds before \
timing out.
"""
STACK = """Process 77: python train.py
Python v3.11.7 (/usr/bin/python3.11)

Thread 77 (idle): "MainThread"
    read (shard.py:7)
    train (train.py:10)
"""


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A job with dumps, a log, stacks, a damaged dump and a note."""
    path = tmp_path_factory.mktemp("job")
    shutil.copytree(SAMPLES / "two_groups", path, dirs_exist_ok=True)
    (path / "rank1.log").write_text(LOG)
    (path / "py-spy-rank3.txt").write_text(STACK)
    (path / "comm_lib_trace_rank_7").write_bytes(b"\x80\x04cut short")
    (path / "notes.txt").write_text("restarted node 3 at noon\n")
    yield path


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(places=st.lists(st.integers(0, 4), min_size=8, max_size=8), count=st.integers(1, 5))
def test_any_split_gives_the_report_of_one_task(job: Path, places: list[int], count: int) -> None:
    names = sorted(path.name for path in job.iterdir())
    assert len(names) == len(places)
    with tempfile.TemporaryDirectory() as scratch:
        parts = parts_of(job, Path(scratch) / "s", count, lambda one: places[names.index(one.shown)] % count)
        merged = open_session(parts, LoadOptions())
    assert report_of(merged) == report_of(load([job]))


@pytest.mark.parametrize("name", ["healthy", "ring_wrapped", "slow_loader", "straggler", "wrong_collective"])
def test_a_split_of_a_sample_gives_its_report(name: str, tmp_path: Path) -> None:
    parts = parts_of(SAMPLES / name, tmp_path / "s", 3, Share(0, 3).place)
    assert report_of(open_session(parts, LoadOptions())) == report_of(load([SAMPLES / name]))


def test_files_of_no_known_kind_count_only_if_nothing_else_is_there(tmp_path: Path) -> None:
    job = tmp_path / "job"
    job.mkdir()
    (job / "issue.md").write_text("it hangs:\n\n    " + LOG.splitlines()[1] + "\n")
    (job / "other.md").write_text("no idea\n")
    parts = parts_of(job, tmp_path / "s", 2, lambda one: int(one.shown == "other.md"))
    assert report_of(open_session(parts, LoadOptions())) == report_of(load([job]))
    shutil.copy(SAMPLES / "two_groups" / "comm_lib_trace_rank_0", job)
    parts = parts_of(job, tmp_path / "t", 2, lambda one: int(one.shown != "issue.md"))
    assert report_of(open_session(parts, LoadOptions())) == report_of(load([job]))


@pytest.mark.parametrize("lost", range(4))
def test_a_missing_part_is_named_and_its_ranks_are_not_accused(lost: int, tmp_path: Path) -> None:
    parts = parts_of(SAMPLES / "two_groups", tmp_path / "s", 4, lambda one: int(one.shown[-1]))
    (parts / Share(lost, 4).file_name).unlink()
    dataset = open_session(parts, LoadOptions())
    analysis = analyse(dataset)
    assert lost not in analysis.culprits
    assert f"part {lost + 1} of 4 of the session is missing" in report_of(dataset).decode()
    assert dataset.dumpless_ranks == ()
    assert analysis.status != "healthy"


def test_ranks_of_a_missing_part_count_as_ranks_with_unreadable_dumps(tmp_path: Path) -> None:
    parts = parts_of(SAMPLES / "two_groups", tmp_path / "s", 2, lambda one: int(one.shown[-1]) % 2)
    (parts / Share(1, 2).file_name).unlink()
    dataset = open_session(parts, LoadOptions())
    assert dataset.world_size == 4
    assert set(dataset.unread_dumps) == {1, 3}
    text = " ".join(report_of(dataset).decode().split())
    assert "no dump of another member could be read" in text
    assert "no other member left a dump" not in text


def test_a_part_cut_short_is_told_like_a_missing_one(tmp_path: Path) -> None:
    parts = parts_of(SAMPLES / "two_groups", tmp_path / "s", 2, lambda one: int(one.shown[-1]) % 2)
    path = parts / Share(1, 2).file_name
    whole = path.read_bytes()
    for length in (0, 1, 20, len(whole) // 2, len(whole) - 8):
        path.write_bytes(whole[:length])
        dataset = open_session(parts, LoadOptions())
        told = dataset.files.filter(dataset.files["problem"].is_not_null())["problem"].to_list()
        assert len(told) == 2
        assert all(text.startswith("part 2 of 2 of the session cannot be read: ") for text in told)


def test_options_of_the_assembly_hold_for_parts(tmp_path: Path) -> None:
    parts = parts_of(SAMPLES / "two_groups", tmp_path / "s", 2, lambda one: int(one.shown[-1]) % 2)
    dataset = open_session(parts, LoadOptions(world_size=6))
    assert dataset.world_size == 6
    assert dataset.missing_ranks == (4, 5)


PARTS = [
    LoadOptions(last=5),
    LoadOptions(ranks=frozenset({0, 3})),
    LoadOptions(groups=("tensor_parallel",)),
    LoadOptions(ranks=frozenset({1, 2}), last=8, groups=("data_parallel",)),
    LoadOptions(world_size=7),
]


@pytest.mark.parametrize("options", PARTS)
def test_a_part_of_the_job_is_the_same_from_one_task_and_from_several(options: LoadOptions, tmp_path: Path) -> None:
    job = SAMPLES / "two_groups"
    whole = load([job], options)
    parts = parts_of(job, tmp_path / "s", 3, Share(0, 3).place, options)
    assert report_of(open_session(parts, LoadOptions())) == report_of(whole)
    write_session(whole, tmp_path / "t", asked_of(options))
    assert report_of(open_session(tmp_path / "t", LoadOptions())) == report_of(whole)
