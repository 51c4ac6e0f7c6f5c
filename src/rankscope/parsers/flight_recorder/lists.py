"""Lists of many pickled entries at once, without what puts them into the memo: then those that are alike are equal."""

from __future__ import annotations

import numpy as np

from rankscope.parsers.columnar import Numbers
from rankscope.parsers.flight_recorder import opcodes as op
from rankscope.parsers.flight_recorder.columns import intern
from rankscope.parsers.flight_recorder.fields import Fields
from rankscope.parsers.flight_recorder.memo import Mask

_MARKS = [op.MARK, op.APPEND, op.APPENDS, op.SETITEMS, op.EMPTY_DICT, op.EMPTY_LIST]
_ALLOWED = [*_MARKS, op.GET1, op.GET4, op.INT1, op.INT2, op.INT4]
_LENGTHS = np.where(np.isin(np.arange(256), _ALLOWED), op.LENGTHS, op.PUT_LENGTHS)
"""Of what lists of numbers, texts or frames are made of; 0 where the argument says its length, and of all else."""
_BEYOND = 1 << 62
"""A place behind all data."""
MOST_STEPS = 1024
"""Longer lists are left to the unpickler: of few entries, steps over all at once do not pay."""


def without_puts(fields: Fields, data: bytes, ends: Numbers) -> list[bytes]:
    """The bytes of each entry up to `ends`, and moves over them. Entries with anything but lists are marked."""
    if fields.puts.implied.any():
        return _each_kind(fields, data, ends)
    begins, which = fields.at, np.arange(len(ends))
    kept = np.ones(len(data) + 1, np.bool_)
    fields.good &= _walk(fields, which, ends, kept)
    fields.move_to(ends)
    left_out = np.flatnonzero(~kept[:-1])
    thin = np.frombuffer(data, np.uint8)[kept[:-1]].tobytes()
    begins, ends = (places - np.searchsorted(left_out, places) for places in (np.minimum(begins, ends), ends))
    return [thin[begin:end] for begin, end in zip(begins.tolist(), ends.tolist(), strict=True)]


def _each_kind(fields: Fields, data: bytes, ends: Numbers) -> list[bytes]:
    """The same where puts have no index, and so are alike in lists that are alike: of these one is walked."""
    spans = zip(np.minimum(fields.at, ends).tolist(), ends.tolist(), strict=True)
    regions = [data[begin:end] for begin, end in spans]
    _, codes = intern(regions)
    which = np.unique(codes, return_index=True)[1]
    before = fields.puts.implied.copy()
    whole = _walk(fields, which, ends, None) & (fields.at[which] <= ends[which])
    fields.good &= whole[codes]
    fields.puts.implied = before + (fields.puts.implied - before)[which][codes]
    fields.move_to(ends)
    return regions


def _walk(fields: Fields, which: Numbers, ends: Numbers, kept: Mask | None) -> Mask:
    """Whether nothing but lists brings each of the entries `which` to its end; puts are taken out of `kept`."""
    at = fields.at.copy()
    going = which[at[which] < ends[which]]
    for _ in range(MOST_STEPS):
        if not len(going):
            break
        places = at[going]
        heads = fields.heads(places)
        puts = fields.puts.take(going, heads)
        if kept is not None:
            _leave_out(kept, places, puts)
        lengths = _lengths(heads)
        at[going] = places = np.where(lengths > 0, places + lengths, _BEYOND)
        going = going[places < ends[going]]
    reached: Mask = at[which] == ends[which]
    return reached


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
