"""Pieces of a trace that begin and end with an event."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice, pairwise
from typing import IO, NamedTuple

from rankscope.parsers.streams import STREAM_ERRORS

CHUNK_BYTES = 4 << 20
LONGEST_GAP = 64 << 20
"""Most bytes without the beginning of an event; then the rest is given up."""
_BETWEEN = frozenset(b", \t\r\n")
_LONGEST_HEAD = 1 << 20
"""Longest last event, whose end is searched as text; a longer one is damaged."""
_CLOSED = re.compile(rb'\}\s*\](?=\s*(?:,\s*"|\}|$))')
"""The end of the last event and of the list of events."""


class EventPiece(NamedTuple):
    """Whole events: the beginning of a text, up to `stop`."""

    text: bytes
    stop: int
    args_first: bool = False
    """Arguments come before names and phases."""


@dataclass
class TraceMargins:
    """The text before the first event and behind the last, and the reason why the read ended early."""

    before: bytes = b""
    after: bytes = b""
    whole: bool = False
    """The read reached the end of the file, and the last event was closed."""
    torn: bytes = b""
    """An event that is cut by the end of the file."""
    problem: str | None = None


def event_pieces(
    stream: IO[bytes], around: TraceMargins, begin: int = 0, end: int | None = None, layout: EventLayout | None = None
) -> Iterator[EventPiece]:
    """Events that begin at or behind `begin` and before `end`, a few MB at a time. Fills in `around`.

    The stream stands at `begin`. Each piece begins at the brace of an event, and ends at a brace or at the comma before
    the next event. `layout` is the one of the file's first events; None at the beginning of the file.
    """
    text, at, started, known = b"", begin, False, layout
    layout = layout or PHASE_FIRST
    for more in _blocks(stream, around):
        text = text + more if text else more
        if not started:
            layout = known or layout_of(text)
            first = layout.first(text, begin)
            if first < 0:
                text, at = _unstarted(text, at, around)
                continue
            started = True
            around.before, text, at = (text[:first] if begin == 0 else b""), text[first:], at + first
        if end is not None and at + len(text) > end:
            stop = 0 if at >= end else layout.start_of(text, end - at)
            if stop >= 0:
                yield EventPiece(text, stop, layout.args_first)
                return
        last = layout.last(text)
        if last > 0:
            yield EventPiece(text, last, layout.args_first)
            text, at = text[last:], at + last
        elif len(text) > LONGEST_GAP:
            text, at = _unstarted(text, at, around)
    if started:
        last_one = _last(text, around)
        yield EventPiece(last_one, len(last_one), layout.args_first)
    elif begin == 0:
        around.before = text


def end_of(piece: EventPiece) -> int:
    """The end of the last event of a piece."""
    stop = piece.stop
    while stop and piece.text[stop - 1] in _BETWEEN:
        stop -= 1
    return stop


def _blocks(stream: IO[bytes], around: TraceMargins) -> Iterator[bytes]:
    """The stream in blocks. Unlike read(), it keeps the bytes before damage in a packed file."""
    read: Callable[[int], bytes] = getattr(stream, "read1", stream.read)
    parts, size = [], 0
    try:
        while part := read(CHUNK_BYTES - size):
            parts.append(part)
            size += len(part)
            if size == CHUNK_BYTES:
                yield b"".join(parts) if len(parts) > 1 else part
                parts, size = [], 0
    except STREAM_ERRORS as error:
        around.problem = f"packed file is damaged ({type(error).__name__})"
    if parts:
        yield b"".join(parts)


def _unstarted(text: bytes, at: int, around: TraceMargins) -> tuple[bytes, int]:
    """Text without an event so far: kept up to a length, else only its end."""
    if len(text) <= LONGEST_GAP:
        return text, at
    around.problem = "no event in a long stretch"
    return text[-CHUNK_BYTES:], at + len(text) - CHUNK_BYTES


def _last(text: bytes, around: TraceMargins) -> bytes:
    """The last event; the text behind it goes to `around`."""
    head = text[:_LONGEST_HEAD].decode("utf-8", "surrogateescape")
    try:
        _, stop = json.JSONDecoder(strict=False).raw_decode(head)
    except (ValueError, RecursionError):
        closed = _CLOSED.search(text)
        if closed is None:
            around.torn = text
            return b""
        around.after, around.whole = text[closed.start() + 1 :], True
        return text[: closed.start() + 1]
    stop = len(head[:stop].encode("utf-8", "surrogateescape"))
    around.after, around.whole = text[stop:], b"]" in text[stop:]
    return text[:stop]


# Beginnings of events, by the order of their keys.

PHASE = b'"ph"'
_ARGS = b'"args"'
BOUNDARY = re.compile(rb"\}\s*,\s*\{")
"""The end of an event and the beginning of the next."""
_FIRST = re.compile(rb'(?:"traceEvents"\s*:|\A(?:\xef\xbb\xbf)?)\s*\[\s*\{')
_AT_ONCE = re.compile(rb'\A[\s,]*\{\s*"args"\s*:')
SAMPLED_OBJECTS = 256
"""Objects whose keys are checked for their order; groups and devices come before the first event."""
_GAP = 256
"""Bytes of space between two events, at most."""


class EventLayout(NamedTuple):
    """Search functions for the beginnings of events; each returns -1 without one."""

    first: Callable[[bytes, int], int]
    """The first event in a text that has this place in the file."""
    start_of: Callable[[bytes, int], int]
    """The first event that begins at or behind this place of the text."""
    last: Callable[[bytes], int]
    """The last event."""
    args_first: bool = False


def layout_of(text: bytes) -> EventLayout:
    """The layout of a trace, from the first events of a piece."""
    starts = islice((match.end() - 1 for match in BOUNDARY.finditer(text)), SAMPLED_OBJECTS)
    for begin, end in pairwise(starts):
        phase, args = text.find(PHASE, begin, end), text.find(_ARGS, begin, end)
        if phase >= 0 and args >= 0:
            return ARGS_FIRST if args < phase else PHASE_FIRST
    return PHASE_FIRST


def _first_by_phase(text: bytes, begin: int) -> int:
    """The first event, wherever the text is in the file."""
    del begin
    return _start_by_phase(text, 0)


def _start_by_phase(text: bytes, least: int) -> int:
    found = text.find(PHASE, least)
    while found >= 0:
        brace = text.rfind(b"{", least, found)
        if brace >= 0:
            return brace
        found = text.find(PHASE, found + 1)
    return -1


def _last_by_phase(text: bytes) -> int:
    return text.rfind(b"{", 0, max(0, text.rfind(PHASE)))


def _first_by_end(text: bytes, begin: int) -> int:
    found = (_AT_ONCE.match(text) if begin else None) or (BOUNDARY if begin else _FIRST).search(text)
    return -1 if found is None else text.index(b"{", found.start()) if begin else found.end() - 1


def _start_by_end(text: bytes, least: int) -> int:
    for found in BOUNDARY.finditer(text, max(0, least - _GAP)):
        if found.end() > least:
            return found.end() - 1
    return -1


def _last_by_end(text: bytes) -> int:
    """The last event, or the one before it if the last is cut: the next piece includes that."""
    stop, size = len(text), 1 << 16
    while stop > 0:
        found = list(BOUNDARY.finditer(text, max(0, len(text) - size)))
        if found:
            return found[-1].end() - 1
        stop, size = len(text) - size, size * 4
    return -1


PHASE_FIRST = EventLayout(_first_by_phase, _start_by_phase, _last_by_phase)
ARGS_FIRST = EventLayout(_first_by_end, _start_by_end, _last_by_end, args_first=True)
