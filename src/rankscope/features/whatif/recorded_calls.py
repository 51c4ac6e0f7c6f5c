"""The calls and kernels of ranks with their times, from profiler traces."""

from __future__ import annotations

import polars as pl

from rankscope.features.traces.rules.device_spans import SpanIndex, step_spans
from rankscope.features.traces.rules.model import TraceAnalysis
from rankscope.features.traces.rules.trace_story import pipeline_groups
from rankscope.features.traces.rules.trace_tables import step_windows
from rankscope.features.whatif.matched_schedule import CALLS, KERNELS
from rankscope.schema import Dataset


def traced_calls(dataset: Dataset, traces: TraceAnalysis) -> tuple[pl.DataFrame, bool]:
    """CALLS of the matched operations of traces, and whether their steps are known."""
    traced = dataset.traced.with_row_index("row").select("row", "created_ns", "peer", "in_sizes", "out_sizes")
    streams = dataset.spans.drop_nulls("op").select("track", row="op").unique("row", keep="first")
    traced = traced.join(streams.select("row", stream="track"), on="row", how="left", maintain_order="left")
    offsets = pl.DataFrame(
        {"file": list(traces.offsets), "offset_ns": list(traces.offsets.values())},
        {"file": pl.UInt32, "offset_ns": pl.Int64},
    )
    rows = traces.matched.join(traced, on="row").join(offsets, on="file", how="left").with_columns(
        issued_ns=pl.coalesce("created_ns", "arrived_ns") + pl.col("offset_ns").fill_null(0)
    )  # fmt: skip
    marked = step_spans(dataset)
    rows = _in_steps(rows, dataset, traces, "issued_ns")
    return with_forms(
        dataset, rows.with_columns(meeting="match"), pipeline_groups(dataset.traced, dataset.group_list)
    ), marked["step"].n_unique() > 1


def with_forms(dataset: Dataset, rows: pl.DataFrame, staged: frozenset[int]) -> pl.DataFrame:
    """CALLS of `rows` of operations with a meeting and times; `staged` are the groups of pipeline stages."""
    groups = dataset.group_list
    names = [f"{g.description or g.name.rstrip('0123456789')} {len(g.ranks)}" for g in groups]
    kinds = pl.DataFrame(
        {"group": [g.id for g in groups], "kind": names},
        {"group": pl.UInt32, "kind": pl.String},
    )  # fmt: skip
    op = pl.col("op").cast(pl.String)
    size = pl.coalesce(pl.col("in_sizes").cast(pl.String), pl.lit("")) + pl.col("out_sizes").cast(pl.String).fill_null(
        ""
    )
    pair = pl.when("is_p2p").then(pl.max_horizontal("rank", "peer") * (1 << 32) + pl.min_horizontal("rank", "peer"))
    form = pl.when("is_p2p").then(op).otherwise(op + " " + pl.col("kind").fill_null(""))
    return rows.join(kinds, on="group", how="left").with_columns(
        pl.col("rank").cast(pl.Int64), pl.col("meeting").cast(pl.Int64),
        what=pl.when("is_p2p").then(pl.lit("send and receive")).otherwise(op), form=form, alike=form + " " + size,
        route=pl.struct(pl.when(~pl.col("is_p2p")).then("group"), pair.alias("pair")).rank("dense").cast(pl.Int64),
        peer=pl.when(pl.col("is_p2p") & pl.col("group").is_in(list(staged))).then(pl.col("peer").cast(pl.Int64)),
        sends=op == "send", blocks="blocking",
    ).select(pl.col(name).cast(kind) for name, kind in CALLS.items())  # fmt: skip


def traced_kernels(dataset: Dataset, traces: TraceAnalysis, calls: pl.DataFrame) -> pl.DataFrame | None:
    """KERNELS of all ranks of CALLS, aligned like those; None if a trace tells only its collectives, or has no device.

    Kernels that communicate are none of them.
    """
    spans = SpanIndex(dataset)
    ranks = set(calls["rank"].unique().to_list())
    files = traces.matched.select("file", "rank").unique().filter(pl.col("rank").is_in(list(ranks))).sort("file")
    if spans.on_host or not spans.whole.issuperset(files["file"].to_list()):
        return None
    tables = []
    for file, rank in files.iter_rows():
        work = spans.launched(file)
        if work.is_empty():
            return None
        offset = traces.offsets.get(file, 0)
        work = work.filter(pl.col("what") != "communication").select(
            rank=pl.lit(rank, pl.Int64), issued_ns=pl.col("call_ns") + offset, start_ns=pl.col("start_ns") + offset,
            end_ns=pl.col("end_ns") + offset, file=pl.lit(file, pl.UInt32),
        )  # fmt: skip
        tables.append(work)
    kernels = pl.concat(tables).with_columns(at=pl.coalesce("issued_ns", "start_ns"))
    return _in_steps(kernels, dataset, traces, "at").select(pl.col(name).cast(kind) for name, kind in KERNELS.items())


def _in_steps(rows: pl.DataFrame, dataset: Dataset, traces: TraceAnalysis, at: str) -> pl.DataFrame:
    """`rows` of files with `step`, that in which each was issued, and `begin_ns` of the first step of the file.

    Steps are those of the host, which issues: a device may be a step behind.
    """
    windows = step_windows(dataset, step_spans(dataset))
    offset = pl.col("file").replace_strict(dict(traces.offsets), default=0, return_dtype=pl.Int64)
    steps = pl.concat(windows.values()).select(
        "file", "step", begins=pl.col("begin_ns") + offset, ends=pl.col("end_ns") + offset
    ).sort("begins")  # fmt: skip
    rows = rows.sort(at).join_asof(
        steps, left_on=at, right_on="begins", by="file", strategy="backward", check_sortedness=False
    )
    begins = steps.group_by("file").agg(begin_ns=pl.col("begins").min())
    return rows.with_columns(step=pl.when(pl.col(at) <= pl.col("ends")).then("step")).join(
        begins, on="file", how="left"
    )
