"""Spans by kind, on each file's own clock: work on devices, activity of hosts, and steps."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
import polars as pl

from rankscope.analysis.arrays import Ints, Mask, expanded_ranges
from rankscope.schema import Dataset

WORK_KINDS = ("compute", "communication", "memory")
WorkKind = pl.Enum(WORK_KINDS)
COMMUNICATION_CATEGORY = "collective_comm"
"""Communication without a known call of the host, as in CUDA graphs."""
_ISSUING_OPERATOR = re.compile(r"c10d::|record_param_comms|gloo:")
"""Operators that issue communication and compute nothing."""
_COPY_CATEGORIES = ("gpu_memcpy", "gpu_memset")
_MARK_CATEGORIES = ("gpu_user_annotation", "overhead", "cuda_sync", "cuda_profiler_range", "Trace")
"""Rows of devices that are not work."""
_WAIT_ARGUMENTS = ("wait_on_stream", "wait_on_cuda_event_record_corr_id")
"""Arguments of a `Stream Wait Event`: the stream on which the event was recorded, and the call that recorded it."""
LAUNCH_CATEGORIES = ("cuda_runtime", "cuda_driver", "xpu_runtime", "mtia_runtime", "privateuse1_runtime")


Found = TypeVar("Found")


def is_among(column: str, names: Sequence[str]) -> pl.Expr:
    """An expression: whether a categorical column is one of `names`, without converting each value to text."""
    return pl.col(column).is_in(pl.Series(names, dtype=pl.Categorical).implode())


@dataclass(frozen=True)
class SpanIndex:
    """The spans of a dataset by file, loaded on request only."""

    dataset: Dataset
    _known: dict[tuple[str, int], Any] = field(default_factory=dict, repr=False, compare=False)
    """Results by request."""

    @property
    def on_host(self) -> bool:
        """Whether hosts compute and communicate themselves, because there is no device."""
        return bool(self.dataset.tracks["device"].is_null().all())

    @cached_property
    def whole(self) -> frozenset[int]:
        """Files that were read completely; of the others only communication and steps are known."""
        return frozenset(self.dataset.traces.filter(pl.col("detail") == "all")["file"])

    @cached_property
    def _tracks(self) -> pl.DataFrame:
        """All tracks, with the first and last row of their spans."""
        tracks = self.dataset.tracks.select("track", "file", "lane", "device", "kind").sort("track")
        spans, numbers = self.dataset.spans["track"].rechunk(), tracks["track"]
        begin, end = (spans.search_sorted(numbers, side) for side in ("left", "right"))
        return tracks.with_columns(begin=begin, end=end)

    @cached_property
    def _tracks_of(self) -> dict[int, pl.DataFrame]:
        parts = self._tracks.partition_by("file", as_dict=True, maintain_order=True)
        return {int(key[0]): part for key, part in parts.items()}

    def _all(self, file: int) -> pl.DataFrame:
        """All spans of a file with their track and lane, by track."""
        tracks = self._tracks_of.get(file, self._tracks[:0])
        begin, end = tracks["begin"].to_numpy().astype(np.int64), tracks["end"].to_numpy().astype(np.int64)
        rows = expanded_ranges(begin, end)
        together = len(rows) > 0 and rows[-1] - rows[0] + 1 == len(rows)
        spans = self.dataset.spans[int(rows[0]) : int(rows[-1]) + 1] if together else self.dataset.spans[rows]
        return (
            spans.with_columns(row=pl.Series(rows.astype(np.uint32)))
            .join(tracks.drop("begin", "end"), on="track", maintain_order="left")
            .with_columns(end_ns=pl.col("start_ns") + pl.col("duration_ns"))
        )  # fmt: skip

    def device(self, file: int) -> pl.DataFrame | None:
        """Work on the devices of a file, by start: `row, file, track, lane, what, name, start_ns, end_ns, correlation`.

        If a host communicates itself (gloo) without a device: its communication, and its operators as computing. None
        without any.
        """
        return self._table("device", file, self._device)

    def _device(self, all_: pl.DataFrame) -> pl.DataFrame:
        used = all_.filter(pl.col("device").is_not_null() & ~is_among("category", _MARK_CATEGORIES))
        kernels = _on_host(all_) if used.is_empty() else used
        communicates = pl.col("op").is_not_null() | is_among("category", [COMMUNICATION_CATEGORY])
        what = (
            pl.when(communicates).then(pl.lit("communication"))
            .when(is_among("category", _COPY_CATEGORIES)).then(pl.lit("memory"))
            .otherwise(pl.lit("compute")).cast(WorkKind)
        )  # fmt: skip
        columns = ("row", "file", "track", "lane", what.alias("what"), "name", "start_ns", "end_ns", "correlation")
        return kernels.select(*columns).sort("start_ns", maintain_order=True)

    def host(self, file: int) -> pl.DataFrame | None:
        """Activity of the host of a file, by track, then start: row, file, track, lane, category, name, start_ns,
        end_ns, depth, correlation. None without any.
        """
        columns = ("row", "file", "track", "lane", "category", "name", "start_ns", "end_ns", "depth", "correlation")
        return self._table("host", file, lambda all_: all_.filter(pl.col("device").is_null()).select(*columns))

    def device_annotations(self, file: int) -> pl.DataFrame:
        """Annotations as rows of the devices of a file, by track, then start: track, name, start_ns, end_ns."""
        tracks = self._tracks_of.get(file, self._tracks[:0]).drop_nulls("device")
        rows = expanded_ranges(*(tracks[edge].to_numpy().astype(np.int64) for edge in ("begin", "end")))
        shown = self.dataset.spans[rows].filter(is_among("category", ["gpu_user_annotation"]))
        return shown.select("track", "name", "start_ns", end_ns=pl.col("start_ns") + pl.col("duration_ns"))

    def _launches(self, all_: pl.DataFrame) -> pl.DataFrame:
        """The calls that started work on a device, each once: correlation, call_ns, called_ns, call_track."""
        calls = all_.filter(
            pl.col("device").is_null() & pl.col("correlation").is_not_null()
            & is_among("category", LAUNCH_CATEGORIES)
        )  # fmt: skip
        told = calls.select("correlation", call_ns="start_ns", called_ns="end_ns", call_track="track")
        return told.unique("correlation", keep="first")

    def launched(self, file: int) -> pl.DataFrame:
        """Work on the devices of a file with `call_ns` and `called_ns`: start and end of its launch, and its thread
        `call_track`; null without."""
        kernels = self.device(file)
        if kernels is None:
            return pl.DataFrame(schema={"call_ns": pl.Int64, "called_ns": pl.Int64})
        calls = self._table("launches", file, self._launches)
        if calls is None:
            null = pl.lit(None, dtype=pl.Int64)
            return kernels.with_columns(call_ns=null, called_ns=null, call_track=null.cast(pl.UInt32))
        return kernels.join(calls, on="correlation", how="left", maintain_order="left")

    def event_waits(self, file: int) -> pl.DataFrame:
        """The waits of streams for events, as far as the trace tells both sides: `track` and `record_track` of the
        streams, `call_ns` and `record_ns` when the host called for the wait and for the record of the event."""
        values = self.dataset.span_values.filter(is_among("name", _WAIT_ARGUMENTS))
        wide = values.with_columns(pl.col("name").cast(pl.String), pl.col("value").cast(pl.Int64))
        wide = wide.group_by("span").agg(
            *(pl.col("value").filter(pl.col("name") == name).first().alias(name) for name in _WAIT_ARGUMENTS)
        )
        all_ = self._all(file) if wide.height else self._all(file).clear()
        calls = all_.filter(pl.col("device").is_null()).drop_nulls("correlation")
        calls = calls.select("correlation", ns="start_ns").unique("correlation", keep="first")
        streams = self._tracks_of.get(file, self._tracks[:0]).drop_nulls("device")
        streams = streams.select("device", pl.col("lane").alias(_WAIT_ARGUMENTS[0]), record_track="track")
        waits = all_.select("row", "track", "device", "correlation").join(wide, left_on="row", right_on="span")
        waits = waits.join(streams, on=["device", _WAIT_ARGUMENTS[0]])
        records = calls.rename({"correlation": _WAIT_ARGUMENTS[1], "ns": "record_ns"})
        return waits.join(records, on=_WAIT_ARGUMENTS[1]).join(
            calls.rename({"ns": "call_ns"}), on="correlation"
        ).select("track", "record_track", "call_ns", "record_ns")  # fmt: skip

    def once(self, what: str, file: int, make: Callable[[], Found]) -> Found:
        """The result of `make` for a file, computed once."""
        key = what, file
        if key not in self._known:
            self._known[key] = make()
        found: Found = self._known[key]
        return found

    def _table(self, what: str, file: int, make: Callable[[pl.DataFrame], pl.DataFrame]) -> pl.DataFrame | None:
        """A table of spans of a file; None if it is empty."""

        def made() -> pl.DataFrame | None:
            table = make(self._all(file))
            return None if table.is_empty() else table

        return self.once(what, file, made)


def _on_host(host: pl.DataFrame) -> pl.DataFrame:
    names = host["name"].unique().cast(pl.String).drop_nulls()
    computes = is_among("category", ["cpu_op"]) & ~is_among("name", [n for n in names if _ISSUING_OPERATOR.match(n)])
    return host.filter(pl.col("op").is_not_null() | computes)


# Steps that a program marked.

STEP_NAME = re.compile(r"^ProfilerStep#(\d+)$")


def step_spans(dataset: Dataset) -> pl.DataFrame:
    """Steps that `torch.profiler.profile.step` marked: file, step, begin_ns, end_ns on the file's own clock."""
    steps = [name for name in dataset.spans["name"].unique().cast(pl.String).drop_nulls() if STEP_NAME.match(name)]
    host = dataset.tracks.filter(pl.col("kind") == "host").select("track", "file")
    marked = is_among("name", steps) & is_among("category", ["user_annotation"])
    return (
        dataset.spans.filter(marked).join(host, on="track")
        .select(
            "file", step=pl.col("name").cast(pl.String).str.extract(STEP_NAME.pattern).cast(pl.Int64, strict=False),
            begin_ns=pl.col("start_ns"), end_ns=pl.col("start_ns") + pl.col("duration_ns"),
        )
        .drop_nulls().sort("file", "begin_ns")
    )  # fmt: skip


def steps_on_device(spans: SpanIndex, file: int, steps: pl.DataFrame) -> pl.DataFrame:
    """The steps of a file as its device goes through them: work belongs to the step in which the host launched it.

    A device that is behind its host begins a step when it has done all that was launched before, or at the latest when
    the first computing of the step starts on the stream that computes most; else it begins with the host. Without a
    device, or where a trace tells no launches, steps stay as the host marked them.

    `steps`: file, step, begin_ns, end_ns.
    """
    if spans.on_host or spans.device(file) is None:
        return steps
    work, known = spans.launched(file), pl.col("call_ns").is_not_null()
    if not work.select(known.any()).item():
        return steps
    # what runs before all of known launch was launched before the trace begins
    later = pl.when(pl.col("start_ns") >= pl.col("start_ns").filter(known).min()).then("start_ns")
    work = work.with_columns(call_ns=pl.coalesce("call_ns", later, np.iinfo(np.int64).min)).sort("call_ns")
    calls, done = work["call_ns"].to_numpy(), work["end_ns"].cum_max().to_numpy()
    computed = work.filter(pl.col("what") == "compute")
    busiest = computed.group_by("track").agg((pl.col("end_ns") - pl.col("start_ns")).sum()).sort("end_ns", "track")
    stream = computed.join(busiest[-1:], on="track", how="semi")
    issued, starts = stream["call_ns"].to_numpy(), stream["start_ns"].reverse().cum_min().reverse().to_numpy()

    def reached(times: Ints) -> Ints:
        before, after = np.searchsorted(calls, times) - 1, np.searchsorted(issued, times)
        ended = np.where(before >= 0, done[np.maximum(before, 0)], times)
        begun = np.append(starts, np.iinfo(np.int64).max)[after]
        cut: Ints = np.maximum(times, np.minimum(ended, begun))
        return cut

    ends = (reached(steps[name].to_numpy()) for name in ("begin_ns", "end_ns"))
    return steps.with_columns(*(pl.Series(n, t) for n, t in zip(("begin_ns", "end_ns"), ends, strict=True)))


def with_steps(rows: pl.DataFrame, steps: pl.DataFrame) -> pl.DataFrame:
    """`rows` with `step`: the step in which the host issued the operation, null outside of all."""
    if steps.is_empty():
        return rows.with_columns(step=pl.lit(None, dtype=pl.Int64))
    at = pl.coalesce("created_ns", pl.col("started_ns") - pl.col("offset_ns"))
    return (
        rows.with_columns(at=at).sort("at")
        .join_asof(steps.sort("begin_ns"), left_on="at", right_on="begin_ns", by="file", check_sortedness=False)
        .with_columns(step=pl.when(pl.col("at") < pl.col("end_ns")).then("step"))
        .drop("at", "begin_ns", "end_ns")
    )  # fmt: skip


# Merged intervals of time, and their length within given stretches.


@dataclass(frozen=True)
class BusyIntervals:
    """Sorted intervals that do not overlap."""

    starts: Ints
    ends: Ints

    @classmethod
    def of(cls, starts: Ints, ends: Ints) -> BusyIntervals:
        """Merges intervals given in any order."""
        if not len(starts):
            return cls(starts, ends)
        order = np.argsort(starts, kind="stable")
        starts, reach = starts[order], np.maximum.accumulate(ends[order])
        first = np.concatenate(([True], starts[1:] > reach[:-1]))
        last = np.concatenate((first[1:], [True]))
        return cls(starts[first], reach[last])

    def joined(self, other: BusyIntervals) -> BusyIntervals:
        """The union of both."""
        return BusyIntervals.of(np.concatenate((self.starts, other.starts)), np.concatenate((self.ends, other.ends)))

    def without(self, other: BusyIntervals) -> BusyIntervals:
        """The parts of these that are in none of the others."""
        times = np.unique(np.concatenate((self.starts, self.ends, other.starts, other.ends)))
        left = self.covers(times) & ~other.covers(times)
        begins = np.flatnonzero(left)
        return BusyIntervals.of(times[begins], times[begins + 1])

    def shared(self, other: BusyIntervals) -> BusyIntervals:
        """The parts that are in both."""
        return self.without(self.without(other))

    def covers(self, times: Ints) -> Mask:
        """Whether each time is in one of them; an interval ends before its end."""
        at = np.searchsorted(self.starts, times, side="right") - 1
        if not len(self.starts):
            return np.zeros(len(times), np.bool_)
        found: Mask = (at >= 0) & (self.ends[np.maximum(at, 0)] > times)
        return found

    def within(self, since: Ints, until: Ints) -> Ints:
        """Busy time of each stretch."""
        return self._before(until) - self._before(since)

    def _before(self, times: Ints) -> Ints:
        if not len(self.starts):
            return np.zeros(len(times), np.int64)
        total = np.concatenate(([0], np.cumsum(self.ends - self.starts)))
        at = np.searchsorted(self.starts, times, side="right")
        over = np.where(at > 0, np.maximum(self.ends[np.maximum(at - 1, 0)] - times, 0), 0)
        return total[at] - over
