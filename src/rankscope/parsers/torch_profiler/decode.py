"""Decoder of traces: a file, or a range of its bytes, to a TraceContent."""

from __future__ import annotations

import io
import os
import re
from collections import Counter
from collections.abc import Callable, Iterator
from typing import IO

import numpy as np
import numpy.typing as npt

from rankscope.parsers.contents import NotThisKindError
from rankscope.parsers.matrices import NULL
from rankscope.parsers.torch_profiler import DETAIL_VARIABLE, DETAILS, event_names, repair
from rankscope.parsers.torch_profiler.chunks import (
    EventLayout,
    EventPiece,
    TraceMargins,
    end_of,
    event_pieces,
    layout_of,
)
from rankscope.parsers.torch_profiler.event_columns import EventColumns
from rankscope.parsers.torch_profiler.events import EVENTS, JSON_ERRORS, CompleteEvent, Event, MetadataEvent
from rankscope.parsers.torch_profiler.model import CALL_NUMBERS, TraceContent, TraceHeader, trace_header

HEAD_BYTES = 1 << 18
"""Bytes that determine the layout of a file that is read in ranges."""


def read_trace(stream: IO[bytes], size: int, part: tuple[int, int] = (0, 1)) -> TraceContent:
    """A trace, or one range of a seekable file: ranges meet at beginnings of events."""
    asked = os.environ.get(DETAIL_VARIABLE)
    detail = asked if asked in DETAILS else DETAILS[1]
    number, parts = part
    if parts == 1:
        content = decode_range(stream, 0, None, detail)
        if not content.events and content.about == TraceHeader():
            raise NotThisKindError("holds no event")
        content.problem = problem_of(content)
        return content
    begin = size * number // parts
    layout = layout_of(stream.read(HEAD_BYTES))
    stream.seek(begin)
    end = size * (number + 1) // parts if number + 1 < parts else None
    content = decode_range(stream, begin, end, detail, layout)
    content.ranged = True
    return content


def decode_bytes(data: bytes) -> TraceContent:
    """The trace in `data`."""
    return read_trace(io.BytesIO(data), len(data))


def problem_of(content: TraceContent) -> str | None:
    """The unreadable part of a whole trace; None if there is none. Drops repeated events."""
    notes = [
        content.problem,
        finish_trace(content),
        None if content.whole else f"cut off: {content.events} events kept",
        f"{content.lost} damaged {'event' if content.lost == 1 else 'events'} dropped" if content.lost else None,
    ]
    return "; ".join(note for note in notes if note) or None


def decode_range(
    stream: IO[bytes], begin: int, end: int | None, detail: str, layout: EventLayout | None = None
) -> TraceContent:
    """The events that begin from `begin`, where the stream stands, and before `end`."""
    columns, around = EventColumns(), TraceMargins()
    take_piece = take_collectives if detail == DETAILS[0] else take_events
    for piece in event_pieces(stream, around, begin, end, layout):
        take_piece(columns, piece)
    if around.torn:
        columns.lost += 1
    return TraceContent(
        **columns.arrays(), **columns.tables(), about=trace_header(around.before, around.after),
        resolution_ns=columns.resolution_ns, events=columns.events, lost=columns.lost, whole=around.whole,
        ended=end is None or bool(around.after or around.torn), problem=around.problem, detail=detail,
    )  # fmt: skip


def take_collectives(columns: EventColumns, piece: EventPiece) -> None:
    """Adds only the events of a piece about collectives, steps and threads."""
    if piece.args_first:
        take_events(columns, piece, is_wanted)
        return
    events = wanted_texts(EventPiece(piece.text, end_of(piece)))
    try:
        columns.add(EVENTS.decode(b"".join((b"[", b",".join(events), b"]"))))
    except JSON_ERRORS:
        found, lost = repair.repaired_events(piece.text[: piece.stop])
        columns.lost += lost
        columns.add([event for event in found if is_wanted(event)])


def take_events(columns: EventColumns, piece: EventPiece, wanted: Callable[[Event], bool] | None = None) -> None:
    """Adds the events of a piece, or only those that `wanted` selects; a damaged piece event by event."""
    stop = end_of(piece)
    if not stop:
        return
    inner = memoryview(piece.text)[:stop]
    try:
        found = EVENTS.decode(b"".join((b"[", inner, b"]")))
    except JSON_ERRORS:
        found, lost = repair.repaired_events(bytes(inner), args_first=piece.args_first)
        columns.lost += lost
    columns.add(found if wanted is None else list(filter(wanted, found)))


# Events about collectives, steps and threads, found by name without decoding the others.

_WANTED_NAME = re.compile(
    rb'"name":\s*"(?=[rcvnmohxbgPptu])(?:record_param_comms"|c10d::|(?P<run>' + event_names.RUN_NAMES.encode() + rb")"
    rb"|(?:" + event_names.LIBRARIES.encode() + rb'):|ProfilerStep#|(?:thread|process)_(?:name|labels|sort_index)")'
)
_END = re.compile(rb"\}\s*,\s*\{")
_CORRELATION = re.compile(rb'"correlation"\s*:\s*(\d{1,19})')
_ARGUMENT = b'"Collective name"'
SEARCHED_BYTES = 8192
"""Bytes on either side of a kernel in which the call that launched it is searched."""


def wanted_texts(piece: EventPiece) -> list[bytes]:
    """The texts of these events. A text with another beginning or end than an event is cut wrongly, and is no JSON."""
    found: dict[int, int] = {}
    text, stop = piece.text, piece.stop
    for match in _WANTED_NAME.finditer(text, 0, stop):
        begin = text.rfind(b"{", 0, match.start())
        if begin < 0 or begin in found:
            continue
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
        return f"interleaved: {len(pids)} processes wrote into it ({shown}), and whose an operation is cannot be told"
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
    kept = _first_places(content, same)
    content.numbers, content.codes = content.numbers[:, ~same], content.codes[:, ~same]
    content.call_numbers, content.call_codes = content.call_numbers[:, kept], content.call_codes[:, kept]
    content.call_numbers[CALL_NUMBERS.index("span")] = place[content.call_numbers[CALL_NUMBERS.index("span")]]
    return int(same.sum())


def _first_places(content: TraceContent, same: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    spans = content.call_numbers[CALL_NUMBERS.index("span")]
    kept: npt.NDArray[np.bool_] = ~same[spans] if len(spans) else np.empty(0, np.bool_)
    return kept
