"""Traces that came since all was put together: behind the rest until that is done again, and nothing else moves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import polars as pl

from rankscope.parsers.assemble.files import more_files
from rankscope.parsers.assemble.sources import Source
from rankscope.parsers.assemble.traces.bring import Brought, Tables, trace_table, world_of
from rankscope.parsers.assemble.traces.hosts import with_hosts
from rankscope.parsers.assemble.traces.pieces import Piece, piece_of
from rankscope.parsers.assemble.traces.seen import Seen, seen, stands_alone
from rankscope.parsers.assemble.traces.window import Window
from rankscope.schema import Dataset

if TYPE_CHECKING:
    from rankscope.parsers.assemble.placed import Asked
    from rankscope.parsers.assemble.tables import Memory

_TABLES = ("traced", "traces", "tracks", "spans")
_TELL_HOSTS = ("ops", "comms", "threads")


@dataclass(frozen=True)
class Arrived:
    """Traces that came, and all tables of traces with them."""

    behind: Brought
    """What was there."""
    given: tuple[Source, ...]
    """As they came."""
    windows: tuple[Seen, ...]
    pieces: tuple[Piece, ...]
    files: pl.DataFrame
    """Their rows in the table of files."""
    tables: Tables

    @property
    def all_pieces(self) -> Brought:
        """What was there, with the pieces of these: they are not to be made again."""
        return replace(self.behind, pieces=[*self.behind.pieces, *self.pieces])

    @property
    def spans(self) -> int:
        """How many spans they have."""
        return sum(piece.spans.height for piece in self.pieces)

    def put_behind(self, dataset: Dataset) -> Dataset:
        """The dataset with them: the files of `given` are behind those that it has."""
        tables, files = self.tables, pl.concat([dataset.files, self.files])
        return replace(
            dataset, files=files, traced=tables["traced"], traces=tables["traces"], tracks=tables["tracks"],
            spans=tables["spans"],
        )  # fmt: skip


def arrived(memory: Memory, dataset: Dataset, news: Sequence[Source], before: Arrived | None = None) -> Arrived | None:
    """The traces that came after `dataset` was put together; None if they may change what is told of anything else.

    `before`: those that had come before: they must be the first.
    """
    behind, placed = memory.traces, memory.placed
    if behind is None or placed is None or dataset.attempts.height > 1:
        return None
    if before is None:
        before = Arrived(behind, (), (), (), dataset.files.clear(), {name: behind.tables[name] for name in _TABLES})
    elif before.behind is not behind or not _begins(before.given, news):
        return None
    for given in news[len(before.given) :]:
        found = _one_more(before, dataset, given, placed.asked)
        if found is None:
            return None
        before = found
    return before


def _begins(first: Sequence[Source], all_: Sequence[Source]) -> bool:
    return len(first) <= len(all_) and all(map(_is_same, first, all_))


def _is_same(one: Source, other: Source) -> bool:
    about = [(s.shown, s.kind, s.size, s.mtime_ns, s.problem) for s in (one, other)]
    return one.content is other.content and about[0] == about[1]


def _one_more(before: Arrived, dataset: Dataset, given: Source, asked: Asked) -> Arrived | None:
    (pattern, fixed, _), source = asked, given.renewed()
    if source.trace is None:
        return None
    place = dataset.files.height + len(before.given)
    window = Window(place, source, source.trace)
    windows, book = [*before.behind.seen, *before.windows], before.behind.book
    fits = fixed is not None or world_of([window]) <= dataset.world_size
    if not stands_alone(window, windows, pattern) or not fits:
        return None
    source.attempt, source.used, book.has_news = dataset.attempt, True, False
    book.meet(window)
    tracks, traced = before.tables["tracks"].height, before.tables["traced"].height
    piece = piece_of(window, book, tracks, traced)
    if book.has_news:
        return None
    return Arrived(
        before.behind, (*before.given, given), (*before.windows, seen(window)), (*before.pieces, piece),
        pl.concat([before.files, more_files([source], place)]),
        {
            "traced": pl.concat([before.tables["traced"], piece.traced]),
            "traces": pl.concat([before.tables["traces"], _hosted(trace_table([window]), dataset)]),
            "tracks": pl.concat([before.tables["tracks"], piece.tracks]),
            "spans": pl.concat([before.tables["spans"], piece.spans]),
        },
    )  # fmt: skip


def _hosted(traces: pl.DataFrame, dataset: Dataset) -> pl.DataFrame:
    """With the host that other tables tell of the rank, if the trace does not tell it."""
    if (traces["host"] != "").all():
        return traces
    own = pl.col("rank").is_in(traces["rank"].implode())
    return with_hosts(traces, {name: getattr(dataset, name).filter(own) for name in _TELL_HOSTS})
