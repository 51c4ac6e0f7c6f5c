"""Nodes of a critical path: the work of one trace, with what each piece of it waited for.

Work on a stream starts when the work before it on that stream has ended, when the host has launched it, and when the
events that its stream waits for are there: it waited for the last of these. An event wait is known from the pair of a
`Stream Wait Event` and the call that recorded the event; where the trace lacks these, it is inferred from work of
another stream that ended at most HANDOVER_NS before the start, and from a cudaStreamWaitEvent that the host called
since the launch before it on the stream, if the trace holds such calls. The host waits for the last work that ends
while it waits (`host_pieces`).

Without a device, collectives of gloo's run loops are the nodes. The host waits for one if no operator runs when it ends
and the innermost annotation of the main thread began before its issue: what began later is other work.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from rankscope.analysis.arrays import Ints, Mask, filled_array
from rankscope.features.traces.rules.device_spans import (
    BusyIntervals,
    SpanIndex,
    is_among,
)
from rankscope.features.traces.rules.host_pieces import HostPieces, holds_host, host_pieces
from rankscope.features.traces.rules.host_time import HostTime

HANDOVER_NS = 30_000
"""Longest time from the end of work to the start of work that waited for its event."""
SLACK_NS = 2_000
"""Work may end this much after the call that waited for it, as the clock of a device is converted."""
NEVER = int(np.iinfo(np.int64).min)
_STREAM_WAIT = re.compile(r"StreamWaitEvent")


@dataclass(frozen=True)
class PathNodes:
    """Pieces of work of one trace, by start; all times are aligned."""

    rows: Ints
    """Rows of `Dataset.spans`."""
    kinds: Sequence[str]
    starts: Sequence[int]
    ends: Sequence[int]
    since: Sequence[int]
    """When the last thing happened that it waited for: the end of other work, or the begin of its launch."""
    before: Sequence[int]
    """The node with that end; -1 for a launch, from which the path goes on on the host."""
    ops: Sequence[int]
    """Rows of `Dataset.traced`; -1 for other work."""
    issued: Ints
    """Begin of its launch; its start where that is unknown."""
    done: Sequence[int]
    """The ends of work that the host waited for, sorted."""
    awaited: Sequence[int]
    """The nodes with these ends."""

    def last_wait(self, time: int) -> int:
        """The place in `awaited` of the last wait of the host that ended until `time`; -1 without one."""
        return bisect_right(self.done, time) - 1


def path_nodes(spans: SpanIndex, file: int, offset: int) -> PathNodes:
    """The nodes of a file, whose times are moved by `offset`."""
    launched = spans.launched(file)
    devices = spans.dataset.tracks.filter(pl.col("device").is_not_null())["track"]
    if launched.height and launched["track"].is_in(devices.implode()).all():
        return _of_device(spans, file, launched, offset)
    return _of_host(spans, file, launched, offset)


class _Work:
    """Columns of the work of one file, by start, and the work before each on its stream."""

    def __init__(self, spans: SpanIndex, work: pl.DataFrame) -> None:
        self.table = work
        self.start, self.end = (work[name].to_numpy() for name in ("start_ns", "end_ns"))
        self.row, self.track = (work[name].to_numpy().astype(np.int64) for name in ("row", "track"))
        traced, ops = spans.dataset.traced, spans.dataset.spans["op"].gather(work["row"])
        # a table of which rows were taken out has fewer operations than spans name
        ops = ops.set(ops >= traced.height, None)
        self.ops = filled_array(ops.cast(pl.Int64), -1)
        calls = pl.select(pl.coalesce(work["call_ns"], traced["created_ns"].gather(ops))).to_series()
        self.call = np.minimum(filled_array(calls, NEVER), self.start)
        order = np.argsort(self.track, kind="stable")
        self.before = np.full(len(order), -1, np.int64)
        if len(order):
            same = self.track[order[1:]] == self.track[order[:-1]]
            self.before[order[1:][same]] = order[:-1][same]

    def settled(self) -> tuple[Ints, Ints]:
        """`since` and `before` by stream and launch: work that was launched before the end of the work before it waited
        for that, and work of unknown launch if it followed at once."""
        ended = np.where(self.before >= 0, np.minimum(self.end[self.before], self.start), NEVER)
        unknown = (self.call == NEVER) & (ended < self.start - HANDOVER_NS)
        call = np.where(unknown, self.start, self.call)
        late = call >= ended
        return np.where(late, call, ended), np.where(late, -1, self.before)

    def last_ended(self, times: Ints, ends: Ints) -> Ints:
        """For each time the work of which these `ends` came last until then; -1 without any."""
        order = np.argsort(ends, kind="stable")
        at = np.searchsorted(ends[order], times, side="right") - 1
        return np.where(at >= 0, order[np.maximum(at, 0)], -1) if len(order) else np.full(len(times), -1, np.int64)

    def nodes(self, since: Ints, before: Ints, waits: tuple[Ints, Ints], offset: int) -> PathNodes:
        """The finished nodes; `waits` are the ends of work that the host waited for, and that work."""
        done, awaited = waits
        order = np.argsort(done, kind="stable")
        issued = np.where(self.call == NEVER, self.start, self.call)
        kinds = self.table["what"].cast(pl.String).to_list()
        return PathNodes(
            self.row, kinds, (self.start + offset).tolist(), (self.end + offset).tolist(), (since + offset).tolist(),
            before.tolist(), self.ops.tolist(), issued + offset, (done[order] + offset).tolist(),
            awaited[order].tolist(),
        )  # fmt: skip


# Nodes on devices.


def _of_device(spans: SpanIndex, file: int, launched: pl.DataFrame, offset: int) -> PathNodes:
    work = _Work(spans, launched)
    since, before = work.settled()
    told = _told_events(spans, file, work, since)
    source = np.where(told == _UNTOLD, _inferred_events(work, _stream_waits(spans, file), since), told)
    waited = source >= 0
    since = np.where(waited, work.end[source], since)
    return work.nodes(since, np.where(waited, source, before), _awaited(work, host_pieces(spans, file)), offset)


def _stream_waits(spans: SpanIndex, file: int) -> Ints:
    """Begins of the calls of cudaStreamWaitEvent and its like, sorted."""
    host = spans.host(file)
    if host is None:
        return np.empty(0, np.int64)
    names = host["name"].unique().cast(pl.String).drop_nulls()
    waits = host.filter(is_among("name", [name for name in names if _STREAM_WAIT.search(name)]))
    return waits["start_ns"].sort().to_numpy()


_UNTOLD = -2
"""The place of work of which the trace tells no wait for an event."""


def _told_events(spans: SpanIndex, file: int, work: _Work, since: Ints) -> Ints:
    """For each work the work of another stream whose event it waited for, -1 if that came before `since`, else _UNTOLD.

    The event is that of the last work which the host had launched on the stream when it called for the record; the work
    that waits is the first that it launched on the waiting stream after it had called for the wait. A loop over the
    pairs of streams that wait for each other, of which there are few.
    """
    source = np.full(len(work.call), _UNTOLD, np.int64)
    if spans.dataset.span_values.is_empty():
        return source
    waits = spans.event_waits(file)
    pairs = [np.empty((2, 0), np.int64)]
    for (track, record), part in waits.partition_by("track", "record_track", as_dict=True).items():
        own, other = (np.flatnonzero((work.track == one) & (work.call != NEVER)) for one in (track, record))
        own, other = (rows[np.argsort(work.call[rows], kind="stable")] for rows in (own, other))
        first = np.searchsorted(work.call[own], part["call_ns"].to_numpy())
        last = np.searchsorted(work.call[other], part["record_ns"].to_numpy()) - 1
        met = (first < len(own)) & (last >= 0)
        pairs.append(np.stack((own[first[met]], other[last[met]])))
    waiting, ended = np.concatenate(pairs, axis=1)
    late = (work.end[ended] > since[waiting]) & (work.start[ended] < work.start[waiting])
    # of several events the last that came counts: it is set last
    order = np.flatnonzero(late)[np.argsort(work.end[ended[late]], kind="stable")]
    source[waiting] = -1
    source[waiting[order]] = ended[order]
    return source


def _inferred_events(work: _Work, waits: Ints, since: Ints) -> Ints:
    """For each work the work of another stream that released it by an event; -1 without one."""
    source = work.last_ended(work.start, work.end)
    at = np.maximum(source, 0)
    known = (
        (source >= 0) & (work.track[at] != work.track) & (work.start[at] < work.start)
        & (work.end[at] > since) & (work.start - work.end[at] <= HANDOVER_NS)
    )  # fmt: skip
    # a graph holds its own waits: its work has one launch, or none that is recorded
    graph = (work.call == NEVER) | (work.call == work.call[at])
    return np.where(known & (graph | _called_between(work, waits)), source, -1)


def _called_between(work: _Work, waits: Ints) -> Mask:
    """Whether the host called for a wait after the launch before it on the stream, and before its own."""
    if not len(waits):
        return np.ones(len(work.call), np.bool_)
    earlier = np.where(work.before >= 0, work.call[work.before], NEVER)
    between: Mask = np.searchsorted(waits, work.call) > np.searchsorted(waits, earlier)
    return between


def _awaited(work: _Work, pieces: HostPieces) -> tuple[Ints, Ints]:
    """The ends of work that the host waited for, and that work; a call does not wait for the last part of a copy."""
    ends = work.table.select(pl.when(holds_host()).then(pl.min_horizontal("end_ns", "called_ns")).otherwise("end_ns"))
    ended = ends.to_series().to_numpy()
    found = work.last_ended(pieces.wait_ends + SLACK_NS, ended)
    met = found >= 0
    met[met] = ended[found[met]] > pieces.wait_begins[met]
    awaited = found[met]
    done = np.minimum(ended[awaited], pieces.wait_ends[met])
    # work without any length is no progress on the way back
    lasting = done > work.start[awaited]
    return done[lasting], awaited[lasting]


# Nodes on hosts: the collectives of gloo's run loops.


def _of_host(spans: SpanIndex, file: int, launched: pl.DataFrame, offset: int) -> PathNodes:
    ran = launched.filter(pl.col("what") == "communication")
    work = _Work(spans, ran)
    since, before = work.settled()
    awaited = np.flatnonzero(_waited_for(spans, file, work) & (work.end > work.start))
    return work.nodes(since, before, (work.end[awaited], awaited), offset)


def _waited_for(spans: SpanIndex, file: int, work: _Work) -> Mask:
    """Whether the host did nothing else when a collective ended."""
    host = spans.host(file)
    if host is None or not len(work.end):
        return np.zeros(len(work.end), np.bool_)
    own = host.filter(~pl.col("track").is_in(np.unique(work.track)))
    operators = own.filter(is_among("category", ["cpu_op"]))
    active = BusyIntervals.of(operators["start_ns"].to_numpy(), operators["end_ns"].to_numpy())
    idle: Mask = active.within(work.end - 1, work.end + 1) < 2
    marks = HostTime.of(own.filter(is_among("category", ["user_annotation"])))
    begun = marks.spans["start_ns"].to_numpy()
    if len(begun):
        inner = marks.innermost(work.end)
        issued = np.where(work.call == NEVER, work.start, work.call)
        idle &= (inner < 0) | (begun[np.maximum(inner, 0)] <= issued)
    return idle
