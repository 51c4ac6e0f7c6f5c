"""Fast reader of whole dumps, at several times the speed of unpickling.

The recorder writes each string and frame once and then refers to it, so most entries repeat the bytes of an earlier
one, but for their numbers. One entry of each kind is unpickled, with everything else that the dump holds; numpy reads
the numbers of the others, all at once. Any unexpected byte leaves the file to the ordinary way.
"""

from __future__ import annotations

import numpy as np

from rankscope.parsers.flight_recorder import dump_columns
from rankscope.parsers.flight_recorder import opcodes as op
from rankscope.parsers.flight_recorder.dump_columns import is_dump, split_document
from rankscope.parsers.flight_recorder.model import Dump
from rankscope.parsers.flight_recorder.opcodes import OtherLayoutError, without_frames
from rankscope.parsers.flight_recorder.pickled_entries import PickledEntries
from rankscope.parsers.safe_values import RefusedError, safe_unpickler

SMALLEST_FILE = 24 << 10
"""Fewest bytes of entries for this reader; unpickling is as fast for fewer, and with a full memo up to twice as many.
The members of a group of thousands of ranks, which stand before the entries, take longer than a short ring."""


def is_suited(data: bytes) -> bool:
    """Whether `decode_fast` is worth a try: a pickle, and no short one."""
    everything_put = data[2:3] == bytes([op.FRAME]) or data[3:4] == bytes([op.PUT1])
    entries = len(data) - max(0, data.find(b"entries"))
    return data.startswith(b"\x80") and entries >= SMALLEST_FILE * (2 if everything_put else 1)


def decode_fast(data: bytes) -> Dump:
    """The dump in `data`. Raises RefusedError, and OtherLayoutError for an unknown layout."""
    try:
        return _read(PickledEntries(without_frames(data)), len(data))
    except (RefusedError, MemoryError, OtherLayoutError):
        raise
    except Exception as error:  # the ordinary way finds the real error
        raise OtherLayoutError(f"damaged, or of another kind ({type(error).__name__})") from error


def _read(entries: PickledEntries, size: int) -> Dump:
    """The dump of a file of `size` bytes, its entries in order. Raises any error for another layout."""
    left_out = entries.classify()
    reader = safe_unpickler(entries.without(left_out))
    document = reader.load()
    if not is_dump(document):
        raise OtherLayoutError("not a flight recorder dump")
    entries.puts.check(reader, left_out)
    dump, kept = split_document(document)
    # the first entry is no piece
    is_kept = np.append(True, ~left_out)
    if len(kept) != np.count_nonzero(is_kept):
        raise OtherLayoutError("entries that do not begin like the first")
    dump_columns.fill_columns(dump, kept, size)
    place = np.cumsum(is_kept) - 1
    numbers = np.empty((len(dump.numbers), len(is_kept)), np.int64)
    numbers[:, 1:] = entries.numbers.T
    numbers[:, is_kept] = dump.numbers
    dump.numbers, dump.codes = numbers, dump.codes[:, place[np.append(0, entries.alike + 1)]]
    return dump
