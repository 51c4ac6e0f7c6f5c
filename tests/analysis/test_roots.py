"""The root is named, and never a victim."""

from __future__ import annotations

import polars as pl
import pytest

from rankscope.analysis import analyse
from rankscope.analysis.model import Analysis, Finding
from tests.analysis.jobs import mesh, running, wide_mesh
from tests.builders import JobBuilder


def roots(analysis: Analysis) -> list[Finding]:
    return [f for f in analysis.findings if f.root_cause]


def only_root(job: JobBuilder) -> Finding:
    found = roots(analyse(job.build()))
    assert len(found) == 1, [f.title for f in found]
    return found[0]


def test_healthy_job_has_no_critical_finding() -> None:
    analysis = analyse(running().build())
    assert analysis.status == "healthy"
    assert not analysis.is_critical


def test_rank_that_never_issued_is_named_with_its_last_operation() -> None:
    job = running()
    job.collective(ranks=[0, 1, 3], state="scheduled")
    root = only_root(job)
    assert (root.kind, root.culprit_ranks, root.seq, root.op) == ("missing-rank", (2,), 11, "all_reduce")
    assert root.waiting_ranks == (0, 1, 3)
    assert root.evidence[0].rank == 2
    assert "all_reduce #10" in root.evidence[0].text


def test_rank_without_a_dump_is_named_only_without_another_explanation() -> None:
    job = running()
    job.no_dump = {1}
    job.collective(ranks=[0, 2, 3], state="scheduled")
    assert only_root(job).culprit_ranks == (1,)
    job = running()
    job.no_dump = {1}
    job.collective(ranks=[0, 1, 3], state="scheduled")
    assert only_root(job).culprit_ranks == (2,)


def test_more_missing_dumps_than_dumps_accuse_nobody() -> None:
    job = running()
    job.no_dump = {1, 2, 3}
    job.collective(ranks=[0], state="scheduled")
    root = only_root(job)
    assert root.culprit_ranks == ()
    assert root.candidates == (1, 2, 3)
    assert root.confidence == "low"


def test_hang_in_one_group_is_the_root_of_the_hang_in_another() -> None:
    job = mesh()
    job.collective("1")
    job.collective("2", ranks=[2], state="scheduled")
    job.collective("3", ranks=[0], state="scheduled")
    job.collective("4", ranks=[1], state="scheduled")
    analysis = analyse(job.build())
    (root,) = roots(analysis)
    assert root.culprit_ranks == (3,)
    assert [(s.rank, s.for_rank) for s in root.chain] == [(0, 2), (2, 3)]
    consequences = [f for f in analysis.findings if f.caused_by == root.id]
    assert [f.group.description for f in consequences if f.group] == ["dp"]
    assert not any(f.culprit_ranks for f in consequences)
    by_group = {d.group: d.consequence for d in analysis.divergences}
    assert by_group == {2: False, 3: True, 4: True}


def test_two_independent_roots_are_both_named() -> None:
    job = JobBuilder(8, {"a": [0, 1, 2, 3], "b": [4, 5, 6, 7]})
    for name in "ab":
        job.collective(name)
    job.collective("a", ranks=[0, 1, 2], state="scheduled")
    job.collective("b", ranks=[5, 6, 7], state="scheduled")
    assert {f.culprit_ranks for f in roots(analyse(job.build()))} == {(3,), (4,)}


def test_opposite_order_is_a_cycle_and_the_majority_decides() -> None:
    job = wide_mesh(4)
    for rank in range(8):
        first, state = (
            ("0", "scheduled") if rank == 5 else (f"tp{rank // 2}", "scheduled" if rank == 4 else "completed")
        )
        job.collective(first, ranks=[rank], state=state)
        if rank not in (4, 5):
            job.collective("0", ranks=[rank], state="scheduled")
    root = only_root(job)
    assert root.kind == "order-deadlock"
    assert root.culprit_ranks == (5,)
    assert root.title.startswith("rank 5 entered its operations in another order: deadlock, ")
    assert root.chain[0].rank == root.chain[-1].for_rank


def test_opposite_order_without_majority_names_all_with_low_confidence() -> None:
    job = mesh()
    for rank, name in ((0, "1"), (1, "4"), (2, "3"), (3, "2")):
        job.collective(name, ranks=[rank], state="scheduled")
    root = only_root(job)
    assert (root.kind, root.culprit_ranks, root.confidence) == ("order-deadlock", (0, 1, 2, 3), "low")


def test_in_a_circle_with_two_that_wait_alone_either_may_be_the_one() -> None:
    job = JobBuilder(4, {"1": [0, 1, 2], "2": [1, 2, 3], "3": [0, 3]})
    for name in ("0", "1", "2", "3"):
        job.collective(name)
    # rank 0 left out what 1 and 2 wait in; had rank 3 come to the pair too early, it would look the same
    for name, ranks in (("1", [1, 2]), ("2", [3]), ("3", [0])):
        job.collective(name, ranks=ranks, state="scheduled")
    root = only_root(job)
    assert (root.kind, root.culprit_ranks, root.confidence) == ("order-deadlock", (0, 1, 2, 3), "low")
    assert "Half of the ranks" not in root.explanation


@pytest.mark.parametrize(("groups", "said"), [(("1", "2"), ((0,), "medium")), (("1", "3"), ((0, 1, 2), "low"))])
def test_who_is_alone_where_several_never_came_that_wait_for_it_elsewhere_strayed(
    groups: tuple[str, str], said: tuple[tuple[int, ...], str]
) -> None:
    job = JobBuilder(3, {"1": [0, 1], "2": [0, 2], "3": [1, 2]})
    for name in ("0", "1", "2", "3"):
        job.collective(name)
    job.collective("0", ranks=[0], op="barrier", state="scheduled")
    for rank, name in enumerate(groups, 1):
        job.collective(name, ranks=[rank], state="scheduled")
    root = only_root(job)
    assert root.kind == "order-deadlock"
    assert (root.culprit_ranks, root.confidence) == said


def test_collective_of_one_rank_only_accuses_the_one() -> None:
    job = running(8)
    job.collective(ranks=[0], op="barrier", state="scheduled")
    root = only_root(job)
    assert (root.kind, root.culprit_ranks) == ("extra-collective", (0,))
    assert root.candidates == tuple(range(1, 8))
    assert root.confidence != "high"


def test_all_joined_and_nobody_finished_accuses_nobody() -> None:
    job = running()
    job.collective(state="scheduled")
    root = only_root(job)
    assert (root.kind, root.culprit_ranks) == ("stuck-in-collective", ())
    assert root.waiting_ranks == (0, 1, 2, 3)


def test_device_that_never_got_there_is_named_where_timing_is_on() -> None:
    job = running()
    job.collective(ranks=[0, 2, 3], state="started")
    job.collective(ranks=[1], state="scheduled")
    dataset = job.build()
    timed = dataset.files.with_columns(has_timing=pl.lit(True))
    (root,) = roots(analyse(type(dataset)(**{**dataset.__dict__, "files": timed})))
    assert (root.kind, root.culprit_ranks) == ("gpu-stuck", (1,))


def test_device_whose_completions_stopped_is_named() -> None:
    job = running()
    job.collective(ranks=[0, 1, 3])
    job.collective(ranks=[2], state="scheduled")
    job.collective(ranks=[0, 1, 3], state="scheduled")
    root = only_root(job)
    assert (root.kind, root.culprit_ranks) == ("gpu-stuck", (2,))


@pytest.mark.parametrize("op", ["broadcast", "reduce", "gather", "scatter"])
def test_rooted_operation_finished_early_proves_no_dead_device(op: str) -> None:
    job = running()
    job.collective(ranks=[0], op=op)
    job.collective(ranks=[1, 2], op=op, state="scheduled")
    root = only_root(job)
    assert (root.kind, root.culprit_ranks) == ("missing-rank", (3,))


def test_dump_taken_a_moment_earlier_accuses_nobody() -> None:
    job = running(4, 20)
    job.collective(ranks=[0, 1, 2])
    job.collective(ranks=[0, 1, 2], state="scheduled")
    analysis = analyse(job.build())
    assert not analysis.is_critical
    assert analysis.status == "progressing"


def test_last_completion_noticed_late_accuses_nobody() -> None:
    job = running()
    job.collective(ranks=[0, 1, 3])
    job.collective(ranks=[2], state="started")
    assert not analyse(job.build()).is_critical


def test_receive_that_was_never_posted() -> None:
    job = running()
    job.p2p("0", 0, 1, "send", state="scheduled")
    root = only_root(job)
    assert (root.kind, root.culprit_ranks, root.peer) == ("p2p-unmatched", (1,), 0)


def test_healthy_pipeline_of_plain_sends() -> None:
    job = running()
    for _ in range(5):
        for rank in range(3):
            job.p2p("0", rank, rank + 1, "send")
            job.p2p("0", rank + 1, rank, "recv")
    assert not analyse(job.build()).findings


def test_aborted_operations_are_not_taken_for_finished() -> None:
    job = running()
    job.collective(ranks=[0, 1, 3], completed_ns=1_700_000_700_000_000_000, timeout_ms=600_000)
    root = only_root(job)
    assert (root.kind, root.culprit_ranks) == ("missing-rank", (2,))


def test_no_dump_at_all_is_unknown() -> None:
    job = JobBuilder(2)
    job.no_dump = {0, 1}
    assert analyse(job.build()).status == "unknown"


def pipelines(count: int) -> JobBuilder:
    """`count` pipelines of two stages with one data parallel group for each stage."""
    groups: dict[str, list[int]] = {f"pp{i}": [2 * i, 2 * i + 1] for i in range(count)}
    groups |= {f"dp{stage}": list(range(stage, 2 * count, 2)) for stage in (0, 1)}
    job = JobBuilder(2 * count, groups)
    job.descriptions.update({name: name[:2] for name in groups})
    for pipe in range(count):
        job.p2p(f"pp{pipe}", 2 * pipe, 2 * pipe + 1, "send")
        job.p2p(f"pp{pipe}", 2 * pipe + 1, 2 * pipe, "recv")
    return job


def test_receive_left_out_is_told_from_a_deadlock_by_the_replicas() -> None:
    job = pipelines(4)
    for pipe in range(4):
        stuck = "scheduled" if pipe == 2 else "completed"
        job.p2p(f"pp{pipe}", 2 * pipe, 2 * pipe + 1, "send", state=stuck)
        if pipe != 2:
            job.p2p(f"pp{pipe}", 2 * pipe + 1, 2 * pipe, "recv")
    job.collective("0", ranks=[0, 1, 2, 3, 5, 6, 7], state="scheduled")
    root = only_root(job)
    assert (root.kind, root.culprit_ranks) == ("p2p-unmatched", (5,))
