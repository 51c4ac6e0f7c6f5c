"""Schedules of jobs, simulated: they stop where the dumps stop, whole and with fewer ranks."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from rankscope.analysis import analyse
from rankscope.assemble.load import load
from rankscope.commands.rehearsal import chosen
from rankscope.features.replay.schedule import Schedule, Step, schedule_of
from rankscope.features.replay.schedule_fit import MOVING, fit, fit_job, keeps_places, restricted, shrunk
from rankscope.features.replay.simulator import Setting, simulate
from tests.simulator.loaded import simulated
from tests.simulator.scenario import ALL_FAULTS
from tests.tui.jobs import hang, healthy

SAMPLES = Path(__file__).parents[3] / "sample_data"
BROKEN = ("early_return", "ring_wrapped", "two_groups", "wrong_collective")


@pytest.mark.parametrize("sample", BROKEN)
def test_a_job_stops_in_the_simulator_where_it_stopped(sample: str) -> None:
    dataset = load([SAMPLES / sample])
    found = fit_job(dataset, analyse(dataset))
    assert found.equal == found.told == set(dataset.seen_ranks)
    assert found.setting == Setting("serial")


MADE_SMALLER = ("host-stuck", "device-dead", "wrong-size", "extra", "order", "lost-send", "two", "wrong-split")
"""Faults of different shapes: making a schedule smaller plays it a dozen times."""


@pytest.mark.parametrize("fault", [*ALL_FAULTS])
def test_each_fault_is_explained_by_its_schedule_and_leads_to_its_verdict(fault: str) -> None:
    try:
        dataset, analysis = simulated(fault, 2)
    except LookupError:
        pytest.skip("no job has a place for it")
    whole = chosen(dataset, analysis, minimize=False)
    found = whole.fit
    assert found.equal == found.told
    if fault == "any-source":
        # a replay receives from a named rank: that rank may have sent too few, or this one received too often
        assert (whole.analysis.cause and whole.analysis.cause.kind) == "p2p-unmatched"
        assert set(analysis.suspects) < set(whole.analysis.suspects)
        return
    assert whole.same, whole.analysis.verdict
    if analysis.status in MOVING:
        return
    assert any(found.outcome.pending.values())
    if fault not in MADE_SMALLER:
        return
    small = chosen(dataset, analysis, minimize=True)
    assert small.same, small.analysis.verdict
    assert keeps_places(small.fit, small.schedule)
    assert len(small.schedule.steps) <= len(found.schedule.steps)


def test_a_rank_stops_where_it_stops_first_whatever_overlaps_with_it() -> None:
    # the second line runs while the first one waits, and then stands still: neither order alone explains that
    first, over, second = ((1, 1), (2, 1), (2, 2))
    steps = [Step(key, "all_reduce", 4, "Float", pending=key != over) for key in (first, over, second)]
    schedule = Schedule({0: tuple(steps), 1: (), 2: tuple(steps[1:])}, {1: (0, 1), 2: (0, 2)})
    found = fit(replace(schedule, silent=frozenset({2})), hang(8, 3)[1])
    assert found.setting == Setting("serial")
    assert (found.equal, found.exact) == (frozenset({0, 1}), frozenset({1}))


def test_a_front_of_completed_operations_brings_back_a_verdict_that_rests_on_them() -> None:
    dataset, analysis = simulated("lost-recv", 2)
    alone = fit_job(dataset, analysis)
    whole = chosen(dataset, analysis, minimize=False)
    assert whole.same
    assert sum(map(len, whole.schedule.steps.values())) > sum(map(len, alone.schedule.steps.values()))


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
    over = {rank: tuple(replace(one, pending=False) for one in steps) for rank, steps in schedule.steps.items()}
    assert not any(simulate(replace(schedule, steps=over), Setting()).pending.values())


def test_splits_of_an_all_to_all_must_meet() -> None:
    fits = Step((0, 7), "all_to_all", None, "Float", pending=True, splits=((3, 1), (3, 2)))
    other = replace(fits, splits=((2, 5), (1, 5)))
    for second, left in ((other, 0), (replace(other, splits=((4, 5), (1, 5))), 2)):
        outcome = simulate(Schedule({0: (fits,), 1: (second,)}, {0: (0, 1)}), Setting())
        assert outcome.waiting == left


def test_a_device_whose_watcher_is_dead_takes_part_and_sees_no_end() -> None:
    one, two = (Step((0, seq), "all_reduce", 4, "Float", pending=True) for seq in (7, 8))
    seen = replace(one, pending=False)
    schedule = Schedule({0: (seen, two), 1: (one, two)}, {0: (0, 1)})
    assert simulate(schedule, Setting(holds=frozenset({1}))).pending == {0: (1,), 1: (0, 1)}


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
