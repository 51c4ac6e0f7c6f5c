"""Decoder of tensor summaries: a stream of lines of JSON, read in blocks, so that memory is bounded by the rows.

A line that is no summary is counted and left out; so is the last line of a file that was being written.
"""

from __future__ import annotations

import io
import os
import re
from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from itertools import chain
from operator import attrgetter
from typing import IO, Annotated, Any, Literal

import msgspec
import numpy as np
import numpy.typing as npt

from rankscope.features.numbers.read.model import (
    CODES,
    FLOATS,
    HEADER_SETTINGS,
    MOST_STEPS,
    NUMBERS,
    PLAIN,
    SAMPLES,
    SEED,
    SIZES,
    SUMMED,
    Floats,
    Narrow,
    NumbersContent,
    NumbersGroup,
    NumbersHeader,
    header_settings,
    named_values,
    narrowed,
)
from rankscope.parsers.contents import SAMPLES_VARIABLE, NotThisKindError, StackFrame
from rankscope.parsers.matrices import NULL
from rankscope.parsers.members import shared_members
from rankscope.parsers.safe_values import RANK_LIMIT, safe_text
from rankscope.parsers.streams import STREAM_ERRORS, stream_problem
from rankscope.text.wording import plural

Whole = Annotated[int, msgspec.Meta(ge=-(2**62), le=2**62)]
Rank = Annotated[int, msgspec.Meta(ge=0, lt=RANK_LIMIT)]
Short = Annotated[int, msgspec.Meta(ge=-(2**31), lt=2**31)]
Text = Annotated[str, msgspec.Meta(max_length=4096)]
Real = float | Literal["NaN", "Infinity", "-Infinity"]
Size = Annotated[tuple[Whole, ...], msgspec.Meta(max_length=16)]
Frames = Annotated[list[tuple[Text, Text, Whole]], msgspec.Meta(max_length=256)]
Ranks = Annotated[list[Rank], msgspec.Meta(max_length=RANK_LIMIT)]
Single = Annotated[bytes, msgspec.Meta(max_length=4 * SAMPLES)]
Double = Annotated[bytes, msgspec.Meta(max_length=8 * SAMPLES)]
"""Little-endian numbers, in the file as base64."""
NOTHING = msgspec.Raw()


class NumbersLine(msgspec.Struct, gc=False):
    """Any line of the file: a header, a group, a stack, a tensor, the end of a step or of a part; keys that nobody asks
    for are left out. Samples stay text until somebody compares them; a number that is left out is `NULL`."""

    site: Text | None = None
    step: Whole | None = NULL
    order: Whole | None = NULL
    micro: Short | None = NULL
    name: Text = ""
    occurrence: Short | None = NULL
    slot: Text | None = None
    slice: Short | None = NULL
    group: Text | None = None
    seq: Whole | None = NULL
    op: Text | None = None
    reduce_op: Text | None = None
    root: Short | None = NULL
    peer: Short | None = NULL
    dtype: Text | None = None
    numel: Whole | None = NULL
    shape: Size | None = None
    offsets: Size | None = None
    global_shape: Size | None = None
    placements: Text | None = None
    mesh: Text | None = None
    hash: Text | None = None
    sum: Real | None = None
    l2: Real | None = None
    min: Real | None = None
    max: Real | None = None
    nan: Whole | None = NULL
    inf: Whole | None = NULL
    zeros: Whole | None = NULL
    projection: Real | None = None
    samples: msgspec.Raw = NOTHING
    samples_f32: Single | None = None
    samples_f64: Double | None = None
    sample_at: msgspec.Raw = NOTHING
    recompute: bool | None = None
    stack_id: Whole | None = NULL
    md5: Text | None = None
    ranks: Ranks | None = None
    description: Text = ""
    stack: Whole | None = None
    frames: Frames | None = None
    rankscope_numbers: Whole | None = None
    rank: Rank | None = None
    run: Text = ""
    world_size: Whole | None = None
    host: Text = ""
    pid: Whole | None = None
    time_ns: Whole | None = None
    torch: Any = None
    level: Any = None
    every: Any = None
    mode: Any = None
    settings: Any = None
    end_of_step: Whole | None = None
    rng: Any = None
    seed: Any = None
    dropped: Whole | None = None


_VALUES = msgspec.json.Decoder(list[Annotated[list[Real], msgspec.Meta(max_length=SAMPLES)] | None])
_Place = Annotated[int, msgspec.Meta(ge=0, lt=SAMPLES)]
_PLACES = msgspec.json.Decoder(Annotated[list[_Place], msgspec.Meta(max_length=SAMPLES)] | None)
MOST_KNOWN = 1 << 12
"""Most different lists of places that are remembered."""
Held = tuple[int, tuple[int, ...] | None]
"""A bit for each place, and the order that sorts the values by their places, None if they are sorted."""
Packed = tuple[bytes, int]
"""The samples of a row in the order of their places, and a bit for each place."""
NONE: Packed = (b"", 0)


class SamplePacker:
    """Packs the samples of rows; of those only that some rule compares, if the environment says so."""

    def __init__(self) -> None:
        self._only_sums = os.environ.get(SAMPLES_VARIABLE) == "sums"
        self._known: dict[bytes, Held | None] = {}

    def packed(self, rows: Sequence[NumbersLine]) -> list[Packed]:
        """The samples of each row. Raises msgspec.ValidationError for lists that are none of samples or of places."""
        out = [NONE] * len(rows)
        sampled = []
        for place, row in enumerate(rows):
            if self._only_sums and (row.op not in SUMMED or row.site != "collective"):
                continue
            if row.samples_f32 is not None:
                out[place] = self._placed(row.samples_f32, 4, row.sample_at)
            elif row.samples_f64 is not None:
                out[place] = self._placed(row.samples_f64, 8, row.sample_at)
            elif len(row.samples):
                sampled.append(place)
        for place, (data, width) in zip(sampled, _written([rows[place].samples for place in sampled]), strict=True):
            out[place] = self._placed(data, width, rows[place].sample_at)
        return out

    def _placed(self, data: bytes, width: int, places: msgspec.Raw) -> Packed:
        """The samples at the places that the row tells; none if they are not as many."""
        count, rest = divmod(len(data), width)
        if rest:
            return NONE
        packed_samples = self._held(bytes(places)) if len(places) else None
        if packed_samples is None:
            return data, (1 << count) - 1
        bits, order = packed_samples
        if bits.bit_count() != count or (order is not None and len(order) != count):
            return NONE
        return data if order is None else b"".join(data[width * k : width * k + width] for k in order), bits

    def _held(self, text: bytes) -> Held | None:
        if text not in self._known:
            if len(self._known) >= MOST_KNOWN:
                self._known.clear()
            places = _PLACES.decode(text)
            self._known[text] = None if places is None else _bits_of(places)
        return self._known[text]


def _bits_of(places: Sequence[int]) -> Held:
    bits = 0
    for place in places:
        bits |= 1 << place
    order = tuple(sorted(range(len(places)), key=places.__getitem__))
    return bits, None if order == tuple(range(bits.bit_count())) else order


def _written(texts: Sequence[msgspec.Raw]) -> list[tuple[bytes, int]]:
    """Samples that are written as numbers, with the width of each."""
    if not texts:
        return []
    lists = [value or () for value in _VALUES.decode(b"[" + b",".join(map(bytes, texts)) + b"]")]
    ends = np.cumsum(np.fromiter(map(len, lists), np.int64, len(lists)))
    begins = np.append(0, ends[:-1])
    values = _floats(lists, int(ends[-1]))
    with np.errstate(over="ignore"):
        single = values.astype("<f4")
    # how many of the values before each place are no float32
    off = np.append(0, np.cumsum((single != values) & ~np.isnan(values)))
    fits = off[ends] == off[begins]
    narrow, wide = single.tobytes(), values.astype("<f8").tobytes()
    return [
        (narrow[4 * begin : 4 * end], 4) if small else (wide[8 * begin : 8 * end], 8)
        for begin, end, small in zip(begins.tolist(), ends.tolist(), fits.tolist(), strict=True)
    ]


def _floats(lists: Sequence[Sequence[float | str]], count: int) -> npt.NDArray[np.float64]:
    """All values, one after the other."""
    values: Any = chain.from_iterable(lists)
    try:
        return np.fromiter(values, np.float64, count)
    except (ValueError, TypeError):
        # "NaN" and "Infinity"
        return np.fromiter(map(float, chain.from_iterable(lists)), np.float64, count)


BLOCK_BYTES = 1 << 20
LONGEST_LINE = 1 << 20
"""Bytes of the longest line that is read; a genuine one has some thousands."""
MOST_ROWS = 1 << 20
"""Most tensors of one file; a recorder begins a new part long before."""
VERSION = 1
_BEGIN = re.compile(rb'\s*\{\s*"rankscope_numbers"\s*:')

_DECODER = msgspec.json.Decoder(NumbersLine)
_INVALID = (msgspec.MsgspecError, RecursionError, UnicodeDecodeError)


def looks_like_numbers(head: bytes) -> bool:
    """Whether a file with these first bytes holds tensor summaries."""
    return _BEGIN.match(head) is not None


def decode_numbers(data: bytes) -> NumbersContent:
    """The summaries in `data`. Raises NotThisKindError without a header that has a rank."""
    return read_numbers(io.BytesIO(data), len(data), (0, 1))


def read_numbers(stream: IO[bytes], _: int, part: tuple[int, int]) -> NumbersContent:
    """The summaries of a stream; nothing for all parts but the first, which reads all of it.

    Raises NotThisKindError without a header that has a rank.
    """
    if part[0]:
        return NumbersContent()
    columns, packer, lost = LineColumns(), SamplePacker(), Counter[str]()
    line = 1
    for block in _blocks(stream, lost):
        count = block.count(b"\n")
        _take(columns, packer, block, line, lost)
        line += count
        if columns.rows >= MOST_ROWS:
            lost[f"more than {plural(MOST_ROWS, 'tensor')}: the rest is not read"] = 1
            break
    if not columns.headers:
        raise NotThisKindError("a record of numbers without a rank in its first line")
    notes = [f"{plural(count, 'line')} {what}" if what in _LINES else what for what, count in lost.items()]
    if columns.version > VERSION:
        notes.append(f"its format {columns.version} is newer than {VERSION}: some of it may be missing")
    if columns.dropped:
        notes.append(f"the recorder dropped {plural(columns.dropped, 'tensor')}")
    return columns.content("; ".join(notes) or None)


INVALID, CUT, LONG = _LINES = ("that cannot be read", "cut off at the end of the file", "longer than 1 MiB")


def _blocks(stream: IO[bytes], lost: Counter[str]) -> Iterator[bytes]:
    """Blocks of whole lines. A line that is too long becomes an empty one."""
    rest = b""
    try:
        while block := stream.read(BLOCK_BYTES):
            whole, newline, tail = (rest + block).rpartition(b"\n")
            if newline:
                yield whole + newline
            rest = tail if len(tail) <= LONGEST_LINE else _skipped(stream, lost)
    except STREAM_ERRORS as error:
        lost[stream_problem(error)] = 1
    if rest:
        yield rest


def _skipped(stream: IO[bytes], lost: Counter[str]) -> bytes:
    """The bytes behind the end of a line that is too long, with the end itself."""
    lost[LONG] += 1
    while block := stream.read(BLOCK_BYTES):
        _, newline, tail = block.partition(b"\n")
        if newline:
            return newline + tail
    return b""


def _take(columns: LineColumns, packer: SamplePacker, block: bytes, line: int, lost: Counter[str]) -> None:
    """Adds the lines of a block, all at once if nothing is wrong with any."""
    try:
        rows = [] if b"\n\n" in block or block.startswith(b"\n") else _DECODER.decode_lines(block)
        if rows and len(rows) == block.count(b"\n") + (not block.endswith(b"\n")):
            columns.add(rows, range(line, line + len(rows)), packer.packed(rows))
            return
    except (*_INVALID, ValueError):
        rows = []
    found, lines, samples = [], [], []
    parts = block.split(b"\n")
    for number, text in enumerate(parts, line):
        if not text.strip():
            continue
        try:
            row = _DECODER.decode(text)
            samples += packer.packed([row])
        except _INVALID:
            lost[CUT if number == line + len(parts) - 1 else INVALID] += 1
        else:
            found.append(row)
            lines.append(number)
    columns.add(found, lines, samples)


_HASH = re.compile(r"[0-9a-fA-F]{16}")
_NO_HASH = "0" * 16
MOST_TABLES = 1 << 16
"""Most groups, and most stacks, of a file."""


class LineColumns:
    """Rows of a file so far."""

    def __init__(self) -> None:
        self.headers: list[NumbersHeader] = []
        self.rows = 0
        self.dropped = 0
        self.version = 0
        self._groups: dict[NumbersGroup, None] = {}
        self._stacks: dict[int, list[StackFrame]] = {}
        self._texts, self._sizes = _PlaceTable({None: -1}), _PlaceTable({None: -1})
        self._numbers: list[npt.NDArray[np.int64]] = []
        self._codes: list[npt.NDArray[np.int32]] = []
        self._floats: list[Floats] = []
        self._samples: list[bytes] = []
        self._stepped = 0
        self._random: list[tuple[int, str, str]] = []

    def add(self, found: Sequence[NumbersLine], lines: Sequence[int], samples: Sequence[Packed]) -> None:
        """Adds lines with their numbers in the file and their samples."""
        begin = 0
        for end in [*[end for end, row in enumerate(found) if row.site is None], len(found)]:
            if begin < end and self.headers:
                self._add_rows(found[begin:end], lines[begin:end], samples[begin:end])
            if end < len(found):
                self._tell(found[end])
            begin = end + 1

    def _tell(self, row: NumbersLine) -> None:
        """Takes a line that is no tensor."""
        if row.rankscope_numbers is not None and row.rank is not None:
            self.version = max(self.version, row.rankscope_numbers)
            run, host = safe_text(row.run) or "", safe_text(row.host) or ""
            settings = header_settings({name: getattr(row, name) for name in HEADER_SETTINGS}, row.settings)
            self.headers.append(NumbersHeader(row.rank, run, row.world_size, host, row.pid, row.time_ns, settings))
        elif row.ranks is not None and row.group is not None and len(self._groups) < MOST_TABLES:
            if len(set(row.ranks)) == len(row.ranks):
                name, text = safe_text(row.group) or "", safe_text(row.description) or ""
                self._groups[NumbersGroup(name, text, shared_members(row.ranks))] = None
        elif row.stack is not None and row.frames is not None and len(self._stacks) < MOST_TABLES:
            frames = [StackFrame(safe_text(f) or "", safe_text(file) or "", line) for f, file, line in row.frames]
            self._stacks[row.stack] = frames
        elif row.end_of_step is not None and row.rng is not None and self._stepped < MOST_STEPS:
            self._stepped += 1
            self._random += [(row.end_of_step, name, state) for name, state in named_values(row.rng)]
            if isinstance(row.seed, int):
                self._random.append((row.end_of_step, SEED, str(row.seed)))
        self.dropped += max(0, row.dropped or 0)

    def _add_rows(self, rows: Sequence[NumbersLine], lines: Sequence[int], samples: Sequence[Packed]) -> None:
        """Adds tensors below the last header."""
        numbers = np.empty((len(NUMBERS), len(rows)), np.int64)
        columns = dict(zip(NUMBERS, numbers, strict=True))
        columns["line"][:], columns["header"][:] = lines, len(self.headers) - 1
        for name in PLAIN:
            columns[name][:] = _whole_numbers(rows, name)
        columns["stack"][:] = _whole_numbers(rows, "stack_id")
        columns["recompute"][:] = [row.recompute is True for row in rows]
        columns["hash"][:], columns["told"][:] = _hashes([row.hash for row in rows])
        floats = np.empty((len(FLOATS), len(rows)))
        for bit, (name, column) in enumerate(zip(FLOATS, floats, strict=True), 1):
            raw = list(map(attrgetter(name), rows))
            column[:] = np.array(raw, np.float64)
            columns["told"] |= (np.array([v is not None for v in raw]) if None in raw else True) * np.int64(1 << bit)
        columns["held"][:] = np.array([bits for _, bits in samples], np.uint64).view(np.int64)
        columns["sampled"][:] = [len(data) for data, _ in samples]
        self._samples.append(b"".join([data for data, _ in samples]))
        self._numbers.append(numbers)
        self._floats.append(floats)
        codes = np.full((len(CODES), len(rows)), -1, np.int32)
        for name, code in zip(CODES, codes, strict=True):
            table, raw = self._sizes if name in SIZES else self._texts, list(map(attrgetter(name), rows))
            if raw.count(None) < len(raw):
                code[:] = list(map(table.__getitem__, raw))
        self._codes.append(codes)
        self.rows += len(rows)

    def content(self, problem: str | None) -> NumbersContent:
        """The content of the file."""
        columns: dict[str, Narrow] = {}
        if self.rows:
            numbers, codes = np.concatenate(self._numbers, axis=1), np.concatenate(self._codes, axis=1)
            columns |= {name: narrowed(column) for name, column in zip(NUMBERS, numbers, strict=True)}
            columns |= {name: narrowed(column.astype(np.int64)) for name, column in zip(CODES, codes, strict=True)}
        return NumbersContent(
            headers=self.headers, groups=list(self._groups), stacks=self._stacks,
            texts=[safe_text(text) or "" for text in list(self._texts)[1:]],
            sizes=[list(size) for size in list(self._sizes)[1:] if isinstance(size, tuple)],
            random_states=self._random, dropped=self.dropped, problem=problem, rows=self.rows, columns=columns,
            floats=np.concatenate(self._floats, axis=1) if self._floats else np.empty((len(FLOATS), 0)),
            samples=b"".join(self._samples),
        )  # fmt: skip


class _PlaceTable(dict[Hashable, int]):
    """Places of values in a table, in which a new value takes the next place."""

    def __missing__(self, value: Hashable) -> int:
        self[value] = place = len(self) - 1
        return place


def _whole_numbers(rows: Sequence[NumbersLine], name: str) -> npt.NDArray[np.int64]:
    """Numbers, with `NULL` for none."""
    values = list(map(attrgetter(name), rows))
    if None in values:
        values = [NULL if value is None else value for value in values]
    return np.array(values, np.int64)


def _hashes(texts: Sequence[str | None]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Hashes as 64 bits, 0 for none, and whether each row has one. A text that is no hash is none."""
    is_hash = [text is not None and _HASH.fullmatch(text) is not None for text in texts]
    raw = bytes.fromhex(
        "".join(text if known and text else _NO_HASH for text, known in zip(texts, is_hash, strict=True))
    )
    return np.frombuffer(raw, ">u8").astype(np.uint64).view(np.int64), np.array(is_hash, np.int64)
