"""Fast reader of whole dumps, at several times the speed of unpickling.

The recorder writes each string and frame once and then refers to it, so most entries have the same opcodes with other
numbers in them. numpy reads those in parallel, one field of all entries at a time. Entries that define something new
are cut out, unpickled, and put back. Any unexpected byte leaves the file to the ordinary way. Python's pickler writes
the same layout, with a full memo; see `opcodes.py`.
"""

from __future__ import annotations

import io
import re
from itertools import compress
from typing import Any

import numpy as np

from rankscope.parsers.flight_recorder import dump_columns
from rankscope.parsers.flight_recorder import opcodes as op
from rankscope.parsers.flight_recorder.dump_columns import (
    CALL_KEYS,
    NUMBER_KEYS,
    SHAPE_KEYS,
    TIME_COLUMNS,
    Entry,
    Row,
    is_dump,
    number_values,
    split_document,
)
from rankscope.parsers.flight_recorder.fields import FLAG_VALUES, SINGLE_REFERENCE, combine_fields
from rankscope.parsers.flight_recorder.model import NUMBERS, Dump
from rankscope.parsers.flight_recorder.opcodes import Mask, OtherLayoutError, without_frames
from rankscope.parsers.flight_recorder.pickle_layout import DURATION_KEY, PickleLayout
from rankscope.parsers.matrices import NULL, Codes, Numbers
from rankscope.parsers.safe_values import RefusedError, SafeUnpickler

SMALLEST_FILE = 1 << 16
"""Fewest bytes of entries for this reader; unpickling is as fast for fewer, and with a full memo up to twice as many.
The members of a group of thousands of ranks, which stand before the entries, take longer than a short ring."""
LEAST_SHARE = 1 / 3
"""Smallest share of entries for parallel reading; with less, unpickling all of them is faster."""
_PLAIN_STACK = re.compile(rb"\](?:\((?:h.|j.{4})*e|(?:h.|j.{4})a)?|h.|j.{4}", re.DOTALL)
_PLAIN_LISTS = re.compile(rb"(?:h.|j.{4}|[\](ea]|K.|M..|J.{4}|\x8a\x08.{8})*", re.DOTALL)


def is_suited(data: bytes) -> bool:
    """Whether `decode_fast` is worth a try: a pickle, and no short one."""
    everything_put = data[2:3] == bytes([op.FRAME]) or data[3:4] == bytes([op.PUT1])
    entries = len(data) - max(0, data.find(b"entries"))
    return data.startswith(b"\x80") and entries >= SMALLEST_FILE * (2 if everything_put else 1)


def decode_fast(data: bytes) -> Dump:
    """The dump in `data`. Raises RefusedError, and OtherLayoutError for an unknown layout."""
    try:
        return read_layout(PickleLayout(without_frames(data)), len(data))
    except (RefusedError, MemoryError, OtherLayoutError):
        raise
    except Exception as error:  # the ordinary way finds the real error
        raise OtherLayoutError(f"damaged, or of another kind ({type(error).__name__})") from error


def read_layout(layout: PickleLayout, size: int) -> Dump:
    """The dump of a file of `size` bytes, its entries in order. Raises any error for another layout."""
    layout.walk()
    stacks, stack_of = number_values(layout.stacks)
    lists, list_of = number_values(layout.lists)
    good = _good_entries(layout, (stacks, stack_of), (lists, list_of))
    stacks, stack_of = _used_rows(stacks, stack_of, good)
    lists, list_of = _used_rows(lists, list_of, good)
    reader = _unpickler(layout.thinned(good), stacks, lists)
    dump, odd = _odd_entries(reader.load(), int((~good).sum()) + 1)
    stack_values, list_values = reader.load(), reader.load()
    memo = reader.memo.copy()
    _check_memo(layout, good, memo)
    rows, call_of = _call_rows(layout, good, memo)
    _fill_tables(dump, odd, rows, stack_values, list_values, (call_of.astype(np.int32), list_of, stack_of), size)
    odd_numbers = dump_columns.number_columns(odd)
    # the first entry is not in the layout
    is_odd = np.concatenate([[True], ~good])
    order = np.where(is_odd, np.cumsum(is_odd) - 1, len(odd) + np.cumsum(~is_odd) - 1)
    dump.codes = dump.codes[:, order]
    dump.numbers = np.empty((len(NUMBERS), len(is_odd)), np.int64)
    dump.numbers[:, 1:] = [_number(layout, name) for name in NUMBERS]
    dump.numbers[:, is_odd] = odd_numbers
    return dump


def _good_entries(layout: PickleLayout, stacks: tuple[list[bytes], Codes], lists: tuple[list[bytes], Codes]) -> Mask:
    """The entries that can be left out and read in parallel: they define nothing that is used later."""
    good, puts = layout.whole(), layout.fields.puts
    for pattern, looked_at, (table, codes) in (
        (_PLAIN_STACK, layout.stacks_spelled, stacks),
        (_PLAIN_LISTS, layout.lists_put, lists),
    ):
        if table and not looked_at:
            good &= _plain_regions(pattern, table)[codes]
    _check_worth(good)
    puts.assign_indices(layout.data, layout.starts, layout.ends, good, layout.known)
    good = puts.unused(layout.data, good)
    _check_worth(good)
    return good


def _check_worth(good: Mask) -> None:
    if np.count_nonzero(good) < LEAST_SHARE * len(good) or not good.any():
        raise OtherLayoutError("few entries are like the first and define nothing new")


def _check_memo(layout: PickleLayout, good: Mask, memo: dict[int, Any]) -> None:
    """Raises OtherLayoutError if the memo lacks what the layout expects."""
    if layout.duration is not None and memo.get(layout.duration) != DURATION_KEY:
        raise OtherLayoutError("a key that only some entries have")
    puts = layout.fields.puts
    if not puts.implied[good].any():
        puts.check(np.fromiter(memo, np.int64, len(memo)), good)


def _plain_regions(pattern: re.Pattern[bytes], regions: list[bytes]) -> Mask:
    """The regions that refer only to earlier definitions, as a mask."""
    return np.array([pattern.fullmatch(region) is not None for region in regions], np.bool_)


def _used_rows(table: list[bytes], codes: Codes, good: Mask) -> tuple[list[bytes], Codes]:
    """The rows of a table that the codes of good entries use."""
    if not table:
        return [], codes
    kept = codes[good]
    used = np.zeros(len(table), np.bool_)
    used[kept] = True
    return list(compress(table, used.tolist())), (np.cumsum(used, dtype=np.int32) - 1)[kept]


def _unpickler(thinned: bytes, stacks: list[bytes], lists: list[bytes]) -> SafeUnpickler:
    """Unpickler of three objects: the dump without its regular entries, then their stacks and lists, with its memo."""
    listed = [b"}(" + region + b"u" for region in lists]
    parts = [thinned, b"\x80\x02](", *stacks, b"e.", b"\x80\x02](", *listed, b"e."]
    return SafeUnpickler(io.BufferedReader(io.BytesIO(b"".join(parts))))


def _odd_entries(document: Any, count: int) -> tuple[Dump, list[Entry]]:
    if not is_dump(document):
        raise OtherLayoutError("not a flight recorder dump")
    dump, entries = split_document(document)
    if len(entries) != count:
        raise OtherLayoutError("entries that do not begin like the first")
    return dump, entries


def _fill_tables(
    dump: Dump,
    odd: list[Entry],
    rows: list[Row],
    stacks: list[Any],
    lists: list[Entry],
    codes: tuple[Codes, ...],
    size: int,
) -> None:
    """Tables and codes: the odd entries first, then the regular ones, with `codes` that point into their tables."""
    call_of, list_of, stack_of = codes
    count = len(odd)
    dump.calls, calls = dump_columns.distinct_calls([*dump_columns.rows_of(CALL_KEYS, odd), *rows])
    odd_shapes = dump_columns.rows_of(SHAPE_KEYS, odd)
    dump_columns.check_room(odd_shapes, size)
    dump.shapes, shapes = dump_columns.distinct_shapes([*odd_shapes, *dump_columns.rows_of(SHAPE_KEYS, lists)])
    odd_stacks = [row[0] for row in dump_columns.rows_of(("frames",), odd)]
    dump.frames, dump.stacks, places = dump_columns.distinct_stacks([*odd_stacks, *stacks])
    regular = [calls[count:][call_of]]
    for table, part in ((shapes, list_of), (places, stack_of)):
        regular.append(table[count:][part] if len(part) else np.full(len(call_of), -1, np.int32))
    dump.codes = np.concatenate([np.stack([calls[:count], shapes[:count], places[:count]]), np.stack(regular)], axis=1)


def _call_rows(layout: PickleLayout, good: Mask, memo: dict[int, Any]) -> tuple[list[Row], Numbers]:
    """The distinct calls of the regular entries, as rows of CALL_KEYS, and the index of each entry's call."""
    parts = {key: tuple(part[good] for part in parts) for key, parts in layout.calls.items()}
    first, codes = combine_fields([part for group in parts.values() for part in group])
    texts = {-1 - place: str(text, "utf-8", "surrogatepass") for text, place in layout.fields.texts.items()}
    rows, named = [], memo
    named.update({**texts, NULL: None})
    for place in first.tolist():
        at = {key: [int(part[place]) for part in group] for key, group in parts.items()}
        rows.append(tuple(_field_value(layout.kinds.get(key), at.get(key), named) for key in CALL_KEYS))
    return rows, codes


def _field_value(kind: str | None, raw: list[int] | None, named: dict[int, Any]) -> Any:
    """The value that the file writes as a reference, a text, a flag or a number."""
    if raw is None or raw == [NULL]:
        return None
    if kind == "flag":
        return FLAG_VALUES[raw[0]]
    if kind == "integer":
        return raw[0]
    return tuple(named[i] for i in raw) if kind == "pair" and raw[1] != SINGLE_REFERENCE else named[raw[0]]


def _number(layout: PickleLayout, name: str) -> Numbers:
    if name == "duration_ns":
        return layout.absent() if layout.millis is None else dump_columns.nanoseconds(layout.millis)
    values = next((layout.numbers[key] for key in NUMBER_KEYS[name] if key in layout.numbers), None)
    if values is None:
        return layout.absent()
    return np.where(values == 0, NULL, values) if name in TIME_COLUMNS else values
