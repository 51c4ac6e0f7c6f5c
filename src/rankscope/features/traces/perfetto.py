"""The traces of all ranks as one file on one clock, for Perfetto (https://ui.perfetto.dev) and Chrome's viewer.

The format is Chrome's trace events (https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU),
with Kineto's `baseTimeNanoseconds`: times are microseconds since that time. A rank is a process, its threads and
streams are threads, speeds of copies are counters; arrows lead from launches to device work, and through the members of
a matched collective in order of arrival. Rows are written in pieces, and only one piece is in memory beside the frame.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from contextlib import closing
from itertools import count
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt
import orjson
import polars as pl

from rankscope.analysis.model import Analysis
from rankscope.features.traces.read.event_names import COPY_SPEED
from rankscope.features.traces.rules.model import TRACE_RESULTS, TraceAnalysis
from rankscope.report.output_files import new_file, replaced_file
from rankscope.schema import Dataset
from rankscope.text.escaping import plain

# Spans of one thread that overlap without nesting: viewers draw them only in separate rows.

Numbers = npt.NDArray[np.int64]
MOST_ROWS = 8
"""Most rows of a thread beside its first; further spans share the last."""


def rows_beside(spans: pl.DataFrame) -> npt.NDArray[np.uint8]:
    """For each of `Dataset.spans` 0 if it fits into the row of its track, else the number of a row beside it, from
    1."""
    out = np.zeros(spans.height, np.uint8)
    track, start = spans["track"].to_numpy(), spans["start_ns"].to_numpy()
    end = start + spans["duration_ns"].to_numpy()
    moved = np.flatnonzero(_crosses(track, end, spans["depth"].to_numpy()))
    # sequential: the free row depends on earlier spans
    free: dict[int, list[int]] = {}
    for row in moved.tolist():
        ends = free.setdefault(int(track[row]), [])
        at = next((i for i, until in enumerate(ends) if until <= start[row]), len(ends))
        if at == len(ends) < MOST_ROWS:
            ends.append(0)
        at = min(at, MOST_ROWS - 1)
        ends[at] = max(ends[at], int(end[row]))
        out[row] = at + 1
    return out


def _crosses(
    track: npt.NDArray[np.unsignedinteger], end: Numbers, depth: npt.NDArray[np.uint16]
) -> npt.NDArray[np.bool_]:
    """Which spans end after one that was open when they began; sorted by track, then start."""
    out = np.zeros(len(end), np.bool_)
    order = np.argsort(depth, kind="stable")
    edges = np.searchsorted(depth[order], np.arange(int(depth.max(initial=0)) + 2))
    for level in range(1, len(edges) - 1):
        outer, inner = order[edges[level - 1] : edges[level]], order[edges[level] : edges[level + 1]]
        at = outer[np.maximum(np.searchsorted(outer, inner) - 1, 0)] if len(outer) else inner
        out[inner] = (track[at] == track[inner]) & (end[at] < end[inner])
    return out


Output = IO[bytes] | gzip.GzipFile
PIECE_SPANS = 50_000
"""Spans per written piece."""
COMPRESSION_LEVEL = 4
"""Compression level: twice as fast as the default, a tenth larger."""
DEFAULT_NAME = "merged_trace"
"""Default name of the file."""
ROWS_PER_THREAD = MOST_ROWS + 1
"""Numbers reserved for a thread and the rows beside it."""
_LAUNCH_CATEGORIES = ("cuda_runtime", "cuda_driver", "mtia_runtime", "xpu_runtime")


def write_merged(dataset: Dataset, analysis: Analysis, out: Output, *, flows: bool = True) -> int:
    """Writes all spans as one document; returns the number of events."""
    traces = TRACE_RESULTS.find(analysis) or TraceAnalysis()
    base = _base(dataset, traces)
    spans = _SpanPieces(dataset, traces, base)
    out.write(orjson.dumps({"schemaVersion": 1, "displayTimeUnit": "ms", "baseTimeNanoseconds": base})[:-1])
    out.write(b',"traceEvents":[\n')
    written = 0
    for lines in _events(dataset, traces, spans, flows):
        if lines:
            out.write((",\n" if written else "").encode() + ",\n".join(lines).encode())
            written += len(lines)
    out.write(b"\n]}\n")
    return written


def save_merged(dataset: Dataset, analysis: Analysis, path: Path, *, flows: bool = True, force: bool = False) -> int:
    """Writes the document to a file, compressed if its name ends in `.gz`; returns the number of events.

    FileExistsError if it exists and `force` is not set. An incomplete file is removed.
    """
    with replaced_file(path) if force else new_file(path) as raw:
        if path.suffix != ".gz":
            return write_merged(dataset, analysis, raw, flows=flows)
        with closing(gzip.GzipFile("", "wb", COMPRESSION_LEVEL, raw, mtime=0)) as packed:
            return write_merged(dataset, analysis, packed, flows=flows)


def export_merged(dataset: Dataset, analysis: Analysis, directory: Path) -> Path:
    """Writes `merged_trace.json.gz`, or the next free `merged_trace-2.json.gz`, and returns its place in words."""
    for number in count(1):
        path = directory / f"{DEFAULT_NAME}{'' if number == 1 else f'-{number}'}.json.gz"
        try:
            save_merged(dataset, analysis, path)
        except FileExistsError:
            continue
        return path
    raise AssertionError("unreachable")


def _base(dataset: Dataset, traces: TraceAnalysis) -> int:
    """The last whole second before all events, in aligned time."""
    starts = [
        start + traces.offsets.get(file, 0)
        for file, start in dataset.traces.select("file", "start_ns").drop_nulls().iter_rows()
    ]
    return min(starts, default=0) // 1_000_000_000 * 1_000_000_000


class _SpanPieces:
    """The spans with their track data, in pieces."""

    def __init__(self, dataset: Dataset, traces: TraceAnalysis, base: int) -> None:
        offsets = {"file": list(traces.offsets), "offset": list(traces.offsets.values())}
        known = pl.DataFrame(offsets, schema={"file": pl.UInt32, "offset": pl.Int64})
        shift = pl.col("offset").fill_null(0) - base
        self.tracks = dataset.tracks.join(known, on="file", how="left", maintain_order="left").select(
            "track", "file", pid=pl.col("rank").fill_null(-1), shift=shift, on_device=pl.col("device").is_not_null(),
        )  # fmt: skip
        self.size = int(dataset.tracks.select(pl.col("track").max().fill_null(0)).item()) + 1
        """Number of threads; the rows beside them have higher numbers."""
        self._all = dataset.spans.with_columns(beside=pl.Series(rows_beside(dataset.spans)))

    @property
    def beside(self) -> pl.DataFrame:
        """track, beside: the additional rows of threads."""
        return self._all.filter(pl.col("beside") > 0).select("track", "beside").unique().sort("track", "beside")

    @property
    def work(self) -> pl.DataFrame:
        """The spans that execute an operation."""
        return self._all.lazy().filter(pl.col("op").is_not_null()).collect()

    def pieces(self) -> Iterator[pl.DataFrame]:
        """Rows of `spans` with pid, tid, ts and dur in microseconds, and the file."""
        for at in range(0, self._all.height, PIECE_SPANS):
            yield self.placed(self._all.slice(at, PIECE_SPANS))

    def placed(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Some rows of `spans` with their output columns."""
        start = pl.col("start_ns") + pl.col("shift")
        return rows.join(self.tracks, on="track", how="inner", maintain_order="left").with_columns(
            ts=start / 1000, dur=pl.col("duration_ns") / 1000,
            tid=pl.col("track").cast(pl.Int64) + 1 + pl.col("beside").cast(pl.Int64) * self.size,
            cat=pl.col("category").cast(pl.String), name=pl.col("name").cast(pl.String),
        )  # fmt: skip

    def copies(self, values: pl.DataFrame) -> pl.DataFrame:
        """The copies whose speed `values` tell (`Dataset.span_values`), with `speed` in GB/s."""
        told = values.filter(pl.col("name").cast(pl.String) == COPY_SPEED).sort("span")
        return self.placed(self._all[told["span"]].with_columns(speed=told["value"]))

    def of_file(self, file: int) -> pl.DataFrame:
        """The spans of a file that launch or were launched."""
        tracks = self.tracks.filter(file=file)["track"].implode()
        linked = self._all.lazy().filter(pl.col("track").is_in(tracks) & pl.col("correlation").is_not_null())
        return self.placed(linked.collect())


def _events(dataset: Dataset, traces: TraceAnalysis, spans: _SpanPieces, flows: bool) -> Iterator[list[str]]:
    yield _named(dataset)
    yield _named_beside(dataset, spans)
    for piece in spans.pieces():
        yield _slices(piece, dataset)
    yield _copy_speeds(spans, dataset)
    if flows:
        number = 0
        for file in dataset.traces["file"].to_list():
            lines = _launch_arrows(spans.of_file(file), number)
            number += len(lines)
            yield lines
        yield _collective_arrows(traces, spans, number)


def _named(dataset: Dataset) -> list[str]:
    """Names of ranks, threads and streams."""
    hosts = dict(dataset.traces.select("rank", "host").drop_nulls().iter_rows())
    out = []
    for rank in sorted({r for r in dataset.traces["rank"].to_list() if r is not None}):
        host = f" ({plain(hosts[rank])})" if hosts.get(rank) else ""
        out += [_meta("process_name", rank, 0, name=f"rank {rank}{host}"),
                _meta("process_sort_index", rank, 0, sort_index=rank)]  # fmt: skip
    for at, row in enumerate(_ordered(dataset).iter_rows(named=True)):
        pid, tid = -1 if row["rank"] is None else row["rank"], row["track"] + 1
        out += [_meta("thread_name", pid, tid, name=_title(row)),
                _meta("thread_sort_index", pid, tid, sort_index=at * ROWS_PER_THREAD)]  # fmt: skip
    return out


def _named_beside(dataset: Dataset, spans: _SpanPieces) -> list[str]:
    """Names of the rows beside threads, each after its thread."""
    rows = _ordered(dataset).with_row_index("at").join(spans.beside, on="track").sort("at", "beside")
    out = []
    for row in rows.iter_rows(named=True):
        pid, tid = -1 if row["rank"] is None else row["rank"], row["track"] + 1 + row["beside"] * spans.size
        out.append(_meta("thread_name", pid, tid, name=f"{_title(row)} (beside)"))
        out.append(_meta("thread_sort_index", pid, tid, sort_index=row["at"] * ROWS_PER_THREAD + row["beside"]))
    return out


def _ordered(dataset: Dataset) -> pl.DataFrame:
    """Tracks in display order."""
    return dataset.tracks.sort("rank", pl.col("device").is_not_null(), "order", "track")


def _title(row: dict[str, Any]) -> str:
    """The name of a thread or stream."""
    place = "thread" if row["device"] is None else f"device {row['device']} stream"
    return plain(row["name"]) or f"{place} {row['lane']}"


def _meta(what: str, pid: int, tid: int, /, **args: str | int) -> str:
    return orjson.dumps({"ph": "M", "name": what, "pid": pid, "tid": tid, "ts": 0, "args": args}).decode()


def _slices(piece: pl.DataFrame, dataset: Dataset) -> list[str]:
    """A complete event for each span; collectives with their known properties.

    Spans stay in order: of two that begin at once, viewers take the first for the outer one.
    """
    piece = piece.with_row_index("at")
    shape: list[pl.Expr | str] = [pl.lit("X").alias("ph"), "cat", "name", "pid", "tid", "ts", "dur"]
    bare = piece.filter(pl.col("correlation").is_null() & pl.col("op").is_null())
    linked = piece.filter(pl.col("correlation").is_not_null() & pl.col("op").is_null())
    work = piece.filter(pl.col("op").is_not_null())
    parts = [(bare, bare.select(*shape)), (linked, linked.select(*shape, args=pl.struct("correlation")))]
    if work.height:
        parts.append((work, _with_operations(work, dataset).select(*shape, "args")))
    lines = [pl.DataFrame({"at": part["at"], "line": _encoded(table)}) for part, table in parts if part.height]
    return pl.concat(lines).sort("at")["line"].to_list() if lines else []


def _copy_speeds(spans: _SpanPieces, dataset: Dataset) -> list[str]:
    """A counter for each rank and kind of copy: the speed over time, in GB/s, of all that run at once."""
    copies = spans.copies(dataset.span_values)
    if copies.is_empty():
        return []
    kind = pl.col("name").str.split(" (").list.first()
    rows = copies.select("pid", "ts", "dur", "speed", name=pl.format("{}, GB/s", kind))
    ends = rows.with_columns(pl.col("ts") + pl.col("dur"), speed=-pl.col("speed"))
    changes = pl.concat([rows, ends]).group_by("pid", "name", "ts").agg(pl.col("speed").sum()).sort("pid", "name", "ts")
    speed = pl.col("speed").cum_sum().over("pid", "name").round(3)
    counter = changes.select(
        pl.lit("C").alias("ph"), "name", "pid", pl.lit(0).alias("tid"), "ts", args=pl.struct(speed.alias("speed"))
    )
    return _encoded(counter)


def _with_operations(work: pl.DataFrame, dataset: Dataset) -> pl.DataFrame:
    groups = dataset.groups.select("group", pl.col("name").alias("in_group"), "description")
    ops = dataset.traced[work["op"]].select(
        "group", "seq", "peer", "in_sizes", "in_dtypes", called=pl.col("op").cast(pl.String)
    )
    known = ops.join(groups, on="group", how="left", maintain_order="left")
    text = [pl.col(name).cast(pl.String).fill_null("") for name in ("called", "in_group", "description", "in_sizes")]
    names = ("Collective name", "Process Group Name", "Process Group Description", "Input Dims")
    both = (("seq", "Seq"), ("peer", "Peer"))
    told = [(name, label) for name, label in both if known[name].null_count() < len(known)]
    numbers = [pl.col(name).cast(pl.Int64).alias(label) for name, label in told]
    args = known.select(args=pl.struct(*(t.alias(n) for t, n in zip(text, names, strict=True)), *numbers))
    return work.with_columns(args["args"])


def _encoded(table: pl.DataFrame) -> list[str]:
    if table.is_empty():
        return []
    return table.select(pl.struct(pl.all()).struct.json_encode().alias("line"))["line"].to_list()


def _launch_arrows(linked: pl.DataFrame, first: int) -> list[str]:
    """An arrow from each launch to its work on a device."""
    launches = linked.filter(pl.col("cat").is_in(_LAUNCH_CATEGORIES)).unique(
        "correlation", keep="last", maintain_order=True
    )
    started = linked.filter("on_device").unique("correlation", keep="first", maintain_order=True)
    pairs = launches.join(started.select("correlation", "pid", "tid", "ts"), on="correlation", suffix="_to")
    pairs = pairs.with_row_index("id", offset=first)
    begin = _arrow(pairs, "s", "launch", ("pid", "tid", "ts"))
    return begin + _arrow(pairs, "f", "launch", ("pid_to", "tid_to", "ts_to"))


def _collective_arrows(traces: TraceAnalysis, spans: _SpanPieces, first: int) -> list[str]:
    """An arrow through the members of each matched collective, in order of arrival."""
    placed = spans.placed(spans.work).unique("op", keep="first").select("op", "pid", "tid", "ts")
    members = traces.matched.select("match", "arrived_ns", op=pl.col("row")).join(placed, on="op")
    several = members.filter(pl.len().over("match") > 1).sort("match", "arrived_ns", "pid")
    place = pl.int_range(pl.len()).over("match")
    size = pl.len().over("match")
    marked = several.with_columns(
        ph=pl.when(place == 0).then(pl.lit("s")).when(place == size - 1).then(pl.lit("f")).otherwise(pl.lit("t")),
        id=pl.col("match").cast(pl.Int64) + first,
    )
    out: list[str] = []
    for ph in ("s", "t", "f"):
        out += _arrow(marked.filter(ph=ph), ph, "collective", ("pid", "tid", "ts"))
    return out


def _arrow(rows: pl.DataFrame, ph: str, name: str, place: tuple[str, str, str]) -> list[str]:
    pid, tid, ts = place
    fixed: list[pl.Expr | str] = [pl.lit(ph).alias("ph"), pl.lit(name).alias("cat"), pl.lit(name).alias("name"), "id"]
    where = [pl.col(pid).alias("pid"), pl.col(tid).alias("tid"), pl.col(ts).alias("ts")]
    # an arrow ends at the slice around that time, not at the next one
    end = [pl.lit("e").alias("bp")] if ph != "s" else []
    return _encoded(rows.select(*fixed, *where, *end))
