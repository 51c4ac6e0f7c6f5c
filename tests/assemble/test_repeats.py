"""Dumps of one recorder a time apart."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from rankscope.assemble.assembly import assemble
from rankscope.assemble.load import load
from rankscope.assemble.sources import SourceFile
from rankscope.parsers.flight_recorder.decode import decode_dump
from rankscope.schema import Dataset
from tests.parsers.dumps import START_NS, Groups, Recorder, job

SECOND = 1_000_000_000
T0, T1 = START_NS + 30 * SECOND, START_NS + 90 * SECOND
Files = Mapping[str, tuple[bytes, int | None]]
Row = tuple[int, str, int | None, int | None, bool | None]


def dataset(files: Files) -> Dataset:
    """What is made of files with their modification times."""
    sources = [
        SourceFile(path, "flight-recorder", len(data), mtime_ns, None, decode_dump(data))
        for path, (data, mtime_ns) in sorted(files.items())
    ]
    return assemble(sources, "dumps", None, None, None)


def repeats(files: Files) -> list[Row]:
    """Rank, path of the earlier dump, seconds of the earlier and of the later one, progress."""
    made = dataset(files)
    paths = made.files["path"].to_list()
    return [
        (rank, paths[file], _seconds(early), _seconds(late), moved)
        for rank, file, early, late, moved in made.repeats.iter_rows()
    ]


def _seconds(ns: int | None) -> int | None:
    return None if ns is None else (ns - START_NS) // SECOND


def hung(rank: int = 0) -> Recorder:
    made = job(2)[rank]
    for _ in range(3):
        made.collective()
    made.collective(state="scheduled")
    return made


def end(recorder: Recorder, number: int, **more: object) -> None:
    """Has an operation complete, as the next dump says."""
    entry = recorder.entries[number]
    entry.update({"state": "completed", "time_discovered_completed_ns": entry["time_created_ns"] + 20, **more})
    recorder.status["0"][2] = entry["collective_seq_id"]


@pytest.mark.parametrize(
    ("early", "late"),
    [
        ("t0/nccl_trace_rank_0", "t1/nccl_trace_rank_0"),
        ("dump_1/nccl_trace_rank_0", "dump_2/nccl_trace_rank_0"),
        ("nccl_trace_rank_0.dump_1", "nccl_trace_rank_0.dump_2"),
        ("z/rank_0", "a/rank_0"),
        ("rank_0_dump_2", "rank_0_dump_1"),
    ],
)
def test_the_one_written_last_is_used_whatever_the_names(early: str, late: str) -> None:
    data = hung().pickle()
    assert repeats({early: (data, T0), late: (data, T1)}) == [(0, early, 30, 90, False)]


def test_every_earlier_dump_of_every_rank_is_listed() -> None:
    files = {f"t{i}/rank_{r}": (hung(r).pickle(), START_NS + (10 + i) * SECOND) for i in range(3) for r in range(2)}
    assert repeats(files) == [
        (0, "t0/rank_0", 10, 12, False), (1, "t0/rank_1", 10, 12, False),
        (0, "t1/rank_0", 11, 12, False), (1, "t1/rank_1", 11, 12, False),
    ]  # fmt: skip


def test_issued_in_between() -> None:
    made = hung()
    early = made.pickle()
    made.collective(state="scheduled")
    assert repeats({"t0/rank_0": (early, T0), "t1/rank_0": (made.pickle(), T1)}) == [(0, "t0/rank_0", 30, 90, True)]


def test_completed_in_between() -> None:
    made = hung()
    early = made.pickle()
    end(made, 3)
    assert repeats({"t0/rank_0": (early, T0), "t1/rank_0": (made.pickle(), T1)})[0][4] is True


def test_started_in_between_leaves_no_newer_event() -> None:
    made = hung()
    early = made.pickle()
    made.entries[3].update(state="started", time_discovered_started_ns=made.clock + SECOND)
    assert repeats({"t0/rank_0": (early, T0), "t1/rank_0": (made.pickle(), T1)})[0][4] is True


def test_completed_in_between_and_left_out_of_the_later_dump() -> None:
    made = hung()
    made.collective(state="scheduled")
    early = made.pickle(only_active=True)
    end(made, 3)
    files = {"t0/rank_0": (early, T0), "t1/rank_0": (made.pickle(only_active=True), T1)}
    found = repeats(files)
    assert [(row[1], row[4]) for row in found] == [("t0/rank_0", True)]


def test_given_up_or_aborted_in_between_is_no_progress() -> None:
    made = hung()
    made.entries[3]["timeout_ms"] = 40_000
    early = made.pickle()
    made.entries[3]["retired"] = True
    assert repeats({"t0/rank_0": (early, T0), "t1/rank_0": (made.pickle(), T1)})[0][4] is False
    end(made, 3, time_discovered_completed_ns=made.clock + 45 * SECOND)
    assert repeats({"t0/rank_0": (early, T0), "t1/rank_0": (made.pickle(), T1)})[0][4] is False


def test_ring_that_went_round_in_between() -> None:
    made = hung()
    early = made.pickle()
    for _ in range(50):
        made.collective()
    files = {"t0/rank_0": (early, T0), "t1/rank_0": (made.pickle(ring=10), T1)}
    assert repeats(files) == [(0, "t0/rank_0", 30, 90, True)]


def test_retired_means_finished_on_gloo() -> None:
    made = Recorder(0, {"0": ("default_pg", [0, 1])}, library="gloo")
    made.collective(retired=True, state="scheduled")
    made.collective(retired=False, state="scheduled")
    early = made.pickle()
    made.entries[1]["retired"] = True
    assert repeats({"t0/rank_0": (early, T0), "t1/rank_0": (made.pickle(), T1)})[0][4] is True


def test_copies_are_no_repeats() -> None:
    made = hung()
    pickled = made.pickle()
    assert repeats({"a/rank_0": (pickled, T0), "b/rank_0": (pickled, T0)}) == []
    assert repeats({"a/rank_0": (pickled, None), "b/rank_0": (pickled, None)}) == []
    assert repeats({"a/rank_0": (pickled, T0), "a/rank_0.json": (made.json(), T1)}) == []
    assert repeats({"a/rank_0": (pickled, T1), "a/rank_0.json": (made.json(), T0)}) == []


def test_times_older_than_the_content_are_not_believed() -> None:
    made = hung()
    early = made.pickle()
    made.collective()
    assert repeats({"t0/rank_0": (early, 5), "t1/rank_0": (made.pickle(), T1)}) == [(0, "t0/rank_0", None, None, True)]
    assert repeats({"t0/rank_0": (early, T1), "t1/rank_0": (made.pickle(), T0)}) == [(0, "t0/rank_0", None, None, True)]


def test_times_cut_to_whole_seconds_are_believed() -> None:
    made = hung()
    end(made, 3, time_discovered_completed_ns=T0 + SECOND // 2, retired=False)
    early = made.pickle()
    end(made, 3, time_discovered_completed_ns=T1 + SECOND // 2, retired=False)
    cut = repeats({"t0/rank_0": (early, T0), "t1/rank_0": (made.pickle(), T1)})
    assert cut == [(0, "t0/rank_0", 30, 90, False)]
    kept = repeats({"t0/rank_0": (early, T0 + 1), "t1/rank_0": (made.pickle(), T1 + 1)})
    assert kept == [(0, "t0/rank_0", None, None, False)]


def test_torn_dump_tells_nothing_of_progress() -> None:
    made = hung()
    whole = made.pickle()
    torn = whole[: int(len(whole) * 0.8)]
    assert {row[4] for row in repeats({"t0/rank_0": (torn, T0), "t1/rank_0": (whole, T1)})} == {None}


def test_another_run_is_no_repeat() -> None:
    groups: Groups = {"0": ("default_pg", [0])}
    first = Recorder(0, groups, thread="1")
    first.collective()
    second = Recorder(0, groups, start_ns=START_NS + 3600 * SECOND, thread="2")
    second.collective()
    late = START_NS + 7200 * SECOND
    assert repeats({"run_0/rank_0": (first.pickle(), T0), "run_1/rank_0": (second.pickle(), late)}) == []


def test_from_files(tmp_path: Path) -> None:
    for name, when in (("t0", T0), ("t1", T1)):
        for rank in range(2):
            path = tmp_path / name / f"nccl_trace_rank_{rank}"
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(hung(rank).pickle())
            os.utime(path, ns=(when, when))
    made = load([tmp_path])
    assert made.repeats.select("rank", "progressed").rows() == [(0, False), (1, False)]
    assert made.files.filter("used")["path"].to_list() == ["t1/nccl_trace_rank_0", "t1/nccl_trace_rank_1"]


def test_a_counter_of_gloo_that_goes_back_makes_no_dump_older() -> None:
    """gloo retires operations out of order, on the threads that wait for them."""
    made = job(2, library="gloo")[0]
    for _ in range(3):
        made.collective(state="scheduled", retired=True)
    made.status["0"][2] = 3
    early = made.pickle()
    made.status["0"][2] = 2
    assert repeats({"history/1_fr_trace_rank_0": (early, T0), "fr_trace_rank_0": (made.pickle(), T1)})[0][1:4] == (
        "history/1_fr_trace_rank_0", 30, 90,
    )  # fmt: skip
