"""The part of a job that a schedule takes: the last operations, or those from a given one on."""

from __future__ import annotations

from pathlib import Path

import pytest

from rankscope.analysis import analyse
from rankscope.assemble.load import load
from rankscope.features.replay.edits import parse_operation
from rankscope.features.replay.replay_source import SchedulePart
from rankscope.features.replay.schedule import Schedule, schedule_of
from rankscope.features.replay.schedule_fit import fit_job
from tests.tui.jobs import hang, healthy

SAMPLES = Path(__file__).parents[3] / "sample_data"


def numbers(schedule: Schedule, rank: int, group: int, *, pending: bool = False) -> list[int]:
    """Numbers of the collectives of a rank in a group."""
    own = schedule.steps[rank]
    return [step.key[1] for step in own if step.group == group and not step.is_p2p and step.pending == pending]


@pytest.mark.parametrize("last", [1, 5])
def test_the_last_of_each_group_come_with_what_is_pending(last: int) -> None:
    dataset, analysis = hang(8, 6, 6)
    found = fit_job(dataset, analysis, part=SchedulePart(last=last))
    assert found.equal == found.told == frozenset(range(8))
    for group, members in found.schedule.groups.items():
        for rank in members:
            assert len(numbers(found.schedule, rank, group)) == last
    around = fit_job(dataset, analysis).schedule
    for rank in range(8):
        assert found.schedule.recorded(rank) == around.recorded(rank)


def test_of_a_job_that_moves_so_many_are_taken_as_asked_for() -> None:
    dataset, analysis = healthy()
    found = fit_job(dataset, analysis, part=SchedulePart(last=2))
    assert not any(found.outcome.pending.values())
    assert {len(numbers(found.schedule, 0, group)) for group in {s.group for s in found.schedule.steps[0]}} == {2}


def test_from_an_operation_on_nothing_before_it_is_left_and_nobody_waits_for_it() -> None:
    dataset = load([SAMPLES / "two_groups"])
    group, seq = parse_operation(dataset, "default_pg#2")
    found = fit_job(dataset, analyse(dataset), part=SchedulePart(begin=(group, seq)))
    assert found.equal == found.told
    assert {min(numbers(found.schedule, rank, group)) for rank in range(4)} == {2}
    earlier = parse_operation(dataset, "default_pg#1")
    longer = schedule_of(dataset, part=SchedulePart(begin=earlier))
    assert all(len(longer.steps[rank]) > len(found.schedule.steps[rank]) > 8 for rank in range(4))


def test_a_point_that_a_member_does_not_hold_is_refused_with_what_all_hold() -> None:
    dataset = load([SAMPLES / "early_return"])
    with pytest.raises(
        ValueError, match=r"#19 of default_pg is not in the dump of rank 3; its 4 members all hold #1 to"
    ):
        schedule_of(dataset, part=SchedulePart(begin=(0, 19)))


@pytest.mark.parametrize(
    ("text", "reason"),
    [("data_parallel#3", "2 groups have the name data_parallel; name one by number: g3: data_parallel of ranks"),
     ("x#3", "no group has the name x; name one by number: g0: default_pg of ranks 0-3"), ("3", "not GROUP#SEQ")],
)  # fmt: skip
def test_a_name_that_is_no_one_group_is_refused_with_those_there_are(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        parse_operation(load([SAMPLES / "two_groups"]), text)
