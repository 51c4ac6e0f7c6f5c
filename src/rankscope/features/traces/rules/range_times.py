"""Device time of the ranges that a program names: annotations (`record_function`, NVTX), and modules.

A range of the host holds the work that its thread launches in it, whenever that runs. The thread that marks steps waits
while threads of autograd run backward for it, so that what these launch is in its ranges as well. Annotations that only
a device shows hold what runs on its stream meanwhile. Ranges may hold one another: their times do not add up. Modules
are those that the profiler names with `with_modules` or `with_stack`, and their time is that of forward.
"""

from __future__ import annotations

import re

import numpy as np
import polars as pl

from rankscope.features.traces.read.event_names import ANNOTATION_NAME
from rankscope.features.traces.rules.device_spans import STEP_NAME, SpanIndex, is_among
from rankscope.features.traces.rules.model import RANGES

MODULE = "nn.Module: "
"""Beginning of the names of modules; behind it a class and the number of an instance: "Linear_3"."""
_INSTANCE = re.compile(r"_\d+$")
_AUTOGRAD = "autograd::engine::evaluate_function"
"""Beginning of the names of what a thread of autograd runs."""
_EMPTY = {"name": pl.Categorical, "count": pl.UInt32, "host_ns": pl.Int64, "device_ns": pl.Int64,
          "communication_ns": pl.Int64, "kernels": pl.UInt32}  # fmt: skip


def range_table(spans: SpanIndex) -> pl.DataFrame:
    """RANGES of all files that were read completely; those with most device time first."""
    found = [part for file in sorted(spans.whole) for part in _of_file(spans, file)]
    if not found:
        return pl.DataFrame(schema=RANGES)
    table = pl.concat(found, how="vertical_relaxed").join(spans.dataset.traces.select("file", "rank"), on="file")
    order = ["rank", "file", "kind", -pl.col("device_ns"), -pl.col("host_ns"), pl.col("name").cast(pl.String)]
    return table.select([pl.col(name).cast(kind) for name, kind in RANGES.items()]).sort(order, nulls_last=True)


def _of_file(spans: SpanIndex, file: int) -> list[pl.DataFrame]:
    host, ran = spans.host(file), None if spans.on_host else spans.device(file)
    work = None if ran is None or host is None else _launched(spans, file, host)
    whole = None if ran is None else int((ran["end_ns"] - ran["start_ns"]).sum())
    parts: dict[str, pl.DataFrame] = {}
    if host is not None:
        names = host.filter(is_among("category", ["user_annotation", "python_function"]))["name"].unique()
        texts = [name for name in names.cast(pl.String).drop_nulls().to_list() if name]
        modules = [name for name in texts if name.startswith(MODULE)]
        parts["annotation"] = _summed(_ranges(host, "user_annotation", list(filter(_is_annotation, texts))), work)
        if modules:
            calls = _ranges(host, "python_function", modules)
            classes = [_INSTANCE.sub("", name) for name in modules]
            class_of = dict(zip(modules, classes, strict=True))
            parts["module"] = _summed(calls, work)
            parts["module class"] = _summed(
                calls.with_columns(
                    pl.col("name").cast(pl.String).replace_strict(class_of, return_dtype=pl.String).cast(pl.Categorical)
                ),
                work,
            )
    if ran is not None:
        shown = spans.device_annotations(file)
        known = parts["annotation"]["name"].cast(pl.String).to_list() if "annotation" in parts else []
        texts = shown["name"].unique().cast(pl.String).drop_nulls().to_list()
        lone = [name for name in texts if _is_annotation(name) and name not in set(known)]
        if lone:
            own = _summed(shown.filter(is_among("name", lone)), _work(ran.with_columns(at="start_ns")), on_host=False)
            parts["annotation"] = pl.concat([parts["annotation"], own]) if "annotation" in parts else own
    share = pl.col("device_ns") / whole if whole else pl.lit(None, dtype=pl.Float64)
    return [
        table.with_columns(pl.lit(kind).alias("kind"), file=pl.lit(file, dtype=pl.UInt32), share=share)
        for kind, table in parts.items()
        if table.height
    ]


def _is_annotation(name: str) -> bool:
    """Whether a program named this range: not a step, a collective, or a module."""
    return not (STEP_NAME.match(name) or ANNOTATION_NAME.match(name) or name.startswith(MODULE))


def _ranges(host: pl.DataFrame, category: str, names: list[str]) -> pl.DataFrame:
    return host.filter(is_among("category", [category]) & is_among("name", names))


def _launched(spans: SpanIndex, file: int, host: pl.DataFrame) -> pl.DataFrame | None:
    """Work whose launch is known, by the thread that launched it, or that waits for it; None if no launch is."""
    known = spans.launched(file).filter(pl.col("call_ns").is_not_null()).with_columns(track="call_track", at="call_ns")
    if known.is_empty():
        return None
    names = host["name"].unique().cast(pl.String).drop_nulls()
    marks = [name for name in names if STEP_NAME.match(name)]
    stepping = host.filter(is_among("name", marks))["track"].unique().sort()
    if len(stepping) == 1:
        main = int(stepping[0])
        backward = host.filter(is_among("name", names.filter(names.str.starts_with(_AUTOGRAD)).to_list()))[
            "track"
        ].unique()
        behalf = known.filter(pl.col("track").is_in(backward.implode()) & (pl.col("track") != main))
        known = pl.concat([known, behalf.with_columns(track=pl.lit(main, dtype=pl.UInt32))])
    return _work(known)


def _work(ran: pl.DataFrame) -> pl.DataFrame:
    """track, at, ns, communication_ns: work of devices by what it belongs to, sorted."""
    length = pl.col("end_ns") - pl.col("start_ns")
    communicates = pl.when(pl.col("what") == "communication").then(length).otherwise(0)
    return ran.select("track", "at", ns=length, communication_ns=communicates).sort("track", "at")


def _summed(ranges: pl.DataFrame, work: pl.DataFrame | None, *, on_host: bool = True) -> pl.DataFrame:
    """The times of ranges by name: those within one of the same name count once. Columns _EMPTY, device null without
    `work`; `ranges` are sorted by track and start."""
    if ranges.is_empty():
        return pl.DataFrame(schema=_EMPTY)
    before = pl.col("end_ns").cum_max().shift().over("track", "name")
    outer = ranges.filter(before.is_null() | (pl.col("start_ns") >= before)).select(
        "track", "name", "start_ns", "end_ns", host_ns=pl.col("end_ns") - pl.col("start_ns")
    )
    unknown = pl.lit(None, dtype=pl.Int64)
    if work is None:
        sums = outer.with_columns(device_ns=unknown, communication_ns=unknown, kernels=unknown)
    else:
        sums = pl.concat([_within(part, work) for part in outer.partition_by("track", maintain_order=True)])
    device = ("device_ns", "communication_ns", "kernels")
    table = sums.group_by("name").agg(
        count=pl.len(), host_ns=pl.col("host_ns").sum() if on_host else unknown.first(),
        **{name: pl.when(work is not None).then(pl.col(name).sum()) for name in device},
    )  # fmt: skip
    return table.select([pl.col(name).cast(kind) for name, kind in _EMPTY.items()])


def _within(ranges: pl.DataFrame, work: pl.DataFrame) -> pl.DataFrame:
    """The ranges of one track with the sums of the work that belongs to them."""
    tracks = work["track"]
    first, last = (tracks.search_sorted(ranges["track"][0], side) for side in ("left", "right"))
    own = work[first:last]
    low, high = (np.searchsorted(own["at"].to_numpy(), ranges[edge].to_numpy()) for edge in ("start_ns", "end_ns"))
    totals = {
        name: np.concatenate(([0], np.cumsum(own[column].to_numpy())))
        for name, column in (("device_ns", "ns"), ("communication_ns", "communication_ns"))
    }
    sums = {name: pl.Series(total[high] - total[low]) for name, total in totals.items()}
    return ranges.with_columns(**sums, kernels=pl.Series((high - low).astype(np.int64)))


def over_ranks(ranges: pl.DataFrame, kind: str, steps: pl.DataFrame) -> pl.DataFrame:
    """Ranges of a kind over ranks: a row for each name, that with most device time first.

    `times`, `device_ns`, `communication_ns`, `host_ns` and `share` are medians of the ranks that have it, times of a
    step (of the whole window if no step is marked). `least_ns` and `most_ns` are device time without communication,
    which takes as long as the other ranks let it; `most_rank` is the rank with most of it, `ranks` those that have it.
    """
    counts = steps.group_by("file").agg(steps=pl.len())
    per = 1 / pl.col("steps").fill_null(1)
    own = (pl.col("device_ns") - pl.col("communication_ns")) * per
    rows = ranges.filter(kind=kind).join(counts, on="file", how="left").with_columns(
        own=own, times=pl.col("count") * per,
        **{name: pl.col(name) * per for name in ("device_ns", "communication_ns", "host_ns")},
    )  # fmt: skip
    # a rank may have several windows
    by_rank = rows.group_by("name", "rank").agg(
        pl.col("own", "times", "device_ns", "communication_ns", "host_ns", "share").mean()
    )
    table = by_rank.group_by("name").agg(
        pl.col("times", "device_ns", "communication_ns", "host_ns", "share").median(),
        middle_ns=pl.col("own").median(), least_ns=pl.col("own").min(), most_ns=pl.col("own").max(),
        most_rank=pl.col("rank").sort_by([pl.col("own"), -pl.col("rank")]).last(), ranks=pl.col("rank").unique().sort(),
    )  # fmt: skip
    times = pl.col("device_ns", "communication_ns", "host_ns", "middle_ns", "least_ns", "most_ns")
    order = [-pl.col("device_ns"), -pl.col("host_ns"), "name"]
    return table.with_columns(times.round().cast(pl.Int64), pl.col("name").cast(pl.String)).sort(order, nulls_last=True)
