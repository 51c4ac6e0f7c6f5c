"""When following a job has something new to say."""

from __future__ import annotations

from rankscope.analysis import analyse
from rankscope.analysis.live_state import LiveState
from rankscope.analysis.model import Analysis
from rankscope.report.watch_lines import verdict_key
from tests.builders import START_NS, JobBuilder

SECOND = 1_000_000_000
MOVING = LiveState("progressing", "operations go on")


def late(rank: int, group: str) -> Analysis:
    """Said of a job in which a rank comes late to the collectives of a group."""
    job = JobBuilder(4, {"pair": [0, 1], "all": [0, 1, 2, 3]})
    for step in range(20):
        at = START_NS + step * SECOND
        for member in job.group_ranks[group]:
            created = at + 300_000_000 * (member == rank)
            job.collective(group, ranks=[member], created_ns=created, completed_ns=at + 400_000_000)
    return analyse(job.build())


def test_a_rank_that_is_late_in_another_of_its_groups_is_nothing_new() -> None:
    assert late(1, "pair").culprits == late(1, "all").culprits == (1,)
    assert verdict_key(late(1, "pair"), MOVING) == verdict_key(late(1, "all"), MOVING)
    assert verdict_key(late(1, "all"), MOVING) != verdict_key(late(2, "all"), MOVING)
    assert verdict_key(late(1, "all"), MOVING) != verdict_key(late(1, "all"), LiveState("still", "nothing moves"))


def test_a_mismatch_at_another_place_is_something_new() -> None:
    said = []
    for steps in (3, 4):
        job = JobBuilder(4)
        for _ in range(steps):
            job.collective()
        job.collective(ranks=[0, 1, 2], state="scheduled")
        job.collective(ranks=[3], op="broadcast", state="scheduled")
        said.append(verdict_key(analyse(job.build()), MOVING))
    assert said[0] != said[1]
