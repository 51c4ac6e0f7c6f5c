"""Reports on jobs of many ranks: no sentence lists them all."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import orjson
import polars as pl
import pytest

from rankscope.analysis import analyse
from rankscope.analysis.model import Analysis
from rankscope.report.json import render_json
from rankscope.report.markdown import render_markdown
from rankscope.report.text import render_text
from rankscope.schema import Dataset
from tests.parsers.dumps import dataset_of, job, named

SIZE = 400


@pytest.fixture(scope="module")
def wrapped() -> Dataset:
    """A hang: every third rank left no dump, and the rings of the others are wrapped."""
    made = job(SIZE)
    for recorder in made:
        recorder.collective()
        if recorder.rank != 1:
            recorder.collective(state="scheduled", retired=False)
    files = [(path, data) for rank, (path, data) in enumerate(named(made).items()) if rank % 3]
    dataset = dataset_of(dict(files), world_size=SIZE)
    return replace(dataset, files=dataset.files.with_columns(wrapped=pl.lit(True)))


def test_ranks_are_counted_behind_a_handful(wrapped: Dataset) -> None:
    found = {f.kind: f for f in analyse(wrapped).findings}
    assert "ranks 0,3,6,9,12,15,18,21,24,27,30,33,36,39,42,45,48,51,54,57,+114 left none" in (
        found["missing-dump"].explanation
    )
    assert "of ranks 1,2,4,5,7,8,10,11,13,14,16,17,19,20,22,23,25,26,28,29,+246 were kept" in (
        found["ring-wrapped"].explanation
    )
    assert found["missing-dump"].about == tuple(range(0, SIZE, 3))


@pytest.mark.parametrize("render", [render_text, render_markdown])
def test_no_list_is_longer_than_a_line(wrapped: Dataset, render: Callable[[Dataset, Analysis], str]) -> None:
    text = render(wrapped, analyse(wrapped))
    assert "57,+114" in text
    assert max(len(word.strip("-")) for word in text.split()) < 80


def test_json_names_all(wrapped: Dataset) -> None:
    missing = orjson.loads(render_json(wrapped, analyse(wrapped)))["ranks"]["missing"]
    assert missing == list(range(0, SIZE, 3))
