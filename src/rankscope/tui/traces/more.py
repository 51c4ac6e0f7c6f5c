"""The lanes of traces with those of traces that came: put between what was there, nothing else is worked out again."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from rankscope.analysis.model import Analysis
from rankscope.analysis.traces.model import TraceAnalysis
from rankscope.schema import Dataset
from rankscope.tui.live.spliced import Spliced
from rankscope.tui.traces.activity import COUNT, WINDOW
from rankscope.tui.traces.cover import Cover
from rankscope.tui.traces.lanes import Strand, TraceLanes, covers, ranks_of, strands_in, windows_of, with_windows
from rankscope.tui.traces.spans import BLOCK, Ints, Spans, build_spans

Places = NDArray[np.int32]
TABLES = ("traced", "tracks", "spans")
_ARRAYS = ("start", "end", "depth", "activity", "op", "name")
"""Of Spans: one value for each span."""


@dataclass(frozen=True)
class More:
    """Lanes, and how tables and arrays in them were made of those before."""

    lanes: TraceLanes
    spliced: tuple[Spliced, ...] = ()


@dataclass(frozen=True)
class _Joined:
    """A cover, where each lane and activity is in it, and what was put where in that of before."""

    cover: Cover
    key_of: Places
    places: Ints
    sizes: Ints


def with_more(before: TraceLanes, dataset: Dataset, analysis: Analysis) -> More | None:
    """The lanes of a dataset that has the traces of the one before, and others behind them; None if all is to be made.

    What the others tell of each other is not known yet: a collective of theirs waits for nobody.
    """
    traces = analysis.traces or TraceAnalysis()
    now = replace(before, dataset=dataset, analysis=analysis, traces=traces)
    if dataset.spans is before.dataset.spans:
        return More(now)
    if not dataset.traces.head(before.dataset.traces.height).equals(before.dataset.traces):
        return None
    part = _part(before.dataset, dataset)
    own = build_spans(part, dict(traces.offsets))
    own = replace(own, op=np.where(own.op >= 0, own.op + before.dataset.traced.height, -1))
    spans, ranks = _behind(before.spans, own), ranks_of(dataset)
    strands = _strands(before, dataset, spans, ranks)
    first = len(before.spans.numbers)
    mine = tuple(s._replace(tracks=tuple(t - first for t in s.tracks if t >= first)) for s in strands)
    windows = windows_of(part, traces, ranks)
    other = covers(own, mine, len(ranks), TraceAnalysis(offsets=traces.offsets), windows)
    joined = _joined(before.cover, _renumbered(before, ranks, strands), *other, len(ranks))
    if joined is None:
        return None
    lanes = replace(
        now, ranks=ranks, strands=strands, spans=spans, cover=joined.cover,
        key_of=with_windows(joined.key_of, strands, len(ranks)),
        low=min([before.low, *windows["start"].to_list()]), high=max([before.high, *windows["end"].to_list()]),
    )  # fmt: skip
    return More(lanes, _told(before, lanes, joined))


def _strands(before: TraceLanes, dataset: Dataset, spans: Spans, ranks: Places) -> tuple[Strand, ...]:
    """All threads and streams: those of ranks of which traces came are looked for again."""
    came = dataset.traces[before.dataset.traces.height :]["rank"].unique()
    own = strands_in(dataset.tracks.filter(pl.col("rank").is_in(came.implode())), spans, ranks)
    lane, new = {rank: at for at, rank in enumerate(ranks.tolist())}, set(came.to_list())
    rest = [strand._replace(lane=lane[strand.key[0]]) for strand in before.strands if strand.key[0] not in new]
    return tuple(sorted([*rest, *own], key=lambda strand: strand.lane))


def _part(before: Dataset, now: Dataset) -> Dataset:
    """The traces that are more, with operations counted from 0."""
    first = before.traced.height
    spans = now.spans[before.spans.height :].with_columns(
        op=(pl.col("op").cast(pl.Int64) - first).cast(now.spans.schema["op"])
    )
    return replace(
        now, traced=now.traced[first:], traces=now.traces[before.traces.height :],
        tracks=now.tracks[before.tracks.height :], spans=spans,
    )  # fmt: skip


def _behind(before: Spans, own: Spans) -> Spans:
    """Spans with others behind them."""
    arrays: dict[str, Any] = {name: np.concatenate([getattr(before, name), getattr(own, name)]) for name in _ARRAYS}
    whole = len(before.start) // BLOCK
    tail = arrays["end"][whole * BLOCK :] - arrays["start"][whole * BLOCK :]
    longest = np.maximum.reduceat(tail, np.arange(0, len(tail), BLOCK)) if len(tail) else tail
    return Spans(
        numbers=np.concatenate([before.numbers, own.numbers]),
        bounds=np.concatenate([before.bounds, own.bounds[1:] + len(before.start)]),
        shift=np.concatenate([before.shift, own.shift]),
        longest=np.concatenate([before.longest[:whole], longest]),
        names={**before.names, **own.names},
        **arrays,
    )


def _renumbered(before: TraceLanes, ranks: NDArray[np.int32], strands: tuple[Strand, ...]) -> Places:
    """Where each lane and activity is in the cover of before, with lanes and strands as they are numbered now."""
    place = {strand.key: len(ranks) + at for at, strand in enumerate(strands)}
    rows = [*np.searchsorted(ranks, before.ranks).tolist(), *(place[strand.key] for strand in before.strands)]
    out = np.full((len(ranks) + len(strands), COUNT), -1, np.int32)
    out[rows] = before.key_of
    return out


def _joined(old: Cover, was: Places, new: Cover, own: Places, lanes: int) -> _Joined | None:
    """Two covers in one; `was` and `own` tell where each lane and activity is in them. None where they overlap."""
    first, second = _of_keys(was, lanes), _of_keys(own, lanes)
    if (first[1] != np.arange(len(first[1]))).any():
        return None
    known = np.union1d(first[0], second[0])
    places = _places(old, first[0], new, second[0])
    start, end = np.insert(old.start, places, new.start), np.insert(old.end, places, new.end)
    sizes = np.zeros(len(known), np.int64)
    for keys, cover in ((first[0], old), (second[0], new)):
        sizes[np.searchsorted(known, keys)] += np.diff(cover.bounds)
    bounds = np.concatenate([[0], np.cumsum(sizes)])
    apart = start[1:] > end[:-1]
    apart[bounds[1:-1] - 1] = True
    key_of = np.full(was.size, -1, np.int32)
    key_of[known] = np.arange(len(known))
    at, counts = np.unique(places, return_counts=True)
    shaped = key_of.reshape(was.shape)
    return _Joined(Cover(bounds, start, end), shaped, at, counts) if apart.all() else None


def _of_keys(places: Places, lanes: int) -> tuple[Ints, Ints]:
    """Lanes and activities that a cover has, as one number, and where; strands have the windows of their lanes."""
    own = places.copy()
    own[lanes:, WINDOW] = -1
    flat = own.ravel()
    keys = np.flatnonzero(flat >= 0)
    return keys.astype(np.int64), flat[keys].astype(np.int64)


def _places(old: Cover, known: Ints, new: Cover, keys: Ints) -> Ints:
    """Where in the old cover each interval of the new one goes."""
    out = []
    for number, key in enumerate(keys.tolist()):
        own = new.start[new.bounds[number] : new.bounds[number + 1]]
        at = int(np.searchsorted(known, key))
        low = int(old.bounds[at])
        high = int(old.bounds[at + 1]) if at < len(known) and known[at] == key else low
        out.append(low + np.searchsorted(old.start[low:high], own))
    return np.concatenate([np.zeros(0, np.int64), *out])


def _told(before: TraceLanes, now: TraceLanes, joined: _Joined) -> tuple[Spliced, ...]:
    """What was put where: behind all of a table, or between intervals."""
    pairs = [(getattr(before.dataset, name), getattr(now.dataset, name)) for name in TABLES]
    pairs += [(getattr(before.spans, name), getattr(now.spans, name)) for name in _ARRAYS]
    ends = [np.array([len(was)]) for was, _ in pairs]
    behind = [
        Spliced(was, is_, end, end, np.array([len(is_) - len(was)]))
        for (was, is_), end in zip(pairs, ends, strict=True)
    ]
    between = [
        Spliced(getattr(before.cover, name), getattr(now.cover, name), joined.places, joined.places, joined.sizes)
        for name in ("start", "end")
    ]
    return *behind, *between
