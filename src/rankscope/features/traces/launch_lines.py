"""Kernels shorter than their launch, and the speed of copies, in words."""

from __future__ import annotations

import polars as pl

from rankscope.features.traces.rules.model import TraceAnalysis
from rankscope.text.escaping import plain
from rankscope.text.wording import byte_count, duration

SHORT_SHARE = 0.25
"""Smallest share of kernels shorter than their launch that people are told of."""
COPY_SHARE = 0.01
"""Smallest share of the steps that copies of a kind take, of which people are told."""
MOST_COPIES = 3
NOTABLE = 2
"""Smallest difference to the mean, in percent of kernels, of a rank or step that people are told of."""
_PAGEABLE = "Pageable"


def launch_lines(traces: TraceAnalysis, *, host_bound: bool = False, nameless: bool = False) -> list[str]:
    """Kernels shorter than their launch: none where they are few, unless the hosts set the pace (`host_bound`)."""
    table = traces.step_launches
    launches, short = int(table["launches"].sum()), int(table["short"].sum())
    if not launches or not short or (short < SHORT_SHARE * launches and not host_bound):
        return []
    mean = 100 * short / launches
    most = [] if nameless else [_most(table, "rank", "on rank", mean)]
    most.append(_most(table, "step", "in step", mean))
    each = f"{round(launches / table.height):,} in each step" if traces.has_steps else f"{launches:,} in all"
    inner = "; ".join([each, *filter(None, most)])
    pace = ". The hosts set the pace (host-bound)" if host_bound else ""
    return [f"{mean:.0f} % of kernels take less time than the call that launches them ({inner}){pace}"]


def _most(table: pl.DataFrame, column: str, place: str, mean: float) -> str:
    """The rank or step with the largest share; "" if that is about the `mean`, in percent."""
    share = (100 * pl.col("short").sum() / pl.col("launches").sum()).alias("share")
    shares = table.group_by(column).agg(share).sort(-pl.col("share"), column)
    first = shares.row(0, named=True)
    return f"most {place} {first[column]}, {first['share']:.0f} %" if first["share"] >= mean + NOTABLE else ""


def copy_lines(traces: TraceAnalysis) -> list[str]:
    """The copies that take most time, with what they move in each step, and how fast; none that take little."""
    length = max(int((traces.steps["end_ns"] - traces.steps["start_ns"]).sum()), 1)
    count = max(traces.steps.height, 1) if traces.has_steps else 1
    table = traces.copies.group_by(pl.col("name").cast(pl.String)).agg(
        pl.col("bytes", "total_ns").sum(), most=pl.col("most").max(),
        exact=(pl.col("bytes") / pl.col("speed")).filter(pl.col("speed") > 0).sum(),
    )  # fmt: skip
    shown = table.filter(pl.col("total_ns") >= COPY_SHARE * length).sort(-pl.col("total_ns"), "name").head(MOST_COPIES)
    per = "a step" if traces.has_steps else "in all"
    lines = []
    for name, moved, total, most, exact in shown.iter_rows():
        speed = f"{moved / exact:.3g} GB/s, the fastest {most:.3g}" if exact else "of unknown speed"
        advice = "; pinned memory is faster (pin_memory=True)" if _PAGEABLE in name else ""
        lines.append(
            f"{plain(name)}: {byte_count(moved // count)} in {duration(total // count)} {per}, {speed}{advice}"
        )
    return lines
