"""Schedules of pairs of simulated runs: equal ones are equal, and one change is found at its place."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rankscope.features.comparison.rules.model import ComparedRun, RunComparison
from rankscope.features.comparison.rules.run_comparison import NothingComparableError, compare_runs
from rankscope.schema import Dataset
from tests.builders import JobBuilder
from tests.features.comparison.rules.pairs import (
    Edit,
    edited,
    halved,
    job_of,
    larger,
    left_out,
    one_run,
    renamed,
    swapped,
    twice,
)
from tests.simulator.job import Plan
from tests.simulator.programs import Style
from tests.simulator.scenario import FSDP, MEGATRON, RING, SINGLE
from tests.simulator.topology import Layout

JOB = job_of(Layout(tp=4, dp=2), FSDP, steps=6, past=3)
TENSOR = JOB.topology.of[5]["tp"]
MEMBERS = JOB.topology.groups[TENSOR]
BASE = one_run(JOB, 1, title="A")
SHORT_RING = 60


def compared(other: Plan, seed: int = 7, ring: int = 2000) -> RunComparison:
    """The comparison with a run of another plan, other clocks and other names of groups."""
    return compare_runs(BASE, one_run(renamed(other), seed, ring=ring, title="B"))


@pytest.mark.parametrize(
    ("layout", "style"),
    [
        (Layout(dp=8), RING), (Layout(tp=2, dp=2, pp=2), MEGATRON), (Layout(tp=2, pp=4), SINGLE),
        (Layout(tp=4), replace(FSDP, coalesced=True)),
    ],
    ids=["ring", "batches", "single", "coalesced"],
)  # fmt: skip
def test_clocks_names_and_rings_are_no_difference(layout: Layout, style: Style) -> None:
    job = job_of(layout, style, steps=5, past=8)
    found = compare_runs(one_run(job, 3), one_run(renamed(job), 4, ring=50))
    assert found.is_same, found.headline
    assert found.parts[0].summary.startswith("equal: ")


def test_dumps_of_another_moment_are_no_difference() -> None:
    job = job_of(Layout(tp=2, dp=2, pp=2), MEGATRON, steps=5, past=8)
    assert compare_runs(one_run(job, 3), one_run(job, 4, moment="live-apart")).is_same


@pytest.mark.parametrize("ring", [SHORT_RING])
@pytest.mark.parametrize(
    ("edit", "title", "operation"),
    [
        (larger, "another size on ranks 4-7, _all_gather_base [1536] bf16", 67),
        (twice, "on ranks 4-7 B issues one operation more, all_reduce [3] bf16", 68),
        (left_out, "B lacks _all_gather_base [1536] bf16", 68),
        (halved, "another type on ranks 4-7, _all_gather_base [1536] bf16", 67),
    ],
)
def test_one_change_is_found_at_its_place(edit: Edit, title: str, operation: int, ring: int) -> None:
    (found,) = compared(edited(JOB, TENSOR, 2, edit, steps=[2]), ring=ring).differences
    assert (found.kind, found.ranks) == ("schedule-differs", MEMBERS)
    assert found.title.startswith(title)
    assert found.operation == operation


@pytest.mark.parametrize("ring", [2000, SHORT_RING])
def test_a_change_of_one_rank_names_the_rank(ring: int) -> None:
    other = one_run(edited(JOB, TENSOR, 2, larger, steps=[2], ranks=[5]), 7, ring=ring, moment="timeout", title="B")
    found = compare_runs(BASE, other)
    assert [one.kind for one in found.differences] == ["schedule-differs", "outcome-differs"]
    assert found.differences[0].ranks == (5,)
    assert found.headline.startswith("first difference: another size on rank 5")


def test_another_order_of_groups_is_found() -> None:
    (found,) = compared(swapped(JOB, 3)).differences
    assert found.title.startswith("another order on ranks 0-7, all_reduce [512] bf16 (DATA_PARALLEL_GROUP_WITH_CP")
    assert found.operation == 89


def test_a_change_of_each_step_is_found_at_the_first_and_happens_again() -> None:
    found = compared(edited(JOB, TENSOR, 2, larger))
    assert found.differences[0].operation == 2
    assert "it happens again later" in found.hypotheses[0].speaks_for


def test_the_earliest_rank_is_told_by_dependency() -> None:
    late = edited(edited(JOB, TENSOR, 2, larger, steps=[2]), JOB.topology.of[0]["tp"], 2, larger, steps=[4])
    first, later = compared(late).differences
    assert (first.ranks, later.ranks) == ((4, 5, 6, 7), (0, 1, 2, 3))


def test_a_longer_run_goes_on() -> None:
    longer = replace(JOB, steps={rank: [*steps, *steps[:3]] for rank, steps in JOB.steps.items()})
    found = compared(longer)
    assert found.is_same
    assert "run B goes on for 39 operations on ranks 0-7; that is no difference" in found.parts[0].lines


def test_windows_without_a_common_number_are_compared_by_content() -> None:
    longer = replace(JOB, past=40)
    found = compared(longer, ring=SHORT_RING)
    assert found.is_same
    assert any("hold no common window by number" in line for line in found.parts[0].lines)


def test_more_operations_before_the_dumps_begin_are_told() -> None:
    found = compare_runs(one_run(JOB, 1, ring=30), one_run(edited(JOB, TENSOR, 2, twice, steps=[1]), 2, ring=30))
    assert found.headline == "B differs from A: before the dumps begin, B issued 1 operation more than A on ranks 4-7"


def of(dataset: Dataset) -> ComparedRun:
    from rankscope.analysis import analyse

    return ComparedRun("run", dataset, analyse(dataset))


def test_another_world_size_is_a_difference_and_ends_the_comparison_of_schedules() -> None:
    small, large = JobBuilder(2), JobBuilder(4)
    for job in (small, large):
        job.collective("0")
    found = compare_runs(of(small.build()), of(large.build()))
    assert found.differences[0].title == "world size: 2 -> 4"
    assert found.parts[0].answer == "not compared: 2 ranks in A, 4 in B"


def test_runs_without_anything_in_common_are_an_error() -> None:
    dataset = JobBuilder(2).build()
    empty = replace(dataset, files=dataset.files.clear())
    with pytest.raises(NothingComparableError, match="no operations"):
        compare_runs(of(empty), of(empty))
