"""The parts of the analysis by themselves."""

from __future__ import annotations

import dataclasses
from dataclasses import replace

import polars as pl
import pytest

from rankscope.analysis import analyse
from rankscope.analysis.facts import Facts
from rankscope.analysis.freeze import judge_freeze
from rankscope.analysis.presence import Absence, Presence
from rankscope.analysis.signatures import element_count
from rankscope.report.words import stillness, unseen
from rankscope.schema import Dataset
from rankscope.schema.tables import MESSAGES, REPEATS
from tests.analysis.jobs import running
from tests.builders import START_NS, JobBuilder


def written_at(dataset: Dataset, mtime_ns: int) -> Dataset:
    return dataclasses.replace(dataset, files=dataset.files.with_columns(mtime_ns=pl.lit(mtime_ns, dtype=pl.Int64)))


def frontier(dataset: Dataset, **columns: object) -> Dataset:
    literals = {name: pl.lit(value, dtype=dataset.frontiers[name].dtype) for name, value in columns.items()}
    return dataclasses.replace(dataset, frontiers=dataset.frontiers.with_columns(**literals))


@pytest.mark.parametrize(
    ("sizes", "elements"),
    [("[[64,32]]", 2048), ("[[4],[5]]", 9), ("[]", None), (None, None), ("[[", None), ("[3]", None)],
)
def test_count(sizes: str | None, elements: int | None) -> None:
    assert element_count(sizes) == elements


def test_five_kinds_of_absence() -> None:
    job = running(4)
    job.no_dump = {3}
    dataset = job.build()
    assert Presence(dataset).absence(3, 0, 5) is Absence.NO_DUMP
    assert Presence(dataset).absence(2, 0, 11) is Absence.NEVER_ISSUED
    wrapped = frontier(dataset, wrapped=True, first_kept=4)
    assert Presence(wrapped).absence(2, 0, 3) is Absence.OVERWRITTEN
    active = frontier(dataset, filtered="only-active", first_kept=None)
    assert Presence(active).absence(2, 0, 3) is Absence.FILTERED
    blind = frontier(dataset, last_enqueued=None, wrapped=None)
    hidden = dataclasses.replace(blind, files=blind.files.with_columns(wrapped=pl.lit(True)))
    assert Presence(hidden).absence(2, 0, 3) is Absence.UNKNOWN


def hanging() -> Dataset:
    job = running()
    job.collective(ranks=[0, 1, 3], state="scheduled")
    return job.build()


def test_dumps_within_moments_of_the_newest_event_are_a_live_job() -> None:
    dataset = written_at(hanging(), START_NS + 200_000_000)
    assert judge_freeze(Facts(dataset)).stopped is False
    analysis = analyse(dataset)
    assert analysis.status == "progressing"
    assert not analysis.is_critical
    (moving,) = [f for f in analysis.findings if f.kind == "not-frozen"]
    assert moving.candidates == (2,)
    assert moving.title == "the job was still moving when these dumps were written"


def test_a_job_that_is_watched_is_not_said_to_move_before_that_is_seen() -> None:
    dataset = written_at(hanging(), START_NS + 200_000_000)
    analysis = analyse(dataset, lambda freeze: replace(freeze, stopped=False, watched=True, reason="it is watched"))
    (moving,) = [f for f in analysis.findings if f.kind == "not-frozen"]
    assert moving.title == "the job was not seen to stand still yet"
    assert moving.explanation.startswith(
        "it is watched; nobody is accused of waiting. If the job stays like this: rank 2 never "
    )


def test_mismatch_needs_no_stillness() -> None:
    job = running()
    job.collective(ranks=[0, 1, 3], state="scheduled")
    job.collective(ranks=[2], op="broadcast", state="scheduled")
    assert analyse(written_at(job.build(), START_NS + 200_000_000)).culprits == (2,)


def test_dumps_long_after_the_newest_event_are_a_stopped_job() -> None:
    dataset = written_at(hanging(), START_NS + 60_000_000_000)
    assert judge_freeze(Facts(dataset)).stopped is True
    assert analyse(dataset).findings[0].confidence == "high"


def test_times_that_cannot_be_believed_are_said_to_be_assumed() -> None:
    dataset = written_at(hanging(), START_NS - 60_000_000_000)
    assert judge_freeze(Facts(dataset)).stopped is None
    root = analyse(dataset).findings[0]
    assert root.culprit_ranks == (2,)
    assert any("had stopped" in reason for reason in root.confidence_reasons)


def test_operation_given_up_by_its_watchdog_means_stopped() -> None:
    job = running()
    job.collective(ranks=[0, 1, 3], state="started", retired=True)
    assert judge_freeze(Facts(written_at(job.build(), START_NS + 20_000_000))).stopped is True


def test_head_that_the_ring_overwrote_still_holds_its_group_up() -> None:
    job = running()
    job.collective(ranks=[0, 1, 2, 3], state="scheduled")
    dataset = job.build()
    kept = dataset.ops.filter((pl.col("rank") != 1) | (pl.col("seq") < 5))
    frontiers = dataset.frontiers.with_columns(
        wrapped=pl.col("rank") == 1, first_kept=pl.when(pl.col("rank") == 1).then(None).otherwise("first_kept")
    )
    analysis = analyse(dataclasses.replace(dataset, ops=kept, frontiers=frontiers))
    assert analysis.culprits == ()


def late(delays_ns: dict[int, int], own_clock: bool = True) -> Dataset:
    job = JobBuilder(4)
    for step in range(30):
        start = START_NS + step * 200_000_000
        end = start + max(delays_ns.values(), default=0) + 1_000_000
        for rank in range(4):
            created = start + delays_ns.get(rank, 0) + (step * 7919 * (rank + 1)) % 90_000
            completed = end if own_clock else end + delays_ns.get(rank, 0)
            job.collective(ranks=[rank], created_ns=created, completed_ns=completed)
    return job.build()


def test_rank_that_is_late_again_and_again_is_a_straggler() -> None:
    analysis = analyse(late({3: 50_000_000}))
    assert analysis.status == "slow"
    (found,) = analysis.findings
    assert (found.kind, found.culprit_ranks, found.severity) == ("straggler", (3,), "warning")


def test_clock_that_is_off_is_no_straggler() -> None:
    assert not analyse(late({3: 50_000_000}, own_clock=False)).findings


def queued(late_ns: int, waits: bool) -> Dataset:
    """Rank 1 issues everything late. A step waits in its first collective, in group "a"; "b" stands in a queue behind.

    The first step warms up, which takes long everywhere.
    """
    job = JobBuilder(4, {"a": [0, 1], "b": [1, 2]})
    for step in range(12):
        start = START_NS + step * 500_000_000
        for rank, group in ((0, "a"), (1, "a"), *((rank, "b") for _ in range(4) for rank in (1, 2))):
            late = late_ns if rank == 1 else 0
            odd = (step * 7919 * (rank + 1)) % 90_000 + (150_000_000 if step == 0 else 0)
            waited = late_ns if group == "a" and rank == 0 and waits else 0
            job.collective(
                group, [rank], created_ns=start + late + odd, completed_ns=None,
                duration_ns=18_000_000 + odd + waited + (start // 7 % 30_000_000 if group == "b" else 0),
            )  # fmt: skip
    return job.build()


def test_a_wait_in_front_of_a_queue_tells_of_the_clock_of_all_groups() -> None:
    (found,) = analyse(queued(40_000_000, waits=True)).findings
    assert (found.kind, found.culprit_ranks, found.confidence) == ("straggler", (1,), "high")


def test_a_clock_that_is_off_makes_nobody_wait_in_front_of_a_queue() -> None:
    assert not analyse(queued(40_000_000, waits=False)).findings


def test_jitter_is_no_straggler() -> None:
    assert not analyse(late({})).findings


def test_files_a_little_older_than_what_is_in_them_show_a_job_that_moves() -> None:
    dataset = hanging()
    newest = max(int(t) for name in ("created_ns", "completed_ns") if isinstance(t := dataset.ops[name].max(), int))
    freeze = judge_freeze(Facts(written_at(dataset, newest - 10**9)))
    assert (freeze.stopped, freeze.still_ns) == (False, 0)
    assert analyse(written_at(dataset, newest - 10**9)).culprits == ()
    assert judge_freeze(Facts(written_at(dataset, newest - 10**11))).stopped is None


def test_files_written_days_later_are_copies() -> None:
    freeze = judge_freeze(Facts(written_at(hanging(), START_NS + 10 * 86_400 * 10**9)))
    assert freeze.stopped is None
    assert freeze.still_ns is None


def test_place_that_is_late_in_every_replica_is_no_straggler() -> None:
    groups = {f"g{i}": [2 * i, 2 * i + 1] for i in range(4)}
    job = JobBuilder(8, groups)
    job.descriptions.update(dict.fromkeys(groups, "stages"))
    for step in range(20):
        for rank in range(8):
            created = START_NS + step * 100_000_000 + (rank % 2) * 20_000_000 + (60_000_000 if rank == 5 else 0)
            end = START_NS + step * 100_000_000 + 90_000_000
            job.collective(f"g{rank // 2}", ranks=[rank], created_ns=created, completed_ns=end)
    found = analyse(job.build()).findings
    assert [f.culprit_ranks for f in found] == [(5,)]


def test_coalesced_group_without_its_closer_is_one_call() -> None:
    job = running()
    for rank in range(4):
        for elements in (8, 16):
            job.collective(ranks=[rank], seq=11, sizes=f"[[{elements}]]", coalesced="inner" if rank else "none")
        if rank:
            job.collective(ranks=[rank], seq=11, op="coalesced", sizes="[]", coalesced="closer")
    assert not analyse(frontier(job.build(), filtered="only-active")).findings


def with_ends(dataset: Dataset, reason: str) -> Dataset:
    """The job with the noted end of each process."""
    row = {"kind": "process-end", "file": 0, "offset": 0, "text": "was ended by SIGTERM", "torn": False}
    rows = [{**row, "rank": rank, "values": f'{{"reason":"{reason}"}}'} for rank in dataset.every_rank]
    return replace(dataset, messages=pl.DataFrame(rows, schema=MESSAGES))


def slow_dumps(dataset: Dataset) -> Dataset:
    """The job of a capture with dumps every two seconds, so that one dump proves no standstill."""
    return replace(dataset, files=dataset.files.with_columns(interval_ns=pl.lit(2 * 10**9, dtype=pl.Int64)))


def test_a_job_of_which_nothing_came_for_minutes_is_not_said_to_move() -> None:
    dataset = slow_dumps(written_at(hanging(), START_NS + 369_000_000_000))
    analysis = analyse(dataset)
    assert analysis.status == "unknown" and not analysis.culprits
    assert "without an event before the dumps were written" in analysis.verdict
    assert not any("moving" in text for f in analysis.findings for text in (f.title, analysis.verdict))


def test_a_job_whose_processes_have_all_ended_does_not_progress() -> None:
    dataset = with_ends(written_at(hanging(), START_NS + 200_000_000), "terminated")
    analysis = analyse(dataset)
    assert analysis.status == "unknown" and not analysis.culprits
    assert analysis.verdict.startswith("4 ranks: every process has ended (was ended by SIGTERM (ranks 0-3))")
    assert not any("moving" in f.title for f in analysis.findings)


def test_two_equal_dumps_that_are_too_close_for_a_verdict_are_said_so() -> None:
    dataset = slow_dumps(written_at(hanging(), START_NS + 16_000_000_000))
    at = START_NS + 16_000_000_000
    rows = [
        {"rank": rank, "file": rank, "written_ns": at - 15_000_000_000, "later_ns": at, "progressed": False}
        for rank in dataset.every_rank
    ]
    analysis = analyse(replace(dataset, repeats=pl.DataFrame(rows, schema=REPEATS)))
    assert analysis.status == "unknown"
    assert "two dumps 15 s apart show the same frontiers, but only more than 20 s" in analysis.verdict


def test_of_processes_that_have_ended_no_stacks_are_asked() -> None:
    done = written_at(running().build(), START_NS + 200_000_000)
    assert unseen(analyse(done), done).startswith("if it hangs anyway")
    over = with_ends(done, "exit")
    assert analyse(over).status == "healthy" and not unseen(analyse(over), over)


def test_a_job_that_moves_is_not_said_to_be_still() -> None:
    dataset = written_at(hanging(), START_NS + 200_000_000)
    assert "still for" not in stillness(analyse(dataset), dataset)
    later = written_at(hanging(), START_NS + 60_000_000_000)
    assert "still for" in stillness(analyse(later), later)
