"""What speaks against a root is said where the dumps show it, and nowhere else."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import polars as pl
import pytest

from rankscope.analysis import analyse
from rankscope.analysis.counter_evidence import not_always_last
from rankscope.analysis.facts import Facts
from rankscope.analysis.freeze import judge_freeze
from rankscope.analysis.reliability import judge_reliability
from rankscope.schema import Dataset
from rankscope.schema.tables import REPEATS
from tests.analysis.jobs import running
from tests.builders import START_NS, JobBuilder
from tests.parsers import dumps
from tests.parsers.dumps import dataset_of, job, named

SECOND = 1_000_000_000


def doubts(dataset: Dataset, kind: str) -> list[str]:
    """What speaks against the one root, which must be of this kind."""
    (root,) = [f for f in analyse(dataset).findings if f.root_cause]
    assert root.kind == kind
    return [e.text for e in root.counter_evidence]


def written(dataset: Dataset, seconds: Mapping[int, float], rest: float = 600) -> Dataset:
    """With dumps written so long after the start."""
    times = [START_NS + int(seconds.get(rank, rest) * SECOND) for rank in dataset.files["rank"].to_list()]
    return dataclasses.replace(dataset, files=dataset.files.with_columns(mtime_ns=pl.Series(times, dtype=pl.Int64)))


def hosts(dataset: Dataset, size: int) -> Dataset:
    """With `size` neighbours on each host."""
    named = pl.concat_str(pl.lit("node"), pl.col("rank") // size)
    return dataclasses.replace(dataset, files=dataset.files.with_columns(host=named))


def missing() -> JobBuilder:
    job = running()
    job.collective(ranks=[0, 1, 3], state="scheduled")
    return job


@pytest.mark.parametrize(("ago", "culprits"), [(86400, (2,)), (10, ())])
def test_times_that_were_lost_do_not_make_a_dump_without_events_old(ago: float, culprits: tuple[int, ...]) -> None:
    made = job(4)
    for recorder in made:
        recorder.collective()
        if recorder.rank != 2:
            recorder.collective(state="scheduled")
    dataset = dataset_of(named(made, only_active=True))
    first = (dumps.START_NS - START_NS) / SECOND
    assert analyse(written(dataset, {}, rest=first - ago)).culprits == culprits


@pytest.mark.parametrize(("cut_ns", "known"), [(0, {0, 1, 2, 3}), (1, {2})])
def test_a_file_whose_time_was_cut_to_a_whole_second_is_not_older_than_what_is_in_it(
    cut_ns: int, known: set[int]
) -> None:
    """Tar keeps whole seconds; a dump that finds operations ended says so of its own moment."""
    dataset = missing().build()
    second = (START_NS // SECOND + 100) * SECOND
    noticed = pl.when(pl.col("state") == "scheduled").then(second + SECOND // 2).otherwise("completed_ns")
    dataset = dataclasses.replace(dataset, ops=dataset.ops.with_columns(completed_ns=noticed))
    files = dataset.files.with_columns(mtime_ns=pl.lit(second + cut_ns, dtype=pl.Int64))
    times = judge_reliability(Facts(dataclasses.replace(dataset, files=files))).written_ns
    assert times.keys() == known
    assert all(times[rank] == second + SECOND // 2 for rank in known - {2})


@pytest.mark.parametrize(("seconds", "confidence"), [(9, "medium"), (30, "high")])
def test_a_short_standstill_may_be_the_writing_of_the_dumps(seconds: float, confidence: str) -> None:
    found = analyse(written(missing().build(), {}, rest=seconds)).findings[0]
    assert (found.culprit_ranks, found.confidence) == ((2,), confidence)
    assert any("writing the first dump" in reason for reason in found.confidence_reasons) == (confidence == "medium")


def test_nothing_speaks_against_a_plain_hang() -> None:
    assert doubts(written(missing().build(), {}), "missing-rank") == []


def test_dump_of_the_culprit_was_written_before_those_of_the_others() -> None:
    text = "its dump was written 2 s after the others began to wait, and 9 min 58 s before theirs"
    assert doubts(written(missing().build(), {2: 2}), "missing-rank") == [
        f"{text}: it does not show what the rank did in between"
    ]
    assert doubts(written(missing().build(), {2: 590}), "missing-rank") == []


def test_dump_of_the_culprit_is_older_than_what_another_rank_did() -> None:
    job = JobBuilder(4, {"side": [0, 1]})
    job.collective()
    job.collective(ranks=[0, 1, 3], state="scheduled")
    job.collective("side", ranks=[0], state="scheduled", delay_ns=50 * SECOND)
    (text,) = doubts(written(job.build(), {2: 30}, rest=6000), "missing-rank")
    assert text.startswith("its dump was written 20 s before rank 0 issued its last operation")


def test_culprit_that_still_issued_something_long_after() -> None:
    job = JobBuilder(4, {"side": [2, 3]})
    job.collective()
    job.collective(ranks=[0, 1], state="scheduled")
    for rank in (2, 3):
        job.collective("side", ranks=[rank], delay_ns=30 * SECOND)
    job.collective(ranks=[3], state="scheduled")
    dataset = written(job.build(), {}, rest=6000)
    (root,) = [f for f in analyse(dataset).findings if f.root_cause]
    (doubt,) = root.counter_evidence
    assert doubt.text.startswith("it issued all_reduce #1 of mesh_side 30 s after the others began to wait")
    assert (doubt.rank, doubt.record_id, doubt.file) == (2, 1, "nccl_trace_rank_2")


def test_culprit_that_went_on_between_two_dumps() -> None:
    dataset = written(missing().build(), {})
    rows = [
        {"rank": r, "file": 10 + r, "written_ns": START_NS + 100 * SECOND, "later_ns": START_NS + 600 * SECOND,
         "progressed": r == 2}
        for r in range(4)
    ]  # fmt: skip
    twice = dataclasses.replace(dataset, repeats=pl.DataFrame(rows, schema=REPEATS))
    (text,) = doubts(twice, "missing-rank")
    assert text.startswith(
        "between its dumps 8 min 20 s apart its operations went on, while nothing moved on ranks 0,1,3"
    )


@pytest.mark.parametrize(("later_ns", "dead"), [(-1, False), (SECOND, False), (30 * SECOND, True)])
def test_a_dump_from_before_the_others_finished_shows_no_dead_device(later_ns: int, dead: bool) -> None:
    job = JobBuilder(4)
    job.collective()
    job.collective(ranks=[0, 2, 3])
    done = max(row["completed_ns"] for row in job.rows)
    job.collective(ranks=[1], state="started")
    dataset = written(job.build(), {1: (done + later_ns - START_NS) / SECOND})
    assert judge_reliability(Facts(dataset)).dead_devices.keys() == ({1} if dead else set())


@pytest.mark.parametrize("done", ["completed", "started"])
@pytest.mark.parametrize(("seconds", "culprits"), [(0.5, ()), (300, (1,))])
def test_a_device_is_not_called_stuck_by_a_dump_of_the_moment_in_which_it_was_given_its_work(
    seconds: float, culprits: tuple[int, ...], done: str
) -> None:
    made = job(4)
    for recorder in made:
        for _ in range(3):
            recorder.collective()
        recorder.collective(state="scheduled" if recorder.rank == 1 else done)
        recorder.collective(state="scheduled")
    dataset = dataset_of(named(made))
    last = max(recorder.clock for recorder in made)
    found = analyse(written(dataset, {1: (last - START_NS) / SECOND + seconds}, rest=(last - START_NS) / SECOND + 600))
    assert found.culprits == culprits


def test_one_rank_that_was_dumped_later_shows_nothing_of_the_others() -> None:
    """The threads that write dumps may be held up on all ranks but one."""
    late = {0: 1.0, 1: 1.0, 2: 1.0}
    assert judge_freeze(Facts(written(missing().build(), late))).stopped is False
    assert judge_freeze(Facts(written(missing().build(), {0: 1.0, 2: 1.0}))).stopped is True


def test_dumps_that_were_taken_one_host_after_the_other_show_no_standstill() -> None:
    """The last ones are of the newest event: when half of the ranks had been dumped it had not happened yet."""
    job = JobBuilder(4, {"a": [0, 1, 2], "b": [3]})
    for _ in range(20):
        job.collective("a")
        job.collective("b", delay_ns=2 * SECOND)
    job.collective("a", ranks=[0, 1], state="scheduled")
    dataset = job.build()
    last = dict(dataset.ops.group_by("rank").agg(pl.col("created_ns").max()).iter_rows())
    freeze = judge_freeze(Facts(written(dataset, {r: (at - START_NS) / SECOND + 0.01 for r, at in last.items()})))
    assert (freeze.stopped, freeze.still_ns) == (False, 0)


def test_device_that_finished_something_later_is_not_dead() -> None:
    job = JobBuilder(4, {"side": [2, 3]})
    job.collective()
    job.collective(ranks=[0, 1, 3])
    job.collective(ranks=[2], state="scheduled")
    job.collective(ranks=[0, 1, 3], state="scheduled")
    assert doubts(job.build(), "gpu-stuck") == []
    job.collective("side", ranks=[2, 3])
    (text,) = doubts(job.build(), "gpu-stuck")
    assert text.startswith("its device finished all_reduce #1 of mesh_side, which it issued later")


def test_minority_that_is_not_small() -> None:
    job = running(5)
    job.collective(ranks=[0, 1, 2], state="scheduled")
    job.collective(ranks=[3, 4], op="broadcast", state="scheduled")
    assert doubts(job.build(), "collective-mismatch") == ["2 of 5 members are accused, which is no small minority"]
    job = running(8)
    job.collective(ranks=range(7), state="scheduled")
    job.collective(ranks=[7], op="broadcast", state="scheduled")
    assert doubts(job.build(), "collective-mismatch") == []


def test_tie_that_the_replicas_decided() -> None:
    groups = {f"g{i}": [2 * i, 2 * i + 1] for i in range(4)}
    job = JobBuilder(8, groups)
    job.descriptions.update(dict.fromkeys(groups, "tp"))
    for name in groups:
        job.collective(name)
    job.collective("g0", ranks=[0], op="broadcast", state="scheduled")
    job.collective("g0", ranks=[1], state="scheduled")
    for name in list(groups)[1:]:
        job.collective(name)
    assert doubts(job.build(), "collective-mismatch") == [
        "the 2 members are evenly split: only the replicas of the group decide"
    ]


def test_replicas_that_side_with_the_accused() -> None:
    groups = {name: list(range(4 * i, 4 * i + 4)) for i, name in enumerate(("a", "b", "c"))}
    job = JobBuilder(12, groups)
    job.descriptions.update(dict.fromkeys(groups, "tp"))
    for name in groups:
        job.collective(name)
    job.collective("a", ranks=[0], op="broadcast", state="scheduled")
    job.collective("a", ranks=[1, 2, 3], state="scheduled")
    for name in "bc":
        job.collective(name, op="broadcast")
    found = doubts(job.build(), "collective-mismatch")
    assert found == ["2 replicas of the group issued broadcast of 64 elements Float there, as rank 0 did"]


def test_others_that_all_ended_at_one_place_may_have_a_common_cause() -> None:
    job = running(8)
    job.collective(ranks=[0], op="barrier", state="scheduled")
    assert doubts(job.build(), "extra-collective") == [
        "ranks 1-7 all ended with all_reduce #10 of default_pg, at train.py:10: a common cause would look the same"
    ]
    job = JobBuilder(8, {"side": [1, 2]})
    job.collective()
    job.collective("side")
    job.collective(ranks=[0], op="barrier", state="scheduled")
    assert doubts(job.build(), "extra-collective") == []


def test_no_rank_of_a_host_left_a_dump() -> None:
    job = running(16)
    job.no_dump = set(range(8, 12))
    job.collective(ranks=[r for r in range(16) if r not in job.no_dump], state="scheduled")
    assert doubts(hosts(job.build(), 4), "missing-rank") == [
        "not one of the 4 ranks of that host, 8-11, left a dump: it went down, or its dumps were not collected"
    ]
    assert doubts(job.build(), "missing-rank") == []
    job.no_dump = {9}
    job.collective(ranks=[8, 10, 11], state="scheduled")
    assert doubts(hosts(job.build(), 4), "missing-rank") == []


def test_straggler_that_is_not_always_last() -> None:
    (doubt,) = not_always_last(12, 20, "dp")
    assert doubt.text == "another rank came last in 8 of 20 collectives of dp"
    assert not_always_last(20, 20, "dp") == ()
