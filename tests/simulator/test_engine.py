"""The simulator keeps its own laws."""

from __future__ import annotations

from collections import defaultdict

import pytest

from tests.simulator.instructions import P2P, US, Collective, Compute, Crash, DeviceDies, Host, Instruction, Sync
from tests.simulator.job import Outcome, Plan, run
from tests.simulator.record import Record
from tests.simulator.scenario import ALL_FAULTS, ONLY_MODES, Scenario, make
from tests.simulator.topology import WORLD, Layout, build

REDUCE = Collective(WORLD, "all_reduce", ((8,),), ((8,),))


def job(*programs: list[Instruction], eager_bytes: int = 0) -> Outcome:
    """A job of one group whose ranks run these programs once."""
    topology = build(Layout(dp=len(programs)))
    steps = {rank: [program] for rank, program in enumerate(programs)}
    return run(Plan(topology, steps, eager_bytes=eager_bytes), seed=1)


def works(outcome: Outcome, rank: int) -> list[Record]:
    """What a rank launched."""
    return [r for r in outcome.records[rank] if r.role != "inner"]


@pytest.fixture(scope="module", params=sorted(ALL_FAULTS))
def scenario(request: pytest.FixtureRequest) -> Scenario:
    """One scenario of each fault."""
    return make(request.param, seed=11, job="hook" if request.param in ONLY_MODES else "legacy")


def test_sequence_numbers_of_a_group_are_contiguous(scenario: Scenario) -> None:
    for rank in scenario.outcome.records:
        seqs: dict[tuple[str, bool], list[int]] = defaultdict(list)
        for record in works(scenario.outcome, rank):
            seqs[record.group, record.is_p2p].append(record.p2p_seq if record.is_p2p else record.seq)
        assert all(numbers == list(range(1, len(numbers) + 1)) for numbers in seqs.values())


def test_a_collective_is_done_only_after_all_members_started_it(scenario: Scenario) -> None:
    calls: dict[tuple[str, int], dict[int, Record]] = defaultdict(dict)
    for rank in scenario.outcome.records:
        for record in works(scenario.outcome, rank):
            if not record.is_p2p:
                calls[record.group, record.seq][rank] = record
    for (group, _), by_rank in calls.items():
        done = [r.done for r in by_rank.values() if r.done is not None]
        if done:
            starts = [r.arrived for r in by_rank.values() if r.arrived is not None]
            assert set(by_rank) == set(scenario.outcome.topology.groups[group])
            assert len(starts) == len(by_rank)
            assert min(done) > max(starts)


def test_a_stream_runs_first_in_first_out(scenario: Scenario) -> None:
    for rank in scenario.outcome.records:
        last: dict[str, int] = {}
        for record in works(scenario.outcome, rank):
            if record.is_p2p:
                continue
            assert record.done is None or last.get(record.group, 0) <= record.done
            last[record.group] = record.done if record.done is not None else 1 << 62


def test_nothing_is_started_before_it_was_issued(scenario: Scenario) -> None:
    for records in scenario.outcome.records.values():
        assert all(r.arrived is None or r.arrived >= r.created for r in records)
        assert all(r.done is None or r.arrived is not None for r in records)


def test_a_send_ends_with_its_receive() -> None:
    outcome = job([Compute(900 * US), P2P(WORLD, "send", 1, (4,))], [P2P(WORLD, "recv", 0, (4,))])
    (send,), (recv,) = outcome.records[0], outcome.records[1]
    assert send.done == recv.done
    assert recv.done is not None
    assert send.arrived is not None
    assert recv.done > send.arrived


def test_an_eager_send_does_not_wait_for_its_receiver() -> None:
    programs: tuple[list[Instruction], ...] = ([P2P(WORLD, "send", 1, (4,)), Sync()], [Host(None)])
    assert job(*programs, eager_bytes=64).records[0][0].done is not None
    assert job(*programs).records[0][0].done is None


def test_a_host_runs_ahead_until_it_synchronizes() -> None:
    ahead = job([REDUCE, REDUCE, Sync(), REDUCE], [Host(None)])
    assert len(ahead.records[0]) == 2


def test_compute_holds_up_the_collective_after_it() -> None:
    outcome = job([Compute(None), REDUCE], [REDUCE])
    assert outcome.records[0][0].arrived is None
    assert outcome.records[1][0].arrived is not None
    assert outcome.engine.hung is False


def test_a_dead_device_ends_nothing_more_but_its_host_goes_on() -> None:
    outcome = job([REDUCE, DeviceDies(), REDUCE, REDUCE, Sync()], [REDUCE, REDUCE, REDUCE, Sync()])
    assert [r.done is not None for r in outcome.records[0]] == [True, False, False]
    assert outcome.engine.hung


def test_a_crash_takes_the_rank_out_of_the_dumps() -> None:
    outcome = job([REDUCE, Sync(), Crash()], [REDUCE, Sync(), REDUCE, Sync()])
    assert set(outcome.engine.crashed) == {0}
    assert outcome.engine.hung


@pytest.mark.parametrize(
    ("other", "ends"),
    [
        (Collective(WORLD, "broadcast", ((8,),), ((8,),)), False),
        (Collective(WORLD, "all_reduce", ((9,),), ((9,),)), False),
        (Collective(WORLD, "all_reduce", ((8,),), ((8,),), "Float"), False),
        (Collective(WORLD, "all_reduce", ((8,),), ((8,),), "Half"), True),
    ],
)
def test_what_does_not_fit_never_ends(other: Collective, ends: bool) -> None:
    outcome = job([REDUCE], [other])
    assert [r.done is not None for rank in (0, 1) for r in outcome.records[rank]] == [ends, ends]


def test_every_fault_strikes_and_only_quiet_ones_end(scenario: Scenario) -> None:
    quiet = scenario.name.startswith(("healthy", "midstep", "straggler", "late-device", "wrong-dtype"))
    assert scenario.outcome.engine.hung or quiet
