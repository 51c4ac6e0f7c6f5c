"""Operations that are known by their Comms Id."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import polars as pl

from rankscope.analysis import analyse
from rankscope.features.traces.rules.trace_story import TraceStory
from rankscope.schema import Dataset
from rankscope.schema.tables import GROUPS
from tests.traces import MS, US, TraceBuilder, training

WITHOUT_SEQ = pl.lit(None, dtype=pl.Int64).alias("seq")


def with_ids(dataset: Dataset, of: Callable[[], pl.Expr] = lambda: pl.struct("group", "seq", "is_p2p")) -> Dataset:
    """The dataset with a hash of group and number on each operation."""
    ids = of().hash(7).reinterpret(signed=True)
    return replace(dataset, traced=dataset.traced.with_columns(comms_id=ids))


def without(dataset: Dataset, rank: int, rows: list[int]) -> Dataset:
    """The trace of one rank without some of its operations."""
    own = dataset.traced.with_columns(at=pl.int_range(pl.len()).over("rank"))
    return replace(dataset, traced=own.filter((pl.col("rank") != rank) | ~pl.col("at").is_in(rows)).drop("at"))


def places(dataset: Dataset) -> dict[int, list[int]]:
    """By rank the matches of its operations."""
    table = TraceStory(dataset).analysis().matched.group_by("rank", maintain_order=True).agg("match")
    return dict(table.iter_rows())


def test_ids_match_whatever_is_missing_and_numbers_are_not_needed() -> None:
    dataset = without(with_ids(training(3, 8, layers=1, seqs=True).build()), 1, [1, 3, 4, 6])
    dataset = replace(dataset, traced=dataset.traced.with_columns(WITHOUT_SEQ))
    assert places(dataset) == {0: list(range(8)), 1: [0, 2, 5, 7], 2: list(range(8))}
    assert TraceStory(dataset).refused() == ()


def test_windows_that_share_only_their_middle_keep_their_order() -> None:
    dataset = with_ids(training(3, 9, layers=1, seqs=True).build())
    dataset = without(without(dataset, 1, [0, 1, 2]), 2, [6, 7, 8])
    dataset = replace(dataset, traced=dataset.traced.with_columns(WITHOUT_SEQ))
    assert places(dataset) == {0: list(range(9)), 1: list(range(3, 9)), 2: list(range(6))}


def test_ids_on_whose_ends_nothing_agrees_are_not_believed() -> None:
    dataset = with_ids(training(3, 8, layers=1, seqs=True).build())
    moved = pl.when(pl.col("rank") == 1).then(pl.col("seq") + pl.col("seq") % 3)
    # rank 1 belongs to another run: its numbers are others
    dataset = with_ids(dataset, lambda: pl.struct("group", moved.otherwise("seq"), "is_p2p"))
    unique = dataset.traced.unique(["rank", "comms_id"], keep="first", maintain_order=True)
    dataset = replace(dataset, traced=unique.with_columns(WITHOUT_SEQ))
    assert sorted(places(dataset)) == [0, 2]
    story = TraceStory(dataset)
    assert any("ends do not agree" in line for line in story.refused())


def test_a_group_that_each_trace_calls_otherwise_is_one() -> None:
    dataset = with_ids(training(4, 8, seqs=True, slow_host={2: 20 * MS}).build())
    # no trace writes the members out, so each has a group of its own
    rows = [{"group": r, "name": f"pg{r}", "description": "DP", "ranks": [r], "membership": "inferred",
             "has_p2p": False} for r in range(4)]  # fmt: skip
    traced = dataset.traced.with_columns(group=pl.col("rank").cast(pl.UInt32))
    apart = replace(dataset, traced=traced, groups=pl.DataFrame(rows, schema=GROUPS))
    assert places(apart) == {rank: list(range(24)) for rank in range(4)}
    assert TraceStory(replace(apart, traced=traced.with_columns(comms_id=None))).matches.is_empty()


def _two_of_one_name(slow: int | None = None) -> Dataset:
    job = TraceBuilder(4, {"a": [0, 1], "b": [2, 3]}, seqs=True, jitter_ns=20 * US)
    for step in range(8):
        job.begin_step(step)
        for rank in range(4):
            job.launch(rank, "gemm", 2 * MS + (6 * MS if rank == slow else 0))
        for name in ("a", "b"):
            job.collective(name)
        job.end_step()
    dataset = with_ids(job.build())
    # both are called the same, and nobody wrote down who is in them
    row = {"group": 0, "name": "tp", "description": "TP", "ranks": [0, 1, 2, 3], "membership": "inferred",
           "has_p2p": False}  # fmt: skip
    traced = dataset.traced.with_columns(group=pl.lit(0, pl.UInt32))
    return replace(dataset, traced=traced, groups=pl.DataFrame([row], schema=GROUPS))


def test_two_groups_of_one_name_are_two() -> None:
    matched = TraceStory(_two_of_one_name()).analysis().matched
    members = matched.group_by("match").agg(pl.col("rank").sort())["rank"].to_list()
    assert sorted(members) == [[0, 1]] * 8 + [[2, 3]] * 8


def test_who_is_late_in_one_of_them_is_named() -> None:
    assert analyse(_two_of_one_name(slow=3)).culprits == (3,)
    assert analyse(_two_of_one_name()).culprits == ()


def test_operations_without_ids_are_left_as_they_are() -> None:
    dataset = training(3, 5).build()
    assert TraceStory(dataset).executed["members"].null_count() == TraceStory(dataset).executed.height
    assert places(dataset) == {rank: list(range(15)) for rank in range(3)}
