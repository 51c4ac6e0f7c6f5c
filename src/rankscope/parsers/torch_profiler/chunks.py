"""Pieces of a trace that begin and end with an event."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import IO, NamedTuple

from rankscope.parsers.streams import STREAM_ERRORS

CHUNK_BYTES = 4 << 20
LONGEST_GAP = 64 << 20
"""Most bytes without the beginning of an event; then the rest is given up."""
_SPACE = b", \t\r\n"
_BETWEEN = frozenset(_SPACE)
_LONGEST_HEAD = 1 << 20
"""Longest last event, whose end is searched as text; a longer one is damaged."""
_CLOSED = re.compile(rb'\}\s*\](?=\s*(?:,\s*"|\}|$))')
"""The end of the last event and of the list of events."""
_END = re.compile(rb"[\s,{}]{0,4096}\]")
"""The end of the list behind its last event; some writers put an empty object there."""


class EventPiece(NamedTuple):
    """Whole events: the beginning of a text, up to `stop`."""

    text: bytes
    stop: int


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
    stream: IO[bytes], around: TraceMargins, begin: int = 0, end: int | None = None
) -> Iterator[EventPiece]:
    """Events that begin at or behind `begin` and before `end`, a few MB at a time. Fills in `around`.

    The stream stands at `begin`. Each piece begins at the brace of an event, and ends at a brace or at the comma before
    the next event.
    """
    text, at, started = b"", begin, False
    for more in _blocks(stream, around):
        text = text + more if text else more
        if not started:
            first = _start_of(text, 0) if begin else _first_of_file(text)
            if first < 0:
                text, at = _unstarted(text, at, around)
                continue
            started = True
            around.before, text, at = (text[:first] if begin == 0 else b""), text[first:], at + first
        if end is not None and at + len(text) > end:
            stop = 0 if at >= end else _start_of(text, end - at)
            if stop >= 0:
                yield EventPiece(text, stop)
                return
        last = _last_of(text)
        if last > 0:
            yield EventPiece(text, last)
            text, at = text[last:], at + last
        elif len(text) > LONGEST_GAP:
            text, at = _unstarted(text, at, around)
    if started:
        yield from _last_pieces(text, around)
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


def _last_pieces(text: bytes, around: TraceMargins) -> Iterator[EventPiece]:
    """The last events: mostly one, unless those behind it cannot be parsed."""
    while text:
        around.after, around.whole = b"", False
        last_one = _last(text, around)
        yield EventPiece(last_one, len(last_one))
        text = around.after.lstrip(_SPACE) if not around.whole and around.after.lstrip().startswith(b",") else b""


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
    around.after, around.whole = text[stop:], _END.match(text, stop) is not None
    return text[:stop]


# Beginnings of events, whatever the order of their keys.

_PHASE = b'"ph"'
_KEYS = rb'"(?:ph|cat|name|pid|tid|ts|dur|args|id|bp|s|sf|tts|tdur|cname|scope)"\s*:'
BOUNDARY = re.compile(rb"\}\s*,\s*\{(?=\s*" + _KEYS + rb")")
"""The end of an event and the beginning of the next."""
_AT_ONCE = re.compile(rb"[\s,]{0,256}(\{)(?=\s*" + _KEYS + rb")")
_FIRST = re.compile(rb'(?:"traceEvents"\s*:|\A(?:\xef\xbb\xbf)?)\s*\[\s*\{')
_SEARCHED = 1 << 16
"""Bytes before a place in which an event is searched first, and length up to which one that is no JSON may be cut."""


def _first_of_file(text: bytes) -> int:
    """The first event of a file; -1 without one in this beginning of it."""
    found = _FIRST.search(text)
    return found.end() - 1 if found is not None else _start_of(text, 0)


def _start_of(text: bytes, least: int) -> int:
    """The first event that begins at or behind `least`; -1 if more text is needed.

    It depends on no text before `least`, so that the reader of the range before ends where that of the next begins.
    """
    found = text.find(_PHASE, least)
    while found >= 0:
        brace = text.rfind(b"{", least, found)
        if brace >= 0 and text.find(b"}", brace, found) < 0:
            return brace
        for start in _starts(text, least, found):
            whole = _is_event(text, start)
            if whole is None:
                return -1
            if whole:
                return start
        found = text.find(_PHASE, found + 1)
    return -1


def _starts(text: bytes, least: int, end: int) -> Iterator[int]:
    """Braces between two places that an event may begin with."""
    at_once = _AT_ONCE.match(text, least, end)
    if at_once is not None:
        yield at_once.start(1)
    yield from (found.end() - 1 for found in BOUNDARY.finditer(text, least, end))


def _is_event(text: bytes, start: int) -> bool | None:
    """Whether the object at a brace is an event; None if the text ends before that is sure."""
    part = text[start : start + _SEARCHED].decode("utf-8", "surrogateescape")
    try:
        found, _ = json.JSONDecoder(strict=False).raw_decode(part)
    except (ValueError, RecursionError):
        end = BOUNDARY.search(text, start)
        if end is None:
            return None if len(text) - start < _SEARCHED else False
        return text.find(_PHASE, start, end.start()) >= 0
    return isinstance(found, dict) and "ph" in found


def _last_of(text: bytes) -> int:
    """The last event of a text that begins with one; 0 or less if there is no other."""
    phase = max(0, text.rfind(_PHASE))
    brace = text.rfind(b"{", 0, phase)
    if brace < 0 or text.find(b"}", brace, phase) < 0:
        return brace
    stop, size = phase, _SEARCHED
    while stop > 0:
        stop = max(0, phase - size)
        for found in reversed([match.end() - 1 for match in BOUNDARY.finditer(text, stop, phase)]):
            if _is_event(text, found):
                return found
        size *= 8
    return -1
