"""Work and waits of the threads of a host, decided by the innermost call of each.

A thread does what its innermost span says: an operator, an autograd node or an annotation around a call that waits for
the device is no work. Of a process with a device, a piece of the time of a thread waits if its innermost span is

- a call that waits by its name: it synchronises a device, stream or event, copies without "Async", or allocates or
  frees memory, for which the runtime may have to drain the device first. Calls inside such a call wait with it;
- an operator that reads a value of the device (`aten::item`), as far as no call is recorded in it;
- a copy that returns only when its transfer is over, or nearly so, as one of pageable memory does: its last chunk may
  still be under way;
- a long call that returns behind its own work, which fills most of it (CUDA_LAUNCH_BLOCKING=1, MTIA);
- a call that hands over work and takes far longer than usual while work that was handed over before it is unfinished:
  the queue of the device is full;
- anything, or nothing, that ends as soon as all work handed over before its end is done. Some waits show no call: an
  allocator that drains the device, a runtime whose calls are not recorded. A host that does nothing new until its
  device is done waited for the device. Work that the call itself hands over proves no wait: a kernel whose launch
  loads a module for a second runs at its end.

`lateness` counts work only, causes of lateness skip waits, and critical paths follow waits to the work that ended them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from rankscope.analysis.arrays import Ints, Mask, filled_array
from rankscope.features.traces.rules.device_spans import LAUNCH_CATEGORIES, BusyIntervals, SpanIndex, is_among

WAIT_CALL = re.compile(
    r"synchroni[sz]e|QueueFinish|(?<!Enqueue)Events?Wait$"
    # copies: cudaMemcpy2D, hipMemcpyWithStream, cuMemcpyDtoH_v2, aclrtMemcpy
    r"|^(?!.*Async)(?:\w+@)?(?:cuda|hip|cu|aclrt|rt|Dev)(?:Memcpy|Memset)"
    # memory: cudaMalloc, cudaHostAlloc, hipHostFree, cuMemAlloc_v2, cuMemUnmap, aclrtFree, urUSMDeviceAlloc
    r"|^(?!.*(?:Async|FromPool))(?:\w+@)?(?:cuda|hip|aclrt|rt|Dev)(?:Ext)?(?:Host|Managed)?(?:Malloc|Free|Alloc)"
    r"|^(?:cu|hip)Mem(?:Alloc|Free|HostAlloc|FreeHost|Create|Map|Unmap|Release|SetAccess)(?!.*Async)"
    r"|^(?:urUSM|zeMem|piextUSM)\w*(?:Alloc|Free)",
    re.IGNORECASE,
)
"""Calls in which the host waits for its device, of CUDA, HIP, CANN, SYCL (UR, PI, Level Zero) and MTIA."""
_BARE_CALL = re.compile(r"StreamWaitEvent|StreamWait\b|EventQuery|StreamQuery|EnqueueEventsWait", re.IGNORECASE)
"""Calls that neither work nor wait: they ask, or make a stream wait."""
_READING_OPERATOR = re.compile(r"^aten::(?:item|_local_scalar_dense|is_nonzero)$")
_HANDING_CALL = re.compile(r"launch|async|enqueue|EventRecord|RecordEvent|StreamWaitEvent", re.IGNORECASE)
"""Calls that hand work over to the device, and return before it is done."""
_RUNTIME_CALL = re.compile(r"^(?:AscendCL|Runtime|Node|Model)@|^acl(?:rt|nn|mdl)")
"""Calls of CANN, whose events have no category of their own."""

LONG_CALL_NS, LONG_CALL_RATIO = 100_000, 10
"""Smallest length of a call that waits for a full queue, and its ratio to the usual length of calls of its name."""
USUAL_QUANTILE = 0.1
"""Quantile of the lengths of the calls that is their usual length: with a full queue, most of them may be long."""
RELEASED_NS, RELEASED_SHARE = 200_000, 0.02
"""Longest time from the end of the last work to the end of a wait for it; the second as a share of that wait."""
LEAST_WAIT_NS = 1_000_000
"""Shorter waits without a call that waits are not inferred."""


@dataclass(frozen=True)
class ThreadPieces:
    """Pieces of the time of one thread, one for each change of its innermost span."""

    times: Ints
    """Begins of the pieces but the first, which lasts until then, sorted."""
    rows: Ints
    """The innermost span of each piece, as row of `Dataset.spans`; -1 without."""
    works: Mask
    """Whether it is an operator or a call that does not wait, or lies within one."""
    waits: Mask

    def at(self, times: Ints) -> tuple[Ints, Mask]:
        """The row of the span at each time, -1 without one, and whether it works."""
        at = np.searchsorted(self.times, times, side="right")
        return self.rows[at], self.works[at]

    def spans_of(self, mask: Mask) -> tuple[Ints, Ints]:
        """Begins and ends of the bounded pieces where `mask` is true."""
        inside = mask[1:-1]
        return self.times[:-1][inside], self.times[1:][inside]


@dataclass(frozen=True)
class HostPieces:
    """The threads of the process of one trace; all times are on its own clock."""

    threads: Mapping[int, ThreadPieces]
    """By track."""
    work: BusyIntervals
    """Intervals in which any thread works."""
    wait_begins: Ints
    """Waits of all threads, by track, then time."""
    wait_ends: Ints

    def waits_of(self, track: int) -> BusyIntervals:
        """Intervals in which a thread waits."""
        thread = self.threads.get(track)
        none = np.empty(0, np.int64)
        return BusyIntervals(none, none) if thread is None else BusyIntervals.of(*thread.spans_of(thread.waits))


def host_pieces(spans: SpanIndex, file: int) -> HostPieces:
    """The pieces of all threads of a file."""
    return spans.once("pieces", file, lambda: _pieces(spans, file))


def _pieces(spans: SpanIndex, file: int) -> HostPieces:
    host, none = spans.host(file), np.empty(0, np.int64)
    if host is None:
        return HostPieces({}, BusyIntervals(none, none), none, none)
    device = _DeviceQueue.of(spans, file)
    kinds = _CallKinds.of(host, device)
    threads = {
        int(track): _of_thread(part, kinds, device)
        for (track,), part in host.partition_by("track", as_dict=True, maintain_order=True).items()
    }
    waits = [thread.spans_of(thread.waits) for thread in threads.values()]
    return HostPieces(threads, _work(threads, host), *(np.concatenate(part) for part in zip(*waits, strict=True)))


def _work(threads: Mapping[int, ThreadPieces], host: pl.DataFrame) -> BusyIntervals:
    """The work of all threads. CANN shows the calls of a thread in rows of their own: what waits there does not work
    elsewhere under the same thread id."""
    lanes = dict(host.select("track", "lane").unique("track").iter_rows())
    by_lane: dict[int, list[ThreadPieces]] = {}
    for track, thread in threads.items():
        by_lane.setdefault(lanes[track], []).append(thread)
    begins, ends = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    for group in by_lane.values():
        work = [BusyIntervals.of(*thread.spans_of(thread.works)) for thread in group]
        if len(group) > 1:
            waits = [BusyIntervals.of(*thread.spans_of(thread.waits)) for thread in group]
            work = [own.without(other) for i, own in enumerate(work) for other in [_all(waits[:i] + waits[i + 1 :])]]
        begins += [own.starts for own in work]
        ends += [own.ends for own in work]
    return BusyIntervals.of(np.concatenate(begins), np.concatenate(ends))


def _all(parts: Sequence[BusyIntervals]) -> BusyIntervals:
    return BusyIntervals.of(*(np.concatenate([getattr(part, name) for part in parts]) for name in ("starts", "ends")))


@dataclass(frozen=True)
class _DeviceQueue:
    """Work that a host handed over to its devices, by the time when it did."""

    handed: Ints
    done: Ints
    """When this work and all before it was done."""
    holding: pl.Series
    """Correlations of work that holds the call that started it (`holds_host`)."""

    @classmethod
    def of(cls, spans: SpanIndex, file: int) -> _DeviceQueue | None:
        """The work of a file; None without a device."""
        devices = spans.dataset.tracks.filter(pl.col("device").is_not_null())["track"]
        launched = spans.launched(file)
        if launched.is_empty() or not launched["track"].is_in(devices.implode()).all():
            return None
        work = launched.with_columns(handed=pl.min_horizontal("call_ns", "start_ns")).sort("handed")
        holding = launched.filter(holds_host())["correlation"].drop_nulls()
        return cls(work["handed"].to_numpy(), work["end_ns"].cum_max().to_numpy(), holding)

    def done_of(self, times: Ints) -> Ints:
        """For each time when all work handed over before it was done; long ago without any."""
        at = np.searchsorted(self.handed, times) - 1
        done: Ints = np.where(at >= 0, self.done[np.maximum(at, 0)], np.iinfo(np.int64).min)
        return done


def holds_host() -> pl.Expr:
    """Whether the call that started the work returned only behind it, for each row of `SpanIndex.launched`.

    Half of a copy is enough, as calls do not wait for the last chunk of pageable memory. A kernel has to fill most of a
    long call, for a short one may happen to end within its launch.
    """
    length, call = pl.col("end_ns") - pl.col("start_ns"), pl.col("called_ns") - pl.col("call_ns")
    copied = (pl.col("what") == "memory") & (2 * pl.col("called_ns") >= pl.col("start_ns") + pl.col("end_ns"))
    ran = (pl.col("end_ns") <= pl.col("called_ns")) & (call >= LONG_CALL_NS) & (2 * length >= call)
    return copied | ran


@dataclass(frozen=True)
class _CallKinds:
    """Names of the spans of a host by what they do."""

    calls: Sequence[str]
    """Names of calls of a runtime that have no category."""
    waits: Sequence[str]
    bare: Sequence[str]
    reads: Sequence[str]
    usual: pl.DataFrame
    """name, usual_ns of calls that hand work over."""

    @classmethod
    def of(cls, host: pl.DataFrame, device: _DeviceQueue | None) -> _CallKinds:
        """The names in all threads; without a device nothing reads from one, and no queue is full."""
        names = host["name"].unique().cast(pl.String).drop_nulls()
        found = cls(
            [n for n in names if _RUNTIME_CALL.search(n)],
            [n for n in names if WAIT_CALL.search(n)],
            [n for n in names if _BARE_CALL.search(n)],
            [n for n in names if device is not None and _READING_OPERATOR.search(n)],
            pl.DataFrame(schema={"name": host.schema["name"], "usual_ns": pl.Float64}),
        )
        if device is None:
            return found
        handing = host.filter(found.is_call & is_among("name", [n for n in names if _HANDING_CALL.search(n)]))
        length = pl.col("end_ns") - pl.col("start_ns")
        of_all = handing.select(length.quantile(USUAL_QUANTILE)).item()
        usual = handing.group_by("name").agg(usual_ns=length.quantile(USUAL_QUANTILE))
        return cls(
            found.calls, found.waits, found.bare, found.reads,
            usual.with_columns(pl.min_horizontal("usual_ns", pl.lit(of_all, dtype=pl.Float64))),
        )  # fmt: skip

    @property
    def is_call(self) -> pl.Expr:
        """Whether a span is a call of a runtime."""
        return is_among("category", LAUNCH_CATEGORIES) | is_among("name", self.calls)


def _of_thread(spans: pl.DataFrame, kinds: _CallKinds, device: _DeviceQueue | None) -> ThreadPieces:
    """Each change: a span begins, or ends and gives way to the one around it."""
    start, end, depth = spans["start_ns"].to_numpy(), spans["end_ns"].to_numpy(), depths(spans)
    parents = span_parents(spans)
    lasting = np.flatnonzero(end > start)
    times = np.concatenate((start[lasting], end[lasting]))
    inner = np.concatenate((lasting, parents[lasting]))
    # of what happens at once, ends come first, the deepest first, then begins, the outermost first
    level = np.concatenate((depth[lasting] + 1, -depth[lasting] - 1))
    order = np.lexsort((level, times))
    times = times[order]
    # before all of them there is nothing
    inner = np.insert(inner[order], 0, -1)
    rows = np.append(spans["row"].to_numpy().astype(np.int64), -1)
    calls, works, waits = (np.append(mask, False)[inner] for mask in _doing(spans, parents, kinds, device))
    if device is not None:
        waits |= _released(times, calls, device)
    return ThreadPieces(times, rows[inner], works & ~waits, waits)


def _doing(
    spans: pl.DataFrame, parents: Ints, kinds: _CallKinds, device: _DeviceQueue | None
) -> tuple[Mask, Mask, Mask]:
    """For each span of a thread whether it is a call; is, or lies within, an operator or call; and waits."""
    told = spans.join(kinds.usual, on="name", how="left", maintain_order="left").select(
        call=kinds.is_call, operator=is_among("category", ["cpu_op"]), waits=is_among("name", kinds.waits),
        bare=is_among("name", kinds.bare), reads=is_among("name", kinds.reads), usual="usual_ns",
    )  # fmt: skip
    call, operator, waits, bare, reads = (filled_array(told[name], False).copy() for name in told.columns[:5])
    waits &= call
    if device is not None:
        waits |= call & filled_array(spans["correlation"].is_in(device.holding.implode()), False)
        waits |= call & _full_queue(spans, told["usual"].fill_null(np.inf).to_numpy(), device)
    doer = call | operator
    works = np.append(doer & ~bare, False)[_holders(doer, parents)]
    # a call within a call that waits does not work on either
    nested = np.flatnonzero(call & np.append(call, False)[parents])
    while (more := nested[waits[parents[nested]] & ~waits[nested]]).size:
        waits[more] = True
    return call, works & ~waits, waits | (operator & reads)


def _holders(doer: Mask, parents: Ints) -> Ints:
    """For each span itself if it is an operator or a call, else the nearest such one around it; -1 without."""
    holders = np.where(doer, np.arange(len(parents)), parents)
    known = np.append(doer, True)
    left = np.flatnonzero(~known[holders])
    while left.size:
        holders[left] = parents[holders[left]]
        left = left[~known[holders[left]]]
    return holders


def _full_queue(spans: pl.DataFrame, usual: npt.NDArray[np.float64], device: _DeviceQueue) -> Mask:
    """Whether each is a call far longer than usual, while work that was handed over before it is unfinished."""
    begin, end = spans["start_ns"].to_numpy(), spans["end_ns"].to_numpy()
    length = end - begin
    long = (length >= LONG_CALL_NS) & (length >= LONG_CALL_RATIO * usual)
    found: Mask = long & (device.done_of(begin) >= end - np.minimum(RELEASED_NS, length // 2))
    return found


def _released(times: Ints, calls: Mask, device: _DeviceQueue) -> Mask:
    """Whether each piece ends as soon as all work is done that was handed over before its end, or of calls, which hand
    over work themselves, before its begin."""
    begins, ends = times[:-1], times[1:]
    length, done = ends - begins, device.done_of(np.where(calls[1:-1], begins, ends))
    soon = ends - done <= np.minimum(RELEASED_NS, RELEASED_SHARE * length)
    found = (length >= LEAST_WAIT_NS) & (done > begins) & (done <= ends) & soon
    return np.concatenate(([False], found, [False])) if len(times) else np.zeros(1, np.bool_)


def depths(spans: pl.DataFrame) -> Ints:
    """The depths of spans of a thread."""
    return spans["depth"].to_numpy().astype(np.int64)


def span_parents(spans: pl.DataFrame) -> Ints:
    """For each span of a thread the index of its parent, -1 without: the last earlier span with a depth less by one."""
    depth = depths(spans)
    out = np.full(len(depth), -1, np.int64)
    before = np.flatnonzero(depth == 0)
    for level in range(1, int(depth.max(initial=0)) + 1):
        here = np.flatnonzero(depth == level)
        at = np.searchsorted(before, here) - 1
        out[here] = np.where(at >= 0, before[np.maximum(at, 0)], -1) if len(before) else -1
        before = here
    return out
