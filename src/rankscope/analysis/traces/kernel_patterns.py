"""Sequences of kernels that operators launch again and again, and counters of devices by operator.

A pattern is what one call of an outermost operator launches: the names of its kernels in the order of their launches.
Two calls are of one pattern if the operator and all names are equal; communication is left out, as it waits. An
operator that often launches several short kernels is one to fuse or to compile.

Counters come from a profiler with `profiler_metrics`. Its ranges have no times and no correlation of their own: they
are in the order of the launches, so that the n-th of a trace is the n-th launch, if there are as many of both.
"""

from __future__ import annotations

import re

import numpy as np
import polars as pl

from rankscope.analysis.arrays import Ints
from rankscope.analysis.traces.device_spans import SpanIndex, is_among
from rankscope.analysis.traces.host_time import span_parents
from rankscope.analysis.traces.model import COUNTERS, PATTERN_JOINT, PATTERNS
from rankscope.schema.tables import empty

MOST_PATTERNS = 100
"""Most patterns of each trace that are kept, those whose kernels take most time."""
LEAST_COUNT, LEAST_LENGTH = 2, 2
LONGEST_PATTERN = 64
"""Kernels of a longer sequence that are named."""
RANGE_CATEGORY = "cuda_profiler_range"
_KERNEL_LAUNCH = re.compile(r"Launch(?:Cooperative)?Kernel")


def kernel_patterns(spans: SpanIndex) -> pl.DataFrame:
    """The patterns of all files that were read completely, with columns PATTERNS; those with most time first."""
    found = [part for file in sorted(spans.whole) if (part := _of_file(spans, file)) is not None]
    if not found:
        return empty(PATTERNS)
    ranks = spans.dataset.traces.select("file", "rank")
    table = pl.concat(found).join(ranks, on="file", how="left")
    table = table.group_by("rank", "operator", "kernels", "length").agg(pl.col("count", "total_ns").sum())
    order = [-pl.col("total_ns"), pl.col("rank"), pl.col("operator").cast(pl.String), pl.col("kernels")]
    return table.select([pl.col(name).cast(kind) for name, kind in PATTERNS.items()]).sort(order)


def _of_file(spans: SpanIndex, file: int) -> pl.DataFrame | None:
    """The patterns of a file: file, operator, kernels, length, count, total_ns; None without a launch."""
    host = spans.host(file)
    if host is None or spans.device(file) is None:
        return None
    launches = (
        spans.launched(file)
        .filter(pl.col("call_ns").is_not_null() & (pl.col("what") != "communication"))
        .sort("call_ns")
    )
    if launches.is_empty():
        return None
    outer = _outermost(host).sort("begin_ns")
    calls = launches.select(
        "call_ns", "call_track", code=pl.col("name").to_physical(), ns=pl.col("end_ns") - pl.col("start_ns")
    ).join_asof(outer, left_on="call_ns", right_on="begin_ns", by="call_track", check_sortedness=False)
    inside = calls.filter(pl.col("call_ns") < pl.col("until_ns"))
    runs = inside.group_by("operator", "call", maintain_order=True).agg(
        length=pl.len(), total_ns=pl.col("ns").sum(), codes=pl.col("code").head(LONGEST_PATTERN)
    )
    key = pl.col("codes").cast(pl.List(pl.String)).list.join(" ")
    table = (
        runs.filter(pl.col("length") >= LEAST_LENGTH).group_by("operator", "length", key.alias("key"))
        .agg(count=pl.len(), total_ns=pl.col("total_ns").sum(), codes=pl.col("codes").first())
        .filter(pl.col("count") >= LEAST_COUNT).sort("total_ns", descending=True).head(MOST_PATTERNS)
    )  # fmt: skip
    kernels = _named(table["codes"], launches["name"])
    named = table.with_columns(file=pl.lit(file, dtype=pl.UInt32), kernels=kernels)
    return named.select("file", "operator", "kernels", "length", "count", "total_ns")


def _outermost(host: pl.DataFrame) -> pl.DataFrame:
    """The operators that no other operator holds: call_track, begin_ns, until_ns, operator, call."""
    operators = host.filter(is_among("category", ["cpu_op"]))
    before = pl.col("end_ns").cum_max().shift().over("track")
    outer = operators.filter(before.is_null() | (pl.col("start_ns") >= before))
    return outer.select(
        call_track="track", begin_ns="start_ns", until_ns="end_ns", operator="name", call="row"
    )  # fmt: skip


def _named(codes: pl.Series, names: pl.Series) -> pl.Series:
    """The names of sequences of codes; there are few."""
    told = dict(zip(names.to_physical().to_list(), names.cast(pl.String).to_list(), strict=True))
    return pl.Series(
        [PATTERN_JOINT.join(told[code] or "?" for code in one) for one in codes.to_list()], dtype=pl.String
    )


# Counters.


def counter_table(spans: SpanIndex) -> pl.DataFrame:
    """The counters of all files, with columns COUNTERS; nothing is done where a trace holds none."""
    dataset = spans.dataset
    if dataset.span_values.is_empty():
        return empty(COUNTERS)
    values = dataset.span_values.rename({"name": "counter"})
    ranges = dataset.spans.with_row_index("span").filter(is_among("category", [RANGE_CATEGORY]))
    ranges = ranges.join(dataset.tracks.select("track", "file"), on="track", maintain_order="left")
    if ranges.is_empty():
        return empty(COUNTERS)
    of_files = [
        part.with_columns(operator=_operators(spans, int(part["file"][0]), part.height))
        for part in ranges.sort("file", "start_ns", maintain_order=True).partition_by("file", maintain_order=True)
    ]
    table = pl.concat(of_files).select("span", "file", "operator", kernel="name").join(values, on="span")
    table = table.join(dataset.traces.select("file", "rank"), on="file", how="left")
    table = table.group_by("rank", "operator", "kernel", "counter").agg(
        count=pl.len(), total=pl.col("value").sum(), mean=pl.col("value").mean()
    )
    order = ["rank", pl.col("counter").cast(pl.String), -pl.col("total"), pl.col("kernel").cast(pl.String)]
    return table.select([pl.col(name).cast(kind) for name, kind in COUNTERS.items()]).sort(order)


def _operators(spans: SpanIndex, file: int, count: int) -> pl.Series:
    """The innermost operator of each launch of a file by time; null if there are not `count` launches."""
    host = spans.host(file)
    unknown = pl.Series([None] * count, dtype=pl.Categorical)
    if host is None:
        return unknown
    names = [name for name in host["name"].unique().cast(pl.String).drop_nulls() if _KERNEL_LAUNCH.search(name)]
    found = [_around(own, names) for own in host.partition_by("track", maintain_order=True)]
    launches = pl.concat(found).sort("start_ns", maintain_order=True)
    return launches["operator"] if launches.height == count else unknown


def _around(thread: pl.DataFrame, launches: list[str]) -> pl.DataFrame:
    """The launches of a thread, with the innermost operator around each: start_ns, operator."""
    is_operator = np.append(thread.select(is_among("category", ["cpu_op"])).to_series().to_numpy(), True)
    parents = np.append(span_parents(thread), -1)
    places = np.flatnonzero(thread.select(is_among("name", launches)).to_series().to_numpy())
    around: Ints = parents[places]
    while not is_operator[around].all():
        around = np.where(is_operator[around], around, parents[around])
    operator = thread["name"].gather(pl.Series(around).set(pl.Series(around < 0), None))
    return pl.DataFrame({"start_ns": thread["start_ns"].gather(places), "operator": operator})
