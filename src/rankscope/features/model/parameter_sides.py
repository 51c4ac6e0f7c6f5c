"""Parameters over ranks: each with its coverage and its bytes, and the sides of ranks that hold it alike."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import polars as pl

from rankscope.features.model.model import ModelAnalysis
from rankscope.features.model.shard_outliers import coverage_of

_SAME = (
    "shape", "local", "dtype", "requires_grad", "device", "wrapper", "placements", "mesh", "gradient", "state", "bytes",
    "gradient_bytes", "state_bytes",
)  # fmt: skip
"""Values of a parameter that ranks of one side share; of the device the kind."""


class ParameterSide(NamedTuple):
    """Ranks that hold a parameter alike."""

    ranks: tuple[int, ...]
    values: Mapping[str, Any]
    """The columns of `parameters` that these ranks share; `device` is its kind."""


def parameter_rows(parameters: pl.DataFrame) -> pl.DataFrame:
    """A row for each name of `Dataset.parameters`, in the order of the model.

    Columns: name, buffer, shape, dtype, coverage (of most ranks; "buffer" for one), ranks (number), least and most
    (bytes on a rank), total (bytes of gradients and optimizer state of all ranks with those of the parameter).
    """
    coverage = pl.when("buffer").then(pl.lit("buffer")).otherwise(coverage_of())
    return (
        parameters.with_columns(coverage=coverage, held=pl.sum_horizontal("bytes", "gradient_bytes", "state_bytes"))
        .group_by("name", maintain_order=True)
        .agg(
            pl.col("buffer", "shape", "dtype").first(),
            pl.col("coverage").mode(maintain_order=True).first(),
            ranks=pl.len(),
            least=pl.col("bytes").min(),
            most=pl.col("bytes").max(),
            total=pl.col("held").sum(),
        )
        .with_columns(pl.col("name", "dtype").cast(pl.String))
    )


def sides_of(parameters: pl.DataFrame, name: str) -> list[ParameterSide]:
    """The sides of a parameter, that of most ranks first."""
    rows = parameters.filter(pl.col("name") == name)
    kind = pl.col("device").cast(pl.String).str.split(":").list.first()
    sides = rows.with_columns(device=kind).group_by(_SAME, maintain_order=True).agg(pl.col("rank").sort())
    listed = [ParameterSide(tuple(row.pop("rank")), row) for row in sides.iter_rows(named=True)]
    return sorted(listed, key=lambda side: (-len(side.ranks), side.ranks))


def marked_parameters(model: ModelAnalysis) -> dict[str, str]:
    """The parameters that a finding names, with its word; findings name one of several that differ alike."""
    words = {one.name: "differs" for one in model.differences}
    words |= {one.name: "not sharded" for one in model.whole}
    words |= {name: "no wrapper" for one in model.loose for name in one.names}
    words |= {one.name: "partial" for one in model.partial}
    return words | {name: "uneven" for one in model.heavy for name in one.names if name not in words}
