"""A file to a TraceContent: whole, or a range of its bytes."""

from __future__ import annotations

import io
import os
from typing import IO

from rankscope.parsers.decoded import NotThisKindError
from rankscope.parsers.torch_profiler import DETAIL_VARIABLE, repair
from rankscope.parsers.torch_profiler.chunks import Around, pieces
from rankscope.parsers.torch_profiler.columns import Columns
from rankscope.parsers.torch_profiler.events import BAD, EVENTS
from rankscope.parsers.torch_profiler.metadata import About, about
from rankscope.parsers.torch_profiler.model import TraceContent


def read(stream: IO[bytes], size: int, part: tuple[int, int] = (0, 1)) -> TraceContent:
    """A trace, or one of some ranges of a file that can be searched: ranges meet at beginnings of events."""
    detail = os.environ.get(DETAIL_VARIABLE, "all")
    number, parts = part
    if parts == 1:
        content = decode_range(stream, 0, None, detail)
        if not content.events and content.about == About():
            raise NotThisKindError("holds no event")
        content.problem = problem_of(content)
        return content
    begin = size * number // parts
    stream.seek(begin)
    content = decode_range(stream, begin, size * (number + 1) // parts if number + 1 < parts else None, detail)
    content.ranged = True
    return content


def decode_bytes(data: bytes) -> TraceContent:
    """The trace in `data`."""
    return read(io.BytesIO(data), len(data))


def problem_of(content: TraceContent) -> str | None:
    """What of a whole trace could not be read; None if all could."""
    notes = [
        content.problem,
        None if content.whole else f"cut off: {content.events} events kept",
        f"{content.lost} damaged events dropped" if content.lost else None,
    ]
    return "; ".join(note for note in notes if note) or None


def decode_range(stream: IO[bytes], begin: int, end: int | None, detail: str) -> TraceContent:
    """The events that begin from `begin`, where the stream stands, and before `end`."""
    del detail
    columns, around = Columns(), Around()
    for piece in pieces(stream, around, begin, end):
        take(columns, piece)
    if around.torn:
        columns.lost += 1
    return TraceContent(
        **columns.arrays(), **columns.tables(), about=about(around.before, around.after),
        resolution_ns=columns.resolution_ns, events=columns.events, lost=columns.lost, whole=around.whole,
        ended=end is None or bool(around.after or around.torn), problem=around.problem,
    )  # fmt: skip


def take(columns: Columns, piece: bytes) -> None:
    """The events of a piece into columns; a piece that is damaged, event by event."""
    inner = piece.rstrip(b", \t\r\n")
    if not inner:
        return
    try:
        columns.add(EVENTS.decode(b"[" + inner + b"]"))
    except BAD:
        found, lost = repair.events(inner)
        columns.lost += lost
        columns.add(found)
