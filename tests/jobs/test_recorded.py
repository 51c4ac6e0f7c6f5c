"""Dumps and traces of one real job: every collective that the profiler saw is found in the dumps."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from rankscope.assemble.load import load
from rankscope.features.traces.rules.trace_tables import recorded_in_dumps
from tests.jobs.recorded import COLLECTIVES, STEPS, UNWATCHED, WORLD_SIZE
from tests.torch_forks import printed

pytestmark = pytest.mark.torch


def test_every_traced_collective_is_in_the_dumps(tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    printed(["-m", "tests.jobs.recorded", str(out)], tmp_path)
    dataset = load([out])
    assert dataset.traced["seq"].null_count() == dataset.traced.height, "gloo's traces tell no number"
    pairs = recorded_in_dumps(dataset)
    assert pairs.height == dataset.traced.height == WORLD_SIZE * (STEPS - UNWATCHED) * COLLECTIVES
    seen, kept = dataset.traced[pairs["row"].to_list()], dataset.ops[pairs["op_row"].to_list()]
    for column in ("rank", "group", "op"):
        assert seen[column].cast(pl.String).to_list() == kept[column].cast(pl.String).to_list()
    # the k-th of a group in the window is the k-th behind those of the steps that were not watched
    steps = kept.with_columns(number=pl.col("seq").rank("ordinal").over("rank", "group"))
    assert (
        steps.select((pl.col("seq") - pl.col("number").cast(pl.Int64)).n_unique().over("rank", "group").max()).item()
        == 1
    )
