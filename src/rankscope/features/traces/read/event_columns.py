"""Columns of events, filled piece by piece: repeated values are indices into tables."""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable
from itertools import islice
from operator import attrgetter
from typing import Any, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt

from rankscope.features.traces.read import event_names
from rankscope.features.traces.read.event_names import (
    COMMS,
    JSON_ERRORS,
    LINKS,
    MEMORIES,
    MEMORY_EVENT,
    NO_ARGS,
    VALUES,
    CommArgs,
    CompleteEvent,
    Event,
    InstantEvent,
    LaunchLink,
    MetadataEvent,
)
from rankscope.features.traces.read.model import (
    CALL_CODES,
    CALL_NUMBERS,
    CODES,
    MEMORY_NUMBERS,
    NUMBERS,
    VALUE_NUMBERS,
    EventLane,
    Label,
    TracedCall,
)
from rankscope.parsers.matrices import NULL, Numbers
from rankscope.parsers.safe_values import TEXT_LIMIT, safe_integer, safe_text

Decoded = TypeVar("Decoded")
_NAME, _LANE = attrgetter("name"), attrgetter("cat", "pid", "tid")
_START, _DURATION = attrgetter("ts"), attrgetter("dur")
LATEST_US, LONGEST_US = 4e15, 1e15
"""Latest time (in 2096) and longest duration (31 years), in microseconds; greater ones are invalid."""
MOST_NAMES, MOST_LANES, MOST_TEXT = 1 << 20, 1 << 15, 128 << 20
"""Most names and threads of a trace, and most characters in all names: no profiler writes more."""
_MOST_VALUES, _LARGEST_VALUE = 256, 1e300
_PLACES = frozenset({
    "External id", "external id", "correlation", "device", "stream", "context", "Ev Idx", "Record function id",
    "Trace iteration", "wait_on_cuda_event_id",
})  # fmt: skip
"""Arguments of spans that measure nothing."""
_QUARTER = 250
_LONGEST_HASH = 24
_ABSOLUTE_US = float(1 << 50)
"""Above this, a float resolves quarters of a microsecond: it is a time since the epoch, with decimals."""


class _NumberTable(dict[Any, int]):
    """A table that gives each new key the next number. Raises MemoryError for more keys than a real trace has."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self.most = most

    def __missing__(self, key: Any) -> int:
        if len(self) >= self.most:
            raise MemoryError
        self[key] = number = len(self)
        return number


class EventColumns:
    """Collector of the columns of a trace."""

    def __init__(self) -> None:
        self.names, self.lanes, self.calls = (
            _NumberTable(MOST_NAMES),
            _NumberTable(MOST_LANES),
            _NumberTable(MOST_NAMES),
        )
        self.labels: dict[Label, None] = {}
        self.events = self.lost = self.rows = 0
        self.fraction = self.quarters = False
        self._telling = np.empty(0, np.bool_)
        self._linked = np.empty(0, np.bool_)
        self._callable = np.empty(0, np.bool_)
        self._measured = np.empty(0, np.bool_)
        self._copies = np.empty(0, np.bool_)
        self._value_names = _NumberTable(MOST_LANES)
        self._parts: dict[str, list[npt.NDArray[Any]]] = {
            "numbers": [],
            "codes": [],
            "call_numbers": [],
            "call_codes": [],
            "value_numbers": [],
            "values": [],
            "memory": [],
        }

    def add(self, events: list[Event]) -> None:
        """Adds the events of a piece."""
        self.events += len(events)
        spans = [event for event in events if event.__class__ is CompleteEvent]
        if len(spans) < len(events):
            self._label(event for event in events if event.__class__ is MetadataEvent)
            self._sample([e for e in events if e.__class__ is InstantEvent and e.name == MEMORY_EVENT])
        if spans:
            self._spans(spans)

    def arrays(self) -> dict[str, Any]:
        """The columns by the names of TraceContent."""
        shapes = {"numbers": NUMBERS, "codes": CODES, "call_numbers": CALL_NUMBERS, "call_codes": CALL_CODES,
                  "value_numbers": VALUE_NUMBERS, "values": ("value",), "memory": MEMORY_NUMBERS}  # fmt: skip
        kinds: dict[str, Any] = {name: np.int64 if "numbers" in name else np.int32 for name in shapes}
        kinds |= {"values": np.float64, "memory": np.int64}
        return {
            name: np.concatenate([np.empty((len(rows), 0), kinds[name]), *self._parts[name]], axis=1)
            for name, rows in shapes.items()
        }

    def tables(self) -> dict[str, Any]:
        """The tables by the names of TraceContent. Raises MemoryError for more text than a real trace has."""
        if sum(map(len, self.names)) > MOST_TEXT or len(self.labels) > MOST_NAMES:
            raise MemoryError
        return {
            "names": [safe_text(name) or "" for name in self.names],
            "value_names": [safe_text(name) or "" for name in self._value_names],
            "lanes": [_lane(*key) for key in self.lanes],
            "calls": [_call(key) for key in self.calls],
            "labels": list(self.labels),
        }

    @property
    def resolution_ns(self) -> int:
        """The resolution of the time stamps so far."""
        return 1000 if not self.fraction else _QUARTER if self.quarters else 1

    def _spans(self, spans: list[CompleteEvent]) -> None:
        count = len(spans)
        name = np.fromiter(map(self.names.__getitem__, map(_NAME, spans)), np.int32, count)
        lane = np.fromiter(map(self.lanes.__getitem__, map(_LANE, spans)), np.int32, count)
        start = np.fromiter(map(_START, spans), np.float64, count)
        duration = np.fromiter(map(_DURATION, spans), np.float64, count)
        good = np.abs(start) < LATEST_US
        good &= np.abs(duration) < LONGEST_US
        if not good.all():
            self.lost += int((~good).sum())
            spans = [span for span, keep in zip(spans, good.tolist(), strict=True) if keep]
            name, lane, start, duration = name[good], lane[good], start[good], duration[good]
        self._learn()
        linked = np.flatnonzero(self._linked[lane])
        correlation, telling = np.full(len(spans), NULL, np.int64), self._telling[name]
        links = _decoded([spans[i].args for i in linked.tolist()], LINKS)
        correlation[linked] = self._links(links)
        # libraries name their kernels freely, but kernels of collectives carry arguments
        telling[linked] |= np.fromiter(
            (x is not None and x.collective is not None for x in links), np.bool_, len(links)
        )
        called = np.flatnonzero(telling & self._callable[lane])
        self._parts["numbers"].append(np.stack([self._ns(start), np.maximum(self._ns(duration), 0), correlation]))
        self._parts["codes"].append(np.stack([name, lane]))
        if len(called):
            self._called(called + self.rows, [spans[i].args for i in called.tolist()])
        copies = np.flatnonzero(self._copies[lane[linked]]).tolist()
        if copies:
            self._copied((linked[copies] + self.rows).tolist(), [links[at] for at in copies])
        if self._measured.any():
            measured = np.flatnonzero(self._measured[lane])
            # adds the numbers among the arguments of spans that measure or wait
            rows = measured + self.rows
            args = [spans[i].args for i in measured.tolist()]
            found = [
                (row, self._value_names[name], value)
                for row, given in zip(rows.tolist(), _decoded(args, VALUES), strict=True)
                for name, value in islice((given or {}).items(), _MOST_VALUES)
                if name not in _PLACES and type(value) in (int, float) and abs(value) < _LARGEST_VALUE
            ]
            self._add_values(found)
        self.rows += len(spans)

    def _copied(self, rows: list[int], links: list[LaunchLink | None]) -> None:
        """Adds what copies move, and how fast."""
        found = [
            (row, self._value_names[name], value)
            for row, link in zip(rows, links, strict=True)
            for name, value in (
                ((event_names.COPY_BYTES, link.copied), (event_names.COPY_SPEED, link.speed)) if link else ()
            )
            if isinstance(value, int | float) and 0 <= value < _LARGEST_VALUE
        ]
        self._add_values(found)

    def _add_values(self, found: list[tuple[int, int, float]]) -> None:
        """Adds numbers: the row of each span, the index of the name, the value."""
        table = np.array([row[:2] for row in found], np.int64).reshape(-1, len(VALUE_NUMBERS))
        self._parts["value_numbers"].append(table.T)
        self._parts["values"].append(np.array([[row[2] for row in found]], np.float64))

    def _learn(self) -> None:
        """Classifies new names and lanes."""
        known = len(self._telling)
        fresh = [event_names.is_collective(name) for name in list(self.names)[known:]]
        self._telling = np.concatenate([self._telling, np.array(fresh, np.bool_)])
        new = [event_names.current_category(key[0] or "", "") for key in list(self.lanes)[len(self._linked) :]]
        self._linked = np.concatenate(
            [self._linked, np.array([c not in event_names.UNLINKED_CATEGORIES for c in new], np.bool_)]
        )
        callable_ = [
            c in ("cpu_op", "user_annotation") or c in event_names.DEVICE_CATEGORIES - {"gpu_user_annotation"}
            for c in new
        ]
        self._callable = np.concatenate([self._callable, np.array(callable_, np.bool_)])
        copies = [c in event_names.COPY_CATEGORIES for c in new]
        self._copies = np.concatenate([self._copies, np.array(copies, np.bool_)])
        measured = [c in event_names.MEASURED_CATEGORIES for c in new]
        self._measured = np.concatenate([self._measured, np.array(measured, np.bool_)])

    def _ns(self, microseconds: npt.NDArray[np.float64]) -> Numbers:
        """Whole nanoseconds, exact: the decimals are rounded separately."""
        whole = np.floor(microseconds)
        rest = np.rint((microseconds - whole) * 1000)
        if rest.any():
            self.fraction = True
            self.quarters |= bool((whole > _ABSOLUTE_US).any())
        return whole.astype(np.int64) * 1000 + rest.astype(np.int64)

    def _links(self, found: list[LaunchLink | None]) -> Numbers:
        values = [NULL if link is None else link.correlation for link in found]
        try:
            return np.array(values, np.int64)
        except (TypeError, ValueError, OverflowError):
            return np.array([_number(value) for value in values], np.int64)

    def _called(self, rows: npt.NDArray[np.int64], args: list[msgspec.Raw]) -> None:
        found = [value if value is not None else CommArgs() for value in _decoded(args, COMMS)]
        external = [v.external if v.external is not None else v.external_2021 for v in found]
        numbers = [external, [v.seq for v in found], [v.correlation for v in found]]
        columns = [rows.tolist(), *([_number(value) for value in column] for column in numbers)]
        table = np.array([*columns, [_hash(value.comms_id) for value in found]], np.int64)
        calls = self.calls
        self._parts["call_numbers"].append(table)
        self._parts["call_codes"].append(np.array([[calls[_key(value)] for value in found]], np.int32))

    def _sample(self, events: list[InstantEvent]) -> None:
        """Adds memory events: of each device in a piece the last one, and those with the most in equal stretches."""
        found = [
            (event.ts, *(_number(value) for value in (told.type, told.index, told.allocated, told.reserved)))
            for event, told in zip(events, _decoded([event.args for event in events], MEMORIES), strict=True)
            if told is not None and abs(event.ts) < LATEST_US
        ]
        if found:
            times = self._ns(np.array([row[0] for row in found], np.float64))
            rows = np.concatenate([times[None], np.array([row[1:] for row in found], np.int64).T])
            self._parts["memory"].append(_thinned(rows))

    def _label(self, events: Iterable[MetadataEvent]) -> None:
        for event in events:
            args = event.args
            if args is None:
                continue
            said = args.name if args.name is not None else args.labels
            place = safe_integer(event.pid), safe_integer(event.tid)
            self.labels[Label(event.name[:64], *place, _text(said) or "", safe_integer(args.sort_index))] = None


_STRETCHES = 64
"""Stretches of a piece of which one memory event of each device is kept."""


def _thinned(rows: Numbers) -> Numbers:
    """The last event of each device and those with the most allocated memory in each stretch, in their order, with the
    number of events that each stands for.
    """
    count = rows.shape[1]
    stretch = np.arange(count) * _STRETCHES // count
    order = np.lexsort((rows[3], stretch, rows[2], rows[1]))
    key = np.stack([rows[1], rows[2], stretch])[:, order]
    fullest = np.append((key[:, 1:] != key[:, :-1]).any(axis=0), True)
    stands_for = np.zeros(count, np.int64)
    stands_for[order[fullest]] = np.diff(np.flatnonzero(fullest), prepend=-1)
    by_time = np.lexsort((rows[0], rows[2], rows[1]))
    device = rows[1:3, by_time]
    ends = by_time[np.append((device[:, 1:] != device[:, :-1]).any(axis=0), True)]
    kept = np.union1d(order[fullest], ends)
    return np.concatenate([rows[:, kept], stands_for[None, kept]])


def _decoded(args: list[msgspec.Raw], decoder: msgspec.json.Decoder[list[Decoded]]) -> list[Decoded]:
    """The arguments of several events at once; arguments that are no JSON are empty."""
    try:
        return decoder.decode(b"[" + b",".join(args) + b"]")
    except JSON_ERRORS:
        return [_decoded_args(one, decoder) for one in args]


def _decoded_args(args: msgspec.Raw, decoder: msgspec.json.Decoder[list[Decoded]]) -> Decoded:
    try:
        return decoder.decode(b"[" + bytes(args) + b"]")[0]
    except JSON_ERRORS:
        return decoder.decode(b"[null]")[0]


def _number(value: Any) -> int:
    number = safe_integer(value)
    return NULL if number is None else number


def _hash(value: Any) -> int:
    """A 64-bit hash, which some versions write as unsigned; NULL for another value."""
    if type(value) is str and value.lstrip("-").isdecimal() and len(value) < _LONGEST_HASH:
        value = int(value)
    if type(value) is not int or not -(1 << 63) < value < 1 << 64:
        return NULL
    return value - (1 << 64) if value >= 1 << 63 else value


def _key(args: CommArgs) -> tuple[Any, ...]:
    """The values that distinguish calls, cheap to compare."""
    return (
        args.collective, args.dtype, args.in_elements if args.in_elements is not None else args.in_size,
        args.out_elements if args.out_elements is not None else args.out_size, args.group_size,
        args.group if args.group is not None else args.group_id, args.description,
        _listed(args.members), args.rank, args.start, args.stride,
        args.source, args.target, bytes(args.dims), bytes(args.types), _listed(args.in_splits),
        _listed(args.out_splits),
    )  # fmt: skip


def _listed(value: list[Any] | event_names.Scalar) -> event_names.Scalar:
    """A list as its text, which can be compared."""
    return str(value) if isinstance(value, list) else value


def _call(key: tuple[Any, ...]) -> TracedCall:
    collective, dtype, in_elements, out_elements, size, group, description, members, *numbers = key[:-4]
    dims, types, in_splits, out_splits = key[-4:]
    rank, start, stride, source, target = map(safe_integer, numbers)
    return TracedCall(
        _text(collective), _text(dtype), safe_integer(in_elements), safe_integer(out_elements), safe_integer(size),
        _text(group), _text(description), _text(members), rank, start, stride, source, target,
        _shapes(dims), _shapes(types), _text(in_splits), _text(out_splits),
    )  # fmt: skip


def _text(value: Any) -> str | None:
    return None if value is None else safe_text(str(value))


def _shapes(raw: bytes) -> str | None:
    return None if raw == bytes(NO_ARGS) or len(raw) > TEXT_LIMIT else raw.decode("utf-8", "replace")


def _lane(category: str | None, pid: int | str, tid: int | str) -> EventLane:
    name = safe_text(category) or ""
    if name in event_names.PROFILER_CATEGORIES or pid in _PROFILER_ROWS:
        return EventLane(name, safe_integer(pid), safe_integer(tid))
    return EventLane(name, _place(pid), _place(tid))


_PROFILER_ROWS = ("Spans", "Traces")
_LAST_NUMBER = re.compile(r"(\d{1,9})\D{0,16}$")


def _place(value: int | str) -> int | None:
    """The number of a process, thread or stream; of a text the last in it ("stream 7"), else one made of the text."""
    number = safe_integer(value)
    if number is not None or not isinstance(value, str):
        return number
    found = _LAST_NUMBER.search(value[-64:])
    return int(found[1]) if found else _MADE + zlib.crc32(value.encode("utf-8", "replace")) % _MADE


_MADE = 1 << 30
"""Numbers that are made of texts begin here."""
