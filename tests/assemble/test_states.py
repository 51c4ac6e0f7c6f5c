"""What is known of an operation: recorders without states, timed-out work, coalesced groups."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest

from rankscope.schema import Dataset
from tests.parsers.dumps import Groups, Recorder, dataset_of, job, named
from tests.parsers.torch_pickle import torch_pickle

PIPE: Groups = {"0": ("default_pg", [0, 1, 2]), "1": ("pp", [0, 1, 2])}


def states(dataset: Dataset) -> list[tuple[str, str, str, bool]]:
    return list(dataset.ops.select("op", "coalesced", "state", "retired").iter_rows())


def one(library: str = "nccl") -> Recorder:
    return Recorder(0, {"0": ("default_pg", [0, 1])}, library=library)


def test_gloo_records_no_state_and_retired_stands_for_completed() -> None:
    made = one("gloo")
    made.collective(state="scheduled", retired=True)
    made.collective(state="scheduled", retired=False)
    assert states(dataset_of(named([made]))) == [
        ("all_reduce", "none", "completed", True),
        ("all_reduce", "none", "scheduled", False),
    ]


@pytest.mark.parametrize("library", ["nccl", "rccl", "xccl", "hccl", "ncclx"])
def test_retired_and_not_completed_is_timed_out_where_states_are_recorded(library: str) -> None:
    made = one(library)
    made.collective(state="scheduled", retired=True)
    assert states(dataset_of(named([made])))[0][2] == "scheduled"


def test_a_library_nobody_knows_goes_by_what_it_records() -> None:
    made = one("zccl")
    made.collective(state="scheduled", retired=True)
    made.collective(state="scheduled", retired=False)
    assert [s[2] for s in states(dataset_of(named([made])))] == ["completed", "scheduled"]
    made.collective(state="started")
    assert [s[2] for s in states(dataset_of(named([made])))] == ["scheduled", "scheduled", "started"]


def test_a_state_nobody_knows() -> None:
    made = one()
    made.collective(state="exploded")
    assert states(dataset_of(named([made])))[0][2] == "unknown"


def test_inner_operations_carry_what_their_closer_says() -> None:
    made = Recorder(1, PIPE)
    made.batch("1", [("recv", 0), ("send", 2)])
    made.batch("1", [("recv", 0), ("send", 2)], state="started")
    made.collective("0")
    dataset = dataset_of(named([made]))
    assert states(dataset) == [
        ("recv", "inner", "completed", True), ("send", "inner", "completed", True),
        ("coalesced", "closer", "completed", True), ("recv", "inner", "started", False),
        ("send", "inner", "started", False), ("coalesced", "closer", "started", False),
        ("all_reduce", "none", "completed", True),
    ]  # fmt: skip
    completed = dataset.ops["completed_ns"].to_list()
    assert completed[0] == completed[1] == completed[2]
    assert dataset.ops["peer"].to_list() == [0, 2, None, 0, 2, None, None]


def test_a_closer_is_of_the_sort_of_what_it_closes() -> None:
    made = Recorder(1, PIPE)
    made.collective("1")
    made.batch("1", [("recv", 0), ("send", 2)])
    made.batch("1", [("recv", 0), ("send", 2)], state="started")
    made.collective("1", state="scheduled")
    dataset = dataset_of(named([made]))
    assert [p for _, p in sorted(zip(dataset.ops["record_id"], dataset.ops["is_p2p"], strict=True))] == [
        False, True, True, True, True, True, True, False,
    ]  # fmt: skip
    own = dataset.frontiers.filter(pl.col("status_enqueued") > 0).row(0, named=True)
    assert (own["last_enqueued"], own["last_completed"], own["first_kept"]) == (2, 1, 1)


@pytest.mark.parametrize(("others", "pairs"), [([("send", 2)], True), ([], False)])
def test_a_closer_whose_operations_are_overwritten_is_like_the_others(
    others: list[tuple[str, int]], pairs: bool
) -> None:
    made = Recorder(1, PIPE)
    made.batch("1", [("recv", 0), ("send", 2)])
    if others:
        made.batch("1", others)
    else:
        made.collective("1", op="_all_gather_base", state="scheduled")
        made.collective("1", op="coalesced", collective_seq_id=1, input_sizes=[], output_sizes=[])
    ops = dataset_of(named([made], ring=3)).ops
    assert ops["coalesced"].to_list() == ["closer", "inner", "closer"]
    assert ops["is_p2p"].to_list() == [pairs] * 3


@pytest.mark.parametrize("closer", ["coalesced", "ALLGATHER_coalesced", "REDUCE_SCATTER_coalesced"])
def test_coalesced_collectives(closer: str) -> None:
    made = one()
    none: dict[str, Any] = {"input_sizes": [], "output_sizes": []}
    made.collective(op="_all_gather_base", state="scheduled")
    made.collective(op="_all_gather_base", state="scheduled", collective_seq_id=1)
    made.collective(op=closer, collective_seq_id=1, **none)
    made.collective(op="all_reduce", state="scheduled", collective_seq_id=2)
    assert [s[1:3] for s in states(dataset_of(named([made])))] == [
        ("inner", "completed"), ("inner", "completed"), ("closer", "completed"), ("none", "scheduled"),
    ]  # fmt: skip


def test_an_operation_with_coalesced_in_its_name_is_no_closer() -> None:
    made = one()
    made.collective(op="allreduce_coalesced")
    assert states(dataset_of(named([made])))[0][:2] == ("allreduce_coalesced", "none")


def test_a_closer_does_not_reach_over_to_other_batches_or_groups() -> None:
    made = Recorder(1, PIPE)
    made.batch("1", [("send", 2)], closed=False)
    made.batch("1", [("send", 2)])
    made.batch("0", [("send", 2)], closed=False)
    assert [s[1:3] for s in states(dataset_of(named([made])))] == [
        ("none", "scheduled"), ("inner", "completed"), ("closer", "completed"), ("none", "scheduled"),
    ]  # fmt: skip


def pipeline(only_active: bool) -> Dataset:
    """A dump of what is active keeps the inner operations of every batch, for they never complete."""
    made = job(3, PIPE)
    for recorder in made:
        recorder.collective("0")
        for _ in range(3):
            ops = (
                [("send", 1)]
                if recorder.rank == 0
                else [("recv", 0), ("send", 2)]
                if recorder.rank == 1
                else [("recv", 1)]
            )
            recorder.batch("1", ops)
    return dataset_of(named(made, only_active=only_active))


def test_inner_operations_whose_closer_was_left_out_have_completed() -> None:
    dataset = pipeline(only_active=True)
    assert {s[1:3] for s in states(dataset)} == {("inner", "completed")}
    assert dataset.ops.height == 12


def test_inner_collectives_whose_closer_was_left_out_have_completed() -> None:
    made = one()
    for state in ("completed", "scheduled"):
        made.collective(op="_all_gather_base", state="scheduled")
        made.counters["0"][0] -= 1
        made.collective(op="_all_gather_base", state="scheduled")
        if state == "completed":
            made.collective(op="coalesced", input_sizes=[], output_sizes=[], collective_seq_id=1)
            made.counters["0"][0] -= 1
    made.collective(op="coalesced", state="scheduled", input_sizes=[], output_sizes=[], collective_seq_id=2)
    assert [s[1:3] for s in states(dataset_of(named([made], only_active=True)))] == [
        ("inner", "completed"), ("inner", "completed"), ("inner", "scheduled"), ("inner", "scheduled"),
        ("closer", "scheduled"),
    ]  # fmt: skip


@pytest.mark.parametrize(("alone", "state"), [(True, "completed"), (False, "scheduled")])
def test_batches_of_one_are_known_by_what_the_status_calls_completed(alone: bool, state: str) -> None:
    made = job(2, {"0": ("default_pg", [0, 1]), "1": ("pp", [0, 1])})
    for recorder in made:
        for _ in range(2 if alone else 0):
            recorder.collective("0")
        for _ in range(0 if alone else 2):
            recorder.collective("1")
        for _ in range(2):
            recorder.batch("1", [("send" if recorder.rank == 0 else "recv", 1 - recorder.rank)])
    dataset = dataset_of(named(made, only_active=True))
    assert {s[2] for s in states(dataset)} == {state}


def test_without_a_sign_of_batches_they_are_left_as_they_are() -> None:
    made = job(2, {"0": ("default_pg", [0, 1]), "1": ("pp", [0, 1])})
    for recorder in made:
        recorder.collective("0")
        recorder.p2p("1", "send" if recorder.rank == 0 else "recv", 1 - recorder.rank, state="scheduled")
    dataset = dataset_of(named(made, only_active=True))
    assert {s[1:3] for s in states(dataset)} == {("none", "scheduled")}


def torchcomms(recorder: Recorder) -> bytes:
    """The dump as torchcomms has it: one counter from 0, nothing marked as point-to-point, backends as descriptions."""
    document = recorder.document()
    for i, entry in enumerate(document["entries"]):
        name = entry["process_group"][0]
        entry.update(
            collective_seq_id=entry["record_id"], p2p_seq_id=0, is_p2p=False, op_id=i, process_group=(name, "ncclx")
        )
    for group in document["pg_config"].values():
        group["desc"] = "ncclx"
    return torch_pickle(document)


def test_torchcomms_counts_all_groups_with_one_counter() -> None:
    made = job(2, {"world": ("", [0, 1]), "pp": ("", [0, 1])}, library="ncclx")
    for recorder in made:
        for _ in range(2):
            recorder.collective("world")
            recorder.p2p("pp", "send" if recorder.rank == 0 else "recv", 1 - recorder.rank)
            recorder.collective("pp")
            if recorder.rank == 0:
                recorder.p2p("pp", "send", 1)
    dataset = dataset_of({f"rank_{r.rank}": torchcomms(r) for r in made})
    collectives = dataset.ops.filter(~dataset.ops["is_p2p"]).select("rank", "group", "seq").rows()
    assert collectives == [(r, g, s) for r in (0, 1) for s in (1, 2) for g in (1, 0)]
    assert dataset.ops["is_p2p"].sum() == 6
    assert dataset.group_list[0].has_p2p


def test_torchcomms_after_its_first_entries_are_gone_tells_no_place() -> None:
    made = one("ncclx")
    for _ in range(6):
        made.collective()
    document = made.document(ring=3)
    made.entries = document["entries"]
    assert dataset_of({"rank_0": torchcomms(made)}).ops["seq"].to_list() == [None] * 3


def test_a_dump_of_c10d_is_not_taken_for_one_of_torchcomms() -> None:
    made = one()
    for _ in range(3):
        made.collective()
    assert dataset_of(named([made])).ops["seq"].to_list() == [1, 2, 3]
    named_by_backend = Recorder(0, {"0": ("nccl", [0, 1])})
    named_by_backend.collective()
    assert dataset_of(named([named_by_backend])).ops["seq"].to_list() == [1]


@pytest.mark.parametrize("version", ["2.1", "1.4"])
def test_sends_are_point_to_point_before_the_format_says_so(version: str) -> None:
    made = Recorder(0, PIPE)
    made.p2p("1", "send", 2)
    dataset = dataset_of(named([made], version=version))
    assert dataset.ops.select("op", "is_p2p", "peer").row(0) == ("send", True, 2)


def test_threads_are_told_apart_where_two_have_one_name() -> None:
    made = one()
    made.collective(thread_id="1")
    made.collective(thread_id="2")
    made.collective(thread_name="pt_autograd_6", thread_id="3")
    assert dataset_of(named([made])).ops["thread"].to_list() == ["python3 1", "python3 2", "pt_autograd_6"]
