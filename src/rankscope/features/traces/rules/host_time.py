"""Activity of the host of a rank at given times, the Python functions around it, and patterns of launched kernels.

A pattern is what one call of an outermost operator launches: the names of its kernels in the order of their launches.
Two calls are of one pattern if the operator and all names are equal; communication is left out, as it waits. An
operator that often launches several short kernels is one to fuse or to compile.

Counters come from a profiler with `profiler_metrics`. Its ranges have no times and no correlation of their own: they
are in the order of the launches, so that the n-th of a trace is the n-th launch, if there are as many of both.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import polars as pl

from rankscope.analysis.arrays import Ints, Mask, expanded_ranges
from rankscope.features.traces.rules.device_spans import STEP_NAME, SpanIndex, is_among
from rankscope.features.traces.rules.host_pieces import HostPieces, span_parents
from rankscope.features.traces.rules.model import COUNTERS, PATTERN_JOINT, PATTERNS

_BUILT_IN = re.compile(r"^<built-in (?:method|function) (.*?)(?: of .*)?>$")
_SEPARATOR = re.compile(r"[\\/]")
"""Of paths of Linux and of Windows."""
_FUNCTION = re.compile(r"^(.*)\((\d+)\): (.*)$")
DATA_LOADING = "data loading"
ACTIVITIES = (
    (re.compile(r"data_?load|dataset|_next_data|__next__|collate|prefetch", re.IGNORECASE), DATA_LOADING),
    (re.compile(r"\bgc\b|garbage|^<built-in (?:function|method) collect\b", re.IGNORECASE), "garbage collection"),
    (re.compile(r"checkpoint|save_state|torch\.save|state_dict", re.IGNORECASE), "checkpointing"),
    (re.compile(r"compile|dynamo|inductor", re.IGNORECASE), "compiling"),
    (re.compile(r"print|logging|wandb|tensorboard", re.IGNORECASE), "logging"),
)  # fmt: skip
"""Activities by patterns of span names."""
_LONGEST_NAME = 60


@dataclass(frozen=True)
class HostTime:
    """The main thread of one file: the one that marks steps, else the busiest."""

    spans: pl.DataFrame
    parents: Ints

    @classmethod
    def of(cls, host: pl.DataFrame) -> HostTime:
        """The main thread from the host's spans of a file, sorted by track and start."""
        names = [name for name in host["name"].unique().cast(pl.String) if STEP_NAME.match(name)]
        steps = host.filter(is_among("name", names))["track"]
        tracks = steps if len(steps) else host["track"]
        main = host.filter(pl.col("track") == tracks.mode().sort()[0]) if len(tracks) else host
        return cls(main, span_parents(main))

    def innermost(self, times: Ints) -> Ints:
        """For each time the index of the innermost running span; -1 without one."""
        starts, ends = self.spans["start_ns"].to_numpy(), self.spans["end_ns"].to_numpy()
        at = np.searchsorted(starts, times, side="right") - 1
        while True:
            over = (at >= 0) & (ends[np.maximum(at, 0)] <= times)
            if not over.any():
                return at
            at[over] = self.parents[at[over]]

    def stack(self, place: int) -> list[tuple[int, str, str]]:
        """(row, category, name) of the span and those around it, innermost first."""
        out = []
        while place >= 0:
            row, category, name = self.spans.select("row", "category", "name").row(place)
            out.append((row, category, name))
            place = int(self.parents[place])
        return out


# Spans of a process that fill stretches of time, over all of its threads that drive the device.


def innermost_pieces(
    host: pl.DataFrame, pieces: HostPieces, threads: pl.Series, stretches: tuple[Ints, Ints]
) -> StretchPieces:
    """Pieces of stretches of the time of a host: one for each change of the span.

    It is the innermost span of the main thread of `host` as long as that works (`pieces`), else of another of `threads`
    that does, else again of the main thread: a Python function, an annotation, a wait.
    """
    begins, ends = stretches
    main = HostTime.of(host)
    own = int(main.spans["track"][0]) if main.spans.height else -1
    others = sorted(set(threads.to_list()) - {own})
    parts = [pieces.threads[track] for track in (own, *others) if track in pieces.threads]
    bounds = np.sort(np.concatenate([begins, ends, *(part.times for part in parts)]), kind="stable")
    bounds = bounds[np.append(True, bounds[1:] > bounds[:-1])] if len(bounds) else bounds
    low, high = np.searchsorted(bounds, begins), np.searchsorted(bounds, ends)
    at = expanded_ranges(low, high)
    times = bounds[at]
    found, busy = np.full(len(times), -1, np.int64), np.zeros(len(times), np.bool_)
    if own in pieces.threads:
        found, busy = parts[0].at(times)
    for part in parts:
        inner, active = part.at(times)
        here = active & ~busy
        found, busy = np.where(here, inner, found), busy | here
    return StretchPieces(np.repeat(np.arange(len(begins)), high - low), found, bounds[at + 1] - times)


class StretchPieces(NamedTuple):
    """Pieces of stretches of time."""

    stretch: Ints
    """The stretch, by its place among those that were asked for."""
    row: Ints
    """The span that fills it; -1 without one."""
    length_ns: Ints

    def first_of_rows(self, rows: int) -> Mask:
        """Whether each is the first piece with its span; there are `rows` spans."""
        place = np.arange(len(self.row))
        first = np.full(rows + 1, -1, np.int64)
        # of equal places the last assignment stays
        first[self.row[::-1]] = place[::-1]
        found: Mask = (first[self.row] == place) & (self.row >= 0)
        return found


def span_text(name: str) -> str:
    """The name of a span for people: "sleep" for a built-in, "load (data.py:12)" for a Python function."""
    built_in = _BUILT_IN.match(name)
    if built_in:
        return built_in[1]
    function = _FUNCTION.match(name)
    if function:
        return f"{function[3]} ({_SEPARATOR.split(function[1])[-1]}:{function[2]})"
    return name if len(name) <= _LONGEST_NAME else f"{name[: _LONGEST_NAME - 3]}..."


def activity_name(names: list[str]) -> str:
    """The activity that the names of a stack show, innermost first; "" if there is none."""
    return next((what for name in names for pattern, what in ACTIVITIES if pattern.search(name)), "")


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
        return pl.DataFrame(schema=PATTERNS)
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
    # the names of sequences of codes; there are few
    codes = table["codes"]
    names = launches["name"]
    told = dict(zip(names.to_physical().to_list(), names.cast(pl.String).to_list(), strict=True))
    kernels = pl.Series(
        [PATTERN_JOINT.join(told[code] or "?" for code in one) for one in codes.to_list()], dtype=pl.String
    )
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


# Counters.


def counter_table(spans: SpanIndex) -> pl.DataFrame:
    """The counters of all files, with columns COUNTERS; nothing is done where a trace holds none."""
    dataset = spans.dataset
    if dataset.span_values.is_empty():
        return pl.DataFrame(schema=COUNTERS)
    values = dataset.span_values.rename({"name": "counter"})
    ranges = dataset.spans.with_row_index("span").filter(is_among("category", [RANGE_CATEGORY]))
    ranges = ranges.join(dataset.tracks.select("track", "file"), on="track", maintain_order="left")
    if ranges.is_empty():
        return pl.DataFrame(schema=COUNTERS)
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
