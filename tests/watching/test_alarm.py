"""Who is told when: once for each standstill, and again when the job was started again meanwhile."""

from __future__ import annotations

from dataclasses import replace

from rankscope.analysis.job_state import JobState
from rankscope.analysis.live_state import LiveState
from rankscope.analysis.model import Analysis
from rankscope.watching.watched_job import WatchedJob
from tests.parsers.dumps import START_NS
from tests.watching.captured import RANKS, Captured

QUIET = Analysis("nothing is wrong", "unknown", (), ())


def watched(captured: Captured, at_s: int) -> WatchedJob:
    job = WatchedJob("dumps", None, None, None)
    assert job.take(captured.sources, at_s * 10**9)
    job.assemble()
    return job


def told(
    job: WatchedJob, state: JobState, came: bool = False, status: str = "unknown", since_ns: int | None = None
) -> bool:
    analysis = Analysis("nothing is wrong", "healthy", (), ()) if status == "healthy" else QUIET
    return job.alarm(analysis, LiveState(state, "", came=came, since_ns=since_ns))


def test_a_standstill_is_told_once_and_again_after_it_went_on() -> None:
    job = watched(Captured(), 0)
    assert [told(job, state) for state in ("progressing", "frozen", "frozen", "still", "frozen")] == [
        False, True, False, False, False,
    ]  # fmt: skip
    assert [told(job, state, since_ns=7) for state in ("progressing", "frozen")] == [False, True]


def test_newer_dumps_of_the_same_events_are_no_progress() -> None:
    job = watched(Captured(), 0)
    assert told(job, "silent", came=True, since_ns=5)
    assert [told(job, state, since_ns=5) for state in ("progressing", "frozen")] == [False, False]
    assert [told(job, state, since_ns=6) for state in ("progressing", "frozen")] == [False, True]


def test_silence_is_told_where_something_came_before_and_all_is_not_well() -> None:
    job = watched(Captured(), 0)
    assert not told(job, "silent")
    assert not told(job, "silent", came=True, status="healthy")
    assert told(job, "silent", came=True)


def test_sidecars_that_are_newer_than_their_dumps_are_of_the_same_processes() -> None:
    captured = Captured()
    job = watched(captured, 0)
    assert told(job, "frozen")
    for rank in range(RANKS):
        captured.card(rank, problem="no room")
        name = f"capture_rank_{rank}.json"
        captured.files[name] = replace(captured.files[name], mtime_ns=START_NS + 10**12)
    assert job.take(captured.sources, 10**10)
    job.assemble()
    assert not told(job, "frozen")


def test_a_job_that_was_started_again_is_told_of_again_though_it_never_went_on() -> None:
    captured = Captured()
    job = watched(captured, 0)
    assert told(job, "frozen") and not told(job, "frozen")
    for rank in range(RANKS):
        captured.card(rank, pid=500 + rank)
        assert job.take(captured.sources, (rank + 1) * 10**10)
        job.assemble()
        assert told(job, "frozen") == (rank == 1), "with half of its ranks it is another run"
