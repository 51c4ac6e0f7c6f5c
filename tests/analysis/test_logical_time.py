"""Columns of logical time: who stands together, and what happens where nobody can."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import polars as pl
from numpy.typing import NDArray

from rankscope.analysis.logical_time import columns_in_waves, drawn_rows, logical_columns
from rankscope.schema import Dataset
from tests.builders import JobBuilder


def lanes(dataset: Dataset) -> dict[int, list[int]]:
    """The columns of each rank's rows, in program order."""
    columns = logical_columns(dataset).tolist()
    out: dict[int, list[int]] = {}
    for rank, column in zip(dataset.ops["rank"].to_list(), columns, strict=True):
        out.setdefault(rank, []).append(column)
    return out


def column_of(dataset: Dataset, rank: int, op: str, nth: int = 0) -> int:
    at = dataset.ops.with_row_index().filter((pl.col("rank") == rank) & (pl.col("op") == op))["index"][nth]
    return int(logical_columns(dataset)[at])


def test_members_stand_in_one_column_whatever_they_did_before() -> None:
    job = JobBuilder(3, {"pair": [0, 1]})
    job.collective("pair")
    job.collective("pair", op="broadcast")
    job.collective("0", op="barrier")
    assert lanes(job.build()) == {0: [0, 1, 2], 1: [0, 1, 2], 2: [2]}


def test_an_absent_rank_holds_nobody_up() -> None:
    job = JobBuilder(3)
    job.collective("0")
    job.collective("0", ranks=[0, 2], state="scheduled")
    assert lanes(job.build()) == {0: [0, 1], 1: [0], 2: [0, 1]}


def test_no_rows_give_no_columns() -> None:
    assert logical_columns(JobBuilder(2).build()).tolist() == []


def test_groups_entered_in_opposite_order_end_in_program_order() -> None:
    job = JobBuilder(2, {"a": [0, 1], "b": [0, 1]})
    job.collective("0")
    for rank, order in ((0, "ab"), (1, "ba")):
        for group in order:
            job.collective(group, ranks=[rank], state="scheduled")
    found = lanes(job.build())
    assert all(columns == sorted(set(columns)) and columns[0] == 0 for columns in found.values())
    assert max(found[0][-1], found[1][-1]) <= 4


def test_a_circle_between_two_ranks_leaves_the_others_aligned() -> None:
    job = JobBuilder(4, {"a": [0, 1], "b": [0, 1], "c": [2, 3]})
    for rank, order in ((0, "ab"), (1, "ba")):
        for group in order:
            job.collective(group, ranks=[rank])
    for _ in range(5):
        job.collective("c")
    job.collective("0", op="barrier")
    dataset = job.build()
    assert len({column_of(dataset, rank, "barrier") for rank in range(4)}) == 1
    found = lanes(dataset)
    assert found[2] == found[3]


def test_sender_and_receiver_share_a_column() -> None:
    job = JobBuilder(3)
    for _ in range(3):
        job.collective("0", ranks=[0], op="broadcast")
    job.p2p("0", 0, 2, "send")
    job.p2p("0", 2, 0, "recv")
    dataset = job.build()
    assert column_of(dataset, 0, "send") == column_of(dataset, 2, "recv") == 3


def test_a_send_without_its_receive_keeps_program_order() -> None:
    job = JobBuilder(2)
    for _ in range(2):
        job.p2p("0", 0, 1, "send")
    job.p2p("0", 1, 0, "recv")
    assert lanes(job.build()) == {0: [0, 1], 1: [0]}


def test_an_exchange_posted_as_a_batch_needs_no_order() -> None:
    job = JobBuilder(2)
    for rank, peer in ((0, 1), (1, 0)):
        for op in ("send", "recv"):
            job.p2p("0", rank, peer, op, coalesced="inner", p2p_seq=1)
        job.p2p("0", rank, rank, "coalesced", coalesced="closer", p2p_seq=1)
    dataset = job.build()
    assert column_of(dataset, 0, "send") == column_of(dataset, 1, "recv")
    assert column_of(dataset, 0, "recv") == column_of(dataset, 1, "send")
    assert logical_columns(dataset).max() == 1


def test_a_wrapped_ring_counts_transfers_from_the_first_that_is_pending() -> None:
    job = JobBuilder(2)
    for _ in range(2):
        job.p2p("0", 0, 1, "send")
    for _ in range(5):
        job.p2p("0", 1, 0, "recv")
    job.p2p("0", 0, 1, "send", state="scheduled")
    job.p2p("0", 1, 0, "recv", state="scheduled")
    dataset = job.build()
    wrapped = replace(dataset, files=dataset.files.with_columns(wrapped=pl.lit(True)))
    assert lanes(wrapped) == {0: [3, 4, 5], 1: [0, 1, 2, 3, 4, 5]}


def test_the_closer_of_a_coalesced_group_is_drawn_only_without_inner_rows() -> None:
    job = JobBuilder(2)
    for rank in (0, 1):
        job.collective("0", ranks=[rank], op="_all_gather_base", coalesced="inner")
        job.collective("0", ranks=[rank], op="_all_gather_base", coalesced="inner", seq=1)
        job.collective("0", ranks=[rank], op="coalesced", coalesced="closer", seq=1)
        job.collective("0", ranks=[rank], op="coalesced", coalesced="closer", seq=9)
    dataset = job.build()
    assert drawn_rows(dataset.ops).to_list() == [True, True, False, True] * 2
    assert lanes(dataset) == {0: [0, 1, 1, 2], 1: [0, 1, 1, 2]}


def test_rows_without_group_or_sequence_number_stand_alone() -> None:
    job = JobBuilder(2)
    job.collective("0", seq=None)
    job.collective("0", seq=None)
    assert lanes(job.build()) == {0: [0, 1], 1: [0, 1]}


def _bounds(lanes_: list[list[int]]) -> NDArray[np.int64]:
    return np.concatenate([[0], np.cumsum([len(lane) for lane in lanes_])]).astype(np.int64)


def test_every_lane_rises_and_every_instance_without_a_circle_is_one_column() -> None:
    rng = np.random.default_rng(1)
    rows = [sorted(rng.choice(300, 200, replace=False).tolist()) for _ in range(20)]
    instance = np.concatenate(rows).astype(np.int64)
    columns = columns_in_waves(np.unique(instance, return_inverse=True)[1], _bounds(rows))
    for value in np.unique(instance):
        assert len(set(columns[instance == value].tolist())) == 1
    for lane in np.split(columns, _bounds(rows)[1:-1]):
        assert (np.diff(lane) > 0).all()


def test_endless_circles_end_in_program_order() -> None:
    rng = np.random.default_rng(2)
    count, size = 64, 500
    instance = np.concatenate([rng.permutation(size) for _ in range(count)])
    columns = columns_in_waves(instance, np.arange(count + 1) * size)
    assert (np.diff(columns.reshape(count, size), axis=1) > 0).all()


def test_after_the_longest_run_the_rest_follows_in_program_order() -> None:
    instance = np.tile(np.arange(50), 2)
    columns = columns_in_waves(instance, np.array([0, 50, 100]), longest=10)
    assert columns.tolist() == list(range(50)) * 2
