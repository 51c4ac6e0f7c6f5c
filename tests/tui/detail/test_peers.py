"""Who issued a collective, who did not and why, who issued something else."""

from __future__ import annotations

from dataclasses import replace

import polars as pl
import pytest

from rankscope.analysis.model import Status
from rankscope.schema import Dataset
from rankscope.tui.detail.operation_index import OpIndex
from rankscope.tui.detail.peers import NOT_YET, PARTLY, TABLE, Fold, Peers, collective, fold, members
from tests.builders import JobBuilder
from tests.tui.detail.samples import CULPRIT, LAST_SEQ, QUIET, STUCK, TP, hang, large


def last(job: JobBuilder | Dataset, seq: int, group: int = 0) -> Peers:
    dataset = job.build() if isinstance(job, JobBuilder) else job
    return collective(OpIndex(dataset), STUCK, group, seq)


def told(peers: Peers) -> list[tuple[str, tuple[int, ...], str]]:
    """Mark, ranks and presence of each fold."""
    return [(one.mark, one.ranks, one.presence) for one in fold(peers)]


def without(dataset: Dataset, **frontier: object) -> Dataset:
    """The dataset with other words of rank 1 on its frontier."""
    mine = pl.col("rank") == 1
    changes = [
        pl.when(mine).then(pl.lit(value, dataset.frontiers.schema[name])).otherwise(name).alias(name)
        for name, value in frontier.items()
    ]
    return replace(dataset, frontiers=dataset.frontiers.with_columns(changes))


def test_a_healthy_collective_folds_to_one_entry() -> None:
    job = JobBuilder(8)
    job.collective()
    peers = last(job, 1)
    assert told(peers) == [("", tuple(range(8)), "issued")]
    assert peers.op == "all_reduce"
    assert peers.table.schema == pl.Schema(TABLE)
    assert not peers.waited_for


def test_the_culprit_comes_first_and_is_accused() -> None:
    dataset, analysis = hang()
    peers = collective(OpIndex(dataset), analysis, TP, LAST_SEQ)
    first, rest = fold(peers)
    assert (first.mark, first.ranks, first.accused, first.row) == ("!", (CULPRIT,), True, None)
    assert (rest.mark, rest.ranks, rest.state) == ("~", (4, 5, 7), "pending")
    assert peers.of_rank(CULPRIT) == (None, "never issued")
    assert peers.of_rank(99) is None


def test_ranks_without_a_dump_are_not_said_to_be_absent() -> None:
    job = JobBuilder(3)
    job.collective(state="scheduled")
    job.no_dump = {2}
    assert told(last(job, 1)) == [("?", (2,), "no dump"), ("~", (0, 1), "issued")]


def test_what_was_overwritten_is_not_said_to_be_absent() -> None:
    job = JobBuilder(2)
    job.collective(ranks=[0])
    for _ in range(3):
        job.collective(ranks=[1])
    job.rows = [row for row in job.rows if row["rank"] == 0 or row["seq"] > 1]
    dataset = without(job.build(), wrapped=True)
    assert told(last(dataset, 1)) == [("?", (1,), "overwritten"), ("", (0,), "issued")]


def test_what_was_filtered_is_not_said_to_be_absent() -> None:
    job = JobBuilder(2)
    job.collective(ranks=[0])
    dataset = without(job.build(), filtered="only-active", last_enqueued=5, last_completed=5)
    assert told(last(dataset, 1)) == [("?", (1,), "filtered"), ("", (0,), "issued")]


def test_a_collective_that_is_over_had_everybody_in_it() -> None:
    job = JobBuilder(2)
    job.collective(ranks=[0])
    assert told(last(job, 1)) == [("?", (1,), "unknown"), ("", (0,), "issued")]


def test_a_dump_that_was_read_in_part_tells_nothing() -> None:
    job = JobBuilder(3)
    job.collective(ranks=[0, 1], state="scheduled")
    job.collective(ranks=[1, 2])
    job.rows = [row for row in job.rows if row["rank"] != 2]
    dataset = without(job.build(), last_enqueued=None)
    mine = pl.col("rank") == 2
    files = dataset.files.with_columns(problem=pl.when(mine).then(pl.lit("cut off")), wrapped=mine)
    nothing = pl.when(~mine).then("last_enqueued").alias("last_enqueued")
    cut_off = replace(dataset, files=files, frontiers=dataset.frontiers.with_columns(nothing))
    assert told(last(cut_off, 1)) == [("?", (2,), PARTLY), ("~", (0, 1), "issued")]


def test_what_the_analysis_calls_unproven_is_unknown() -> None:
    dataset, analysis = hang()
    parted = replace(analysis.divergences[0], absent=(), unknown=(CULPRIT,))
    peers = collective(OpIndex(dataset), replace(analysis, divergences=(parted,)), TP, LAST_SEQ)
    assert fold(peers)[0].presence == "unknown"


@pytest.mark.parametrize("status", ["healthy", "progressing"])
def test_nobody_is_absent_from_a_job_that_moves(status: Status) -> None:
    job = JobBuilder(2)
    job.collective(ranks=[0], state="scheduled")
    moving = replace(QUIET, status=status)
    assert told(collective(OpIndex(job.build()), moving, 0, 1)) == [("?", (1,), NOT_YET), ("~", (0,), "issued")]


def test_the_minority_differs_whoever_comes_first() -> None:
    job = JobBuilder(4)
    job.collective(ranks=[0], op="all_gather", state="scheduled")
    job.collective(ranks=[1, 2, 3], state="scheduled")
    assert told(last(job, 1)) == [("*", (0,), "issued"), ("~", (1, 2, 3), "issued")]


def test_sizes_differ_only_where_they_must_agree() -> None:
    job = JobBuilder(4)
    job.collective(ranks=[0], op="all_to_all", sizes="[[3]]")
    job.collective(ranks=[1, 2, 3], op="all_to_all")
    job.collective(ranks=[0], sizes="[[3]]")
    job.collective(ranks=[1, 2, 3])
    peers = last(job, 1)
    assert not peers.table["differs"].any()
    assert [one.ranks for one in fold(peers)] == [(0,), (1, 2, 3)]
    assert told(last(job, 2))[0] == ("*", (0,), "issued")


def test_shapes_that_hold_equally_much_and_names_of_one_operation_agree() -> None:
    job = JobBuilder(3)
    job.collective(ranks=[0], sizes="[[8, 8]]", op="all_gather")
    job.collective(ranks=[1, 2], op="_all_gather_base")
    assert not last(job, 1).table["differs"].any()


def test_the_word_of_the_analysis_on_who_differs_counts() -> None:
    dataset, analysis = hang()
    parted = replace(analysis.divergences[0], differing=(4,))
    peers = collective(OpIndex(dataset), replace(analysis, divergences=(parted,)), TP, LAST_SEQ)
    assert peers.table.filter("differs")["rank"].to_list() == [4]


def test_a_late_member_stands_out_and_small_lags_do_not() -> None:
    job = JobBuilder(6)
    for rank in range(6):
        job.collective(ranks=[rank], delay_ns=50_000_000 if rank == 4 else rank * 10_000)
    peers = last(job, 1)
    assert told(peers)[0] == ("+", (4,), "issued")
    assert fold(peers)[0].lag_ns == (50_000_000, 50_000_000)
    assert fold(peers)[1].lag_ns == (0, 50_000)


@pytest.mark.parametrize(
    ("more", "label"),
    [
        ({"state": "started"}, "started"),
        ({"state": "scheduled", "retired": True}, "timed out"),
        ({"state": "completed", "completed_ns": 2**62}, "aborted"),
        ({"state": "completed", "timeout_ms": None}, "done"),
        ({"state": "unknown"}, "unknown"),
        ({"state": None, "retired": None}, "unknown"),
    ],
)
def test_states_in_a_word(more: dict[str, object], label: str) -> None:
    job = JobBuilder(1)
    job.collective(**more)  # type: ignore[arg-type]
    assert fold(last(job, 1))[0].state == label


def coalesced(with_inner: bool = True) -> JobBuilder:
    """Two ranks that reduce three tensors at once, rank 1 with the closer only if not `with_inner`."""
    job = JobBuilder(2)
    for rank in (0, 1):
        for _ in range(3 if with_inner or rank == 0 else 0):
            job.collective(ranks=[rank], op="all_reduce", state="scheduled", coalesced="inner", seq=1)
        job.collective(ranks=[rank], op="coalesced", coalesced="closer", seq=1, sizes="[]")
    return job


def test_coalesced_operations_are_one_with_the_state_of_the_closer() -> None:
    only = fold(last(coalesced(), 1))
    assert [(one.ranks, one.op, one.parts, one.state, one.sizes) for one in only] == [
        ((0, 1), "all_reduce", 3, "done", "[[64]]")
    ]


def test_a_lonely_closer_is_no_other_operation() -> None:
    assert not last(coalesced(with_inner=False), 1).table["differs"].any()


def test_outputs_are_shown_where_there_is_no_input() -> None:
    job = JobBuilder(2)
    job.collective(op="scatter", in_sizes="[]", in_dtypes="[]")
    assert fold(last(job, 1))[0].sizes == "[[64]]"


def test_a_collective_nobody_has_is_empty_but_for_the_absent() -> None:
    job = JobBuilder(2)
    job.collective()
    peers = last(job, 9)
    assert told(peers) == [("!", (0, 1), "never issued")]
    assert peers.op == "?"
    assert peers.first_ns is None


def test_many_ranks_stay_few_entries() -> None:
    peers = collective(OpIndex(large(16_384, absent=(77, 900))), STUCK, 0, 2)
    assert [len(one.ranks) for one in fold(peers)] == [2, 16_382]
    alone = fold(peers, alone=[5])
    assert sorted(len(one.ranks) for one in alone) == [1, 2, 16_381]
    single: list[Fold] = members(peers, [77, 3])
    assert [one.ranks for one in single] == [(77,), (3,)]
