"""Members that disagree: who is the odd one, and what is no disagreement at all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from rankscope.analysis import analyse
from rankscope.analysis.model import Finding
from tests.analysis.jobs import running, wide_mesh
from tests.builders import JobBuilder
from tests.parsers.dumps import dataset_of
from tests.parsers.dumps import job as recorders


def root_of(job: JobBuilder) -> Finding:
    (root,) = [f for f in analyse(job.build()).findings if f.root_cause]
    return root


def test_minority_operation_is_accused_wherever_it_stands() -> None:
    for odd in range(4):
        job = running()
        job.collective(ranks=[r for r in range(4) if r != odd], state="scheduled")
        job.collective(ranks=[odd], op="all_gather", state="scheduled")
        root = root_of(job)
        assert (root.kind, root.culprit_ranks) == ("collective-mismatch", (odd,))


def test_sizes_are_compared_by_elements() -> None:
    job = running()
    job.collective(ranks=[0, 1, 2], sizes="[[8,8]]", state="scheduled")
    job.collective(ranks=[3], sizes="[[8,9]]", state="scheduled")
    root = root_of(job)
    assert (root.kind, root.culprit_ranks) == ("size-mismatch", (3,))
    assert "72 elements" in root.title
    job = running()
    job.collective(ranks=[0, 1, 2], sizes="[[8,8]]")
    job.collective(ranks=[3], sizes="[[64]]")
    assert not analyse(job.build()).findings


def test_types_are_compared() -> None:
    job = running()
    job.collective(ranks=[0, 1, 3], state="scheduled")
    job.collective(ranks=[2], state="scheduled", in_dtypes='["BFloat16"]')
    root = root_of(job)
    assert (root.kind, root.culprit_ranks) == ("dtype-mismatch", (2,))


@pytest.mark.parametrize("op", ["all_to_all", "barrier"])
def test_operations_that_may_be_uneven(op: str) -> None:
    job = running()
    for rank in range(4):
        job.collective(ranks=[rank], op=op, sizes=f"[[{rank + 1}]]")
    assert not analyse(job.build()).findings


def test_scatter_has_an_input_at_its_source_only() -> None:
    job = running()
    job.collective(ranks=[0], op="scatter", in_sizes="[[4],[4],[4],[4]]", out_sizes="[[4]]", state="scheduled")
    job.collective(ranks=[1, 2, 3], op="scatter", in_sizes="[]", in_dtypes="[]", out_sizes="[[4]]", state="scheduled")
    assert root_of(job).kind == "stuck-in-collective"


def test_pair_is_judged_by_its_replicas() -> None:
    job = wide_mesh(4)
    for pair in range(4):
        job.collective(f"tp{pair}", ranks=[2 * pair], state="scheduled")
        op = "broadcast" if pair == 2 else "all_reduce"
        job.collective(f"tp{pair}", ranks=[2 * pair + 1], op=op, state="scheduled")
    found = [f for f in analyse(job.build()).findings if f.kind == "collective-mismatch"]
    assert [f.culprit_ranks for f in found] == [(5,)]


def test_pair_without_replicas_is_named_whole_with_low_confidence() -> None:
    job = running(2)
    job.collective(ranks=[0], state="scheduled")
    job.collective(ranks=[1], op="broadcast", state="scheduled")
    root = root_of(job)
    assert (root.culprit_ranks, root.confidence) == ((0, 1), "low")


def test_extra_collective_shifts_what_follows() -> None:
    job = running()
    job.collective(ranks=[1], op="barrier", state="scheduled")
    job.collective(state="scheduled")
    job.collective(ranks=[0, 2, 3], op="broadcast", state="scheduled")
    root = root_of(job)
    assert (root.kind, root.culprit_ranks) == ("extra-collective", (1,))


@pytest.mark.parametrize(
    ("ranks", "sizes"),
    [([0, 1, 2], "[[8]]"), ([0, 1], "[[64]]")],
    ids=["of another size", "a member is not there"],
)
def test_difference_that_the_group_got_over_is_no_finding(ranks: list[int], sizes: str) -> None:
    job = running()
    job.collective(ranks=ranks)
    job.collective(ranks=[3], op="all_gather", sizes=sizes)
    job.seqs.update({(rank, "0"): max(job.seqs.values()) for rank in range(4)})
    for _ in range(3):
        job.collective()
    assert not analyse(job.build()).is_critical


def test_others_that_go_on_without_the_odd_rank_have_not_got_over_it() -> None:
    """gloo marks operations as retired that failed: the others issue a step's worth before one of them waits."""
    job = running()
    job.collective(ranks=[1, 2, 3], library="gloo")
    job.collective(ranks=[0], op="barrier", sizes="[]", library="gloo")
    for _ in range(3):
        job.collective(ranks=[1, 2, 3], library="gloo")
    root = root_of(job)
    assert (root.kind, root.culprit_ranks, root.confidence) == ("collective-mismatch", (0,), "high")


def met(**more: Any) -> JobBuilder:
    """A job in which rank 3 once did something else than the others, and all went on."""
    job = running()
    job.collective(ranks=[0, 1, 2])
    job.collective(ranks=[3], **more)
    for _ in range(3):
        job.collective()
    return job


def test_different_operations_that_met_without_a_hang_are_told() -> None:
    """NCCL finishes a broadcast of one rank and a sum of the others, if they are equally long: with wrong results."""
    root = root_of(met(op="broadcast"))
    assert (root.kind, root.culprit_ranks, root.confidence) == ("collective-mismatch", (3,), "medium")
    assert root.confidence_reasons == ("it finished anyway: no hang, but wrong results",)


def test_different_types_that_met_without_a_hang_are_told() -> None:
    root = root_of(met(in_dtypes='["Int"]'))
    assert (root.kind, root.culprit_ranks, root.confidence) == ("dtype-mismatch", (3,), "medium")


@pytest.mark.parametrize("missing", [2, 3])
def test_a_hang_leads_before_wrong_results_of_earlier(missing: int) -> None:
    """They made nobody wait: neither is their culprit that of the hang, nor is another wait explained by them."""
    job = met(op="broadcast")
    job.collective(ranks=[r for r in range(4) if r != missing], state="scheduled")
    analysis = analyse(job.build())
    assert (analysis.status, analysis.culprits) == ("hang", (missing,))
    (told,) = [f for f in analysis.findings if f.kind == "collective-mismatch"]
    assert (told.severity, told.root_cause, told.culprit_ranks) == ("warning", False, (3,))


def test_all_that_joined_a_collective_that_does_not_finish_are_not_explained_by_wrong_results() -> None:
    job = met(op="broadcast")
    job.collective(state="scheduled")
    analysis = analyse(job.build())
    assert (analysis.findings[0].kind, analysis.culprits) == ("stuck-in-collective", ())


@pytest.mark.parametrize("op", ["all_reduce_barrier", "allreduce_coalesced", "all_to_all", "barrier"])
def test_operations_that_may_be_one_on_the_wire_or_have_no_size_are_not_held_against_each_other(op: str) -> None:
    assert not analyse(met(op=op).build()).findings


def test_two_names_of_one_operation_are_no_mismatch() -> None:
    job = running()
    job.collective(ranks=[0, 1, 2], op="_all_gather_base")
    job.collective(ranks=[3], op="all_gather")
    assert not analyse(job.build()).findings


@pytest.mark.parametrize("kept", [8, 15])
def test_what_a_wrapped_ring_holds_in_part_is_not_held_against_the_others(kept: int) -> None:
    """Sums of two types launched as one: the ring of rank 0 begins between them."""
    made = recorders(3)
    for recorder in made:
        for _ in range(5):
            recorder.coalesced(["Float", "BFloat16"])
    files = {f"nccl_trace_rank_{r.rank}": r.pickle(ring=kept if r.rank == 0 else 15) for r in made}
    assert not analyse(dataset_of(files)).culprits


SAME_SIZE = ("all_reduce", "allreduce_coalesced", "_all_gather_base", "_reduce_scatter_base")


def uneven(op: str, sizes: Sequence[int], *, library: str = "nccl", coalesced: bool = False) -> JobBuilder:
    """A job in which rank 2 passed fewer elements once, and all finished and went on."""
    job = running()
    for rank in range(4):
        own = [n - n % 1000 for n in sizes] if rank == 2 else sizes
        if not coalesced:
            job.collective(ranks=[rank], op=op, sizes=str([[n] for n in own]), library=library)
            continue
        number = job.seqs[rank, "0"] + 1
        for n in own:
            job.collective(ranks=[rank], op=op, sizes=f"[[{n}]]", library=library, coalesced="inner", seq=number)
        job.collective(ranks=[rank], op="coalesced", sizes="[]", library=library, coalesced="closer", seq=number)
    for _ in range(3):
        job.seqs = dict.fromkeys(job.seqs, max(job.seqs.values()))
        job.collective(library=library)
    return job


@pytest.mark.parametrize("coalesced", [False, True])
@pytest.mark.parametrize("op", SAME_SIZE)
def test_unequal_sizes_that_must_be_equal_are_told_although_all_finished(op: str, coalesced: bool) -> None:
    root = root_of(uneven(op, [4096, 8192], coalesced=coalesced))
    assert (root.kind, root.culprit_ranks, root.confidence) == ("size-mismatch", (2,), "medium")
    assert "rank 2 passed 12,000 elements and the others 12,288 elements" in root.title
    assert root.confidence_reasons == ("it finished anyway: no hang, but wrong results",)


@pytest.mark.parametrize("library", ["nccl2", "hccl"])
def test_other_libraries_with_one_count_for_all_have_the_same_rule(library: str) -> None:
    assert root_of(uneven("_reduce_scatter_base", [4096], library=library)).culprit_ranks == (2,)


@pytest.mark.parametrize("coalesced", [False, True])
@pytest.mark.parametrize(
    "op", ["all_gather", "reduce_scatter", "all_to_all", "_broadcast_oop", "_reduce_oop", "gather"]
)
def test_operations_that_may_be_uneven_and_finished_are_fine(op: str, coalesced: bool) -> None:
    assert analyse(uneven(op, [4096, 8192], coalesced=coalesced).build()).status == "healthy"


def test_gloo_checks_sizes_itself() -> None:
    assert not analyse(uneven("all_reduce", [4096], library="gloo").build()).culprits


def test_a_coalesced_group_of_which_a_size_is_unknown_is_not_compared() -> None:
    job = uneven("_reduce_scatter_base", [4096, 8192], coalesced=True)
    first = next(row for row in job.rows if row["rank"] == 2 and row["coalesced"] == "inner")
    first["in_sizes"] = None
    assert analyse(job.build()).status == "healthy"


def test_buckets_of_other_shapes_and_equal_totals_are_equal() -> None:
    job = running()
    for rank in range(4):
        job.collective(ranks=[rank], op="allreduce_coalesced", sizes="[[64,2],[8]]" if rank else "[[8],[128]]")
    for _ in range(2):
        job.collective()
    assert analyse(job.build()).status == "healthy"
