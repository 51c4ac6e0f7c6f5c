"""A file to a TraceContent: whole, or a range of its bytes."""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from typing import IO

from rankscope.parsers.decoded import NotThisKindError
from rankscope.parsers.torch_profiler import DETAIL_VARIABLE, DETAILS, repair, sparse, writers
from rankscope.parsers.torch_profiler.chunks import Around, Piece, end_of, pieces
from rankscope.parsers.torch_profiler.columns import Columns
from rankscope.parsers.torch_profiler.events import BAD, EVENTS, Event
from rankscope.parsers.torch_profiler.layout import Layout, layout_of
from rankscope.parsers.torch_profiler.metadata import About, about
from rankscope.parsers.torch_profiler.model import TraceContent

HEAD = 1 << 18
"""Bytes of a file in which its layout is looked for, where it is read in ranges."""


def read(stream: IO[bytes], size: int, part: tuple[int, int] = (0, 1)) -> TraceContent:
    """A trace, or one of some ranges of a file that can be searched: ranges meet at beginnings of events."""
    asked = os.environ.get(DETAIL_VARIABLE)
    detail = asked if asked in DETAILS else DETAILS[1]
    number, parts = part
    if parts == 1:
        content = decode_range(stream, 0, None, detail)
        if not content.events and content.about == About():
            raise NotThisKindError("holds no event")
        content.problem = problem_of(content)
        return content
    begin = size * number // parts
    layout = layout_of(stream.read(HEAD))
    stream.seek(begin)
    end = size * (number + 1) // parts if number + 1 < parts else None
    content = decode_range(stream, begin, end, detail, layout)
    content.ranged = True
    return content


def decode_bytes(data: bytes) -> TraceContent:
    """The trace in `data`."""
    return read(io.BytesIO(data), len(data))


def problem_of(content: TraceContent) -> str | None:
    """What of a whole trace could not be read; None if all could. What stands in it twice is dropped."""
    notes = [
        content.problem,
        writers.settle(content),
        None if content.whole else f"cut off: {content.events} events kept",
        f"{content.lost} damaged {'event' if content.lost == 1 else 'events'} dropped" if content.lost else None,
    ]
    return "; ".join(note for note in notes if note) or None


def decode_range(
    stream: IO[bytes], begin: int, end: int | None, detail: str, layout: Layout | None = None
) -> TraceContent:
    """The events that begin from `begin`, where the stream stands, and before `end`."""
    columns, around = Columns(), Around()
    take_piece = take_collectives if detail == DETAILS[0] else take
    for piece in pieces(stream, around, begin, end, layout):
        take_piece(columns, piece)
    if around.torn:
        columns.lost += 1
    return TraceContent(
        **columns.arrays(), **columns.tables(), about=about(around.before, around.after),
        resolution_ns=columns.resolution_ns, events=columns.events, lost=columns.lost, whole=around.whole,
        ended=end is None or bool(around.after or around.torn), problem=around.problem, detail=detail,
    )  # fmt: skip


def take_collectives(columns: Columns, piece: Piece) -> None:
    """Only those events of a piece that tell of collectives, steps and threads."""
    if piece.args_first:
        take(columns, piece, sparse.is_wanted)
        return
    wanted = sparse.wanted(Piece(piece.text, end_of(piece)))
    try:
        columns.add(EVENTS.decode(b"".join((b"[", b",".join(wanted), b"]"))))
    except BAD:
        found, lost = repair.events(piece.text[: piece.stop])
        columns.lost += lost
        columns.add([event for event in found if sparse.is_wanted(event)])


def take(columns: Columns, piece: Piece, wanted: Callable[[Event], bool] | None = None) -> None:
    """The events of a piece, or those `wanted`, into columns; a piece that is damaged, event by event."""
    stop = end_of(piece)
    if not stop:
        return
    inner = memoryview(piece.text)[:stop]
    try:
        found = EVENTS.decode(b"".join((b"[", inner, b"]")))
    except BAD:
        found, lost = repair.events(bytes(inner), args_first=piece.args_first)
        columns.lost += lost
    columns.add(found if wanted is None else list(filter(wanted, found)))
