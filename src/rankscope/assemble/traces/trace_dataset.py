"""Tables of traces for one attempt."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import polars as pl

from rankscope import schema
from rankscope.assemble.sources import SourceFile
from rankscope.assemble.traces import span_tables, trace_ranks
from rankscope.assemble.traces.trace_groups import TraceGroups
from rankscope.assemble.traces.trace_window import TraceWindow, settle_clock_bases
from rankscope.assemble.traces.traced_operations import no_values, operation_values
from rankscope.kinds.input_kinds import DUPLICATE

Tables = dict[str, pl.DataFrame]
_OF_TRACES = {"traced": schema.TRACED, "tracks": schema.TRACKS, "spans": schema.SPANS}


@dataclass(frozen=True)
class TraceWindows:
    """The traces of a job, with settled ranks and clocks."""

    all: list[TraceWindow]
    world: int
    """Ranks of the job, as far as traces have them."""


def arrange_trace(source: SourceFile) -> None:
    """Sorts the spans of a trace directly after its read, while others are still being read."""
    if source.trace is not None:
        source.drawn = span_tables.arrange_spans(TraceWindow(-1, source, source.trace))


def read_windows(
    sources: Sequence[tuple[int, SourceFile]], attempt: int, pattern: re.Pattern[str] | None
) -> TraceWindows:
    """The traces among the sources, which are given with their rows of `files`."""
    windows = _distinct(
        [TraceWindow(place, source, source.trace) for place, source in sources if source.trace is not None]
    )
    settle_clock_bases(windows)
    trace_ranks.settle_trace_ranks(windows, pattern)
    trace_ranks.settle_loops(windows)
    for window in windows:
        window.source.attempt, window.source.used = attempt, True
    return TraceWindows(windows, trace_world(windows))


def _distinct(windows: Sequence[TraceWindow]) -> list[TraceWindow]:
    """The windows without copies: a trace is often beside an archive with it."""
    seen: dict[tuple[object, ...], TraceWindow] = {}
    for window in windows:
        content = window.content
        times = content.column("start_ns"), content.column("duration_ns")
        told = tuple(content.names), tuple(content.calls), content.about.rank
        same = window.pid, content.rows, *(int(column.sum()) for column in times), told
        first = seen.setdefault(same, window) if content.rows else window
        if first is not window:
            window.source.kind = DUPLICATE.name
            window.source.note = f"a copy of {first.source.shown}, which is used"
    return [window for window in windows if window.source.kind != DUPLICATE.name]


def trace_world(windows: Sequence[TraceWindow]) -> int:
    """The number of ranks: groups count more than the world's size beside them."""
    told = [1 + window.rank for window in windows]
    stated = [1 + max(g.ranks) for w in windows for g in w.content.about.groups if g.ranks]
    told += stated or [w.content.about.world_size or 0 for w in windows]
    return max(told, default=0)


def add_trace_tables(tables: Tables, found: TraceWindows, world: int) -> Tables:
    """The tables that traces add or change, beside `tables` of dumps and logs."""
    groups = TraceGroups(tables["groups"], found.all, world)
    made: dict[str, list[pl.DataFrame]] = {name: [schema.empty(columns)] for name, columns in _OF_TRACES.items()}
    track = op = 0
    for window in found.all:
        rows, executes = operation_values(window, groups) if window.content.writers == 1 else no_values(window)
        drawn = window.source.drawn or span_tables.arrange_spans(window)
        made["traced"].append(rows)
        made["tracks"].append(span_tables.track_table(window, track))
        made["spans"].append(span_tables.span_table(window, drawn, executes, track, op))
        track, op = track + made["tracks"][-1].height, op + rows.height
    told = {name: pl.concat(parts) for name, parts in made.items()}
    return {**told, "groups": groups.frame(), "traces": with_hosts(trace_table(found.all), tables)}


def trace_table(windows: Sequence[TraceWindow]) -> pl.DataFrame:
    """The table of traces, with the hosts in the traces themselves."""
    rows = [
        {
            "file": w.place, "rank": w.rank, "host": w.host, "start_ns": w.bounds[0], "end_ns": w.bounds[1],
            "events": w.content.events, "lost": w.content.lost, "detail": w.content.detail,
            "backend": w.content.about.backend, "resolution_ns": w.content.resolution_ns,
        }
        for w in windows
    ]  # fmt: skip
    return pl.DataFrame(rows, schema=dict(schema.TRACES))


# Hosts of ranks whose traces lack them, from other files of the ranks: traces name the host from 2026 on.


def with_hosts(traces: pl.DataFrame, tables: Mapping[str, pl.DataFrame]) -> pl.DataFrame:
    """`traces` with the host of each rank for which the other tables have exactly one."""
    told = [
        tables[name].select("rank", "host").unique().cast({"host": pl.String}) for name in ("ops", "comms", "threads")
        if name in tables and "host" in tables[name].columns
    ]  # fmt: skip
    if not told:
        return traces
    known = pl.concat(told).drop_nulls().filter(pl.col("host") != "").unique()
    sole = known.filter(pl.len().over("rank") == 1).rename({"host": "told"})
    joined = traces.join(sole, on="rank", how="left", maintain_order="left")
    return joined.with_columns(
        host=pl.when(pl.col("host") == "").then(pl.col("told").fill_null("")).otherwise("host")
    ).drop("told")
