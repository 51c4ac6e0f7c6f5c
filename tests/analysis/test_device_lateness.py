"""Ranks that issue on time and whose devices start late, by what the devices measure."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

import pytest

from rankscope.analysis import analyse
from rankscope.analysis.straggler import run_times
from rankscope.schema import Dataset
from tests.builders import START_NS, JobBuilder

US, MS = 1_000, 1_000_000
STEP = 20 * MS


def job(
    late_ns: Mapping[int, int], steps: int = 24, calls: int = 4, world: int = 8, issued: bool = False,
    measured: str = "duration",
) -> Dataset:  # fmt: skip
    """All ranks issue at the same time; the kernels of the ranks of `late_ns` start so much later in every step.

    `issued`: their hosts issue late as well. `measured`: "duration"; "times" of start and end; "looked": times as a
    watchdog notes them; "nothing".
    """
    made, rng = JobBuilder(world), random.Random(7)
    for step in range(steps):
        for call in range(calls):
            begin = START_NS + step * STEP + call * MS
            starts = {r: begin + rng.randrange(60 * US) + late_ns.get(r, 0) * (call == 0) for r in range(world)}
            end = max(starts.values()) + 40 * US
            for rank, start in starts.items():
                created = begin - MS + rng.randrange(20 * US) + (late_ns.get(rank, 0) if issued else 0)
                made.collective(ranks=[rank], created_ns=created, **times(measured, start, end))
    return made.build()


def times(measured: str, start: int, end: int) -> dict[str, Any]:
    """The times of an operation as a recorder has them."""
    look = end + -end % (100 * MS)
    return {
        "duration": {"duration_ns": end - start, "completed_ns": look},
        "times": {"started_ns": start, "completed_ns": end},
        "looked": {"started_ns": look - 400, "completed_ns": look},
        "nothing": {"completed_ns": look},
    }[measured]


@pytest.mark.parametrize("measured", ["duration", "times"])
@pytest.mark.parametrize("rank", [0, 5])
def test_a_device_that_starts_late_in_every_step_is_a_straggler(rank: int, measured: str) -> None:
    analysis = analyse(job({rank: 2400 * US}, measured=measured))
    (found,) = analysis.findings
    assert (analysis.status, found.kind, found.culprit_ranks, found.confidence) == (
        "slow",
        "straggler",
        (rank,),
        "high",
    )
    assert found.title.startswith(f"rank {rank} starts late on its device in 2")
    assert "by 2.4 ms" in found.title and "Its host issues them no later" in found.explanation


def test_who_starts_last_in_every_collective_is_said_to() -> None:
    (found,) = analyse(job({3: 900 * US}, calls=1, steps=64)).findings
    assert "rank 3 starts last on its device in 63 of 63" in found.title


@pytest.mark.parametrize("measured", ["looked", "nothing"])
def test_what_a_watchdog_notes_accuses_nobody(measured: str) -> None:
    assert [f for f in analyse(job({5: 2400 * US}, measured=measured)).findings if f.kind == "straggler"] == []


@pytest.mark.parametrize("late", [{}, {5: 20 * US}, {5: 70 * US}])
def test_a_device_that_is_hardly_late_is_no_straggler(late: dict[int, int]) -> None:
    assert [f for f in analyse(job(late)).findings if f.kind == "straggler"] == []


def test_a_host_that_issues_late_is_told_from_its_device() -> None:
    (found,) = [f for f in analyse(job({5: 900 * US}, issued=True)).findings if f.kind == "straggler"]
    assert found.culprit_ranks == (5,) and found.confidence == "medium"
    assert found.title.endswith("and issues them late")


def test_who_waited_for_a_late_device_in_another_group_is_not_accused() -> None:
    made = JobBuilder(4, {"left": [0, 1], "right": [2, 3], "across": [0, 2]})
    for step in range(24):
        begin = START_NS + step * STEP
        for group, late in (("left", 3 * MS), ("right", 0), ("across", 3 * MS)):
            for place, rank in enumerate(made.group_ranks[group]):
                # rank 1 is late, so rank 0 waits for it and comes late to rank 2
                waits = {("left", 0): 3 * MS, ("across", 1): 3 * MS}.get((group, place), 0)
                odd = (step * 7919 * (rank + 1)) % 9000
                made.collective(
                    group, [rank], created_ns=begin + odd, duration_ns=50 * US + odd + (waits if late else 0),
                    completed_ns=None,
                )  # fmt: skip
            begin += MS
    found = [f for f in analyse(made.build()).findings if f.kind == "straggler"]
    assert [f.culprit_ranks for f in found] == [(1,)]


def test_stages_of_a_pipeline_have_other_work_by_design() -> None:
    made = JobBuilder(2)
    for step in range(24):
        begin = START_NS + step * STEP
        made.p2p("0", 0, 1, "send", created_ns=begin, duration_ns=60 * US)
        made.p2p("0", 1, 0, "recv", created_ns=begin, duration_ns=60 * US)
        for rank in (0, 1):
            odd = (step * 7919 * (rank + 1)) % 9000
            made.collective(ranks=[rank], created_ns=begin + MS + odd, duration_ns=50 * US + odd + 3 * MS * rank)
    assert [f for f in analyse(made.build()).findings if f.kind == "straggler"] == []


def test_times_of_starts_and_ends_serve_where_no_device_measured() -> None:
    assert run_times(job({}, measured="times").ops).null_count() == 0
    assert run_times(job({}, measured="looked").ops).null_count() == job({}).ops.height
