"""How long a frame of the lanes of traces takes, beside a filter and a group_by over all spans with polars.

python -m benchmarks.trace_frames [SPANS] [--write]
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import numpy as np
import polars as pl

from benchmarks.child_processes import run_program
from benchmarks.results import machine, program_parser, publish, table
from rankscope.analysis.model import Analysis
from rankscope.features.traces.page.lanes import TraceLanes
from rankscope.features.traces.page.span_facts import look
from rankscope.features.traces.page.trace_board import TraceBoard
from rankscope.features.traces.page.trace_paint import compose, gutter_for
from rankscope.schema import Dataset
from rankscope.schema.tables import SPANS, TRACES, TRACKS
from rankscope.tui.model import build_model

RANKS = 8
WIDTH, ROWS = 180, 40
START_NS = 1_700_000_000_000_000_000
_SHAPES = (("host", "cpu_op", "aten::linear", 3), ("compute", "kernel", "gemm_128x64", 1))


def job(spans: int) -> Dataset:
    """A job of RANKS ranks with so many spans: nested operations on hosts, kernels on devices."""
    random = np.random.default_rng(0)
    each = spans // (RANKS * len(_SHAPES))
    tracks, parts = [], []
    for rank in range(RANKS):
        for part, (kind, category, name, depth) in enumerate(_SHAPES):
            track = rank * len(_SHAPES) + part
            starts = np.cumsum(random.integers(2_000, 12_000, each)) + START_NS
            lengths = np.append(np.diff(starts), 2_000) * random.uniform(0.3, 1.0, each)
            levels = np.arange(each) % depth
            parts.append(_spans(track, category, name, starts, lengths.astype(np.int64), levels))
            tracks.append({"track": track, "file": rank, "rank": rank, "kind": kind, "pid": rank, "lane": part,
                           "device": None if kind == "host" else rank, "name": "", "order": part})  # fmt: skip
    together = pl.concat(parts)
    windows = [
        {"file": r, "rank": r, "host": "", "start_ns": START_NS, "end_ns": START_NS + each * 7_000, "events": each,
         "lost": 0, "detail": "all", "backend": "nccl", "resolution_ns": 1}
        for r in range(RANKS)
    ]  # fmt: skip
    traces, places = pl.DataFrame(windows, schema=TRACES), pl.DataFrame(tracks, schema=TRACKS)
    return Dataset(traces=traces, tracks=places, spans=together, world_size=RANKS)


def _spans(
    track: int, category: str, name: str, start: np.typing.NDArray[np.int64], length: np.typing.NDArray[np.int64],
    depth: np.typing.NDArray[np.int64],
) -> pl.DataFrame:  # fmt: skip
    columns = {
        "track": np.full(len(start), track), "category": pl.repeat(category, len(start), eager=True),
        "name": pl.repeat(name, len(start), eager=True), "start_ns": start, "duration_ns": length, "depth": depth,
        "correlation": pl.repeat(None, len(start), dtype=pl.Int64, eager=True),
        "op": pl.repeat(None, len(start), dtype=pl.UInt32, eager=True),
    }  # fmt: skip
    return pl.DataFrame(columns).select(pl.col(n).cast(kind) for n, kind in SPANS.items())


def timed(what: Callable[[], object], times: int = 15) -> float:
    """Milliseconds, the best of some: what else runs on the machine is no part of it."""
    taken = []
    for _ in range(times):
        begin = time.perf_counter()
        what()
        taken.append((time.perf_counter() - begin) * 1e3)
    return min(taken)


def binned(dataset: Dataset, first: int, last: int) -> pl.DataFrame:
    """The same cells by a filter over all spans and a group_by: what there would be without arrays cut once."""
    inside = (pl.col("start_ns") < last) & (pl.col("start_ns") + pl.col("duration_ns") > first)
    cell = (pl.col("start_ns") - first) * WIDTH // max(last - first, 1)
    return dataset.spans.filter(inside).group_by("track", cell.alias("cell")).agg(pl.col("duration_ns").sum())


def main(arguments: Sequence[str] | None = None) -> None:
    """Measures, and prints the figures."""
    parser = program_parser(__spec__.name, __doc__, writes=True)
    parser.add_argument("spans", type=int, nargs="?", default=2_000_000)
    given = parser.parse_args(arguments)
    dataset = job(given.spans)
    begin = time.perf_counter()
    model = build_model(dataset, Analysis("", "unknown"))
    made = time.perf_counter() - begin
    assert isinstance(model.timed, TraceLanes)
    board = TraceBoard(model.timed, model, WIDTH, ROWS)
    board.place()
    rows = [_measured(dataset, board, zoom) for zoom in (0, 6, 12, 18)]
    text = table(("zoomed", "spans in view", "frame", "cursor", "by a filter", "filter / frame"), rows)
    body = (
        f"{dataset.spans.height:,} spans of {RANKS} ranks in {board.count} rows x {WIDTH} cells; the arrays behind "
        f"them were made in {made:.1f} s, in a thread. Best of 15. {machine()}\n\n{text}"
    )
    publish("Frames of the lanes of traces", body, write=given.write)


def _measured(dataset: Dataset, board: TraceBoard, zoom: int) -> tuple[str, ...]:
    board.zoom_fit()
    if zoom:
        board.zoom(zoom)
    gutter = gutter_for(200, RANKS)
    first, last = board.view.first, board.view.unit_of(WIDTH)
    seen = sum(end - begin for begin, end in (board.lanes.spans.between(t, first, last) for t in range(2 * RANKS)))
    frame = timed(lambda: compose(board, gutter))
    other = timed(lambda: binned(dataset, first, last), 5)
    cursor = timed(lambda: look(board))
    return (
        f"{zoom} times",
        f"{seen:,}",
        f"{frame:.1f} ms",
        f"{cursor:.1f} ms",
        f"{other:.1f} ms",
        f"{other / frame:.1f}",
    )


if __name__ == "__main__":
    run_program(main)
