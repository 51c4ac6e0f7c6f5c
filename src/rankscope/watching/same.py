"""Logs in which a job goes on printing what tells nothing of its operations: nothing has to be worked out again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import polars as pl

from rankscope.parsers.assemble.placed import only_grew

if TYPE_CHECKING:
    from rankscope.parsers.assemble.sources import Source
    from rankscope.schema import Dataset

TIMES = ("size", "mtime_ns")
"""What of a file may change without changing what it says."""


def grew_only(dataset: Dataset, before: Sequence[Source], now: Sequence[Source]) -> bool:
    """Whether the sources of `dataset` say what they said `before`, and only logs and other texts were written to.

    Of a job that was started again, times of logs tell which attempt they are of: there it is never so.
    """
    if len(before) != len(now) or dataset.attempts.height > 1:
        return False
    return all(map(only_grew, before, now))


def with_times(dataset: Dataset, sources: Sequence[Source]) -> Dataset:
    """The same with sizes and times of its files as they are now."""
    news = pl.DataFrame(
        {"size": [source.size for source in sources], "mtime_ns": [source.mtime_ns for source in sources]},
        schema={name: dataset.files.schema[name] for name in TIMES},
    )
    return replace(dataset, files=dataset.files.with_columns(news))
