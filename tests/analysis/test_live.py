"""When a job that is watched moves, stands still, is frozen or silent, and what may be said of it then."""

from __future__ import annotations

from dataclasses import replace

import polars as pl
import pytest

from rankscope.analysis import analyse
from rankscope.analysis.freeze import Freeze
from rankscope.analysis.live_state import (
    COPY_FACTOR,
    DUMP_SPREAD_NS,
    FROZEN_NS,
    SECOND,
    SILENT_NS,
    JobProgress,
    LiveState,
    VerdictGate,
    with_awaited,
    with_state,
)
from rankscope.analysis.model import Analysis
from rankscope.schema import Dataset
from rankscope.schema.tables import MESSAGES, REPEATS
from tests.builders import START_NS, JobBuilder


def job(done: int, waiting: bool = False, ranks: int = 4, failed: bool = False) -> Dataset:
    """Ranks that did so many collectives; then rank 2 did not come, or all of them have been given up."""
    builder = JobBuilder(ranks)
    for _ in range(done):
        builder.collective()
    if waiting:
        others = [rank for rank in range(ranks) if rank != 2]
        builder.collective(ranks=others, state="started", retired=failed)
    return builder.build()


def written(dataset: Dataset, after_s: float, since_s: float | None = None, moved: bool = False) -> Dataset:
    """The job with dumps of `after_s` seconds after its newest event, the same as those of `since_s` seconds."""
    newest = dataset.ops["created_ns"].max()
    assert isinstance(newest, int)
    at = newest + round(after_s * SECOND)
    rows = [
        {
            "rank": rank,
            "file": rank,
            "written_ns": newest + round(since_s * SECOND),
            "later_ns": at,
            "progressed": moved,
        }
        for rank in range(dataset.world_size if since_s is not None else 0)
        if since_s is not None
    ]
    files = dataset.files.with_columns(mtime_ns=pl.lit(at, dtype=pl.Int64))
    return replace(dataset, files=files, repeats=pl.DataFrame(rows, schema=REPEATS))


def seen(
    gate: VerdictGate, dataset: Dataset, at_s: float, fresh: bool = True, age_s: float = 0.0
) -> tuple[VerdictGate, LiveState, Analysis]:
    """What is said of a job at a moment."""
    told: list[tuple[VerdictGate, LiveState]] = []

    def settle(freeze: Freeze) -> Freeze:
        look = JobProgress(round(at_s * SECOND), fresh, round(age_s * SECOND))
        after, live, allowed = gate.look(dataset, freeze, look)
        told.append((after, live))
        return allowed

    analysis = analyse(dataset, settle)
    return *told[0], analysis


def test_one_look_proves_nothing() -> None:
    _, live, analysis = seen(VerdictGate(), written(job(20, waiting=True), 0.5), 0)
    assert live.state == "waiting"
    assert not analysis.is_critical and not analysis.culprits


def test_newer_events_are_progress_with_rates_by_group() -> None:
    gate, _, _ = seen(VerdictGate(), written(job(10), 0.1), 0)
    gate, live, analysis = seen(gate, written(job(30), 0.1), 10)
    assert live.state == "progressing"
    (rate,) = live.rates
    assert (rate.group, rate.description) == ("0", "default_pg")
    created = job(30).ops["created_ns"].to_list()
    step_s = (max(created) - min(created)) / 29 / SECOND
    assert round(rate.per_s * step_s, 2) == 1
    assert not analysis.is_critical


def test_a_wait_is_no_verdict_before_it_is_long_enough() -> None:
    still = job(20, waiting=True)
    gate, _, _ = seen(VerdictGate(), written(still, 0.5), 0)
    gate, live, analysis = seen(gate, written(still, 30, since_s=0.5), 30)
    assert live.state == "still" and live.needed_ns == FROZEN_NS
    assert not analysis.is_critical
    _, live, analysis = seen(gate, written(still, 70, since_s=0.5), 70)
    assert live.state == "frozen"
    assert analysis.culprits == (2,) and analysis.status == "hang"


def test_the_user_says_when() -> None:
    still = job(20, waiting=True)
    gate, _, _ = seen(VerdictGate(5 * SECOND), written(still, 0.5), 0)
    gate, live, _ = seen(gate, written(still, 4, since_s=0.5), 4)
    assert live.state == "still"
    _, live, analysis = seen(gate, written(still, 6, since_s=0.5), 6)
    assert live.state == "frozen" and analysis.culprits == (2,)


def test_a_checkpoint_that_was_got_over_is_no_hang_the_next_time() -> None:
    gate, _, _ = seen(VerdictGate(), written(job(20, waiting=True), 0.5), 0)
    gate, live, _ = seen(gate, written(job(20, waiting=True), 55, since_s=0.5), 55)
    assert live.state == "still"
    gate, live, _ = seen(gate, written(job(40), 0.1), 60)
    assert live.state == "progressing"
    gate, live, analysis = seen(gate, written(job(40, waiting=True), 100, since_s=1), 160)
    assert live.state == "still" and not analysis.is_critical
    _, live, _ = seen(gate, written(job(40, waiting=True), 112, since_s=1), 172)
    assert live.state == "frozen"


def test_reading_the_same_files_again_proves_nothing() -> None:
    still = written(job(20, waiting=True), 0.5)
    gate, _, _ = seen(VerdictGate(), still, 0)
    for at_s in (10, 60, 120):
        gate, live, analysis = seen(gate, still, at_s, fresh=False)
        assert live.state == "waiting" and not analysis.is_critical


def test_silence_is_taken_for_a_standstill_with_a_doubt() -> None:
    gate = VerdictGate()
    for at in range(5):
        gate, _, _ = seen(gate, written(job(10 + at, waiting=True), 0.1), at * 10)
    gate, live, _ = seen(gate, written(job(14, waiting=True), 0.1), 100, fresh=False)
    assert live.state == "progressing"
    _, live, analysis = seen(gate, written(job(14, waiting=True), 0.1), 40 + 20 * 10, fresh=False)
    assert live.state == "silent"
    assert analysis.culprits == (2,)
    assert analysis.findings[0].confidence != "high"


def test_where_it_is_not_known_how_often_something_comes_silence_is_long() -> None:
    still = written(job(20, waiting=True), 0.5)
    gate, live, _ = seen(VerdictGate(), still, 0)
    assert gate.judge_at_ns is not None
    gate, live, _ = seen(gate, still, SILENT_NS / SECOND - 1, fresh=False)
    assert live.state == "waiting" and gate.judge_at_ns == SILENT_NS
    gate, live, _ = seen(gate, still, SILENT_NS / SECOND, fresh=False)
    assert live.state == "silent" and gate.judge_at_ns is None


def test_files_that_are_old_when_following_begins_are_silent() -> None:
    _, live, analysis = seen(VerdictGate(), written(job(20, waiting=True), 0.5), 0, age_s=3600)
    assert live.state == "silent" and analysis.culprits == (2,)


def test_a_job_that_has_ended_is_idle_and_nobody_is_blamed() -> None:
    gate, _, _ = seen(VerdictGate(), written(job(20), 0.1), 0)
    _, live, analysis = seen(gate, written(job(20), 0.1), 2 * SILENT_NS / SECOND, fresh=False)
    assert live.state == "idle"
    assert analysis.status == "healthy" and not analysis.is_critical


def ended(dataset: Dataset, reasons: list[str]) -> Dataset:
    """With a sidecar of each of the first ranks that says how its process ended."""
    rows = [
        {"rank": rank, "kind": "process-end", "severity": "info", "text": "", "values": f'{{"reason":"{reason}"}}'}
        for rank, reason in enumerate(reasons)
    ]
    return replace(dataset, messages=pl.DataFrame(rows, schema=MESSAGES))


def test_a_job_whose_processes_all_came_to_their_end_is_over_at_once() -> None:
    over = ended(written(job(30), 0.1), ["exit"] * 4)
    gate, live, analysis = seen(VerdictGate(freeze_after_ns=SECOND), over, 10)
    assert (live.state, live.reason) == ("waiting", "more dumps are coming in")
    _, live, analysis = seen(gate, over, 12)
    assert (live.state, analysis.status) == ("idle", "healthy")
    told = "4 ranks, nothing is pending: every process came to the end of its program"
    assert with_state(analysis, live, 4).verdict == told


def test_a_job_of_which_not_every_process_has_ended_is_not_over() -> None:
    gate, _, _ = seen(VerdictGate(), ended(written(job(10), 0.1), ["exit"] * 3), 0)
    _, live, _ = seen(gate, ended(written(job(30), 0.1), ["exit"] * 3), 10)
    assert live.state == "progressing"


@pytest.mark.parametrize("reasons", [["exit"] * 4, ["exit", "exit", "exit", "terminated"]])
def test_of_processes_that_all_have_ended_none_goes_on_and_nobody_is_blamed_for_what_is_pending(
    reasons: list[str],
) -> None:
    gate, _, _ = seen(VerdictGate(), ended(written(job(10), 0.1), reasons), 0)
    _, live, analysis = seen(gate, ended(written(job(30, waiting=True), 0.1), reasons), 10)
    assert (live.state, live.reason, live.rates) == ("idle", "every process has ended", ())
    assert not analysis.culprits


def dumping(dataset: Dataset, every_s: float) -> Dataset:
    """Of ranks that dump again and again, as their sidecars say."""
    return replace(dataset, files=dataset.files.with_columns(interval_ns=pl.lit(round(every_s * SECOND))))


def test_ranks_that_dump_again_and_again_and_stop_doing_so_are_gone_though_nothing_is_pending() -> None:
    gate = VerdictGate(freeze_after_ns=8 * SECOND)
    for at in range(5):
        gate, live, _ = seen(gate, dumping(written(job(10 + at), 0.1), 2), at * 2)
    _, live, analysis = seen(gate, dumping(written(job(14), 0.1), 2), 15, fresh=False)
    assert live.state == "progressing"
    _, live, analysis = seen(gate, dumping(written(job(14), 0.1), 2), 16, fresh=False)
    assert (live.state, live.came) == ("frozen", True)
    told = with_state(analysis, live, 4)
    assert told.status == "unknown" and "the processes are gone, or cannot write" in told.verdict
    old = dumping(written(job(14), 0.1), 2)
    assert seen(VerdictGate(), old, 0, age_s=3600)[1].state == "frozen", "also if it was so from the beginning"


def test_ranks_that_all_stand_outside_of_collectives_are_frozen_when_newer_dumps_show_it() -> None:
    gate, _, _ = seen(VerdictGate(), written(job(19), 0.1), 0)
    gate, live, _ = seen(gate, written(job(20), 30, since_s=1), 30)
    assert live.state in ("progressing", "idle")
    _, live, analysis = seen(gate, written(job(20), 70, since_s=1), 70)
    assert live.state == "frozen"
    verdict = with_state(analysis, live, 4).verdict
    assert verdict == "4 ranks: dumps 1 min 9 s apart show the same frontiers, and no rank is in a collective"
    assert not analysis.culprits


def test_a_rate_is_that_of_now() -> None:
    gate, _, _ = seen(VerdictGate(), written(job(10), 0.1), 0)
    gate, live, _ = seen(gate, written(job(30), 0.1), 10)
    before = live.per_s
    assert before > 0
    gate, live, _ = seen(gate, written(job(30, waiting=True), 4, since_s=1), 14)
    assert live.state in ("progressing", "still") and live.rates == ()
    assert live.reason.endswith("older than the dumps")
    gate, live, _ = seen(gate, written(job(31), 0.1), 20)
    assert live.rates == (), "one look after a pause tells none"
    gate, live, _ = seen(gate, written(job(51), 0.1), 30)
    assert live.per_s == pytest.approx(before, rel=0.1)


def test_that_nothing_came_while_nothing_could_be_seen_is_no_silence() -> None:
    gate = VerdictGate(freeze_after_ns=8 * SECOND)
    for at in range(5):
        gate, _, _ = seen(gate, written(job(10 + at, waiting=True), 0.1), at * 2)
    last = written(job(14, waiting=True), 0.1)
    assert seen(gate, last, 40, fresh=False)[1].state == "silent"
    back = gate.resumed(40 * SECOND)
    assert seen(back, last, 41, fresh=False)[1].state == "progressing"
    assert seen(back, last, 48, fresh=False)[1].state == "silent"


def test_of_nothing_nothing_has_ended() -> None:
    one = job(1)
    none = replace(one, ops=one.ops.clear(), files=one.files.clear(), frontiers=one.frontiers.clear(), world_size=0)
    gate, _, _ = seen(VerdictGate(), none, 0)
    _, live, _ = seen(gate, none, 20)
    assert live.state == "waiting"


def test_a_rank_that_is_late_stays_named_whatever_is_pending_when_dumps_are_written() -> None:
    """Some member of some collective is always on its way in a job that moves."""

    def late(pending: bool) -> Dataset:
        builder = JobBuilder(4)
        for _ in range(20):
            builder.clock = {rank: max(builder.clock.values(), default=START_NS) for rank in range(4)}
            done = max(builder.clock.values()) + SECOND
            for rank in range(4):
                builder.collective(ranks=[rank], delay_ns=400_000_000 * (rank == 1), completed_ns=done)
        if pending:
            builder.collective(ranks=[0, 2, 3], state="started")
        return builder.build()

    _, _, whole = seen(VerdictGate(), written(late(False), 0.1), 0)
    gate, _, partly = seen(VerdictGate(), written(late(True), 0.1), 0)
    assert (whole.status, whole.culprits) == (partly.status, partly.culprits) == ("slow", (1,))
    _, live, still = seen(gate, written(late(True), 40, since_s=1), 40)
    assert live.state == "still"
    assert with_state(still, live, 4).verdict.endswith(f"; now {live.reason}; called frozen after 1 min")


def test_a_watchdog_that_gave_up_needs_no_waiting_but_the_dumps_of_all_ranks() -> None:
    still = written(job(20, waiting=True, failed=True), 0.5)
    _, live, analysis = seen(VerdictGate(), still, 0)
    assert live.state == "frozen" and analysis.culprits == (2,)


def test_dumps_of_different_moments_are_waited_for_although_a_watchdog_gave_up() -> None:
    still = written(job(20, waiting=True, failed=True), 0.5)
    age = pl.when(pl.col("rank") == 2).then(DUMP_SPREAD_NS + 1).otherwise(0)
    apart = replace(still, files=still.files.with_columns(mtime_ns=pl.col("mtime_ns") - age))
    for dataset in (apart, written(job(20, waiting=True, failed=True), 0.5, since_s=0.1)):
        gate, live, analysis = seen(VerdictGate(), dataset, 0)
        assert live.state != "frozen" and not analysis.culprits
        assert gate.judge_at_ns is not None
        _, live, _ = seen(gate, dataset, gate.judge_at_ns / SECOND, fresh=False)
        assert live.state == "frozen"


def half(whole: Dataset, ranks: int) -> Dataset:
    """The job as far as the dumps of its first ranks tell it."""
    few = pl.col("rank") < ranks
    return replace(
        whole, ops=whole.ops.filter(few), files=whole.files.filter(few), frontiers=whole.frontiers.filter(few)
    )


def test_the_wait_for_the_dumps_of_more_ranks_is_counted_and_they_are_not_accused() -> None:
    whole = written(job(20, waiting=True, failed=True, ranks=16), 0.5)
    gate, live, analysis = seen(VerdictGate(), half(whole, 10), 0, age_s=3600)
    assert (live.state, live.so_far) == ("waiting", "10 of 16 dumps so far")
    assert live.reason == "10 of 16 dumps so far; judged in 30 s if no more come"
    told = with_awaited(analysis, live, range(10, 16))
    assert (told.status, told.verdict) == ("unknown", live.reason)
    assert all(not f.culprit_ranks and not set(f.candidates) & set(range(10, 16)) for f in told.findings)
    _, live, _ = seen(gate, half(whole, 10), 12, fresh=False)
    assert live.reason.endswith("judged in 18 s if no more come") and live.judged_at_ns == 30 * SECOND


def test_large_dumps_that_are_copied_slowly_are_waited_for_longer() -> None:
    whole, gate = written(job(20, waiting=True, failed=True, ranks=16), 0.5), VerdictGate()
    for at, ranks in enumerate((4, 8, 12)):
        gate, live, _ = seen(gate, half(whole, ranks), 25 * at)
    assert live.judged_at_ns == (50 + COPY_FACTOR * 25) * SECOND
    _, live, analysis = seen(gate, half(whole, 12), 120, fresh=False)
    assert live.so_far and not analysis.culprits
    _, live, _ = seen(gate, half(whole, 12), 126, fresh=False)
    assert live.state == "frozen" and not live.so_far


def test_the_first_dumps_of_more_ranks_are_no_progress() -> None:
    whole, gate = written(job(20, waiting=True, failed=True, ranks=16), 0.5), VerdictGate()
    states = []
    for at, ranks in enumerate((3, 9, 15, 16)):
        gate, live, _ = seen(gate, half(whole, ranks), 2 * at)
        states.append((live.state, live.so_far))
    told = [("waiting", f"{ranks} of 16 dumps so far") for ranks in (3, 9, 15)]
    assert states == [*told, ("frozen", "")]


def test_no_rank_is_missed_while_dumps_are_coming_in() -> None:
    whole = written(job(20, waiting=True, failed=True), 0.5)
    part = replace(
        whole, ops=whole.ops.filter(pl.col("rank") < 2), files=whole.files.filter(pl.col("rank") < 2),
        frontiers=whole.frontiers.filter(pl.col("rank") < 2),
    )  # fmt: skip
    gate, _, _ = seen(VerdictGate(), part, 0)
    gate, live, analysis = seen(gate, part, 20, fresh=False)
    assert live.state != "frozen" and not analysis.culprits
    _, live, analysis = seen(gate, whole, 25)
    assert live.state == "frozen" and analysis.culprits == (2,)


def test_a_mismatch_is_said_while_the_job_still_moves() -> None:
    builder = JobBuilder(4)
    for _ in range(5):
        builder.collective()
    builder.collective(ranks=[0, 1, 3], state="started")
    builder.collective(ranks=[2], op="broadcast", state="started")
    _, live, analysis = seen(VerdictGate(), written(builder.build(), 0.1), 0)
    assert live.state == "waiting"
    assert analysis.status == "mismatch" and analysis.culprits == (2,)


def test_memory_is_bounded() -> None:
    gate = VerdictGate()
    for at in range(20):
        gate, _, _ = seen(gate, written(job(2 + at, ranks=2), 0.1), at * 5)
    assert len(gate.memory.samples) <= 16 and len(gate.memory.gaps_ns) <= 16


def test_the_last_news_is_as_old_as_the_newest_file_also_after_nothing_could_be_seen() -> None:
    gate, live, _ = seen(VerdictGate(), written(job(20, waiting=True), 90), 100, age_s=40)
    assert (live.state, live.still_ns, live.news_at_ns) == ("frozen", 90 * SECOND, 60 * SECOND)
    gate, live, _ = seen(gate.resumed(200 * SECOND), written(job(20, waiting=True), 90), 210, fresh=False)
    assert live.news_at_ns == 60 * SECOND
    gate, live, _ = seen(gate, written(job(21), 0.1), 220)
    assert live.news_at_ns == 220 * SECOND


def test_a_moved_job_whose_processes_have_ended_progresses_no_more() -> None:
    gate, _, _ = seen(VerdictGate(), written(job(20), 0.1), 0)
    gate, live, _ = seen(gate, written(job(40), 0.1), 10)
    assert live.state == "progressing"
    dataset = written(job(60, waiting=True), 0.1)
    rows = [
        {"kind": "process-end", "file": 0, "offset": 0, "text": "was ended by SIGTERM", "torn": False, "rank": rank,
         "values": '{"reason":"terminated"}'}
        for rank in range(4)
    ]  # fmt: skip
    _, live, analysis = seen(gate, replace(dataset, messages=pl.DataFrame(rows, schema=MESSAGES)), 20)
    analysis = with_state(analysis, live, 4)
    assert (live.state, live.rates, analysis.status) == ("idle", (), "unknown")
    assert "every process has ended" in analysis.verdict


def test_what_the_user_calls_frozen_is_not_said_to_move_by_a_report() -> None:
    dataset = written(job(20, waiting=True), 16, since_s=0.5)
    dataset = replace(dataset, files=dataset.files.with_columns(interval_ns=pl.lit(2 * SECOND, dtype=pl.Int64)))
    gate, _, _ = seen(VerdictGate(15 * SECOND), written(job(20, waiting=True), 0.5), 0)
    _, live, _ = seen(gate, dataset, 16)
    report = analyse(dataset)
    assert live.state == "frozen" and "--freeze-after" in live.reason
    assert report.status == "unknown" and not report.culprits
    assert "same frontiers, but only more than 20 s" in report.verdict


def test_a_job_that_stands_for_less_than_a_verdict_needs_is_not_called_progressing() -> None:
    gate, _, _ = seen(VerdictGate(), written(job(20), 0.1), 0)
    _, live, analysis = seen(gate, written(job(20, waiting=True), 30), 31)
    assert (live.state, with_state(analysis, live, 4).status) == ("still", "unknown")
