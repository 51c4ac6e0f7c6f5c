"""Values that a trainer prints with its steps, among lines of anything: what a report needs of them."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import polars as pl

from rankscope.features.series.read.log_series import (
    HEADS,
    MOST_HELD,
    WORDS,
    SeriesReader,
    plain_lines,
    value_lines,
)

PRINTED = {
    "line": pl.Int64, "offset": pl.Int64, "printer": pl.Int32, "step": pl.Int64, "name": pl.String,
    "raw_name": pl.String, "value": pl.Float64, "time_ns": pl.Int64,
}  # fmt: skip
"""Columns of one log, in its order."""
Places = npt.NDArray[np.int64]
KEPT = ("loss", "grad_norm", "lr", "loss_scale", "step_s", "skipped", "nans")
"""Quantities whose values are all kept, as those of losses are; of any other those that are not finite, and the first.
"""
OVERFLOW = "overflow"
"""Name of a loss scale that a gradient overflow made smaller."""
LOSSES = "(?i)loss"
"""Names of losses, those of an evaluation too."""
MOST_VALUES = 1 << 21
"""Most finite values of one log; more are dropped."""
_OVERFLOW = r"(?i)overflow.{0,200}?skipping step.{0,200}?reducing (?:loss scale )?to ([0-9][0-9.e+]{0,20}[0-9]|[0-9])"
"""Lines of DeepSpeed and Apex."""


class TrainingLines:
    """Takes lines of a range of a log in order."""

    def __init__(self) -> None:
        self._reader = SeriesReader()
        self._held: list[pl.DataFrame] = []
        self._count = 0
        self._rows: list[pl.DataFrame] = []
        self._kept = 0

    def add(self, texts: pl.Series, numbers: Places, offsets: Places) -> None:
        """Takes lines with their numbers and offsets in the file."""
        rows = texts.alias("text").to_frame().with_row_index("line", 1).filter(pl.col("text").str.contains(WORDS))
        if rows.is_empty():
            return
        if rows["text"].str.contains_any(HEADS).any():
            lines = value_lines("\n".join(texts).encode(), 0)
        else:
            lines = plain_lines(rows)
        if lines.is_empty():
            return
        at = lines["line"] - 1
        self._held.append(
            lines.with_columns(pl.Series("line", numbers).gather(at), pl.Series("offset", offsets).gather(at))
        )
        self._count += lines.height
        if self._count >= MOST_HELD:
            self._read()

    def result(self) -> pl.DataFrame | None:
        """The values of all lines; None without any."""
        self._read()
        return pl.concat(self._rows).sort("line", maintain_order=True) if self._rows else None

    def _read(self) -> None:
        if not self._held:
            return
        lines, self._held, self._count = pl.concat(self._held), [], 0
        self._reader.add(lines.select("line", "text"))
        rows = self._reader.result().join(
            lines.select("line", "offset").unique("line"), on="line", how="left", maintain_order="left"
        )
        whole = pl.col("name").is_in(KEPT) | pl.col("raw_name").str.contains(LOSSES)
        worth = whole | ~pl.col("value").is_finite() | pl.col("raw_name").is_first_distinct()
        self._keep(rows.filter(worth).rename({"rank": "printer"}).select(*PRINTED).cast(PRINTED))  # type: ignore[arg-type]
        self._keep(_overflows(lines))

    def _keep(self, rows: pl.DataFrame) -> None:
        if self._kept >= MOST_VALUES:
            rows = rows.filter(~pl.col("value").is_finite()).head(MOST_HELD)
        if rows.height and self._kept < MOST_VALUES + MOST_HELD:
            self._kept += rows.height
            self._rows.append(rows)


def _overflows(lines: pl.DataFrame) -> pl.DataFrame:
    """A row for each line that tells of a skipped step, with the new loss scale."""
    return lines.select(
        "line",
        "offset",
        pl.lit(None, pl.Int32).alias("printer"),
        pl.lit(None, pl.Int64).alias("step"),
        pl.lit(OVERFLOW).alias("name"),
        pl.lit(OVERFLOW).alias("raw_name"),
        pl.col("text").str.extract(_OVERFLOW).cast(pl.Float64, strict=False).alias("value"),
        pl.lit(None, pl.Int64).alias("time_ns"),
    ).drop_nulls("value")
