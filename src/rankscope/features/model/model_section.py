"""Models of ranks for people and programs: what each rank holds, the ranks that differ from their peers first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import polars as pl
from msgspec import UNSET, UnsetType

from rankscope.analysis.model import Analysis
from rankscope.features.model.model import MODEL_RESULTS, ModelAnalysis
from rankscope.features.model.shard_outliers import COVERAGES
from rankscope.report.blocks import Grid, Prose, Section
from rankscope.report.json import Count, Rank, ReportPart
from rankscope.schema import Dataset
from rankscope.text.wording import byte_count

TITLE = "Model on each rank, outliers first"
HEAD = ("rank", "tensors", "params", "grads", "states", "buffers", *COVERAGES, "share")
_SIZES = dict(zip(HEAD[2:-1], ("bytes", "gradient_bytes", "state_bytes", "buffer_bytes", *COVERAGES), strict=True))
"""The column of `ModelAnalysis.held` for each size."""
_ALWAYS = 3
"""Sizes that are shown even where no rank has any."""
MOST_ROWS = 8
"""Most ranks that text and Markdown list besides outliers."""
MOST_OUTLIERS = 24


def shown_head(model: ModelAnalysis) -> tuple[str, ...]:
    """The names of `HEAD` of which any rank has something."""
    has = {name for at, (name, column) in enumerate(_SIZES.items()) if at < _ALWAYS or (model.held[column] > 0).any()}
    return tuple(name for name in HEAD if name in has or name not in _SIZES)


def shown_rows(model: ModelAnalysis, most: int = MOST_ROWS) -> Iterator[tuple[str, ...]]:
    """Cells by the names of `shown_head`: outliers first, then the ranks that hold most, `most` of them."""
    odd, head = model.odd_ranks, shown_head(model)
    rows = sorted(
        model.held.iter_rows(named=True),
        key=lambda row: (row["rank"] not in odd, -_held(row), row["rank"]),
    )
    outliers = min(len(odd), MOST_OUTLIERS)
    for row in rows[: outliers + most]:
        sizes = (byte_count(row[_SIZES[name]]) for name in head if name in _SIZES)
        share = f"{row['bytes'] / row['total']:.0%}" if row["total"] else "-"
        yield (f"{row['rank']}{'*' if row['rank'] in odd else ''}", f"{row['parameters']:,}", *sizes, share)


def _held(row: dict[str, Any]) -> int:
    return int(row["bytes"] + row["gradient_bytes"] + row["state_bytes"])


def section(_: Dataset, analysis: Analysis) -> Iterator[Section]:
    """The model on each rank, in a report for people."""
    model = MODEL_RESULTS.find(analysis)
    if model is None:
        return
    head, rows = shown_head(model), list(shown_rows(model))
    notes = [Prose("* differs from its peers")] if model.odd_ranks else []
    left = model.held.height - len(rows)
    more = f"{left:,} more ranks are in the JSON report" if left > 0 else ""
    yield Section(TITLE, (Grid(head=head, rows=rows, numbers=tuple(range(len(head))), more=more), *notes))


class HeldModelObject(ReportPart):
    """Parameters that a rank holds, in bytes."""

    rank: Rank
    parameters: Count
    bytes: Count
    gradient_bytes: Count
    state_bytes: Count
    sharded: Count
    whole: Count
    total: Count
    replicated: Count
    ignored: Count
    unwrapped: Count
    partial: Count
    buffer_bytes: Count
    differs: bool


class ModelObject(ReportPart):
    """Models of ranks."""

    ranks: Sequence[HeldModelObject]


class ModelKeys(ReportPart):
    """The key of models in the JSON report, only where records of models were read."""

    model: ModelObject | UnsetType = UNSET


def json_keys(_: Dataset, analysis: Analysis) -> ModelKeys:
    """The parameters of each rank, and whether it differs from its peers."""
    model = MODEL_RESULTS.find(analysis)
    if model is None:
        return ModelKeys()
    differs = pl.col("rank").is_in(list(model.odd_ranks))
    return ModelKeys(ModelObject(HeldModelObject.of_rows(model.held.with_columns(differs=differs))))
