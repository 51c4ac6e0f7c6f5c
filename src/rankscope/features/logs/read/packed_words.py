"""Numbers and names at many places of a block of bytes at once, loaded as words of eight bytes.

A word has its first byte in the lowest bits. As in "SWAR" parsing, neighbouring digits are joined to numbers of two,
four and eight digits in three steps.
"""

from __future__ import annotations

import re
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Words = npt.NDArray[np.uint64]
Places = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


def _u(value: int) -> np.uint64:
    return np.uint64(value & (1 << 64) - 1)


_FIRST = np.array([(1 << 8 * n) - 1 for n in range(9)], np.uint64)
"""Masks of the first n bytes of a word."""
_LAST = np.array([((1 << 64) - 1) ^ ((1 << 8 * (8 - n)) - 1) for n in range(9)], np.uint64)
_ZEROS, _NINES, _HIGH = _u(0x3030303030303030), _u(0x7676767676767676), _u(0x8080808080808080)
_PRIME = _u(0x9E3779B97F4A7C15)


def load_words(padded: bytearray) -> Words:
    """The word that begins at each byte, without copying. Shape (bytes - 7,)."""
    return np.ndarray((len(padded) - 7,), np.dtype("<u8"), padded, strides=(1,))


def word_of(text: bytes) -> np.uint64:
    """The word of up to eight bytes."""
    return _u(int.from_bytes(text, "little"))


def equal_words(words: Words, at: Places, text: bytes) -> Mask:
    """Whether a text of up to eight bytes is at each place."""
    found = words[at]
    if len(text) < 8:
        found &= _FIRST[len(text)]
    same: Mask = found == word_of(text)
    return same


def mix_hash(hashed: Words, word: Words) -> Words:
    """The hash with one more word: a polynomial of an odd number."""
    hashed = hashed * _PRIME
    hashed += word
    return hashed


def text_hash(words: Words, start: Places, length: Places) -> Words:
    """A hash of the text of at least eight bytes at each place."""
    hashed = length.astype(np.uint64)
    final = start + length - 8
    for at in range(0, int(length.max(initial=0)), 8):
        hashed = mix_hash(hashed, words[np.minimum(start + at, final)])
    return hashed


def ragged_hash(words: Words, start: Places, length: Places) -> Words:
    """As `text_hash`, for texts of very different lengths; the hash of short ones includes the bytes before them."""
    order = np.argsort(-length, kind="stable")
    start, length = start[order], length[order]
    hashed = length.astype(np.uint64)
    final, falling = start + length - 8, -length
    for at in range(0, int(length.max(initial=0)), 8):
        some = int(np.searchsorted(falling, -at))
        hashed[:some] = mix_hash(hashed[:some], words[np.minimum(start[:some] + at, final[:some])])
    back = np.empty_like(hashed)
    back[order] = hashed
    return back


def read_decimals(words: Words, start: Places, end: Places) -> tuple[Places, Mask]:
    """Numbers of up to 16 digits, and whether each is one."""
    length = end - start
    longest = int(length.max(initial=0))
    if longest == 1:
        digit = (words[start] & _u(0xFF)).view(np.int64) - 48
        return digit, (digit >= 0) & (digit <= 9) & (length == 1)
    low, good = _eight(words, end, length)
    if longest > 8:
        high, fine = _eight(words, np.maximum(end - 8, 8), length - 8)
        low, good = low + high * _u(100_000_000), good & fine
    return low.view(np.int64), good & (length > 0) & (length <= 16)


def _eight(words: Words, end: Places, length: Places) -> tuple[Words, Mask]:
    digits = words[end - 8]
    digits ^= _ZEROS
    digits &= _LAST.take(length, mode="clip")
    good = ((digits | (digits + _NINES)) & _HIGH) == 0
    digits = (digits * _u(10) + (digits >> _u(8))) & _u(0x00FF00FF00FF00FF)
    digits = (digits * _u(100) + (digits >> _u(16))) & _u(0x0000FFFF0000FFFF)
    return (digits * _u(10_000) + (digits >> _u(32))) & _u(0xFFFFFFFF), good


def read_hexadecimals(words: Words, start: Places, end: Places) -> tuple[Places, Mask]:
    """Hexadecimal numbers of up to 8 digits in small letters, and whether each is one."""
    length = end - start
    text = words[end - 8]
    digits = (text & _u(0x0F0F0F0F0F0F0F0F)) + ((text >> _u(6)) & _u(0x0101010101010101)) * _u(9)
    digits &= _LAST.take(length, mode="clip")
    digits = ((digits << _u(4)) + (digits >> _u(8))) & _u(0x00FF00FF00FF00FF)
    digits = ((digits << _u(8)) + (digits >> _u(16))) & _u(0x0000FFFF0000FFFF)
    value = ((digits << _u(16)) + (digits >> _u(32))) & _u(0xFFFFFFFF)
    return value.view(np.int64), (length > 0) & (length <= 8)


LEVELS = ("INFO", "WARN", "CALL", "TRACE", "ERROR", "VERSION", "DIAG", "ABORT")
"""Words behind "NCCL"."""
_HEAD = re.compile(
    r"(?P<host>[\w.<>\-]{1,255}):(?P<pid>\d{1,10})(?::(?P<tid>\d{1,10}))? (?:\[(?P<device>\d{1,4})\] )?"
    r"(?P<place>(?:[\w./:()\-]{1,200} ){0,3}?)(?:NCCL )?(?P<level>" + "|".join(LEVELS) + r")(?: |$)"
)


_SOURCE = re.compile(r"\.(?:cc|cu|cpp|hpp|c|h)$")


class NcclHead(NamedTuple):
    """The writer of a record, and the rest of its text."""

    host: str
    """Host name up to its first dot."""
    pid: int
    tid: int | None
    device: int | None
    """The current device of the thread: neither the rank nor the number in nvml."""
    place: str
    """`init.cc:497` or `init.cc:497 (function)` of a warning; else ""."""
    level: str
    message: str


def nccl_head(text: str) -> NcclHead | None:
    """The head of a record's text; None if it is not NCCL's."""
    found = _HEAD.match(text)
    if found is None:
        return None
    host, pid, tid, device, place, level = found.groups()
    if tid is None and _SOURCE.search(host):
        # `init.cc:1247 NCCL WARN`: a filter removed the writer
        return None
    return NcclHead(
        host,
        int(pid),
        None if tid is None else int(tid),
        None if device is None else int(device),
        place.strip(),
        level,
        text[found.end() :],
    )
