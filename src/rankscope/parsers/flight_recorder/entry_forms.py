"""Forms of pickled entries: the opcodes of an entry, and the places of its numbers.

Entries of one form differ only in arguments of opcodes. The recorder writes each text and frame once and refers to it,
so a dump of thousands of entries has a few dozen forms.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from rankscope.parsers.flight_recorder import opcodes as op
from rankscope.parsers.flight_recorder.dump_columns import CALL_KEYS, NUMBER_KEYS, TIME_COLUMNS, nanoseconds
from rankscope.parsers.flight_recorder.model import NUMBERS
from rankscope.parsers.flight_recorder.opcodes import Argument, OtherLayoutError, walk_opcodes
from rankscope.parsers.matrices import NULL, Mask, Numbers

DURATION, DURATION_KEY = "duration_ns", "duration_ms"
_DURATION, _TIMES = NUMBERS.index(DURATION), [NUMBERS.index(name) for name in TIME_COLUMNS]
MOST_NEW = 64
"""Most forms that one dump adds: an entry is unpickled faster than its form is found."""
MOST_FORMS = 4096
"""Most forms that a process keeps for one set of keys."""
_INTEGERS = (op.INT1, op.INT2, op.INT4, op.LONG1)
_WORD, _SLOT_BITS = 8, 16
_OPENING = re.compile(rb"(?:e\()?\}(?:q.|r.{4}|\x94)?", re.DOTALL)
"""From the end of an entry to the mark of the next one. Python's pickler splits a list into parts of 1000 items."""


@dataclass
class EntryForm:
    """The form of one entry, from behind its first key to the mark of the next entry; masks have 255 for each byte."""

    fixed: bytearray
    """The opcodes, the sizes of texts, and the keys: all entries of this form share them."""
    varied: bytearray
    """The numbers that make no other call: times, sequence numbers, places of the memo."""
    numbers: list[tuple[int, int, int, int]] = field(default_factory=list)
    """For each of NUMBERS: place, bits to shift out, mask of an unsigned number, and what to add."""
    puts: list[Argument] = field(default_factory=list)
    """Values that it puts into the memo under a written index."""
    implied: int = 0
    """The number of values that it puts into the memo without one."""

    def fix(self, argument: Argument, begin: int) -> None:
        """Takes an opcode at `begin`; notes a value for the memo."""
        self.fixed[begin : argument.at] = _mask(argument.at - begin)
        if argument.opcode in op.PUTS:
            self.implied += not argument.size
            if argument.size:
                self.puts.append(argument)
                self.vary(argument)

    def vary(self, argument: Argument) -> None:
        """Takes an argument as a number that makes no other call."""
        self.varied[argument.at : argument.at + argument.size] = _mask(argument.size)


def _mask(size: int) -> bytes:
    return b"\xff" * size


def form_of(data: bytes, keys: Mapping[bytes, str], first: str) -> EntryForm:
    """The form of the entry in `data`, which begins behind the key `first`; `keys` are the keys by their references.

    Raises OtherLayoutError for anything but an entry, and IndexError or ValueError for a part of one.
    """
    form = EntryForm(bytearray(len(data)), bytearray(len(data)))
    values = _values(_items(data, form), data, form, keys, first)
    for key, value in values.items():
        if key not in CALL_KEYS and value.opcode in (*_INTEGERS, op.FLOAT):
            form.vary(value)
    form.numbers = [_number(name, values) for name in NUMBERS]
    return form


def _items(data: bytes, form: EntryForm) -> list[Argument]:
    """The keys and values of an entry in turn, from the first value on; a list or tuple is where it begins."""
    items: list[Argument] = []
    marks: list[list[Argument]] = []
    end, opened = 0, False
    for argument in walk_opcodes(data, 0, len(data)):
        form.fix(argument, end)
        opcode, end = argument.opcode, argument.at + argument.size
        if opened or opcode in op.PUTS:
            continue
        if opcode == op.MARK:
            marks.append(items)
            items = []
        elif opcode in (op.SETITEMS, op.APPENDS) and marks:
            items = marks.pop()
        elif opcode == op.SETITEMS:
            opened = _OPENING.fullmatch(data, end) is not None
        elif opcode in op.TAKEN:
            del items[-op.TAKEN[opcode] :]
        else:
            items.append(argument)
    if not opened:
        raise OtherLayoutError("no entry, and the begin of the next one")
    return items


def _values(
    items: list[Argument], data: bytes, form: EntryForm, keys: Mapping[bytes, str], first: str
) -> dict[str, Argument]:
    """The values by their keys, which are fixed."""
    found = {first: items[0]}
    for key, value in zip(items[1::2], items[2::2], strict=True):
        name = keys.get(data[key.at - 1 : key.at + key.size])
        if name is None or name in found:
            raise OtherLayoutError("a key that is not known")
        form.fixed[key.at : key.at + key.size] = _mask(key.size)
        found[name] = value
    return found


def _number(name: str, values: Mapping[str, Argument]) -> tuple[int, int, int, int]:
    """How to read one of NUMBERS. Raises OtherLayoutError for what is no number."""
    names = NUMBER_KEYS.get(name, (DURATION_KEY,))
    value = next((values[key] for key in names if key in values), None)
    if value is None or value.opcode == op.NONE:
        return 0, 0, 0, NULL
    allowed = (op.FLOAT,) if name == DURATION else _INTEGERS
    if value.opcode not in allowed or not 0 < value.size <= _WORD:
        raise OtherLayoutError("a number of another type")
    bits = 8 * value.size
    return value.at, 64 - bits, (1 << bits) - 1 if value.opcode in (op.INT1, op.INT2) else -1, 0


class FormTable:
    """The known forms of entries of at most `words` words of eight bytes, in dumps with the same references to keys."""

    def __init__(self, keys: Mapping[bytes, str], first: str, words: int) -> None:
        self._keys, self._first, self._words = keys, first, words
        self.forms: list[EntryForm] = []
        self.implied = np.full(1, -1, np.int64)
        """The number of values that each form puts into the memo without an index; -1 for an entry without a form."""
        self._of_length: npt.NDArray[np.int64] = np.full((8 * words + 1, 1), -1, np.int64)
        """For each length in bytes, the forms of that length, in columns."""
        self._fixed, self._template, self._kept = np.zeros((3, 1, words), np.int64)
        self._numbers = np.zeros((4, 1, len(NUMBERS)), np.int64)
        self._weights = np.random.default_rng(0).integers(1, np.iinfo(np.int64).max, words) | 1
        """Sums with these weights send equal entries to the same slot, where they are compared."""
        self._slots = np.zeros(1 << _SLOT_BITS, np.int64)

    def match(self, rows: Numbers, lengths: Numbers, piece: Callable[[int], bytes]) -> tuple[Numbers, Numbers]:
        """The form of each entry, or -1, and the first entry that differs from it only in its numbers.

        `rows` are the words of each `piece`, and of what follows it. Adds new forms.
        """
        forms, first = np.full(len(rows), -1, np.int64), np.arange(len(rows))
        left = first.copy()
        for k in range(self._of_length.shape[1]):
            left = self._try(rows, left, self._of_length[lengths[left], k], forms, first)
        for _ in range(MOST_NEW):
            if not len(left) or len(self.forms) >= MOST_FORMS:
                break
            number, same = self._add(piece(int(left[0]))), lengths[left] == lengths[left[0]]
            if number is None:
                left = left[1:]
                continue
            others = self._try(rows, left[same], np.full(np.count_nonzero(same), number), forms, first)
            left = np.sort(np.append(left[~same], others))
        return forms, first

    def _try(self, rows: Numbers, which: Numbers, guess: Numbers, forms: Numbers, first: Numbers) -> Numbers:
        """Sets `forms` and `first` of those entries `which` that have the guessed form; the others."""
        kept = self._kept.take(guess, 0)
        kept &= rows if len(which) == len(rows) else rows[which]
        like = self._first_alike(kept, guess)
        some = np.flatnonzero(like == np.arange(len(like)))
        # an entry with the content of a fitting one fits, too: nothing but numbers is left out of it
        fits = np.zeros(len(which), np.bool_)
        fits[some] = self._fits(rows[which[some]], guess[some])
        fits = fits[like]
        forms[which[fits]], first[which[fits]] = guess[fits], which[like[fits]]
        return which[~fits]

    def _first_alike(self, kept: Numbers, guess: Numbers) -> Numbers:
        """The first entry of the same kind, or the entry itself; two kinds that share a slot are rare."""
        order = np.arange(len(kept))
        slot = np.einsum("ij,j->i", kept, self._weights).view(np.uint64) >> np.uint64(64 - _SLOT_BITS)
        self._slots[slot[::-1]] = order[::-1]
        like: Numbers = self._slots[slot]
        same = kept.take(like, 0) == kept
        if same.all() and (guess[like] == guess).all():
            return like
        return np.where(same.all(axis=1) & (guess[like] == guess), like, order)

    def _fits(self, rows: Numbers, guess: Numbers) -> Mask:
        differ = (rows & self._fixed[guess]) ^ self._template[guess]
        fits: Mask = (np.bitwise_or.reduce(differ, axis=1) == 0) & (guess >= 0)
        return fits

    def numbers_at(self, words: Numbers, starts: Numbers, forms: Numbers) -> Numbers:
        """The numbers of entries that begin at `starts`, in columns of NUMBERS; `words` begin at each byte."""
        place, shift, mask, add = self._numbers.take(forms, 1)
        place += starts[:, None]
        values: Numbers = words[place]
        values <<= shift
        values >>= shift
        values &= mask
        values += add
        for row in _TIMES:
            values[:, row][values[:, row] == 0] = NULL
        timed = np.flatnonzero(mask[:, _DURATION])
        values[timed, _DURATION] = nanoseconds(values[timed, _DURATION].byteswap().view(np.float64))
        return values

    def _add(self, piece: bytes) -> int | None:
        """The number of the new form of a piece; None if it is no entry."""
        try:
            form = form_of(piece, self._keys, self._first)
        except (OtherLayoutError, LookupError, ValueError):
            return None
        number, length = len(self.forms), len(piece)
        self.forms.append(form)
        self.implied = np.insert(self.implied, number, form.implied)
        data, fixed, varied, whole = (self._padded(raw) for raw in (piece, form.fixed, form.varied, b"\xff" * length))
        self._fixed = np.vstack([self._fixed[:number], fixed])
        self._template = np.vstack([self._template[:number], data & fixed])
        self._kept = np.vstack([self._kept[:number], whole & ~varied])
        numbers = np.array(form.numbers, np.int64).T[:, None]
        self._numbers = np.concatenate([self._numbers[:, :number], numbers], axis=1)
        if self._of_length[length, -1] >= 0:
            self._of_length = np.pad(self._of_length, ((0, 0), (0, 1)), constant_values=-1)
        self._of_length[length, np.argmin(self._of_length[length])] = number
        return number

    def _padded(self, raw: bytes | bytearray) -> Numbers:
        return np.frombuffer(bytes(raw).ljust(8 * self._words, b"\0"), "<i8")
