"""Parts of the search for stragglers: medians of many parts at once, and lateness by design."""

from __future__ import annotations

import numpy as np
import pytest

from rankscope.analysis import analyse
from rankscope.analysis.straggler import _medians, _most_frequent
from tests.builders import START_NS, JobBuilder
from tests.parsers.dumps import Groups, dataset_of, job

MS = 1_000_000


@pytest.mark.parametrize("seed", range(20))
def test_parts_at_once_are_parts_one_by_one(seed: int) -> None:
    chance = np.random.default_rng(seed)
    sizes = chance.integers(0, 9, 12)
    part = np.repeat(np.arange(12), sizes)
    values = chance.integers(0, 5, len(part)).astype(np.int32)
    medians = _medians(values.astype(np.int64), part, 12)
    frequent, times = _most_frequent(values, part, 12)
    for number, size in enumerate(sizes.tolist()):
        own = values[part == number]
        assert medians[number] == (np.median(own) if size else 0)
        assert times[number] == max((np.count_nonzero(own == one) for one in own), default=0)
        assert np.count_nonzero(own == frequent[number]) == times[number]


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
