"""The lanes of traces as arrays, cut from the frame once in a thread: drawing uses only these arrays."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from rankscope.analysis.model import Analysis
from rankscope.features.traces.page.activity import (
    COMMUNICATION,
    COMPUTE,
    COUNT,
    HOST_KINDS,
    MEMORY,
    MOVING,
    NOTHING,
    WAITING,
    WINDOW,
)
from rankscope.features.traces.page.busy_time import Cover, cover_of, merged
from rankscope.features.traces.page.span_arrays import Spans, build_spans
from rankscope.features.traces.rules.device_spans import step_spans
from rankscope.features.traces.rules.model import TRACE_RESULTS, TraceAnalysis
from rankscope.schema import Dataset
from rankscope.text.escaping import plain
from rankscope.text.wording import duration
from rankscope.tui.letters import letter_number

Ints = NDArray[np.int64]
MUCH = 0.01
"""Share of a window from which copies are much."""
Key = tuple[int, int | None, int | None, int, str]
"""Rank, device, process, thread or stream, and kind."""
KINDS = ("host", "compute", "communication", "memory")


class Strand(NamedTuple):
    """A thread or stream of a rank, over all windows of its profiler."""

    lane: int
    """Index of its rank."""
    kind: str
    name: str
    tracks: tuple[int, ...]
    """Tracks, counted from 0 in `Spans`."""
    key: Key
    """Its key in all windows."""


@dataclass(frozen=True)
class TraceLanes:
    """The lanes of all ranks that were traced."""

    dataset: Dataset
    analysis: Analysis
    traces: TraceAnalysis
    ranks: NDArray[np.int32]
    """The rank of each lane, rising."""
    strands: tuple[Strand, ...]
    """Sorted by lane, then hosts first."""
    spans: Spans
    cover: Cover
    key_of: NDArray[np.int32]
    """Key in `cover` of each lane and activity, -1 for none. Lanes of ranks come first, then those of strands."""
    low: int
    high: int
    """Start and end of all windows, in aligned time."""

    @cached_property
    def lane_of(self) -> dict[int, int]:
        """The lane of each rank."""
        return {rank: lane for lane, rank in enumerate(self.ranks.tolist())}

    @cached_property
    def strands_of(self) -> tuple[tuple[int, ...], ...]:
        """The strands of each lane."""
        out: list[list[int]] = [[] for _ in self.ranks]
        for at, strand in enumerate(self.strands):
            out[strand.lane].append(at)
        return tuple(tuple(found) for found in out)

    @cached_property
    def host_steps(self) -> pl.DataFrame:
        """The steps as hosts went through them, in aligned time: rank, file, step, start_ns, end_ns."""
        offset = pl.col("file").replace_strict(dict(self.traces.offsets), default=0, return_dtype=pl.Int64)
        return step_spans(self.dataset).join(self.dataset.traces.select("file", "rank"), on="file").select(
            "rank", "file", "step", start_ns=pl.col("begin_ns") + offset, end_ns=pl.col("end_ns") + offset
        )  # fmt: skip

    @cached_property
    def present(self) -> tuple[int, ...]:
        """Activities that occur."""
        return tuple(np.flatnonzero((self.key_of >= 0).any(axis=0)).tolist())

    def has(self, lane: int, kind: str) -> bool:
        """Whether a rank had any activity of that kind."""
        return bool((self.key_of[lane, list(activities_of(kind))] >= 0).any())

    def copies_much(self, lane: int) -> bool:
        """Whether copies take enough of a rank's time for a row beside computing."""
        key = int(self.key_of[lane, MEMORY])
        return key >= 0 and self._length(key) >= MUCH * self._length(int(self.key_of[lane, WINDOW]))

    def _length(self, key: int) -> int:
        first, last = self.cover.bounds[key], self.cover.bounds[key + 1]
        return int(self.cover.before[last] - self.cover.before[first])

    @cached_property
    def steps_of(self) -> tuple[tuple[Ints, list[int]], ...]:
        """By lane, the begins of its steps, rising, and their numbers."""
        table = self.traces.steps.sort("start_ns")
        by_rank = {rank: part for (rank,), part in table.partition_by("rank", as_dict=True).items()}
        parts = [by_rank.get(rank, table.clear()) for rank in self.ranks.tolist()]
        return tuple((part["start_ns"].to_numpy().astype(np.int64), part["step"].to_list()) for part in parts)

    @cached_property
    def match_of(self) -> Ints:
        """The match of each row of `traced`; -1 for none."""
        out = np.full(self.dataset.traced.height + 1, -1, np.int64)
        out[self.traces.matched["row"].to_numpy()] = self.traces.matched["match"].to_numpy()
        return out

    @cached_property
    def span_of_row(self) -> dict[int, int]:
        """The span that executes each row of `traced`, the longest of several."""
        at = np.flatnonzero(self.spans.op >= 0)
        order = at[np.argsort((self.spans.end - self.spans.start)[at], kind="stable")]
        return dict(zip(self.spans.op[order].tolist(), order.tolist(), strict=True))

    def members(self, match: int) -> pl.DataFrame:
        """The rows of `matched` of one match, in the order of arrival."""
        column = self.traces.matched["match"]
        first, last = int(column.search_sorted(match, "left")), int(column.search_sorted(match, "right"))
        return self.traces.matched.slice(first, last - first).sort("arrived_ns", "rank")

    def narrowed(self, group: int | None, letter: int | None) -> TraceLanes:
        """The lanes without collectives of other groups, and other operations; None stands for all.

        Other activities stay: only communication is computed anew.
        """
        if group is None and letter is None:
            return self
        spans = self.spans
        moves = np.isin(spans.activity, list(COMMUNICATION))
        kept = moves & _wanted(self, group, letter)
        activity = np.where(moves & ~kept, NOTHING, spans.activity).astype(np.uint8)
        alone = replace(spans, activity=np.where(kept, activity, NOTHING).astype(np.uint8))
        cover, keys = covers(alone, self.strands, len(self.ranks), self.traces)
        columns = list(COMMUNICATION)
        key_of = self.key_of.copy()
        before = len(self.cover.bounds) - 1
        key_of[:, columns] = np.where(keys[:, columns] >= 0, keys[:, columns] + before, -1)
        # a cover with the keys of another after its own
        one = self.cover
        both = Cover(
            np.concatenate([one.bounds[:-1], cover.bounds + len(one.start)]),
            np.concatenate([one.start, cover.start]),
            np.concatenate([one.end, cover.end]),
        )
        return replace(self, spans=replace(spans, activity=activity), cover=both, key_of=key_of)

    @property
    def clock_words(self) -> str:
        """A few words about how reliable the clocks are."""
        residual = self.traces.residual_ns
        if len(self.ranks) < 2:
            return "one clock"
        if residual is None:
            return "clocks as written"
        loose = sum(1 for file in self.dataset.traces["file"] if file not in self.traces.offsets)
        return f"clocks within {duration(residual)}" + (f", {loose} not aligned" if loose else "")


def activities_of(kind: str) -> tuple[int, ...]:
    """The activities that a row of this kind shows."""
    if kind == "host":
        return HOST_KINDS
    return tuple(COMMUNICATION) if kind == "communication" else (COMPUTE,) if kind == "compute" else (MEMORY,)


def build_lanes(dataset: Dataset, analysis: Analysis) -> TraceLanes:
    """The lanes of a dataset with traces; without an analysis of them, the clocks are unchanged."""
    traces = TRACE_RESULTS.find(analysis) or TraceAnalysis()
    spans = build_spans(dataset, dict(traces.offsets))
    ranks = ranks_of(dataset)
    strands = strands_in(dataset.tracks, spans, ranks)
    windows = windows_of(dataset, traces, ranks)
    cover, key_of = covers(spans, strands, len(ranks), traces, windows)
    low = windows["start"].min()
    high = windows["end"].max()
    return TraceLanes(
        dataset, analysis, traces, ranks, strands, spans, cover, key_of,
        low if isinstance(low, int) else 0, max(high if isinstance(high, int) else 1, 1),
    )  # fmt: skip


def ranks_of(dataset: Dataset) -> NDArray[np.int32]:
    """The rank of each lane, rising."""
    return np.array(sorted(dataset.traces["rank"].drop_nulls().unique().to_list()), np.int32)


def strands_in(tracks: pl.DataFrame, spans: Spans, ranks: NDArray[np.int32]) -> tuple[Strand, ...]:
    """The threads and streams of these tracks, sorted as in TraceLanes."""
    lane = {rank: at for at, rank in enumerate(ranks.tolist())}
    table = tracks.filter(pl.col("rank").is_not_null())
    place = pl.Series(np.searchsorted(spans.numbers, table["track"].to_numpy()))
    table = table.with_columns(kind=pl.col("kind").cast(pl.String), place=place)
    table = table.sort("rank", pl.col("kind") != "host", "order", "lane", "track")
    found: dict[Key, tuple[str, str, list[int]]] = {}
    for row in table.iter_rows(named=True):
        key: Key = (row["rank"], row["device"], row["pid"], row["lane"], row["kind"])
        label = plain(row["name"]) or f"{'thread' if row['device'] is None else 'stream'} {row['lane']}"
        found.setdefault(key, (row["kind"], label, []))[2].append(row["place"])
    return tuple(Strand(lane[key[0]], kind, label, tuple(at), key) for key, (kind, label, at) in found.items())


def windows_of(dataset: Dataset, traces: TraceAnalysis, ranks: NDArray[np.int32]) -> pl.DataFrame:
    """The windows of all ranks in aligned time: key, start, end; the key is the lane."""
    lane = {rank: at for at, rank in enumerate(ranks.tolist())}
    rows = [
        (lane[rank], start + traces.offsets.get(file, 0), end + traces.offsets.get(file, 0))
        for file, rank, start, end in dataset.traces.select("file", "rank", "start_ns", "end_ns").iter_rows()
        if rank is not None and start is not None and end is not None
    ]
    return pl.DataFrame(rows, schema=_WINDOWS, orient="row")


_WINDOWS = {"key": pl.Int64, "start": pl.Int64, "end": pl.Int64}


def covers(
    spans: Spans, strands: tuple[Strand, ...], lanes: int, traces: TraceAnalysis, windows: pl.DataFrame | None = None
) -> tuple[Cover, NDArray[np.int32]]:
    """The cover of all lanes and activities, with the `windows` of ranks if given, and the key of each in it."""
    windows = pl.DataFrame(schema=_WINDOWS) if windows is None else windows
    strand_of = np.full(len(spans.numbers), -1, np.int64)
    for number, strand in enumerate(strands):
        strand_of[list(strand.tracks)] = number
    track, start, end, activity = _stretches(spans, traces)
    at = strand_of[track]
    own = merged((at * COUNT + activity)[at >= 0], start[at >= 0], end[at >= 0])
    lane = np.array([strand.lane for strand in strands], np.int64)
    key = own["key"].to_numpy()
    whole = merged(lane[key // COUNT] * COUNT + key % COUNT if len(key) else key, *_ends(own))
    shown = merged(windows["key"].to_numpy() * COUNT + WINDOW, *_ends(windows))
    # all of them are sorted, and no key is in two
    table = pl.concat([shown.merge_sorted(whole, "key"), own.with_columns(key=pl.col("key") + lanes * COUNT)])
    keys = table["key"].to_numpy()
    first = np.diff(keys, prepend=-1) != 0
    known = keys[first]
    key_of = np.full((lanes + len(strands)) * COUNT, -1, np.int32)
    key_of[known] = np.arange(len(known))
    numbered = table.with_columns(key=pl.Series(np.cumsum(first) - 1))
    return cover_of(numbered, len(known)), with_windows(key_of.reshape(-1, COUNT), strands, lanes)


def with_windows(key_of: NDArray[np.int32], strands: tuple[Strand, ...], lanes: int) -> NDArray[np.int32]:
    """Keys of lanes, then of strands; each strand has the windows of its lane."""
    if strands:
        key_of[lanes:, WINDOW] = key_of[[strand.lane for strand in strands], WINDOW]
    return key_of


def _ends(table: pl.DataFrame) -> tuple[Ints, Ints]:
    return table["start"].to_numpy(), table["end"].to_numpy()


def _stretches(spans: Spans, traces: TraceAnalysis) -> tuple[Ints, Ints, Ints, NDArray[np.int64]]:
    """(track, start, end, activity) of all visible spans, in aligned time.

    A collective is cut when the last member came: before that the rank waits for it.
    """
    shown = np.flatnonzero(spans.activity != NOTHING)
    counts = np.diff(spans.bounds)
    track = np.repeat(np.arange(len(counts)), counts)[shown]
    shift = spans.shift[track]
    start, end = spans.start[shown] + shift, spans.end[shown] + shift
    activity = spans.activity[shown].astype(np.int64)
    last = _last_arrivals(spans.op[shown], traces)
    waits = last > start
    begin = np.where(waits, np.minimum(last, end), start)
    tail = (activity[waits] - MOVING + WAITING, np.minimum(last, end)[waits])
    return (
        np.concatenate([track, track[waits]]),
        np.concatenate([begin, start[waits]]),
        np.concatenate([end, tail[1]]),
        np.concatenate([activity, tail[0]]),
    )


def _last_arrivals(op: Ints, traces: TraceAnalysis) -> Ints:
    """Arrival of the last member of the collective of each row of `traced`; 0 if that is not known."""
    table = traces.matched.filter(pl.col("blocking")).select(
        pl.col("row").cast(pl.Int64), pl.col("arrived_ns").max().over("match").alias("last")
    )
    out = np.zeros(int(op.max(initial=-1)) + 2, np.int64)
    row = table["row"].to_numpy()
    inside = row < len(out) - 1
    out[row[inside]] = table["last"].to_numpy()[inside]
    return out[op]


Mask = NDArray[np.bool_]


def _wanted(lanes: TraceLanes, group: int | None, letter: int | None) -> Mask:
    """For each communication span, whether it is of the group and the operation; the name decides for unknown ones."""
    traced, spans = lanes.dataset.traced, lanes.spans
    known, row = spans.op >= 0, np.maximum(spans.op, 0)
    out: Mask = np.ones(len(spans.op), np.bool_)
    if group is not None:
        of_group = (traced["group"] == group).fill_null(False).to_numpy()
        out &= known & (of_group[row] if len(of_group) else False)
    if letter is not None:
        names = traced["op"].cast(pl.String).to_list()
        of_row = np.array([letter_number(name) == letter for name in names], np.bool_)
        by_name = np.isin(spans.activity, (MOVING + letter, WAITING + letter))
        out &= np.where(known, of_row[row] if len(of_row) else False, by_name)
    return out


# Traces alone as a run with dumps: their matched collectives on the axis of logical time.


@dataclass(frozen=True)
class TracedRun(Dataset):
    """A dataset with the operations that profilers saw."""

    @cached_property
    def dumps(self) -> pl.DataFrame:
        """The rows of `files` that are traces: only operations in them are known."""
        return self.files.join(self.traces.select("file"), on="file", how="semi")

    @cached_property
    def from_logs(self) -> bool:
        """Never: traces tell of their ranks."""
        return False

    @cached_property
    def from_traces(self) -> bool:
        """Whether no other data is known: the operations are those of the traces."""
        return not self.has_logs

    @cached_property
    def missing_ranks(self) -> tuple[int, ...]:
        """Ranks of the job without a trace."""
        seen = set(self.seen_ranks)
        return tuple(rank for rank in range(self.world_size) if rank not in seen)


def traced_run(dataset: Dataset, analysis: Analysis) -> TracedRun:
    """The dataset with `traced` as its operations.

    Matched operations carry the number of their match, so that they stand in one column although each trace numbers
    them differently; unmatched ones stand alone.
    """
    matched = TRACE_RESULTS.of(analysis).matched if TRACE_RESULTS.find(analysis) is not None else None
    ops = dataset.traced.with_row_index("row")
    if matched is not None and matched.height:
        known = matched.select(pl.col("row"), pl.col("seq").alias("told"))
        ops = ops.join(known, on="row", how="left", maintain_order="left").with_columns(seq=pl.col("told"))
    ops = ops.sort("rank", "created_ns", maintain_order=True)
    values = {field.name: getattr(dataset, field.name) for field in fields(Dataset)}
    return replace(TracedRun(**values), ops=ops.select(dataset.ops.columns))
