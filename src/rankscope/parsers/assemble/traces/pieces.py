"""What one trace adds to the tables, made once: beside other files it is the same with other numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import polars as pl

from rankscope.parsers.assemble.traces import spans
from rankscope.parsers.assemble.traces.groups import Groups, Reference
from rankscope.parsers.assemble.traces.traced import nothing_of, traced_of
from rankscope.parsers.assemble.traces.window import Window


@dataclass(frozen=True)
class Piece:
    """The rows of one trace in the tables of all."""

    told: tuple[Any, ...]
    """What it was made of, see `_told`."""
    groups: Mapping[Reference, int]
    """By what its operations tell them, the groups that they are of."""
    members: Mapping[int, Sequence[int]]
    """Of the groups in which it sends, for a peer is told by its place among them."""
    file: int
    track: int
    """The number of its first track."""
    op: int
    """The row of its first operation in `Dataset.traced`."""
    traced: pl.DataFrame
    tracks: pl.DataFrame
    spans: pl.DataFrame

    @property
    def content(self) -> Any:
        """The trace."""
        return self.told[0]


def piece_of(window: Window, groups: Groups, track: int, op: int, before: Piece | None = None) -> Piece:
    """The piece of a window, of which tracks and operations are counted from these on; of `before` if it can be."""
    found = _moved(before, window, groups, track, op) if before is not None else None
    return found or _made(window, groups, track, op)


def _made(window: Window, groups: Groups, track: int, op: int) -> Piece:
    rows, executes = traced_of(window, groups) if window.content.writers == 1 else nothing_of(window)
    drawn = window.source.drawn or spans.arrange(window)
    told = groups.told(window)
    sends = rows.filter(pl.col("is_p2p"))["group"].unique()
    return Piece(
        _told(window), told, {group: list(groups.members(group)) for group in sends}, window.place, track, op,
        rows, spans.track_table(window, track), spans.span_table(window, drawn, executes, track, op),
    )  # fmt: skip


def _moved(before: Piece, window: Window, groups: Groups, track: int, op: int) -> Piece | None:
    """The same where other files stand before it, or groups have other numbers; None if it is not the same."""
    told = _told(window)
    if told[0] is not before.content or told[1:] != before.told[1:]:
        return None
    now = {reference: groups.of(window, reference) for reference in before.groups}
    number = {group: now[reference] for reference, group in before.groups.items()}
    split = any(number[group] != now[reference] for reference, group in before.groups.items())
    if split or any(list(groups.members(number[group])) != members for group, members in before.members.items()):
        return None
    if (window.place, track, op, now) == (before.file, before.track, before.op, before.groups):
        return before
    file = pl.lit(window.place, dtype=before.tracks.schema["file"])
    group = pl.col("group") if now == before.groups else pl.col("group").replace(number)
    return replace(
        before, groups=now, members={number[group]: members for group, members in before.members.items()},
        file=window.place, track=track, op=op,
        traced=before.traced.with_columns(file.alias("file"), group),
        tracks=before.tracks.with_columns(file.alias("file"), _by(track - before.track, before.tracks, "track")),
        spans=before.spans.with_columns(
            _by(track - before.track, before.spans, "track"), _by(op - before.op, before.spans, "op")
        ),
    )  # fmt: skip


def _by(more: int, table: pl.DataFrame, name: str) -> pl.Expr:
    """A column of numbers with so much more, or less, in each."""
    return (pl.col(name).cast(pl.Int64) + more).cast(table.schema[name])


def _told(window: Window) -> tuple[Any, ...]:
    """All that its rows come of, besides groups; contents are large, and compared by whether they are the very same."""
    source = window.source
    return window.content, window.base_ns, dict(window.loops), source.rank, source.attempt, window.host
