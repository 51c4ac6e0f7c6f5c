"""All lines of a block that only tell how channels were connected: most of what is printed before a job begins.

Like COLL lines they are told by their words, all at once; who wrote them is looked up once for each text in front.
"""

from __future__ import annotations

import re
from typing import NamedTuple

import numpy as np

from rankscope.parsers.logs.nccl import words as w
from rankscope.parsers.logs.nccl.blocks import HEAD_BYTES, Lines, stamped
from rankscope.parsers.logs.nccl.words import Mask, Places

_FIRST_WORDS = (b"Channel ", b"Trees [", b"Ring ", b"Connecte", b"threadTh", b"P2P Chun")
_TOKENS = 6
"""So many words stand in front of "NCCL" at most."""
_NCCL = re.compile(rb"NCCL")
_GLUED = re.compile(rb"\[rank|\.(?:cpp|hpp|h|cu|cc|py):| WARN|[\x1b\r]")
"""Signs of another record in the same line, or of an error's call."""


class Bulk(NamedTuple):
    """Such lines of a block."""

    line: Places
    """Index of each in the block."""
    group: Places
    """Index into `fronts` of each."""
    fronts: list[tuple[bytes, int]]
    """What stands in front of "NCCL INFO", without its time, and where in the block a line with it begins."""


def bulk_rows(lines: Lines, size: int, among: Mask) -> Bulk | None:
    """Those lines of a block whose text has `size` bytes, of some of its lines; None if there are none."""
    chosen = np.flatnonzero(among & (lines.ends - lines.first > 2))
    if not chosen.size:
        return None
    first = lines.first.take(chosen)
    nccl = np.full(len(chosen), -1, np.int64)
    for token in range(_TOKENS):
        place = first + token
        inside = place + 2 < lines.ends.take(chosen)
        start = lines.separators.take(np.where(inside, place, first)) + 1
        nccl = np.where((nccl < 0) & inside & w.equal(lines.words, start, b"NCCL INF"), place, nccl)
    chosen, nccl = chosen[nccl >= 0], nccl[nccl >= 0]
    message = lines.separators.take(nccl + 2) + 1
    fine = np.zeros(len(chosen), np.bool_)
    for text in _FIRST_WORDS:
        fine |= w.equal(lines.words, message, text)
    fine &= (lines.separators.take(nccl + 1) - lines.separators.take(nccl)) == 5
    fine &= lines.separators.take(nccl + 2) - lines.separators.take(nccl + 1) == 5
    if fine.any():
        fine &= ~_crowded(lines, size)[chosen]
    return _grouped(lines, chosen[fine], lines.separators.take(nccl[fine]) + 1) if fine.any() else None


def _crowded(lines: Lines, size: int) -> Mask:
    """By line whether another record may stand in it."""
    text = memoryview(lines.padded)[: w.PAD + size]
    many = np.bincount(_line_of(lines, _NCCL, text), minlength=len(lines.first)) > 1
    many[_line_of(lines, _GLUED, text)] = True
    return many


def _line_of(lines: Lines, sign: re.Pattern[bytes], text: memoryview) -> Places:
    at = np.array([found.start() for found in sign.finditer(text, w.PAD)], np.int64)
    return np.minimum(np.searchsorted(lines.places[1:], at), len(lines.first) - 1)


def _grouped(lines: Lines, chosen: Places, end: Places) -> Bulk | None:
    """The lines with those together that have the same front, which ends at `end`."""
    start = lines.places.take(chosen) + 1
    head = start + stamped(lines, chosen, start)[1]
    fine = (end - head >= 8) & (end - head <= HEAD_BYTES) & (lines.bytes.take(start) != 123)
    chosen, start, head, end = chosen[fine], start[fine], head[fine], end[fine]
    if not chosen.size:
        return None
    _, index, inverse = np.unique(w.text_hash(lines.words, head, end - head), return_index=True, return_inverse=True)
    order = np.argsort(index)
    places = (column[index[order]].tolist() for column in (start, head, end))
    fronts = [(bytes(lines.padded[a:b]), at - w.PAD) for at, a, b in zip(*places, strict=True)]
    return Bulk(chosen, np.argsort(order)[inverse.reshape(-1)], fronts)
