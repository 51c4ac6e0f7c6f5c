"""What stacks of hosts do to findings."""

from __future__ import annotations

from dataclasses import replace

import polars as pl
import pytest

from rankscope.analysis import analyse
from rankscope.analysis.model import Analysis, Finding
from tests.analysis.hosts import (
    BARRIER,
    ITEM,
    LEAVE,
    LOAD,
    LOOP,
    REDUCE,
    SAVE,
    Stack,
    missing_one,
    seen,
    still,
)  # fmt: skip
from tests.builders import START_NS, JobBuilder

WORLD, CULPRIT = 8, 3


def stacks(own: Stack, others: Stack = REDUCE) -> dict[int, Stack]:
    return {rank: own if rank == CULPRIT else others for rank in range(WORLD)}


def root(analysis: Analysis) -> Finding:
    return next(f for f in analysis.findings if f.root_cause)


def judged(own: Stack, others: Stack = REDUCE, **more: int | None) -> Finding:
    return root(analyse(still(seen(missing_one(WORLD, CULPRIT), stacks(own, others), **more))))


def test_a_culprit_outside_of_collectives_is_evidence() -> None:
    finding = judged(SAVE)
    assert (finding.kind, finding.culprit_ranks, finding.confidence) == ("missing-rank", (CULPRIT,), "high")
    first = finding.evidence[0]
    assert (first.file, first.rank) == (f"py-spy_rank_{CULPRIT}.txt", CULPRIT)
    assert "in torch.save" in first.text
    assert "save_checkpoint train/ckpt.py:77" in first.text
    assert finding.confidence_reasons == ("py-spy saw rank 3 outside of any collective",)
    assert finding.culprits[0].pid == 4000 + CULPRIT
    assert not finding.counter_evidence
    assert not any("py-spy dump" in step for step in finding.next_steps)


def test_without_a_look_at_the_culprit_the_step_names_it() -> None:
    dataset = still(seen(missing_one(WORLD, CULPRIT), {0: REDUCE}))
    named = dataset.files.with_columns(host=pl.format("node{}", "rank"))
    steps = root(analyse(replace(dataset, files=named))).next_steps
    assert any(step.startswith("rankscope stacks -o dumps on node3, for rank 3: ") for step in steps)


def test_a_culprit_in_that_very_collective_speaks_against_it() -> None:
    finding = judged(REDUCE)
    assert (finding.culprit_ranks, finding.confidence) == ((CULPRIT,), "low")
    assert "inside the call that its dump lacks" in finding.counter_evidence[0].text
    assert any("pattern C" in e.text for e in finding.evidence)


def test_a_culprit_that_waits_elsewhere_speaks_against_it() -> None:
    finding = judged(BARRIER)
    assert finding.confidence == "low"
    assert "waits for other ranks in an operation" in finding.counter_evidence[0].text


def test_a_rank_without_a_dump_is_not_accused_where_it_was_seen_waiting() -> None:
    job = missing_one(WORLD, CULPRIT)
    job.no_dump = {CULPRIT}
    finding = root(analyse(still(seen(job, stacks(REDUCE)))))
    assert finding.culprit_ranks == ()
    assert CULPRIT in finding.candidates
    assert "stacks show rank 3 alive" in finding.explanation


def test_a_rank_without_a_dump_that_was_seen_elsewhere_is_sure() -> None:
    job = missing_one(WORLD, CULPRIT)
    job.no_dump = {CULPRIT}
    assert root(analyse(still(job))).confidence == "medium"
    finding = root(analyse(still(seen(job, stacks(LOAD)))))
    assert (finding.culprit_ranks, finding.confidence) == ((CULPRIT,), "high")


@pytest.mark.parametrize("stack", [ITEM, LOOP])
def test_a_call_that_may_wait_for_the_device_proves_nothing(stack: Stack) -> None:
    job = missing_one(WORLD, CULPRIT)
    job.no_dump = {CULPRIT}
    job.thread(CULPRIT, stack, active=False)
    finding = root(analyse(still(job)))
    assert (finding.culprit_ranks, finding.confidence) == ((CULPRIT,), "medium")
    assert finding.evidence[0].text.startswith("py-spy: rank 3 ")


def test_who_is_said_to_wait_and_does_not_speaks_against_it() -> None:
    looked = {**stacks(SAVE), 5: LOAD}
    finding = root(analyse(still(seen(missing_one(WORLD, CULPRIT), looked))))
    assert finding.confidence == "medium"
    assert "rank 5 waiting for the data loader" in finding.counter_evidence[0].text


def test_a_look_at_another_time_is_said_and_convinces_nobody() -> None:
    job = missing_one(WORLD, CULPRIT)
    job.no_dump = {CULPRIT}
    for late, reason in ((1500, "py-spy looked at rank 3 15 min after the dumps"), (700, "outside of any collective")):
        job.threads.clear()
        finding = root(analyse(still(seen(job, stacks(SAVE), START_NS + late * 10**9))))
        assert any(reason in r for r in finding.confidence_reasons)
        assert finding.confidence == ("medium" if late == 1500 else "high")


def test_a_look_at_another_time_acquits_nobody() -> None:
    job = missing_one(WORLD, CULPRIT)
    job.no_dump = {CULPRIT}
    finding = root(analyse(still(seen(job, stacks(REDUCE), START_NS - 1800 * 10**9))))
    assert (finding.culprit_ranks, finding.confidence) == ((CULPRIT,), "medium")
    assert "py-spy looked at rank 3 40 min before the dumps" in finding.confidence_reasons
    assert finding.counter_evidence


def test_a_cleanup_deadlock_points_at_the_log_of_who_leaves() -> None:
    finding = judged(LEAVE)
    assert finding.culprit_ranks == (CULPRIT,)
    assert any("pattern A: cleanup deadlock: rank 3" in e.text for e in finding.evidence)
    assert (
        finding.next_steps[0] == "Read the log of rank 3 before destroy_process_group: an exception there is the cause."
    )


def test_the_same_stack_on_all_fits_a_collective_that_everybody_joined() -> None:
    job = JobBuilder(4)
    job.collective(state="scheduled")
    finding = root(analyse(still(seen(job, dict.fromkeys(range(4), REDUCE)))))
    assert finding.kind == "stuck-in-collective"
    assert any("the same stack on all hosts" in reason for reason in finding.confidence_reasons)
    assert any("pattern C" in e.text for e in finding.evidence)


def few(rest: Stack, odd: dict[int, Stack] | None = None, looked: int = WORLD) -> Finding:
    """Rank 0 waits alone in a collective; what the others do is what py-spy saw of the first `looked` ranks."""
    job = JobBuilder(WORLD)
    job.collective()
    job.collective(ranks=[0], op="broadcast", state="scheduled")
    found = dict.fromkeys(range(1, looked), rest) | (odd or {})
    return root(analyse(still(seen(job, found))))


def test_the_few_are_accused_as_long_as_nobody_looked_at_the_rest() -> None:
    finding = few(SAVE, looked=3)
    assert (finding.kind, finding.culprit_ranks) == ("extra-collective", (0,))


def test_a_rest_that_shares_one_cause_is_the_root() -> None:
    finding = few(SAVE)
    assert (finding.kind, finding.culprit_ranks) == ("missing-rank", tuple(range(1, WORLD)))
    assert (finding.waiting_ranks, finding.confidence) == ((0,), "medium")
    assert "all of them are in torch.save" in finding.title
    assert not finding.counter_evidence


def test_a_rest_that_is_busy_at_many_places_accuses_nobody() -> None:
    finding = few(SAVE, {2: LOAD, 3: LOOP})
    assert (finding.kind, finding.culprit_ranks, finding.confidence) == ("extra-collective", (), "low")
    assert finding.candidates == tuple(range(WORLD))


def test_a_rest_that_left_confirms_the_few() -> None:
    finding = few(LEAVE)
    assert (finding.kind, finding.culprit_ranks) == ("extra-collective", (0,))
    assert finding.confidence_reasons == ("py-spy saw 7 of 7 ranks of the rest: they have left the loop",)


def alone(looked: dict[int, Stack]) -> Analysis:
    job = JobBuilder(len(looked))
    job.no_dump = set(looked)
    return analyse(seen(job, looked).build())


def test_stacks_alone_name_the_one_that_stands_apart() -> None:
    analysis = alone(stacks(SAVE))
    assert (analysis.status, analysis.culprits) == ("suspect", (CULPRIT,))
    assert analysis.verdict == "rank 3 is in torch.save while all others are in all_reduce"
    assert analysis.findings[0].confidence == "medium"


@pytest.mark.parametrize("own", [ITEM, REDUCE, BARRIER])
def test_stacks_alone_accuse_nobody_who_may_wait(own: Stack) -> None:
    analysis = alone(stacks(own))
    assert (analysis.status, analysis.culprits) == ("unknown", ())
    assert analysis.findings[0].severity == "warning"


def test_stacks_alone_tell_the_pattern() -> None:
    same = alone(stacks(REDUCE))
    assert same.verdict.startswith("only py-spy dumps were found: pattern C, all 8 hosts have the same stack")
    mixed = alone({**stacks(SAVE), 4: LOAD})
    assert "pattern B, 8 hosts at 3 places" in mixed.verdict
    assert (mixed.culprits, mixed.findings[0].candidates) == ((), (3, 4))


def test_stacks_alone_of_a_cleanup_deadlock_send_to_the_log_of_who_leaves() -> None:
    analysis = alone(stacks(LEAVE))
    assert "pattern A, cleanup deadlock: rank 3 is in destroy_process_group" in analysis.verdict
    assert analysis.findings[0].candidates == (CULPRIT,)
    assert analysis.findings[0].next_steps[0].startswith("Read the log of rank 3")
    assert "before destroy_process_group" in analysis.findings[0].next_steps[0]
