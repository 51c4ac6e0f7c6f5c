"""Operations of dumps and of traces that are the same."""

from __future__ import annotations

from dataclasses import replace

import polars as pl

from rankscope.analysis.model import Analysis
from rankscope.features.traces.page.lanes import TraceLanes
from rankscope.features.traces.page.lineup import item_of_traced, traced_of_item
from rankscope.features.traces.rules.trace_tables import NEAR_NS
from rankscope.schema import Dataset
from rankscope.tui.model import Model, build_model
from tests.features.traces.page.jobs import traced


def both(apart: int, skipped: int = 3) -> tuple[Model, TraceLanes]:
    """A job with traces, and dumps that began `skipped` operations earlier and tell times `apart` later."""
    dataset, analysis = traced()
    # without numbers of their own only time joins them
    dataset = replace(dataset, traced=dataset.traced.with_columns(seq=pl.lit(None, pl.Int64)))
    ops = dataset.traced.with_columns(
        seq=pl.int_range(pl.len()).over("rank", "group").cast(pl.Int64) + skipped,
        created_ns=pl.col("created_ns") + apart,
    ).sort("rank", "created_ns")  # fmt: skip
    files = dataset.files.with_columns(kind=pl.lit("flight-recorder"))
    run: Dataset = replace(dataset, ops=ops, files=files)
    model = build_model(run, Analysis("", "unknown", parts=analysis.parts))
    assert model.traces is not None
    return model, model.traces


def test_the_nearest_in_time_is_the_same_one() -> None:
    model, lanes = both(60_000)
    for row in range(lanes.dataset.traced.height):
        item = item_of_traced(lanes, model, row)
        assert item is not None
        assert model.items.created[item] == lanes.dataset.traced["created_ns"][row] + 60_000
        assert traced_of_item(lanes, model, item) == row


def test_what_is_too_far_apart_is_not() -> None:
    model, lanes = both(-(NEAR_NS + 1), skipped=0)
    assert item_of_traced(lanes, model, 0) is None
    assert traced_of_item(lanes, model, 0) is None


def test_another_rank_or_group_is_not() -> None:
    model, lanes = both(0)
    other = replace(model, items=replace(model.items, group=model.items.group + 1))
    assert item_of_traced(lanes, other, 0) is None
    assert traced_of_item(lanes, other, 0) is None
