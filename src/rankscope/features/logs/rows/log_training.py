"""Table of the steps that trainers printed in logs."""

from __future__ import annotations

import polars as pl

from rankscope.features.logs.rows.log_processes import LogScene
from rankscope.features.series.read.scalar_rows import with_segments
from rankscope.schema.tables import TRAINING


def training_table(scene: LogScene) -> pl.DataFrame:
    """The table `training`, of all logs in the order of their files."""
    frames = [
        log.content.training.with_columns(
            pl.lit(log.place, pl.UInt32).alias("file"), pl.lit(log.source.rank, pl.Int32).alias("rank")
        )
        for log in scene.logs
        if log.content.training is not None
    ]
    if not frames:
        return TRAINING.empty()
    rows = pl.concat(frames).rename({"rank": "of_file", "printer": "rank"}).with_columns(attempt=0)
    rows = with_segments(rows).rename({"rank": "printer", "of_file": "rank"})
    return rows.select(*TRAINING).cast(TRAINING)  # type: ignore[arg-type]
