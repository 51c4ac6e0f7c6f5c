"""The events that tell of collectives, steps and threads, found by their names without decoding the others.

A kernel that has no arguments of its collective is found together with the call of the runtime that launched it, which
libkineto writes beside it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from rankscope.parsers.torch_profiler import names
from rankscope.parsers.torch_profiler.chunks import Piece
from rankscope.parsers.torch_profiler.events import Complete, Event, Metadata

_WANTED = re.compile(
    rb'"name":\s*"(?=[rcvnmohxbgPptu])(?:record_param_comms"|c10d::|(?P<run>' + names.RUNS.encode() + rb")"
    rb"|(?:" + names.LIBRARIES.encode() + rb'):|ProfilerStep#|(?:thread|process)_(?:name|labels|sort_index)")'
)
_END = re.compile(rb"\}\s*,\s*\{")
_CORRELATION = re.compile(rb'"correlation"\s*:\s*(\d{1,19})')
_ARGUMENT = b'"Collective name"'
BESIDE = 8192
"""Bytes on either side of a kernel that are searched for the call that launched it."""


def wanted(piece: Piece) -> list[bytes]:
    """The texts of these events. What begins or ends otherwise than an event is cut wrongly, and no JSON."""
    found: dict[int, int] = {}
    text, stop = piece.text, piece.stop
    for match in _WANTED.finditer(text, 0, stop):
        begin = text.rfind(b"{", 0, match.start())
        if begin < 0 or begin in found:
            continue
        found[begin] = end = _end(text, match.end(), stop)
        if match["run"] and text.find(_ARGUMENT, begin, end) < 0:
            found.update(_launches(text, begin, end, stop))
    return [text[begin : found[begin]] for begin in sorted(found)]


def is_wanted(event: Event) -> bool:
    """The same of an event that is decoded."""
    if event.__class__ is Metadata:
        return True
    return event.__class__ is Complete and (event.name.startswith(names.STEP) or names.is_collective(event.name))


def _end(text: bytes, start: int, stop: int) -> int:
    match = _END.search(text, start, stop)
    return stop if match is None else match.start() + 1


def _launches(text: bytes, begin: int, end: int, stop: int) -> Iterator[tuple[int, int]]:
    """Where the events beside a kernel begin and end that have its correlation."""
    own = _CORRELATION.search(text, begin, end)
    if own is None:
        return
    for match in _CORRELATION.finditer(text, max(0, begin - BESIDE), min(stop, end + BESIDE)):
        if match[1] == own[1] and not begin <= match.start() < end:
            phase = text.rfind(b'"ph"', 0, match.start())
            brace = text.rfind(b"{", 0, max(phase, 0))
            if brace >= 0:
                yield brace, _end(text, match.end(), stop)
