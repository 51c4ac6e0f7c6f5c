"""Fast conversion of entries to columns: C loops over all entries, Python only over distinct values.

It expects entries of equal keys and right types, and raises where they differ; `clean_entries` then repairs them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from itertools import chain, count, repeat
from operator import itemgetter
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import orjson

from rankscope.parsers.contents import StackFrame
from rankscope.parsers.flight_recorder.model import NUMBERS, Dump, GroupStatus, RecordedCall, RecordedShape
from rankscope.parsers.matrices import NULL, Codes, Numbers
from rankscope.parsers.members import GroupConfig, Members
from rankscope.parsers.safe_values import INT64_LIMIT, TEXT_LIMIT, rank_list, safe_integer, safe_text

Entry = dict[str, Any]
Row = tuple[Any, ...]
T = TypeVar("T")

FRAME_LIMIT = 256
"""Most frames of a stack; deeper stacks are cut."""
FREE_ITEMS = 1 << 20
"""Items, and characters of them, that lists of any file may hold, whatever its size."""
ERRORS = (TypeError, ValueError, LookupError, AttributeError, ArithmeticError, RecursionError)
"""Errors that a damaged entry raises in the fast conversion, with those of orjson."""

CALL_KEYS = (
    "pg_id", "process_group", "thread_name", "thread_id", "profiling_name", "state", "retired", "timeout_ms", "is_p2p",
)  # fmt: skip
"""Keys whose values repeat from entry to entry, without arguments and stacks."""
SHAPE_KEYS = ("input_sizes", "output_sizes", "input_dtypes", "output_dtypes")
"""Keys of the arguments."""
NUMBER_KEYS = {
    "record_id": ("record_id",),
    "seq": ("collective_seq_id", "seq_id"),
    "p2p_seq": ("p2p_seq_id",),
    "op_id": ("op_id",),
    "created_ns": ("time_created_ns",),
    "started_ns": ("time_discovered_started_ns",),
    "completed_ns": ("time_discovered_completed_ns",),
}
"""Keys of the number columns, in new and old versions of the format."""
TIME_COLUMNS = ("created_ns", "started_ns", "completed_ns")
"""Columns in which 0 means that the event has not happened."""


def fill_columns(dump: Dump, entries: Sequence[Entry], size: int) -> None:
    """Puts the entries of a file of `size` bytes into the columns and tables of `dump`.

    Raises one of ERRORS for unequal entries, and MemoryError if they expand beyond the size of the file.
    """
    if not entries:
        return
    numbers = number_columns(entries)
    dump.calls, calls = distinct_calls(rows_of(CALL_KEYS, entries))
    arguments = rows_of(SHAPE_KEYS, entries)
    check_room(arguments, size)
    dump.shapes, shapes = distinct_shapes(arguments)
    dump.frames, dump.stacks, stacks = distinct_stacks([row[0] for row in rows_of(("frames",), entries)])
    dump.numbers, dump.codes = numbers, np.stack([calls, shapes, stacks])


def number_values(values: Sequence[T]) -> tuple[list[T], Codes]:
    """The distinct values in order of first appearance, and for each value its index among them."""
    index: defaultdict[T, int] = defaultdict(count().__next__)
    codes = np.fromiter(map(index.__getitem__, values), np.int32, len(values))
    return list(index), codes


def rows_of(keys: Sequence[str], entries: Sequence[Entry]) -> list[Row]:
    """The values of `keys` in each entry; None for a key that no entry has."""
    if not entries:
        return []
    columns = (_first_values([key], entries) for key in keys)
    return list(zip(*(repeat(None, len(entries)) if c is None else c for c in columns), strict=True))


def number_columns(entries: Sequence[Entry]) -> Numbers:
    """The columns of NUMBERS."""
    if set(map(type, entries)) != {dict}:
        raise TypeError("an entry is no dict")
    return np.stack([_number(name, entries) for name in NUMBERS])


def nanoseconds(millis: npt.NDArray[np.float64]) -> Numbers:
    """Milliseconds to nanoseconds; NULL for a missing or absurd number."""
    known = np.isfinite(millis) & (np.abs(millis) < 1e12)
    return np.where(known, np.where(known, millis, 0.0) * 1e6, NULL).astype(np.int64)


def check_room(rows: Sequence[Row], size: int) -> None:
    """Raises MemoryError if rows of SHAPE_KEYS hold more than a file of `size` bytes can: one list in many places."""
    for column in zip(*rows, strict=True):
        lists = [value for value in column if value is not None]
        items = sum(map(len, lists)) + sum(map(len, chain.from_iterable(lists)))
        if items > FREE_ITEMS + 4 * size:
            raise MemoryError


def distinct_calls(rows: Sequence[Row]) -> tuple[list[RecordedCall], Codes]:
    """The distinct calls in rows of CALL_KEYS, and the index of the call of each row."""
    if rows and isinstance(rows[0][1], list):  # JSON has no tuples
        rows = [(row[0], tuple(row[1]), *row[2:]) for row in rows]
    table, codes = number_values(rows)
    return [_call(row) for row in table], codes


def distinct_shapes(rows: Sequence[Row]) -> tuple[list[RecordedShape], Codes]:
    """The distinct shapes in rows of SHAPE_KEYS, and the index of the shape of each row."""
    spread: list[Any] = [0] * (2 * len(rows))
    spread[::2] = rows
    # one call writes all rows, with a 0 between two of them: no row holds a number between two lists
    pieces = orjson.dumps(spread)[2:-4].split(b"],0,[")
    if len(pieces) != len(rows):
        raise ValueError("sizes are no lists of numbers")
    table, codes = number_values(pieces)
    return [_shape(orjson.loads(b"[" + piece + b"]")) for piece in table], codes


def distinct_stacks(stacks: Sequence[Any]) -> tuple[list[StackFrame], list[list[int]], Codes]:
    """The distinct frames, the distinct stacks of them, and the index of the stack of each list, or -1."""
    if not stacks or stacks[0] is None:
        return [], [], np.full(len(stacks), -1, np.int32)
    if set(map(type, stacks)) != {list} or max(map(len, stacks)) > FRAME_LIMIT:
        raise ValueError("a stack is too deep, or none")
    # the recorder writes a frame once and refers to it: the same object is the same frame
    lists, list_of = number_values(list(map(id, stacks)))
    distinct = list(_firsts(stacks, list_of, len(lists)))
    by_identity, codes = number_values([tuple(map(id, stack)) for stack in distinct])
    objects = {id(frame): frame for stack in distinct for frame in stack}
    frames, places = number_values(_frames(list(objects.values())))
    place = dict(zip(objects, places.tolist(), strict=True))
    table, merged = number_values([tuple(place[key] for key in stack) for stack in by_identity])
    return frames, [list(stack) for stack in table], _without_empty(table, merged[codes][list_of])


def _first_values(keys: Sequence[str], entries: Sequence[Entry]) -> list[Any] | None:
    """The values of the first of `keys` in the entries; None if no entry has any of them."""
    for key in keys:
        if key in entries[0]:
            return list(map(itemgetter(key), entries))
    if any(key in entry for key in keys for entry in entries):
        raise KeyError(keys[0])
    return None


def _number(name: str, entries: Sequence[Entry]) -> Numbers:
    if name == "duration_ns":
        return nanoseconds(np.array([e.get("duration_ms") for e in entries], np.float64))
    values = _first_values(NUMBER_KEYS[name], entries)
    if values is None:
        return np.full(len(entries), NULL, np.int64)
    if name in TIME_COLUMNS:  # JSON writes an unset time as 0, a pickle as None
        values = [v or NULL for v in values]
    return np.fromiter(values, np.int64, len(values))


def _call(row: Row) -> RecordedCall:
    pg_id, group, thread_name, thread_id, profiling_name, state, retired, timeout_ms, is_p2p = row
    name, description = (None, None) if group is None else group
    call = RecordedCall(
        safe_integer(pg_id),
        safe_text(name),
        safe_text(description),
        safe_text(thread_name),
        safe_text(thread_id),
        safe_text(profiling_name) or "",
        safe_text(state),
        retired,
        safe_integer(timeout_ms),
        is_p2p,
    )
    given = (pg_id, name, description, thread_name, thread_id, state)
    kept = (*call[:5], call.state)
    if not isinstance(profiling_name, str) or any((a is None) != (b is None) for a, b in zip(given, kept, strict=True)):
        raise TypeError("a value is of the wrong type")
    if not (retired is None or isinstance(retired, bool)) or not (is_p2p is None or isinstance(is_p2p, bool)):
        raise TypeError("a flag is no boolean")
    return call


def _shape(row: list[Any]) -> RecordedShape:
    *sizes, in_dtypes, out_dtypes = row
    good = all(s is None or all(_all_of(int, dims) for dims in s) for s in sizes)
    if not good or not all(d is None or _all_of(str, d) for d in (in_dtypes, out_dtypes)):
        raise TypeError("sizes or dtypes are no lists")
    return RecordedShape(*(None if v is None else orjson.dumps(v).decode() for v in row))


def _all_of(kind: type, values: Any) -> bool:
    return isinstance(values, list) and all(type(v) is kind for v in values)


def _firsts(stacks: Sequence[T], codes: Codes, count: int) -> Iterable[T]:
    first = np.empty(count, np.int64)
    first[codes[::-1]] = np.arange(len(codes))[::-1]
    return (stacks[i] for i in first.tolist())


def _frames(objects: list[Any]) -> list[StackFrame]:
    functions, files, lines = (list(map(itemgetter(key), objects)) for key in ("name", "filename", "line"))
    if set(map(type, functions)) | set(map(type, files)) <= {str} and set(map(type, lines)) == {int}:
        longest = max(map(len, chain(functions, files)), default=0)
        if (
            longest <= TEXT_LIMIT
            and 0 <= min(lines) <= max(lines) <= INT64_LIMIT
            and "".join(chain(functions, files)).isascii()
        ):
            return list(map(StackFrame._make, zip(functions, files, lines, strict=True)))
    return [_frame(*values) for values in zip(functions, files, lines, strict=True)]


def _frame(name: Any, filename: Any, number: Any) -> StackFrame:
    function, file, line = safe_text(name), safe_text(filename), safe_integer(number)
    if function is None or file is None or line is None:
        raise TypeError("a frame is not of a name, a file and a line")
    return StackFrame(function, file, line)


def _without_empty(table: Sequence[tuple[int, ...]], codes: Codes) -> Codes:
    empty = [i for i, stack in enumerate(table) if not stack]
    return np.where(np.isin(codes, empty), np.int32(-1), codes) if empty else codes


ENTRY_KEYS = frozenset({"profiling_name", "collective_seq_id", "seq_id"})
"""Keys of entries; each version has one of these in every entry."""
LIBRARY_KEYS = ("comm_lib_version", "nccl_version")
BARE_LIST_VERSION = "0"
"""Version of the bare list of entries that torch 2.2 writes."""


def is_dump(document: Any) -> bool:
    """Whether a decoded file is a flight recorder dump."""
    if isinstance(document, list):
        return any(isinstance(e, dict) and ENTRY_KEYS & e.keys() for e in document[:16])
    if not isinstance(document, dict):
        return False
    entries = document.get("entries")
    if isinstance(entries, list) and entries:
        return is_dump(entries)
    return isinstance(document.get("version"), str) and bool({"entries", "pg_config", "pg_status"} & document.keys())


def split_document(document: Any) -> tuple[Dump, list[Any]]:
    """The header of a dump, and its raw entries."""
    if isinstance(document, list):
        return Dump(version=BARE_LIST_VERSION), document
    library = next((safe_text(document[k]) for k in LIBRARY_KEYS if k in document), None)
    dump = Dump(
        version=safe_text(document.get("version")) or "",
        library_version=library,
        config=_config(document.get("pg_config")),
        status=_status(document.get("pg_status")),
        replayed=rank_list(document.get("replayed_ranks")),
    )
    entries = document.get("entries")
    return dump, entries if isinstance(entries, list) else []


def _config(value: Any) -> list[GroupConfig]:
    if not isinstance(value, dict):
        return []
    parse = cache(rank_list)  # one text of a million ranks may stand in every group
    rows = (_group(key, group, parse) for key, group in value.items())
    return [row for row in rows if row is not None]


def _group(key: Any, group: Any, parse: Callable[[Any], Members | None]) -> GroupConfig | None:
    if isinstance(group, dict):
        name, ranks = safe_text(key), group.get("ranks")
        members = parse(ranks) if isinstance(ranks, str) else rank_list(ranks)
        return None if name is None else GroupConfig(name, safe_text(group.get("desc")) or "", members)
    pg_id = safe_integer(key)
    return None if pg_id is None else GroupConfig(str(pg_id), "", rank_list(group), pg_id)


def _status(value: Any) -> list[GroupStatus] | None:
    if not isinstance(value, dict):
        return None
    return [_counters(str(key)[:32], row) for key, row in value.items() if isinstance(row, dict)]


def _counters(pg_id: str, row: dict[str, Any]) -> GroupStatus:
    kinds = ("enqueued", "started", "completed")
    values = [safe_integer(row.get(f"last_{kind}_collective")) for kind in kinds]
    return GroupStatus(pg_id, *(-1 if v is None else v for v in values))
