"""By step: kernels shorter than the launch that started them, and what copies move, how fast."""

from __future__ import annotations

import numpy as np
import polars as pl

from rankscope.features.traces.read.event_names import COPY_BYTES, COPY_SPEED
from rankscope.features.traces.rules.device_spans import SpanIndex, is_among
from rankscope.features.traces.rules.model import COPIES, STEP_LAUNCHES, Columns
from rankscope.features.traces.rules.trace_tables import device_windows, step_windows


def step_tables(spans: SpanIndex, steps: pl.DataFrame) -> dict[str, pl.DataFrame]:
    """STEP_LAUNCHES as "step_launches" and COPIES as "copies", of all files that were read completely."""
    called_in, moved_in = step_windows(spans.dataset, steps), device_windows(spans, steps)
    copied = _copied(spans)
    launches, copies = [], []
    for file in sorted(spans.whole):
        if spans.on_host or spans.device(file) is None:
            continue
        launches.append(_short(_in_steps(spans.launched(file).drop_nulls("call_ns"), "call_ns", called_in[file])))
        if copied.height:
            moved = spans.launched(file).join(copied, left_on="row", right_on="span", maintain_order="left")
            copies.append(_moved(_in_steps(moved, "start_ns", moved_in[file])))
    ranks = spans.dataset.traces.select("file", "rank")
    return {
        "step_launches": _shaped(launches, ranks, STEP_LAUNCHES).sort("rank", "file", "step"),
        "copies": _shaped(copies, ranks, COPIES).sort("rank", "file", "step", -pl.col("total_ns"), "name"),
    }


def _copied(spans: SpanIndex) -> pl.DataFrame:
    """span, bytes, speed (GB/s) of copies and memsets."""
    values = spans.dataset.span_values.filter(is_among("name", [COPY_BYTES, COPY_SPEED]))
    of = {name: values.filter(is_among("name", [text])).select("span", pl.col("value").alias(name))
          for name, text in (("bytes", COPY_BYTES), ("speed", COPY_SPEED))}  # fmt: skip
    return of["bytes"].join(of["speed"], on="span", how="left")


def _in_steps(rows: pl.DataFrame, time: str, steps: pl.DataFrame) -> pl.DataFrame:
    """The rows of a file with `step`, by a column of times; those in no step are left out."""
    begin, end = steps["begin_ns"].to_numpy(), steps["end_ns"].to_numpy()
    at = np.searchsorted(begin, rows[time].to_numpy(), side="right") - 1
    inside = (at >= 0) & (rows[time].to_numpy() < end[np.maximum(at, 0)])
    return rows.with_columns(step=steps["step"].gather(np.maximum(at, 0))).filter(pl.Series(inside))


def _short(launched: pl.DataFrame) -> pl.DataFrame:
    call = pl.col("called_ns") - pl.col("call_ns")
    # one launch of a graph starts many kernels
    alone = pl.len().over("correlation") == 1
    kernels = launched.filter(alone & (pl.col("what") != "memory") & (call < WAITING_NS))
    short = pl.col("end_ns") - pl.col("start_ns") < call
    return kernels.group_by("file", "step").agg(launches=pl.len(), short=short.sum())


WAITING_NS = 100_000
"""A call that takes so long waits for the device, or for a place in its queue: that is not the cost of a launch."""


def _moved(copies: pl.DataFrame) -> pl.DataFrame:
    """By step and kind of copy; the duration by the profiler's speed has more decimals than that of the event."""
    length = (pl.col("end_ns") - pl.col("start_ns")).cast(pl.Float64)
    exact = pl.when(pl.col("speed") > 0).then(pl.col("bytes") / pl.col("speed")).otherwise(length)
    table = copies.with_columns(exact=exact, length=length).group_by("file", "step", "name").agg(
        count=pl.len(), bytes=pl.col("bytes").sum().cast(pl.Int64), total_ns=pl.col("length").sum().cast(pl.Int64),
        exact=pl.col("exact").sum(), most=pl.col("bytes").truediv("exact").max(),
    )  # fmt: skip
    return table.with_columns(speed=pl.when(pl.col("exact") > 0).then(pl.col("bytes") / pl.col("exact")))


def _shaped(parts: list[pl.DataFrame], ranks: pl.DataFrame, columns: Columns) -> pl.DataFrame:
    if not parts:
        return pl.DataFrame(schema=columns)
    table = pl.concat(parts, how="vertical_relaxed").join(ranks, on="file")
    return table.select([pl.col(name).cast(kind) for name, kind in columns.items()])
