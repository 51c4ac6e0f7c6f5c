"""What traces tell that came after all was judged: each what it tells alone, until it is compared with the others."""

from __future__ import annotations

from dataclasses import replace

import polars as pl

from rankscope.analysis.model import Analysis
from rankscope.analysis.traces.join import Story
from rankscope.analysis.traces.model import TraceAnalysis
from rankscope.schema import Dataset


def with_windows(analysis: Analysis, dataset: Dataset, count: int, story: Story | None) -> Analysis:
    """The analysis with what the last `count` traces tell alone; the one before it was of all the others.

    Their clocks are those of earlier windows of the same rank, or host; else they are as written. How long they waited
    is told only where all members of a group are among them. What they tell is kept for `story`, that of the others.
    """
    before = analysis.traces or TraceAnalysis()
    offsets = {**before.offsets, **_offsets(before, dataset.traces, count)}
    own = Story(_last(dataset, count), story.kept if story is not None else {})
    return replace(analysis, traces=own.with_alone(replace(before, offsets=offsets), all_there=False))


def _last(dataset: Dataset, count: int) -> Dataset:
    """The last windows of a dataset alone, with the numbers that they have there."""
    traces = dataset.traces.tail(count)
    own = pl.col("file").is_in(traces["file"].implode())
    tracks = dataset.tracks.filter(own)
    # they are numbered in the order of windows
    first = dataset.spans["track"].search_sorted(tracks["track"][0]) if tracks.height else dataset.spans.height
    return replace(
        dataset, traces=traces, tracks=tracks, spans=dataset.spans[first:], traced=dataset.traced.filter(own)
    )


def _offsets(before: TraceAnalysis, traces: pl.DataFrame, count: int) -> dict[int, int]:
    """By file what to add to the clocks of the last windows, as far as earlier ones tell."""
    known: dict[tuple[int | None, str], int] = {}
    columns, last = ("file", "rank", "host"), traces.tail(count)
    same = pl.col("rank").is_in(last["rank"].implode()) | pl.col("host").is_in(last["host"].implode())
    for file, rank, host in traces.head(-count).filter(same).select(columns).iter_rows():
        if file in before.offsets:
            known[rank, host] = before.offsets[file]
            if host:
                known.setdefault((None, host), before.offsets[file])
    own = {file: (rank, host) for file, rank, host in last.select(columns).iter_rows()}
    found = {file: known.get(key, known.get((None, key[1]))) for file, key in own.items()}
    return {file: offset for file, offset in found.items() if offset is not None}
