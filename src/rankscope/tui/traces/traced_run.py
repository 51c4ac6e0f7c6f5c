"""Traces alone as a run with dumps: their matched collectives on the axis of logical time."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from functools import cached_property

import polars as pl

from rankscope.analysis.model import Analysis
from rankscope.schema import Dataset


@dataclass(frozen=True)
class TracedRun(Dataset):
    """A dataset with the operations that profilers saw."""

    @cached_property
    def dumps(self) -> pl.DataFrame:
        """The rows of `files` that are traces: only operations in them are known."""
        return self.files.join(self.traces.select("file"), on="file", how="semi")

    @cached_property
    def from_logs(self) -> bool:
        """Never: traces tell of their ranks."""
        return False

    @cached_property
    def from_traces(self) -> bool:
        """Whether no other data is known: the operations are those of the traces."""
        return not self.has_logs

    @cached_property
    def missing_ranks(self) -> tuple[int, ...]:
        """Ranks of the job without a trace."""
        seen = set(self.seen_ranks)
        return tuple(rank for rank in range(self.world_size) if rank not in seen)


def traced_run(dataset: Dataset, analysis: Analysis) -> TracedRun:
    """The dataset with `traced` as its operations.

    Matched operations carry the number of their match, so that they stand in one column although each trace numbers
    them differently; unmatched ones stand alone.
    """
    matched = analysis.traces.matched if analysis.traces is not None else None
    ops = dataset.traced.with_row_index("row")
    if matched is not None and matched.height:
        known = matched.select(pl.col("row"), pl.col("seq").alias("told"))
        ops = ops.join(known, on="row", how="left", maintain_order="left").with_columns(seq=pl.col("told"))
    ops = ops.sort("rank", "created_ns", maintain_order=True)
    values = {field.name: getattr(dataset, field.name) for field in fields(Dataset)}
    return replace(TracedRun(**values), ops=ops.select(dataset.ops.columns))
