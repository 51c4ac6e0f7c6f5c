"""The calls of ranks with their times, from profiler traces."""

from __future__ import annotations

import polars as pl

from rankscope.features.traces.rules.model import TraceAnalysis
from rankscope.features.traces.rules.trace_story import pipeline_groups
from rankscope.features.whatif.matched_schedule import CALLS
from rankscope.schema import Dataset


def traced_calls(dataset: Dataset, traces: TraceAnalysis) -> tuple[pl.DataFrame, bool]:
    """CALLS of the matched operations of traces, and whether their steps are known."""
    traced = dataset.traced.with_row_index("row").select("row", "created_ns", "peer", "in_sizes", "out_sizes")
    offsets = pl.DataFrame(
        {"file": list(traces.offsets), "offset_ns": list(traces.offsets.values())},
        {"file": pl.UInt32, "offset_ns": pl.Int64},
    )
    rows = traces.matched.join(traced, on="row").join(offsets, on="file", how="left").with_columns(
        issued_ns=pl.coalesce("created_ns", "arrived_ns") + pl.col("offset_ns").fill_null(0)
    )  # fmt: skip
    steps = traces.steps.select("file", "step", begins="start_ns", ends="end_ns").sort("begins")
    known = steps.group_by("file").len()["len"].max() or 0
    rows = rows.sort("issued_ns").join_asof(
        steps, left_on="issued_ns", right_on="begins", by="file", strategy="backward", check_sortedness=False
    )
    inside = pl.col("issued_ns") <= pl.col("ends")
    begins = steps.group_by("file").agg(begin_ns=pl.col("begins").min())
    rows = rows.with_columns(step=pl.when(inside).then("step")).join(begins, on="file", how="left")
    steps_known = bool(known > 1)  # type: ignore[operator]
    return _calls(
        dataset, rows.with_columns(meeting="match"), pipeline_groups(dataset.traced, dataset.group_list)
    ), steps_known


def _calls(dataset: Dataset, rows: pl.DataFrame, staged: frozenset[int]) -> pl.DataFrame:
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
    return rows.join(kinds, on="group", how="left").with_columns(
        pl.col("rank").cast(pl.Int64), pl.col("meeting").cast(pl.Int64),
        what=pl.when("is_p2p").then(pl.lit("send and receive")).otherwise(op),
        alike=pl.when("is_p2p").then(op + " " + size).otherwise(op + " " + size + " " + pl.col("kind").fill_null("")),
        route=pl.struct(pl.when(~pl.col("is_p2p")).then("group"), pair.alias("pair")).rank("dense").cast(pl.Int64),
        peer=pl.when(pl.col("is_p2p") & pl.col("group").is_in(list(staged))).then(pl.col("peer").cast(pl.Int64)),
        blocks="blocking",
    ).select(pl.col(name).cast(kind) for name, kind in CALLS.items())  # fmt: skip
