"""Operations of dumps and of traces that are the same."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import polars as pl

from rankscope.analysis import analyse
from rankscope.features.traces.rules.trace_tables import (
    NEAR_NS,
    OperationSeries,
    laid_on,
    recorded_in_dumps,
    same_operations,
)
from rankscope.schema import Dataset
from rankscope.schema.tables import OPS, STACKS
from tests.traces import MS, US, training


def test_series_are_laid_on_each_other_where_all_pairs_are_near() -> None:
    issued = np.array([0, 20, 40, 10_000, 10_020, 10_040, 20_000]) * 1000
    assert laid_on(issued[3:] + 60_000, issued) == 3, "near is not enough: 20 us lie between them"
    assert laid_on(issued, issued[2:] - 50_000) == -2
    assert laid_on(issued, issued) == 0
    assert laid_on(issued[:0], issued) is None
    assert laid_on(issued, issued + 10 * NEAR_NS) is None
    holes = issued[[0, 1, 3, 4, 6]]
    assert laid_on(holes, issued) is None


def test_a_thread_that_lost_its_processor_between_both_notes_does_not_part_them() -> None:
    seen = np.arange(24) * 10 * MS
    issued = seen + 40 * US
    issued[[3, 7]] += 5 * MS
    assert laid_on(seen, issued) == 0
    issued[3] = seen[4] + MS
    assert laid_on(seen, issued) is None, "it cannot have been recorded after the next one was issued"


def both_of(dataset: Dataset, apart: int = 30 * US, first: int = 0) -> pl.DataFrame:
    """What a recorder keeps of the operations of traces."""
    ops = dataset.traced.with_columns(
        source=pl.lit("flight-recorder"), created_ns=pl.col("created_ns") + apart,
        seq=pl.int_range(pl.len()).over("rank", "group").cast(pl.Int64) + 1 + first,
    )  # fmt: skip
    return ops.select([pl.col(name).cast(kind) for name, kind in OPS.items()])


def both(seqs: bool, apart: int = 30 * US, first: int = 0) -> Dataset:
    """A job with traces, and dumps of the same operations but the last three of rank 1."""
    dataset = training(3, 6, seqs=seqs).build()
    ops = both_of(dataset, apart, first)
    return replace(dataset, ops=ops.filter((pl.col("rank") != 1) | (pl.col("seq") < 16 + first)))


def joined(dataset: Dataset) -> list[tuple[int, int, int, int]]:
    """(rank of the trace, its place there, rank of the dump, its number) of each pair."""
    place = dataset.traced.select("rank", at=pl.int_range(pl.len()).over("rank", "group"))
    pairs = recorded_in_dumps(dataset)
    return [
        (*place.row(row), *dataset.ops.select("rank", "seq").row(op_row)) for row, op_row in pairs.iter_rows()
    ]  # fmt: skip


def test_numbers_join_whatever_clocks_say() -> None:
    for apart in (30 * US, -400 * MS):
        pairs = joined(both(True, apart))
        assert len(pairs) == 18 * 2 + 15
        assert all(rank == other and at + 1 == seq for rank, at, other, seq in pairs)


def test_without_numbers_order_and_time_join() -> None:
    pairs = joined(both(False))
    assert len(pairs) == 18 * 2 + 15
    assert all(rank == other and at + 1 == seq for rank, at, other, seq in pairs)
    assert joined(both(False, 400 * MS)) == []


def test_numbers_that_time_contradicts_are_not_believed() -> None:
    # counted from another place: the dumps say #4 where the traces say #1
    pairs = joined(both(True, first=3))
    assert all(at + 4 == seq for _, at, _, seq in pairs) and len(pairs) == 18 * 2 + 15


def test_dumps_of_another_run_are_not_joined() -> None:
    assert joined(both(True, 3_600_000 * MS)) == []


def test_a_trace_without_the_base_of_its_clock_is_joined_by_numbers() -> None:
    numbers = np.arange(5)
    lost = OperationSeries(np.arange(5), numbers, numbers * MS)
    dump = OperationSeries(np.arange(5), numbers, 1_700_000_000_000_000_000 + numbers * MS)
    assert same_operations(lost, dump)[1].tolist() == [0, 1, 2, 3, 4]


def test_where_the_trace_has_no_stack_the_dumps_tell_from_where_the_rank_came_late() -> None:
    job = training(4, 6, seqs=True, slow_launch={2: 20 * MS}).build()
    stack = {"stack_id": 0, "depth": 0, "function": "reduce_grads", "file": "train.py", "line": 7}
    dumped = both_of(job).with_columns(stack_id=pl.lit(0, pl.UInt32))
    files = job.files.with_columns(kind=pl.lit("flight-recorder"))
    run = replace(job, ops=dumped, files=files, stacks=pl.DataFrame([stack], schema=STACKS))
    (found,) = (f for f in analyse(run).findings if f.kind == "straggler")
    assert found.culprit_ranks == (2,)
    assert [(frame.function, frame.file, frame.line) for frame in found.stack] == [("reduce_grads", "train.py", 7)]
