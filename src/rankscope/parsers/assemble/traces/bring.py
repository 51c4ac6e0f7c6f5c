"""Traces into the tables of one attempt."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import polars as pl

from rankscope import schema
from rankscope.kinds.input_kinds import DUPLICATE
from rankscope.parsers.assemble.sources import Source
from rankscope.parsers.assemble.traces import loops, ranks, spans
from rankscope.parsers.assemble.traces.groups import Groups
from rankscope.parsers.assemble.traces.hosts import with_hosts
from rankscope.parsers.assemble.traces.pieces import Piece, piece_of
from rankscope.parsers.assemble.traces.seen import Seen, seen
from rankscope.parsers.assemble.traces.window import Window, settle_bases

Tables = dict[str, pl.DataFrame]


@dataclass(frozen=True)
class Windows:
    """The traces of a job, with ranks and clocks settled."""

    all: list[Window]
    world: int
    """Ranks of the job, as far as they tell."""


@dataclass(frozen=True)
class Brought:
    """What traces added to some tables, and what that came of."""

    windows: list[tuple[Any, ...]]
    world: int
    groups: pl.DataFrame
    """As they were before."""
    traces: pl.DataFrame
    """Without what only other tables tell of hosts."""
    tables: Tables
    pieces: list[Piece]
    """Of each window."""
    book: Groups
    """What was told of groups."""
    seen: list[Seen]
    """Of each window."""


def draw(source: Source) -> None:
    """Puts the spans of a trace that was just read in order, while others are still being read."""
    if source.trace is not None:
        source.drawn = spans.arrange(Window(-1, source, source.trace))


def read_windows(sources: Sequence[tuple[int, Source]], attempt: int, pattern: re.Pattern[str] | None) -> Windows:
    """The traces among the sources, which are given with their rows of `files`."""
    windows = _distinct([Window(place, source, source.trace) for place, source in sources if source.trace is not None])
    settle_bases(windows)
    ranks.settle(windows, pattern)
    loops.settle(windows)
    for window in windows:
        window.source.attempt, window.source.used = attempt, True
    return Windows(windows, world_of(windows))


def _distinct(windows: Sequence[Window]) -> list[Window]:
    """The windows without copies of them: a trace often lies beside what it was packed into."""
    seen: dict[tuple[object, ...], Window] = {}
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


def world_of(windows: Sequence[Window]) -> int:
    """The number of ranks: groups say more than what stands beside them as the world's size."""
    told = [1 + window.rank for window in windows]
    stated = [1 + max(g.ranks) for w in windows for g in w.content.about.groups if g.ranks]
    told += stated or [w.content.about.world_size or 0 for w in windows]
    return max(told, default=0)


def bring(tables: Tables, found: Windows, world: int, before: Brought | None = None) -> Brought:
    """What traces add to `tables` of dumps and logs; the very same tables as `before` where that came of the same."""
    windows = [_key(window) for window in found.all]
    if before is None or not _is_same(before, windows, tables["groups"], world):
        return _made(tables, found, world, before)
    hosted = with_hosts(before.traces, tables)
    same = before.tables["traces"].equals(hosted)
    return before if same else replace(before, tables={**before.tables, "traces": hosted})


def _is_same(before: Brought, windows: list[tuple[Any, ...]], groups: pl.DataFrame, world: int) -> bool:
    if world != before.world or len(windows) != len(before.windows) or not groups.equals(before.groups):
        return False
    # contents are large: they are the same or they are not
    pairs = zip(windows, before.windows, strict=True)
    return all(one[0] is other[0] and one[1:] == other[1:] for one, other in pairs)


def _key(window: Window) -> tuple[Any, ...]:
    source = window.source
    told = source.shown, source.rank, source.attempt, window.host
    return window.content, window.place, window.base_ns, dict(window.loops), *told


def _made(tables: Tables, found: Windows, world: int, before: Brought | None) -> Brought:
    groups = Groups(tables["groups"], found.all, world)
    known = {id(piece.content): piece for piece in before.pieces} if before is not None else {}
    pieces: list[Piece] = []
    track = op = 0
    for window in found.all:
        pieces.append(piece_of(window, groups, track, op, known.get(id(window.content))))
        track, op = track + pieces[-1].tracks.height, op + pieces[-1].traced.height
    traces = trace_table(found.all)
    made = {
        "groups": groups.frame(),
        "traced": pl.concat([schema.empty(schema.TRACED), *(piece.traced for piece in pieces)]),
        "traces": with_hosts(traces, tables),
        "tracks": pl.concat([schema.empty(schema.TRACKS), *(piece.tracks for piece in pieces)]),
        "spans": pl.concat([schema.empty(schema.SPANS), *(piece.spans for piece in pieces)]),
    }
    keys, known_of = [_key(window) for window in found.all], [seen(window) for window in found.all]
    return Brought(keys, world, tables["groups"], traces, made, pieces, groups, known_of)


def trace_table(windows: Sequence[Window]) -> pl.DataFrame:
    """The table of traces; hosts are those that these tell themselves."""
    rows = [
        {
            "file": w.place, "rank": w.rank, "host": w.host, "start_ns": w.bounds[0], "end_ns": w.bounds[1],
            "events": w.content.events, "lost": w.content.lost, "detail": w.content.detail,
            "backend": w.content.about.backend, "resolution_ns": w.content.resolution_ns,
        }
        for w in windows
    ]  # fmt: skip
    return pl.DataFrame(rows, schema=dict(schema.TRACES))
