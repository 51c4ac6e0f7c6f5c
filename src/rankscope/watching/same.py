"""Logs in which a job goes on printing what tells nothing of its operations: nothing has to be worked out again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import polars as pl

from rankscope.parsers.assemble.sources import LOG_KIND

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
    return all(_says_same(one, other) for one, other in zip(before, now, strict=True))


def _says_same(before: Source, now: Source) -> bool:
    if before is now:
        return True
    same = (before.shown, before.kind, before.problem) == (now.shown, now.kind, now.problem)
    return same and before.content is now.content and now.kind in (LOG_KIND, "unknown")


def with_times(dataset: Dataset, sources: Sequence[Source]) -> Dataset:
    """The same with sizes and times of its files as they are now."""
    news = pl.DataFrame(
        {"size": [source.size for source in sources], "mtime_ns": [source.mtime_ns for source in sources]},
        schema={name: dataset.files.schema[name] for name in TIMES},
    )
    return replace(dataset, files=dataset.files.with_columns(news))
