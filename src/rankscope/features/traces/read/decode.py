"""Decoder of traces: a file, or a range of its bytes, to a TraceContent."""

from __future__ import annotations

import contextlib
import io
import os
import re
from collections import Counter
from collections.abc import Callable, Iterator
from typing import IO, Any

import msgspec
import numpy as np
import numpy.typing as npt

from rankscope.features.traces.read import event_names
from rankscope.features.traces.read.event_columns import EventColumns
from rankscope.features.traces.read.event_names import (
    EVENT,
    EVENTS,
    JSON_ERRORS,
    LOOSE_EVENTS,
    CompleteEvent,
    Event,
    MetadataEvent,
)
from rankscope.features.traces.read.model import CALL_NUMBERS, TraceContent, TraceHeader, trace_header
from rankscope.features.traces.read.recognition import (
    BOUNDARY,
    EventPiece,
    TraceMargins,
    TraceOrigin,
    end_of,
    event_pieces,
)
from rankscope.parsers.contents import DETAIL_VARIABLE, NotThisKindError
from rankscope.parsers.matrices import NULL


def read_trace(stream: IO[bytes], size: int, part: tuple[int, int] = (0, 1)) -> TraceContent:
    """A trace, or one range of a seekable file: ranges meet at beginnings of events."""
    asked = os.environ.get(DETAIL_VARIABLE)
    detail = asked if asked in DETAILS else DETAILS[1]
    number, parts = part
    if parts == 1:
        content = decode_range(stream, 0, None, detail)
        if not content.events and content.about == TraceHeader():
            raise NotThisKindError("holds no event")
        return finished(content)
    begin = size * number // parts
    stream.seek(begin)
    end = size * (number + 1) // parts if number + 1 < parts else None
    content = decode_range(stream, begin, end, detail)
    content.ranged = True
    return content


def decode_bytes(data: bytes) -> TraceContent:
    """The trace in `data`."""
    return read_trace(io.BytesIO(data), len(data))


def finished(content: TraceContent) -> TraceContent:
    """A whole trace with its problem. Raises NotThisKindError for a trace of another program."""
    foreign = content.origin.foreign([x.text for x in content.labels if x.kind == "process_name"])
    if foreign is not None:
        raise NotThisKindError(foreign)
    content.problem = problem_of(content)
    return content


def problem_of(content: TraceContent) -> str | None:
    """The unreadable part of a whole trace; None if there is none. Drops repeated events."""
    notes = [
        content.problem,
        finish_trace(content),
        None if content.whole else f"cut off: {content.events} events kept",
        f"{content.lost} damaged {'event' if content.lost == 1 else 'events'} dropped" if content.lost else None,
    ]
    return "; ".join(note for note in notes if note) or None


def decode_range(stream: IO[bytes], begin: int, end: int | None, detail: str) -> TraceContent:
    """The events that begin from `begin`, where the stream stands, and before `end`."""
    columns, around, origin = EventColumns(), TraceMargins(), TraceOrigin()
    take_piece = take_collectives if detail == DETAILS[0] else take_events
    for piece in event_pieces(stream, around, begin, end):
        origin.look(piece.text)
        take_piece(columns, piece)
    if around.torn:
        columns.lost += 1
    for text in (around.before, around.after):
        origin.look(text)
    return TraceContent(
        **columns.arrays(), **columns.tables(), about=trace_header(around.before, around.after),
        resolution_ns=columns.resolution_ns, events=columns.events, lost=columns.lost, whole=around.whole,
        ended=end is None or bool(around.after or around.torn), problem=around.problem, detail=detail,
        origin=origin,
    )  # fmt: skip


def take_collectives(columns: EventColumns, piece: EventPiece) -> None:
    """Adds only the events of a piece about collectives, steps and threads."""
    events = wanted_texts(EventPiece(piece.text, end_of(piece)))
    if events is None:
        take_events(columns, piece, is_wanted)
        return
    try:
        columns.add(EVENTS.decode(b"".join((b"[", b",".join(events), b"]"))))
    except JSON_ERRORS:
        found, lost = repaired_events(piece.text[: piece.stop])
        columns.lost += lost
        columns.add([event for event in found if is_wanted(event)])


def take_events(columns: EventColumns, piece: EventPiece, wanted: Callable[[Event], bool] | None = None) -> None:
    """Adds the events of a piece, or only those that `wanted` selects; a damaged piece event by event."""
    stop = end_of(piece)
    if not stop:
        return
    inner = memoryview(piece.text)[:stop]
    found, lost = _decoded(b"".join((b"[", inner, b"]")))
    columns.lost += lost
    columns.add(found if wanted is None else list(filter(wanted, found)))


def _decoded(text: bytes) -> tuple[list[Event], int]:
    """The events of a list, and the number of unreadable ones. Numbers may be texts, as torch_npu writes times."""
    for decoder in (EVENTS, LOOSE_EVENTS):
        with contextlib.suppress(*JSON_ERRORS):
            return decoder.decode(text), 0
    return repaired_events(text[1:-1])


# Events about collectives, steps and threads, found by name without decoding the others.

DETAILS = ("collectives", "all")
"""The values of schema.DETAILS, which cannot be imported without polars."""
_WANTED_NAME = re.compile(
    rb'"name":\s*"(?=[rcvnmohxbgPptu])(?:record_param_comms"|c10d::|(?P<run>' + event_names.RUN_NAMES.encode() + rb")"
    rb"|(?:" + event_names.LIBRARIES.encode() + rb'):|ProfilerStep#|(?:thread|process)_(?:name|labels|sort_index)")'
)
_END = re.compile(rb"\}\s*,\s*\{")
_CORRELATION = re.compile(rb'"correlation"\s*:\s*(\d{1,19})')
_ARGUMENT = b'"Collective name"'
SEARCHED_BYTES = 8192
"""Bytes on either side of a kernel in which the call that launched it is searched."""


def wanted_texts(piece: EventPiece) -> list[bytes] | None:
    """The texts of these events; None if arguments come before names. A text with another beginning or end than an
    event is cut wrongly, and is no JSON."""
    found: dict[int, int] = {}
    text, stop = piece.text, piece.stop
    for match in _WANTED_NAME.finditer(text, 0, stop):
        begin = text.rfind(b"{", 0, match.start())
        if begin < 0 or begin in found:
            continue
        if text.find(b"}", begin, match.start()) >= 0:
            return None
        found[begin] = end = _end(text, match.end(), stop)
        if match["run"] and text.find(_ARGUMENT, begin, end) < 0:
            found.update(_launches(text, begin, end, stop))
    return [text[begin : found[begin]] for begin in sorted(found)]


def is_wanted(event: Event) -> bool:
    """Whether a decoded event is about collectives, steps or threads."""
    if event.__class__ is MetadataEvent:
        return True
    return event.__class__ is CompleteEvent and (
        event.name.startswith(event_names.STEP) or event_names.is_collective(event.name)
    )


def _end(text: bytes, start: int, stop: int) -> int:
    match = _END.search(text, start, stop)
    return stop if match is None else match.start() + 1


def _launches(text: bytes, begin: int, end: int, stop: int) -> Iterator[tuple[int, int]]:
    """Begin and end of the events beside a kernel with its correlation."""
    own = _CORRELATION.search(text, begin, end)
    if own is None:
        return
    for match in _CORRELATION.finditer(text, max(0, begin - SEARCHED_BYTES), min(stop, end + SEARCHED_BYTES)):
        if match[1] == own[1] and not begin <= match.start() < end:
            phase = text.rfind(b'"ph"', 0, match.start())
            brace = text.rfind(b"{", 0, max(phase, 0))
            if brace >= 0:
                yield brace, _end(text, match.end(), stop)


# Files of two processes: the profiler of each rank got the same name.

_OPERATOR_CATEGORIES = frozenset({"cpu_op", "python_function"})
MOST_NAMED_PROCESSES = 4
FEWEST_NAMES = 2


def finish_trace(content: TraceContent) -> str | None:
    """Completes a whole trace: drops repeated events and counts processes. Returns its problem; None without one."""
    repeated = _drop_repeated(content) if content.lost or _called_twice(content) else 0
    pids = _processes(content)
    content.writers = max(1, len(pids))
    if len(pids) > 1:
        shown = ", ".join(map(str, pids[:MOST_NAMED_PROCESSES])) + (", ..." if len(pids) > MOST_NAMED_PROCESSES else "")
        return (
            f"interleaved: {len(pids)} processes wrote into it ({shown}), so the process of an operation is not known"
        )
    if repeated:
        return f"interleaved: two writers in one file, {repeated} events stood in it twice"
    return None


def _processes(content: TraceContent) -> list[int]:
    """The processes that ran operators, the busiest first."""
    own = [
        i
        for i, lane in enumerate(content.lanes)
        if event_names.current_category(lane.category, "") in _OPERATOR_CATEGORIES and lane.pid is not None
    ]
    counts = np.bincount(content.code("lane"), minlength=len(content.lanes))
    spans: Counter[int] = Counter()
    for i in own:
        spans[content.lanes[i].pid or 0] += int(counts[i])
    return [pid for pid, _ in spans.most_common()]


def _called_twice(content: TraceContent) -> bool:
    """Whether the trace has an operation of the host twice, by its external id and time."""
    span, external = (content.call_numbers[CALL_NUMBERS.index(name)] for name in ("span", "external"))
    own = np.stack([external, content.column("start_ns")[span]])[:, external != NULL]
    ordered = own[:, np.lexsort(own)]
    return bool((ordered[:, 1:] == ordered[:, :-1]).all(axis=0).any())


def _drop_repeated(content: TraceContent) -> int:
    """Drops events that equal another one in every field; returns their number."""
    columns = [*content.numbers, *content.codes]
    order = np.lexsort(columns)
    same = np.zeros(content.rows, np.bool_)
    if content.rows > 1:
        same[order[1:]] = np.logical_and.reduce([column[order[1:]] == column[order[:-1]] for column in columns])
    # events of one microsecond may be equal; calls of the runtime have their own numbers
    if (same & (content.column("correlation") != NULL)).sum() < FEWEST_NAMES:
        return 0
    place = np.cumsum(~same) - 1
    spans = content.call_numbers[CALL_NUMBERS.index("span")]
    kept: npt.NDArray[np.bool_] = ~same[spans] if len(spans) else np.empty(0, np.bool_)
    content.numbers, content.codes = content.numbers[:, ~same], content.codes[:, ~same]
    content.call_numbers, content.call_codes = content.call_numbers[:, kept], content.call_codes[:, kept]
    content.call_numbers[CALL_NUMBERS.index("span")] = place[content.call_numbers[CALL_NUMBERS.index("span")]]
    kept = ~same[content.value_numbers[0]]
    content.value_numbers, content.values = content.value_numbers[:, kept], content.values[:, kept]
    content.value_numbers[0] = place[content.value_numbers[0]]
    return int(same.sum())


# Events of a piece that is no JSON: each is decoded separately, and known faults are repaired.

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


def repaired_events(text: bytes) -> tuple[list[Event], int]:
    """The events of a piece, and the number of unreadable ones."""
    found, lost = [], 0
    for one in split_events(text):
        event = _event(one)
        if event is None:
            lost += 1
        else:
            found.append(event)
    return found, lost


def split_events(text: bytes) -> Iterator[bytes]:
    """The texts of the events of a piece; a text without an event counts as one."""
    by_phase = {match.start() for match in _START.finditer(text)}
    by_end = {match.end() - 1 for match in BOUNDARY.finditer(text)}
    starts = sorted(by_phase | by_end | {0})
    if by_phase and text[:1] != b"{":
        starts.remove(0)
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
