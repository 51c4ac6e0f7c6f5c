"""Parts of the search for stragglers: what chance explains, and lateness by design."""

from __future__ import annotations

import math

import numpy as np
import pytest

from rankscope.analysis import analyse
from rankscope.analysis.straggler import FALSE_ALARMS, Chance, half_amount
from tests.builders import START_NS, JobBuilder
from tests.parsers.dumps import Groups, dataset_of, job

MS = 1_000_000


@pytest.mark.parametrize(("times", "of", "members"), [(11, 11, 2), (5, 5, 8), (12, 12, 8), (30, 40, 4), (60, 99, 4)])
def test_chance_explains_what_is_drawn_often_enough_and_nothing_rarer(times: int, of: int, members: int) -> None:
    tail = sum(math.comb(of, k) * (members - 1) ** (of - k) for k in range(times, of + 1)) / members**of
    assert not Chance(members).explains(times, of, members)
    assert members * tail <= FALSE_ALARMS
    few = next(k for k in range(1, of + 1) if not Chance(members).explains(k, of, members))
    # the bound is not far above the tail, so hardly anybody is spared for it
    tail = sum(math.comb(of, k) * (members - 1) ** (of - k) for k in range(few - 1, of + 1)) / members**of
    assert members * tail > FALSE_ALARMS / 20


def test_more_ranks_that_are_tested_need_more_draws() -> None:
    assert not Chance(8).explains(11, 11, 2)
    assert Chance(16_384).explains(11, 11, 2)
    assert not Chance(16_384).explains(21, 21, 2)


def test_the_usual_amount_is_neither_the_largest_nor_one_of_many_small_ones() -> None:
    amounts = np.array([20_000, *[2_000] * 11, *[10] * 500])
    assert half_amount(amounts) == 2_000
    assert half_amount(np.array([], np.int64)) == 0


@pytest.mark.parametrize(("late_ms", "less_ms", "named"), [(6, 4, ()), (6, 10, (0,))])
def test_who_waits_least_in_every_replica_is_late_only_if_it_waits_less_than_there(
    late_ms: int, less_ms: int, named: tuple[int, ...]
) -> None:
    """First stages hardly wait for last ones in any replica; in the first, either a clock or the rank itself is off."""
    groups: Groups = {str(n): ("embedding", [n, n + 5]) for n in range(5)}
    made = job(10, groups)
    for recorder in made:
        (group,) = recorder.groups
        for _ in range(12):
            recorder.clock += 10 * MS
            later = late_ms * MS if recorder.rank == 0 else 0
            length = 1 if recorder.rank < 5 else 1 + (less_ms if recorder.rank == 5 else 4)
            recorder.collective(group, time_created_ns=recorder.clock + later, duration_ms=float(length))
    found = analyse(dataset_of({f"nccl_trace_rank_{r.rank}": r.pickle() for r in made}))
    assert tuple(r for f in found.findings if "arrives last" in f.title for r in f.culprit_ranks) == named


@pytest.mark.parametrize("hosts", [1, 4])
def test_ranks_of_one_host_share_its_clock(hosts: int) -> None:
    builder = JobBuilder(4)
    for turn in range(40):
        for rank in range(4):
            created = START_NS + turn * 100 * MS + (20 * MS if rank == 2 else rank * 1000)
            builder.collective(ranks=[rank], created_ns=created, completed_ns=None, host=f"node{rank % hosts}")
    (late,) = [f for f in analyse(builder.build()).findings if f.kind == "straggler"]
    assert late.culprit_ranks == (2,)
    doubts = () if hosts == 1 else ("no completion times: a clock that is off would look the same",)
    assert (late.confidence_reasons, late.confidence) == (doubts, "medium" if doubts else "high")


def test_of_many_operations_the_newest_of_each_rank_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    job = JobBuilder(4)
    for number in range(120):
        late = 3 if number < 60 else 1
        job.collective(ranks=[rank for rank in range(4) if rank != late], completed_ns=None)
        job.collective(ranks=[late], delay_ns=20 * MS, completed_ns=None)
        job.clock = dict.fromkeys(range(4), max(job.clock.values()) + 100 * MS)
    whole = analyse(job.build())
    monkeypatch.setattr("rankscope.analysis.straggler.MOST_OPERATIONS", 4 * 50)
    newest = analyse(job.build())
    assert [f.culprit_ranks for f in newest.findings] == [(1,)]
    assert [f.culprit_ranks for f in whole.findings] != [(1,)]
