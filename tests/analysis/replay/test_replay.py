"""Schedules of jobs, simulated: they stop where the dumps stop, whole and with fewer ranks."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from rankscope.analysis import analyse
from rankscope.analysis.replay.fitting import MOVING, fit_job
from rankscope.analysis.replay.schedule import Schedule, Step, schedule_of
from rankscope.analysis.replay.shrinking import restricted, shrunk
from rankscope.analysis.replay.simulator import Setting, simulate
from rankscope.assemble.load import load
from tests.simulator.loaded import simulated
from tests.simulator.scenario import ALL_FAULTS
from tests.tui.jobs import hang, healthy

SAMPLES = Path(__file__).parents[3] / "sample_data"
BROKEN = ("early_return", "ring_wrapped", "two_groups", "wrong_collective")
FEW = 0.85
"""A device that is dead, or a clock that differs, leaves a rank of a small job beside it."""


@pytest.mark.parametrize("sample", BROKEN)
def test_a_job_stops_in_the_simulator_where_it_stopped(sample: str) -> None:
    dataset = load([SAMPLES / sample])
    found = fit_job(dataset, analyse(dataset))
    assert found.equal == found.told == set(dataset.seen_ranks)
    assert found.setting == Setting("serial")


@pytest.mark.parametrize("fault", [*ALL_FAULTS])
def test_each_fault_is_explained_by_its_schedule(fault: str) -> None:
    try:
        dataset, analysis = simulated(fault, 2)
    except LookupError:
        pytest.skip("no job has a place for it")
    found = fit_job(dataset, analysis)
    assert len(found.equal) >= FEW * len(found.told), found.agreement
    if analysis.status not in MOVING:
        assert any(found.outcome.pending.values())
    small = shrunk(found, analysis)
    outcome = simulate(small, found.setting)
    for rank in small.steps:
        now, before = outcome.head(small, rank), found.outcome.head(found.schedule, rank)
        assert (now and now.key) == (before and before.key)


def test_a_job_that_is_well_runs_to_its_end() -> None:
    dataset, analysis = healthy()
    found = fit_job(dataset, analysis)
    assert not any(found.outcome.pending.values())


def test_a_rank_without_a_dump_has_issued_what_peers_completed() -> None:
    dataset, _ = hang(8, 3, no_dump=(1,))
    schedule = schedule_of(dataset)
    assert schedule.silent == {1}
    assert schedule.steps[1]
    assert all(step.filled and not step.pending for step in schedule.steps[1])


def test_fewer_ranks_stop_at_the_same_operations() -> None:
    dataset, analysis = hang(64, 3)
    found = fit_job(dataset, analysis)
    small = shrunk(found, analysis)
    assert 6 in small.steps
    assert len(small.steps) <= 6


def test_sends_to_ranks_that_are_left_out_are_left_out() -> None:
    pair = Step((0, 0, 1, 0), "send", 4, "Float", pending=True)
    schedule = Schedule({0: (pair,), 1: (replace(pair, op="recv"),)}, {0: (0, 1)})
    assert restricted(schedule, frozenset({0})).steps == {0: ()}


@pytest.mark.parametrize(
    ("other", "ends"),
    [({}, True), ({"elements": 8}, False), ({"dtype": "Half"}, False), ({"op": "broadcast"}, False),
     ({"elements": None}, True)],
)  # fmt: skip
def test_an_operation_ends_only_if_its_members_agree(other: dict[str, object], ends: bool) -> None:
    step = Step((0, 7), "all_reduce", 4, "Float", pending=True)
    schedule = Schedule({0: (step,), 1: (replace(step, **other),)}, {0: (0, 1)})  # type: ignore[arg-type]
    outcome = simulate(schedule, Setting())
    assert (not any(outcome.pending.values())) == ends


def test_serial_ranks_wait_in_a_circle_that_streams_do_not_know() -> None:
    one, two = (Step((group, 1), "all_reduce", 4, "Float", pending=True) for group in (0, 1))
    schedule = Schedule({0: (one, two), 1: (two, one)}, {0: (0, 1), 1: (0, 1)})
    assert simulate(schedule, Setting("serial")).pending == {0: (0, 1), 1: (0, 1)}
    assert simulate(schedule, Setting("streams")).pending == {0: (), 1: ()}


def test_a_batch_is_issued_together() -> None:
    def exchange(rank: int, peer: int) -> tuple[Step, ...]:
        send = Step((0, rank, peer, 0), "send", 4, "Float", pending=True, batch=3)
        return send, Step((0, peer, rank, 0), "recv", 4, "Float", pending=True, batch=3)

    schedule = Schedule({0: exchange(0, 1), 1: exchange(1, 0)}, {0: (0, 1)})
    assert simulate(schedule, Setting()).pending == {0: (), 1: ()}
    alone = {rank: tuple(replace(step, batch=-1) for step in steps) for rank, steps in schedule.steps.items()}
    assert any(simulate(replace(schedule, steps=alone), Setting()).pending.values())
