"""Models of ranks for people and programs: what each rank holds, the ranks that differ from their peers first."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rankscope.features.model.model import ModelAnalysis
from rankscope.features.model.shard_outliers import COVERAGES
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


def text_lines(model: ModelAnalysis) -> Iterator[str]:
    """The table in columns, below its head."""
    rows = [shown_head(model), *shown_rows(model)]
    widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))]
    for row in rows:
        yield "   " + "  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True))
    yield from (f"   {note}" for note in notes(model, len(rows) - 1))


def notes(model: ModelAnalysis, shown: int) -> Iterator[str]:
    """Lines below a table of so many ranks."""
    if model.odd_ranks:
        yield "* differs from its peers"
    if model.held.height > shown:
        yield f"{model.held.height - shown:,} more ranks are in the JSON report"


def json_object(model: ModelAnalysis) -> dict[str, Any]:
    """The key `model` of the JSON report."""
    odd = model.odd_ranks
    return {"ranks": [{**row, "differs": row["rank"] in odd} for row in model.held.drop("stage").iter_rows(named=True)]}
