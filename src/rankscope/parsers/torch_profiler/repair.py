"""Events of a piece that is no JSON: each is decoded separately, and known faults are repaired.

The faults come from real traces: an empty value (`"Process Group Description": ,`), quotes, control characters,
backslashes and bytes that are no UTF-8 in names, `inf` and `nan` as numbers, and two writers in one file.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from rankscope.parsers.torch_profiler.chunks import BOUNDARY
from rankscope.parsers.torch_profiler.events import EVENT, JSON_ERRORS, CompleteEvent, Event

_START = re.compile(rb'\{(?:[^{}"]{0,64}"[^"]{0,8192}"){0,12}?[^{}"]{0,64}"ph"\s*:')
_EMPTY = re.compile(rb":\s*(?=[,}\]])")
_NOT_FINITE = re.compile(rb"(?<=[:\[,])(\s*)[-+]?(?:inf(?:inity)?|nan)(?=\s*[,}\]])", re.IGNORECASE)
_ESCAPE = re.compile(rb'\\(?!["\\/bfnrt]|u[0-9a-fA-F]{4})')
_CONTROL = bytes(i if i >= 0x20 else 0x20 for i in range(256))
_NEXT = rb'"\s*(?:,\s*"(?:ph|cat|name|pid|tid|ts|dur|args|id|bp|s)"\s*:|\}\s*\Z)'
_TEXT = {k: re.compile(rb'"' + k.encode() + rb'"\s*:\s*"(.{0,8192}?)' + _NEXT, re.DOTALL) for k in ("cat", "name")}
_PLACE = {key: re.compile(rb'"' + key.encode() + rb'"\s*:\s*"?(-?\d{1,18}|[^",{}]{0,64})') for key in ("pid", "tid")}
_TIME = {key: re.compile(rb'"' + key.encode() + rb'"\s*:\s*"?(-?\d{1,19}(?:\.\d{1,9})?)') for key in ("ts", "dur")}
_PHASE = re.compile(rb'"ph"\s*:\s*"([A-Za-z])"')
_ARGS = re.compile(rb'"args"\s*:\s*(\{.*\})\s*\}\s*$', re.DOTALL)


def repaired_events(text: bytes, *, args_first: bool = False) -> tuple[list[Event], int]:
    """The events of a piece, and the number of unreadable ones."""
    found, lost = [], 0
    for one in split_events(text, args_first=args_first):
        event = _event(one)
        if event is None:
            lost += 1
        else:
            found.append(event)
    return found, lost


def split_events(text: bytes, *, args_first: bool = False) -> Iterator[bytes]:
    """The texts of the events of a piece; a text without an event counts as one."""
    if args_first:
        starts = [0, *(match.end() - 1 for match in BOUNDARY.finditer(text))]
    else:
        starts = [match.start() for match in _START.finditer(text)] or [0]
    for start, end in zip(starts, [*starts[1:], len(text)], strict=True):
        yield text[start:end].rstrip(b", \t\r\n")


def _event(text: bytes) -> Event | None:
    """One event, repaired if necessary; None for an unreadable one."""
    ways: tuple[Callable[[bytes], Any], ...] = (EVENT.decode, lambda t: EVENT.decode(repaired(t)), _by_fields)
    for way in ways:
        try:
            return way(text)
        except (*JSON_ERRORS, ValueError):
            continue
    return None


def repaired(text: bytes) -> bytes:
    """The text of an event without the known faults."""
    text = _NOT_FINITE.sub(rb"\1null", _EMPTY.sub(b":null", text))
    text = _ESCAPE.sub(rb"\\\\", text.translate(_CONTROL))
    return text.decode("utf-8", "replace").encode()


def _by_fields(text: bytes) -> Event:
    """An event with unmatched quotes: each field is read separately. Raises ValueError for a missing required field."""
    phase = _PHASE.search(text)
    if phase is None:
        raise ValueError
    if phase[1] != b"X":
        return EVENT.decode(b'{"ph":"i"}')
    times = {key: pattern.search(text) for key, pattern in _TIME.items()}
    if times["ts"] is None:
        raise ValueError
    args = _ARGS.search(text)
    places = {key: _place(pattern, text) for key, pattern in _PLACE.items()}
    return CompleteEvent(
        float(times["ts"][1]),
        cat=_text(_TEXT["cat"], text),
        name=_text(_TEXT["name"], text),
        pid=places["pid"],
        tid=places["tid"],
        dur=float(times["dur"][1]) if times["dur"] is not None else 0.0,
        args=msgspec.Raw(args[1] if args else b"null"),
    )


def _text(pattern: re.Pattern[bytes], text: bytes) -> str:
    match = pattern.search(text)
    return match[1].translate(_CONTROL).decode("utf-8", "replace") if match else ""


def _place(pattern: re.Pattern[bytes], text: bytes) -> int | str:
    match = pattern.search(text)
    if match is None:
        return 0
    found = match[1].decode("utf-8", "replace")
    return int(found) if found.lstrip("-").isdigit() else found
