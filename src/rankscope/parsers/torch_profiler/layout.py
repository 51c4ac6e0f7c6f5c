"""Where events begin, by the order of their keys.

Every known writer puts the phase of an event before its arguments, so the brace before a `"ph"` begins one. Programs
that saved a trace anew with its keys sorted put the arguments first: there an event begins behind the end of another.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import islice, pairwise
from typing import NamedTuple

PHASE = b'"ph"'
_ARGS = b'"args"'
BOUNDARY = re.compile(rb"\}\s*,\s*\{")
"""The end of an event and the beginning of the next."""
_FIRST = re.compile(rb'(?:"traceEvents"\s*:|\A(?:\xef\xbb\xbf)?)\s*\[\s*\{')
_AT_ONCE = re.compile(rb'\A[\s,]*\{\s*"args"\s*:')
LOOKED_AT = 256
"""Objects that are looked at for the order of their keys; groups and devices stand before the first event."""
_GAP = 256
"""Bytes of space between two events, at most."""


class Layout(NamedTuple):
    """How the beginnings of events are found; -1 where there is none."""

    first: Callable[[bytes, int], int]
    """Of the first event in a text that stands at this place of the file."""
    start_of: Callable[[bytes, int], int]
    """Of the first event that begins at this place of the text or behind it."""
    last: Callable[[bytes], int]
    """Of the last event."""
    args_first: bool = False


def layout_of(text: bytes) -> Layout:
    """The layout of a trace, by the first events of a piece of it."""
    starts = islice((match.end() - 1 for match in BOUNDARY.finditer(text)), LOOKED_AT)
    for begin, end in pairwise(starts):
        phase, args = text.find(PHASE, begin, end), text.find(_ARGS, begin, end)
        if phase >= 0 and args >= 0:
            return ARGS_FIRST if args < phase else USUAL
    return USUAL


def _first_by_phase(text: bytes, begin: int) -> int:
    """Wherever the text stands in the file."""
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
    """Of the last event but one where the last is not there yet: what is cut is read with what follows."""
    stop, size = len(text), 1 << 16
    while stop > 0:
        found = list(BOUNDARY.finditer(text, max(0, len(text) - size)))
        if found:
            return found[-1].end() - 1
        stop, size = len(text) - size, size * 4
    return -1


USUAL = Layout(_first_by_phase, _start_by_phase, _last_by_phase)
ARGS_FIRST = Layout(_first_by_end, _start_by_end, _last_by_end, args_first=True)
