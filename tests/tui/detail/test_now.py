"""Until when the others have waited."""

from __future__ import annotations

import dataclasses

import polars as pl
import pytest

from rankscope.analysis import analyse
from rankscope.tui.detail.operation_index import OpIndex
from rankscope.tui.detail.selection_facts import now_ns
from tests.builders import START_NS, STEP_NS, JobBuilder

WRITTEN = START_NS + 600 * 1_000_000_000


@pytest.mark.parametrize(
    ("written", "still", "expected"),
    [(WRITTEN, 599, WRITTEN), (None, 600, WRITTEN + STEP_NS + STEP_NS // 2), (WRITTEN, None, None)],
    ids=["files tell", "copies", "not believed"],
)
def test_it_is_when_the_last_dump_was_written_whatever_was_noticed_then(
    written: int | None, still: int | None, expected: int | None
) -> None:
    job = JobBuilder(2)
    job.collective()
    dataset = job.build()
    dataset = dataclasses.replace(dataset, files=dataset.files.with_columns(mtime_ns=pl.lit(written, pl.Int64)))
    frozen = None if still is None else still * 1_000_000_000
    analysis = dataclasses.replace(analyse(dataset), frozen_for_ns=frozen)
    assert now_ns(OpIndex(dataset), analysis) == expected
