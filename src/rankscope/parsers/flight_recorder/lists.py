"""Lists of many pickled entries at once, without what puts them into the memo: then those that are alike are equal."""

from __future__ import annotations

import numpy as np

from rankscope.parsers.columnar import Numbers
from rankscope.parsers.flight_recorder import opcodes as op
from rankscope.parsers.flight_recorder.fields import Fields
from rankscope.parsers.flight_recorder.memo import Mask

_MARKS = [op.MARK, op.APPEND, op.APPENDS, op.SETITEMS, op.EMPTY_DICT, op.EMPTY_LIST]
_ALLOWED = [*_MARKS, op.GET1, op.GET4, op.INT1, op.INT2, op.INT4]
_LENGTHS = np.where(np.isin(np.arange(256), _ALLOWED), op.LENGTHS, op.PUT_LENGTHS)
"""Of what lists of numbers, texts or frames are made of; 0 where the argument says its length, and of all else."""
MOST_STEPS = 1024
"""Longer lists are left to the unpickler: of few entries, steps over all at once do not pay."""


def without_puts(fields: Fields, data: bytes, ends: Numbers) -> list[bytes]:
    """The bytes of each entry up to `ends`, and moves over them. Entries with anything but lists are marked."""
    array = np.frombuffer(data, np.uint8)
    kept = np.ones(len(data) + 1, np.bool_)
    begins, at = fields.at, fields.at.copy()
    which = np.flatnonzero(at < ends)
    for _ in range(MOST_STEPS):
        if not len(which):
            break
        heads = fields.heads(at[which])
        _leave_out(kept, at[which], fields.puts.take(which, heads))
        lengths = _lengths(heads)
        at[which] = np.where(lengths > 0, at[which] + lengths, len(data) + 1)
        which = which[at[which] < ends[which]]
    fields.good &= at == ends
    fields.move_to(ends)
    left_out = np.flatnonzero(~kept[:-1])
    thin = array[kept[:-1]].tobytes()
    begins, ends = (places - np.searchsorted(left_out, places) for places in (np.minimum(begins, ends), ends))
    return [thin[begin:end] for begin, end in zip(begins.tolist(), ends.tolist(), strict=True)]


def _lengths(heads: Numbers) -> Numbers:
    """Bytes of what stands at each place; 0 for what does not belong there."""
    opcodes = heads & 0xFF
    lengths: Numbers = _LENGTHS[opcodes]
    if lengths.all():
        return lengths
    short = (opcodes == op.TEXT1) | (opcodes == op.LONG1)
    lengths = np.where(short, 2 + (heads >> 8 & 0xFF), lengths)
    return np.where(opcodes == op.TEXT4, 5 + (heads >> 8 & 0xFFFFFFFF), lengths)


def _leave_out(kept: Mask, at: Numbers, lengths: Numbers) -> None:
    at, lengths = at[lengths > 0], lengths[lengths > 0]
    for i in range(5):
        kept[at[lengths > i] + i] = False
