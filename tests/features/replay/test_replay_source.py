"""Schedules from logs and traces: they stop where the job stopped, and say what is guessed."""

from __future__ import annotations

from dataclasses import replace

import polars as pl
import pytest

from rankscope.analysis import analyse
from rankscope.features.replay.replay_source import replay_source
from rankscope.features.replay.schedule import schedule_of
from rankscope.features.replay.schedule_fit import Fit, fit_job
from rankscope.schema import Dataset
from tests.features.logs.rows.job import SPLIT, init, job, source, split, step
from tests.features.logs.rows.test_fingerprint_groups import ALL, BARRIER, PAIRS, printed, run, seats, steps, told
from tests.features.logs.rows.test_p2p import pipeline
from tests.traces import MS, TraceBuilder
from tests.tui.jobs import hang


def fitted(dataset: Dataset) -> Fit:
    return fit_job(dataset, analyse(dataset))


def heads(found: Fit) -> dict[int, tuple[str, tuple[int, ...]] | None]:
    """Where each rank stops: operation and key."""
    steps = {rank: found.outcome.head(found.schedule, rank) for rank in found.schedule.steps}
    return {rank: (step.op, step.key) if step else None for rank, step in steps.items()}


def calls(rank: int, *, short: int = -1) -> list[str]:
    """Collectives of all and of pairs by turns; rank `short` leaves after the fourth of all."""
    lines = [init(rank), split(rank)]
    for number in range(6):
        if rank == short and number == 4:
            return lines
        lines += [step(rank, number), step(rank, 50 + number, "AllGather", SPLIT, 2)]
    return lines


def test_calls_of_nccl_stop_where_a_member_issued_none() -> None:
    found = fitted(job(*(source(f"rank_{rank}.log", calls(rank, short=3)) for rank in range(4))))
    assert found.agreement == "4 of 4 ranks stop as in the logs"
    assert heads(found)[3] is None
    assert {heads(found)[rank] for rank in (0, 1, 2)} == {("all_reduce", (0, 5))}
    assert any("logs tell no end" in remark for remark in found.schedule.remarks)


def test_a_log_that_begins_late_lacks_nothing() -> None:
    dataset = run([*seats(ALL), *told(steps(4, ALL))])
    late = replace(dataset, ops=dataset.ops.filter((pl.col("rank") != 3) | (pl.col("seq") > 1)))
    found = fitted(late)
    assert set(heads(found).values()) == {None}
    assert any("not in the logs of rank 3" in remark for remark in found.schedule.remarks)


def test_fingerprints_stop_at_the_call_that_differs() -> None:
    odd = [printed(rank, (ALL, 3, "BROADCAST" if rank == 2 else "ALLREDUCE")) for rank in ALL]
    found = fitted(run([*seats(ALL), *told(steps(3, ALL)), *odd]))
    assert found.agreement == "4 of 4 ranks stop as in the logs"
    assert heads(found) == {r: ("broadcast" if r == 2 else "all_reduce", (0, 3)) for r in ALL}


def test_fingerprints_of_several_groups_stop_each_rank_in_its_own() -> None:
    lines = [*seats(ALL, *PAIRS), *told(steps(3, *PAIRS, ALL)), *told([((0, 1), 3, "ALLREDUCE")])]
    lines += [printed(2, ((2, 3), 3, "ALLREDUCE")), *(printed(rank, (ALL, 3, "BROADCAST")) for rank in (0, 1))]
    lines += [f"[rank2]:[E1120 19:13:20.000015644 ProcessGroupGloo.cpp:67] [Rank 0]: Ranks 1 {BARRIER}"]
    found = fitted(run([*lines, "[rank2]: Traceback (most recent call last):", f"[rank2]: RuntimeError: {BARRIER}"]))
    everyone, pair = ("broadcast", (0, 3)), ("all_reduce", (2, 3))
    assert heads(found) == {0: everyone, 1: everyone, 2: pair, 3: None}


def test_sends_of_logs_are_paired_and_stop_at_the_one_that_nobody_receives() -> None:
    found = fitted(pipeline(5))
    assert found.schedule.noun == "logs"
    assert heads(found)[3] == ("recv", (0, 2, 3, 5))


def test_logs_of_few_ranks_are_refused() -> None:
    with pytest.raises(ValueError, match="the logs tell the operations of 1 of 4 ranks: a replay would mislead"):
        schedule_of(job(source("rank_0.log", calls(0))))


def traced() -> Dataset:
    """Twelve steps of two ranks, with a transfer in each, whose traces number nothing."""
    builder = TraceBuilder(2)
    for number in range(12):
        builder.begin_step(number)
        builder.host(1, "load", number * MS)
        builder.collective(op="all_reduce" if number % 2 else "broadcast", nelems=64 * (number + 1))
        builder.p2p("0", 0, 1)
        builder.end_step()
    return builder.build()


def test_the_last_matched_operations_of_traces_run_to_their_end() -> None:
    found = fitted(traced())
    assert found.agreement == "2 of 2 ranks stop as in the traces"
    assert set(heads(found).values()) == {None}
    for own in found.schedule.steps.values():
        assert [step.elements for step in own if not step.is_p2p] == [64 * (number + 1) for number in range(4, 12)]
        assert [step.key for step in own if step.is_p2p] == [(0, 0, 1, k) for k in range(4, 12)]


def test_dumps_come_before_logs() -> None:
    dataset, _ = hang(8, 3)
    both = replace(dataset, ops=pl.concat([dataset.ops, job(source("rank_0.log", calls(0))).ops]))
    assert replay_source(both).noun == "dumps"
    assert schedule_of(both).noun == "dumps"
