"""Rows of `step_ops`: the operations of steps that traces of steps hold."""

from __future__ import annotations

import math
from collections.abc import Sequence

import polars as pl

from rankscope.assemble.gathering import RunChoice
from rankscope.assemble.rank_files import FileOwner, rank_files
from rankscope.assemble.sources import SourceFile
from rankscope.features.whatif.pipeline_schedule import KINDS
from rankscope.features.whatif.step_trace import NUMBERS, StepTrace
from rankscope.parsers.matrices import NULL
from rankscope.schema.tables import STEP_OPS

SEVERAL = "not used: another trace of steps is, and two may be of two jobs; give one of them"


def add_step_ops(tables: dict[str, pl.DataFrame], sources: Sequence[SourceFile], run: RunChoice) -> int:
    """Adds the operations of the trace of steps; returns the number of ranks that are known of, 0 for none.

    One file holds all ranks of a job. Of several without a common rank and step all are used, else the first.
    """
    files = rank_files(sources, StepTrace, run.attempt, run.pattern, lambda *_: FileOwner())
    parts: list[pl.DataFrame] = []
    for place, source, content in files:
        source.rank, source.rank_source = None, None
        columns = dict(zip(NUMBERS, content.numbers, strict=True))
        kinds = pl.Series(KINDS, dtype=pl.String).gather(columns.pop("kind"))
        part = pl.DataFrame(columns).with_columns(pl.all().replace(NULL, None)).with_columns(kind=kinds, file=place)
        part = part.select(pl.col(name).cast(dtype) for name, dtype in STEP_OPS.items())
        if parts and any(_overlap(part, other) for other in parts):
            source.note = SEVERAL
            continue
        source.used = True
        parts.append(part)
    if not parts:
        return 0
    tables["step_ops"] = pl.concat(parts).sort("rank", "step", "start_ns", maintain_order=True)
    return _world(tables["step_ops"]["rank"].unique().sort().to_list())


def _world(ranks: Sequence[int]) -> int:
    """The number of ranks of the job: of ranks that share a worker only the first is recorded."""
    return ranks[-1] + max(1, math.gcd(*ranks))


def _overlap(part: pl.DataFrame, other: pl.DataFrame) -> bool:
    by = ["rank", "step"]
    return not part.select(by).unique().join(other.select(by).unique(), on=by, how="semi").is_empty()
