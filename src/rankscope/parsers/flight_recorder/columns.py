"""Entries to columns, the quick way: C loops over all entries, Python only for each distinct value.

It trusts that the entries are alike and of the right types, and raises where they are not; `clean` mends them then.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import repeat
from operator import itemgetter
from typing import Any, TypeVar

import numpy as np
import orjson

from rankscope.parsers.flight_recorder.model import NULL, NUMBERS, Call, Codes, Dump, Numbers, Shape, StackFrame
from rankscope.parsers.flight_recorder.values import integer, text

Entry = dict[str, Any]
T = TypeVar("T")

FRAME_LIMIT = 256
"""Deeper stacks are cut."""
ERRORS = (TypeError, ValueError, LookupError, AttributeError, ArithmeticError, RecursionError)
"""What a damaged entry makes the quick way raise; orjson's errors are among them."""

_CALL_KEYS = (
    "pg_id", "process_group", "thread_name", "thread_id", "profiling_name", "state", "retired", "timeout_ms", "is_p2p",
)  # fmt: skip
_SHAPE_KEYS = ("input_sizes", "output_sizes", "input_dtypes", "output_dtypes")
_NUMBER_KEYS = {
    "record_id": ("record_id",),
    "seq": ("collective_seq_id", "seq_id"),
    "p2p_seq": ("p2p_seq_id",),
    "op_id": ("op_id",),
    "created_ns": ("time_created_ns",),
    "started_ns": ("time_discovered_started_ns",),
    "completed_ns": ("time_discovered_completed_ns",),
}
_TIMES = ("created_ns", "started_ns", "completed_ns")


def fill(dump: Dump, entries: Sequence[Entry]) -> None:
    """Puts the entries into the columns and tables of `dump`. Raises one of ERRORS if they are not alike."""
    if not entries:
        return
    if set(map(type, entries)) != {dict}:
        raise TypeError("an entry is no dict")
    numbers = np.stack([_number(name, entries) for name in NUMBERS])
    calls, call_codes = _calls(entries)
    shapes, shape_codes = _shapes(entries)
    frames, stacks, stack_codes = _stacks(entries)
    dump.numbers, dump.codes = numbers, np.stack([call_codes, shape_codes, stack_codes])
    dump.calls, dump.shapes, dump.frames, dump.stacks = calls, shapes, frames, stacks


def intern(values: Sequence[T]) -> tuple[list[T], Codes]:
    """The distinct values in order of first appearance, and for each value its place among them."""
    table = dict.fromkeys(values)
    index = dict(zip(table, range(len(table)), strict=True))
    return list(table), np.fromiter(map(index.__getitem__, values), np.int32, len(values))


def _pick(keys: Sequence[str], entries: Sequence[Entry]) -> list[Any] | None:
    """The values of the first of `keys` that the entries have; None if no entry has any."""
    for key in keys:
        if key in entries[0]:
            return list(map(itemgetter(key), entries))
    if any(key in entry for key in keys for entry in entries):
        raise KeyError(keys[0])
    return None


def _number(name: str, entries: Sequence[Entry]) -> Numbers:
    if name == "duration_ns":
        return _durations(entries)
    values = _pick(_NUMBER_KEYS[name], entries)
    if values is None:
        return np.full(len(entries), NULL, np.int64)
    if name in _TIMES:  # JSON writes an unset time as 0, a pickle as None
        values = [v or NULL for v in values]
    return np.fromiter(values, np.int64, len(values))


def _durations(entries: Sequence[Entry]) -> Numbers:
    millis = np.array([e.get("duration_ms") for e in entries], np.float64)
    known = np.isfinite(millis) & (np.abs(millis) < 1e12)
    return np.where(known, np.where(known, millis, 0.0) * 1e6, NULL).astype(np.int64)


def _calls(entries: Sequence[Entry]) -> tuple[list[Call], Codes]:
    columns = [_pick([key], entries) for key in _CALL_KEYS]
    groups = columns[1]
    if groups is not None and isinstance(groups[0], list):
        columns[1] = list(map(tuple, groups))
    rows = list(zip(*(repeat(None, len(entries)) if c is None else c for c in columns), strict=True))
    table, codes = intern(rows)
    return [_call(row) for row in table], codes


def _call(row: tuple[Any, ...]) -> Call:
    pg_id, group, thread_name, thread_id, profiling_name, state, retired, timeout_ms, is_p2p = row
    name, description = (None, None) if group is None else group
    call = Call(
        integer(pg_id), text(name), text(description), text(thread_name), text(thread_id), text(profiling_name) or "",
        text(state), retired, integer(timeout_ms), is_p2p,
    )  # fmt: skip
    given = (pg_id, name, description, thread_name, thread_id, profiling_name or None, state)
    kept = (*call[:5], call.profiling_name or None, call.state)
    if any((a is None) != (b is None) for a, b in zip(given, kept, strict=True)):
        raise TypeError("a value is of the wrong type")
    if not (retired is None or isinstance(retired, bool)) or not (is_p2p is None or isinstance(is_p2p, bool)):
        raise TypeError("a flag is no boolean")
    return call


def _shapes(entries: Sequence[Entry]) -> tuple[list[Shape], Codes]:
    columns = [_pick([key], entries) for key in _SHAPE_KEYS]
    rows = zip(*(repeat(None, len(entries)) if c is None else c for c in columns), strict=True)
    spread: list[Any] = [0] * (2 * len(entries))
    spread[::2] = rows
    # one call writes them all, with a 0 between two rows: no row holds a number between two lists
    pieces = orjson.dumps(spread)[2:-4].split(b"],0,[")
    if len(pieces) != len(entries):
        raise ValueError("sizes are no lists of numbers")
    table, codes = intern(pieces)
    return [_shape(orjson.loads(b"[" + piece + b"]")) for piece in table], codes


def _shape(row: list[Any]) -> Shape:
    *sizes, in_dtypes, out_dtypes = row
    good = all(s is None or all(_all_of(int, dims) for dims in s) for s in sizes)
    if not good or not all(d is None or _all_of(str, d) for d in (in_dtypes, out_dtypes)):
        raise TypeError("sizes or dtypes are no lists")
    return Shape(*(None if v is None else orjson.dumps(v).decode() for v in row))


def _all_of(kind: type, values: Any) -> bool:
    return isinstance(values, list) and all(type(v) is kind for v in values)


def _stacks(entries: Sequence[Entry]) -> tuple[list[StackFrame], list[list[int]], Codes]:
    stacks = _pick(["frames"], entries)
    if stacks is None:
        return [], [], np.full(len(entries), -1, np.int32)
    if max(map(len, stacks)) > FRAME_LIMIT or set(map(type, stacks)) != {list}:
        raise ValueError("a stack is too deep, or none")
    # the recorder writes a frame once and refers to it: the same object is the same frame
    by_identity, codes = intern([tuple(map(id, stack)) for stack in stacks])
    objects = {id(frame): frame for stack in _firsts(stacks, codes, len(by_identity)) for frame in stack}
    frames, places = intern([_frame(frame) for frame in objects.values()])
    place = dict(zip(objects, places.tolist(), strict=True))
    table, merged = intern([tuple(place[key] for key in stack) for stack in by_identity])
    return frames, [list(stack) for stack in table], _without_empty(table, merged[codes])


def _firsts(stacks: Sequence[T], codes: Codes, count: int) -> Iterable[T]:
    first = np.empty(count, np.int64)
    first[codes[::-1]] = np.arange(len(codes))[::-1]
    return (stacks[i] for i in first.tolist())


def _frame(frame: Any) -> StackFrame:
    function, file, line = text(frame["name"]), text(frame["filename"]), integer(frame["line"])
    if function is None or file is None or line is None:
        raise TypeError("a frame is not of a name, a file and a line")
    return StackFrame(function, file, line)


def _without_empty(table: Sequence[tuple[int, ...]], codes: Codes) -> Codes:
    empty = [i for i, stack in enumerate(table) if not stack]
    return np.where(np.isin(codes, empty), np.int32(-1), codes) if empty else codes
