"""Tables of tracks and spans, and the roles of events with or around operations."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import polars as pl

from rankscope.assemble.sources import WindowSpans
from rankscope.features.traces.read import event_names
from rankscope.features.traces.read.model import CALL_NUMBERS, TracedCall
from rankscope.features.traces.rows.trace_window import CATEGORY, Mask, TraceWindow
from rankscope.parsers.matrices import NULL, Numbers
from rankscope.schema.tables import SPAN_VALUES, SPANS, TRACKS


@dataclass
class SpanRoles:
    """The candidates of a window, each a row of its `call_numbers`."""

    window: TraceWindow
    _told: dict[str, list[int]] = field(default_factory=dict)

    def number(self, name: str) -> Numbers:
        """A number column of the candidates."""
        column: Numbers = self.window.content.call_numbers[CALL_NUMBERS.index(name)]
        return column

    def column_list(self, name: str) -> list[int]:
        """A number column as a list, which is faster for single values."""
        if name not in self._told:
            self._told[name] = self.number(name).tolist()
        return self._told[name]

    @cached_property
    def span(self) -> Places:
        """Row of the window's spans."""
        return self.number("span")

    @cached_property
    def names(self) -> list[str]:
        """The name of each candidate."""
        table = self.window.content.names
        return [table[i] for i in self.window.content.code("name")[self.span].tolist()]

    @cached_property
    def calls(self) -> list[TracedCall]:
        """The call of each candidate."""
        table = self.window.content.calls
        return [table[i] for i in self.window.content.call_codes[0].tolist()]

    def _by_name(self, wanted: set[str]) -> Mask:
        table = self.window.content.names
        hits = np.array([name in wanted for name in table], np.bool_)
        return hits[self.window.content.code("name")[self.span]] if len(self.span) else np.empty(0, np.bool_)

    @cached_property
    def _device(self) -> Mask:
        lanes = self.window.content.code("lane")[self.span]
        return self.window.on_device[lanes] if len(lanes) else np.empty(0, np.bool_)

    @cached_property
    def comms(self) -> Places:
        """Rows of record_param_comms."""
        return np.flatnonzero(self._by_name({event_names.PARAM_COMMS}) & ~self._device)

    @cached_property
    def annotations(self) -> Places:
        """Rows of annotations such as nccl:all_reduce."""
        wanted = {name for name in self.window.content.names if event_names.ANNOTATION_NAME.match(name)}
        return np.flatnonzero(self._by_name(wanted) & ~self._device)

    @cached_property
    def operators(self) -> Places:
        """Rows of c10d's operators."""
        wanted = {name for name in self.window.content.names if event_names.ISSUED_NAME.match(name)}
        return np.flatnonzero(self._by_name(wanted) & ~self._device)

    @cached_property
    def runs(self) -> Places:
        """Rows of kernels that run collectives."""
        wanted = {name for name in self.window.content.names if event_names.is_run(name)}
        table = self.window.content.calls
        says_so = np.array([call.collective is not None for call in table], np.bool_)
        codes = self.window.content.call_codes[0]
        said = says_so[codes] if len(codes) else np.empty(0, np.bool_)
        return np.flatnonzero((self._by_name(wanted) | said) & self._device)

    def within(self, inner: Places, outer: Places) -> Places:
        """For each row of `inner` the index in `outer` of the span around it on its thread; -1 without one."""
        w = self.window
        return enclosing_spans(w.track.astype(np.int64), w.start, w.end, self.span[inner], self.span[outer])

    def launched_by(self, runs: Places, issues: Places) -> Places:
        """For each kernel the index in `issues` of the row in which the host launched it; -1 if unknown."""
        found = self._by_id(runs, issues)
        left = np.flatnonzero(found < 0)
        found[left] = self._by_launch(runs[left], issues)
        return found

    def _by_id(self, runs: Places, issues: Places) -> Places:
        external, correlation = self.number("external"), self.number("correlation")
        described = np.array([self.calls[run].collective is not None for run in runs.tolist()], np.bool_)
        # before kernels had arguments, their id was their own correlation
        told = (external[runs] != NULL) & (described | (external[runs] != correlation[runs]))
        place = table_places(external[runs], external[issues])
        same = np.array(
            [
                at >= 0 and self.calls[run].collective in (None, self.calls[issues[at]].collective)
                for run, at in zip(runs.tolist(), place.tolist(), strict=True)
            ],
            np.bool_,
        )
        return np.where(told & same, place, -1)

    def _by_launch(self, runs: Places, issues: Places) -> Places:
        """As `launched_by`, from the runtime's call that started the kernel: it lies within one of the rows."""
        w = self.window
        correlation = w.content.column("correlation")
        lanes = w.content.code("lane")
        hosts = np.flatnonzero((correlation != NULL) & ~w.on_device[lanes]) if len(lanes) else np.empty(0, np.int64)
        at = table_places(self.number("correlation")[runs], correlation[hosts])
        known = np.flatnonzero((at >= 0) & (self.number("correlation")[runs] != NULL))
        found = np.full(len(runs), -1, np.int64)
        found[known] = enclosing_spans(w.track.astype(np.int64), w.start, w.end, hosts[at[known]], self.span[issues])
        return found


# Enclosing spans on the same track.

Places = npt.NDArray[np.int64]


def enclosing_spans(track: Places, start: Numbers, end: Numbers, inner: Places, outer: Places) -> Places:
    """For each span of `inner` the index in `outer` of the last begun span that covers it; -1 without one.

    `inner` and `outer` are rows of `track`, `start` and `end`. Only the last begun span is checked, because spans
    around operations are not nested.
    """
    rows, own = np.concatenate([outer, inner]), len(outer)
    order = np.lexsort((np.arange(len(rows)) >= own, start[rows], track[rows]))
    last = np.maximum.accumulate(np.where(order < own, np.arange(len(rows)), -1))
    before = np.full(len(rows), -1, np.int64)
    before[order] = np.where(last >= 0, order[last], -1)
    found = before[own:]
    rival = outer[np.maximum(found, 0)] if own else inner
    covers = (found >= 0) & (track[rival] == track[inner]) & (end[rival] >= end[inner])
    return np.where(covers, found, -1)


def table_places(values: Numbers, table: Numbers) -> Places:
    """For each value its index in `table`; -1 without one."""
    found = np.full(len(values), -1, np.int64)
    if not len(table):
        return found
    order = np.argsort(table, kind="stable")
    at = np.minimum(np.searchsorted(table[order], values), len(table) - 1)
    place = order[at]
    found[table[place] == values] = place[table[place] == values]
    return found


DEEPEST = 65535
LARGEST = 1 << 31
"""Upper bound of device numbers and of places on a screen."""


def arrange_spans(window: TraceWindow) -> WindowSpans:
    """Sorts the spans of a window, and counts the enclosing spans of each."""
    content = window.content
    kept = np.flatnonzero(window.track >= 0)
    start = content.column("start_ns")
    end = start + content.column("duration_ns")
    # numpy sorts small integers without comparisons
    narrow = np.min_scalar_type(len(window.tracks))
    order = kept[np.argsort(window.track[kept].astype(narrow), kind="stable")]
    edges = np.searchsorted(window.track[order], np.arange(len(window.tracks) + 1))
    depth = np.zeros(len(order), np.int64)
    for low, high in pairwise(edges.tolist()):
        rows = order[low:high]
        rows = order[low:high] = rows[by_time(start[rows], end[rows])]
        depth[low:high] = _depths(start[rows], end[rows])
    return WindowSpans(order, _columns(window, order, np.minimum(depth, DEEPEST).astype(np.uint16)))


def _columns(window: TraceWindow, order: Numbers, depth: npt.NDArray[np.uint16]) -> pl.DataFrame:
    content = window.content
    correlation = content.column("correlation")[order]
    names_ = pl.Series(content.names, dtype=pl.String).cast(pl.Categorical)
    return pl.DataFrame(
        {
            "track": window.track[order].astype(np.uint32),
            "category": _categories(window, order),
            "name": names_.gather(content.code("name")[order]),
            "start_ns": content.column("start_ns")[order],
            "duration_ns": content.column("duration_ns")[order],
            "depth": depth,
            "correlation": pl.Series(correlation).set(pl.Series(correlation == NULL), None),
        }
    )


def by_time(start: Numbers, end: Numbers) -> Numbers:
    """Rows by start; for equal starts the longest first.

    Profilers write nearly in this order: a stable sort merges the existing runs in linear time.
    """
    order = np.argsort(start, kind="stable")
    start, end = start[order], end[order]
    tied = start[1:] == start[:-1]
    if (tied & (end[1:] > end[:-1])).any():
        among = np.flatnonzero(np.append(tied, False) | np.insert(tied, 0, False))
        order[among] = order[among[np.lexsort((-end[among], start[among]))]]
    return order


def _depths(start: Numbers, end: Numbers) -> Numbers:
    """The number of open spans at the beginning of each: all earlier ones that have not ended."""
    ends = np.sort(np.maximum(end, start + 1), kind="stable")
    open_: Numbers = np.arange(len(start)) - np.searchsorted(ends, start, side="right")
    return np.maximum(open_, 0)


def track_table(window: TraceWindow, first: int) -> pl.DataFrame:
    """The tracks of a window, with numbers from `first` on."""
    titles = _titles(window)
    orders = {(x.pid, x.tid): x.number for x in window.content.labels if x.kind == "thread_sort_index"}
    kinds = _kinds(window)
    rows = [
        {
            "track": first + i, "file": window.place, "rank": window.rank, "kind": kinds[i],
            "device": pid if device and abs(pid) < LARGEST else None, "pid": None if device else pid, "lane": tid,
            "name": titles.get((pid, tid), "").strip(), "order": _small(orders.get((pid, tid))),
        }
        for i, (device, pid, tid) in enumerate(window.tracks)
    ]  # fmt: skip
    return pl.DataFrame(rows, schema=TRACKS, strict=False)


def _titles(window: TraceWindow) -> dict[tuple[int | None, int | None], str]:
    """Names of threads and streams; of two names, not the interpreter's, which comes first."""
    named = [label for label in window.content.labels if label.kind == "thread_name"]
    named.sort(key=lambda label: "(python" not in label.text)
    return {(label.pid, label.tid): label.text for label in named}


def _small(number: int | None) -> int:
    return number if number is not None and abs(number) < LARGEST else 0


def _kinds(window: TraceWindow) -> list[str]:
    """Kind of most kernels of a stream: collectives, else computing; without kernels it only copies."""
    count = len(window.tracks)
    lanes, name = window.content.code("lane"), window.content.code("name")
    kernel = np.array(
        [
            c in event_names.DEVICE_CATEGORIES - event_names.COPY_CATEGORIES - {"gpu_user_annotation", "cuda_sync"}
            for c in window.categories
        ],
        np.bool_,
    )
    runs = np.array([event_names.is_run(text) for text in window.content.names], np.bool_) | window.communicates
    on = np.flatnonzero(kernel[lanes] & (window.track >= 0)) if len(lanes) else np.empty(0, np.int64)
    all_ = np.bincount(window.track[on], minlength=count)
    own = np.bincount(window.track[on][runs[name[on]]], minlength=count) if len(on) else all_
    return [
        "host" if not device else "memory" if not all_[i] else "communication" if 2 * own[i] > all_[i] else "compute"
        for i, (device, _, _) in enumerate(window.tracks)
    ]


def span_table(
    window: TraceWindow, drawn: WindowSpans, executes: Numbers, first_track: int, first_op: int
) -> pl.DataFrame:
    """The spans of a window; `executes` gives for each row its operation, counted within the window."""
    op = executes[drawn.order]
    of_window = drawn.columns.with_columns(
        track=pl.col("track") + first_track,
        start_ns=pl.col("start_ns") + window.base_ns,
        op=pl.Series(op + first_op).set(pl.Series(op < 0), None),
    )
    if window.communicates.any():
        # of the kernels that belong to no operation of a group, those that communicate
        mine = window.communicates[window.content.code("name")[drawn.order]] & (op < 0)
        other = pl.Series(mine) & (pl.col("category") == "kernel")
        communicates = pl.lit(CATEGORY, dtype=pl.Categorical)
        of_window = of_window.with_columns(category=pl.when(other).then(communicates).otherwise("category"))
    return of_window.select([pl.col(name).cast(kind) for name, kind in SPANS.items()])


def value_table(window: TraceWindow, drawn: WindowSpans, first_span: int) -> pl.DataFrame:
    """The numbers of spans that measure or wait, with columns SPAN_VALUES."""
    content = window.content
    if not content.values.size:
        return SPAN_VALUES.empty()
    place = np.full(content.rows, -1, np.int64)
    place[drawn.order] = np.arange(len(drawn.order)) + first_span
    span, code = place[content.value_numbers[0]], content.value_numbers[1]
    names_ = pl.Series(content.value_names, dtype=pl.String).cast(pl.Categorical)
    table = pl.DataFrame({"span": span, "name": names_.gather(code), "value": content.values[0]})
    return table.filter(pl.col("span") >= 0).select(pl.col(name).cast(kind) for name, kind in SPAN_VALUES.items())


def _categories(window: TraceWindow, order: Numbers) -> pl.Series:
    """The current category of each span; in 2021 steps were operators."""
    table = list(dict.fromkeys([*window.categories, "user_annotation"]))
    of_lane = np.array([table.index(category) for category in window.categories], np.int32)
    codes = of_lane[window.content.code("lane")[order]] if len(order) else np.empty(0, np.int32)
    steps = np.array([name.startswith(event_names.STEP) for name in window.content.names], np.bool_)
    if steps.any() and "cpu_op" in table:
        mine = steps[window.content.code("name")[order]] & (codes == table.index("cpu_op"))
        codes = np.where(mine, table.index("user_annotation"), codes)
    return pl.Series(table, dtype=pl.String).cast(pl.Categorical).gather(codes)
