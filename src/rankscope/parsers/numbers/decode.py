"""Decoder of tensor summaries: a stream of lines of JSON, read in blocks, so that memory is bounded by the rows.

A line that is no summary is counted and left out; so is the last line of a file that was being written.
"""

from __future__ import annotations

import io
import re
from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from itertools import chain
from typing import IO, Annotated, Any, Literal

import msgspec
import numpy as np
import numpy.typing as npt

from rankscope.parsers.contents import NotThisKindError, StackFrame
from rankscope.parsers.matrices import NULL
from rankscope.parsers.members import shared_members
from rankscope.parsers.numbers.model import (
    CODES,
    FLOATS,
    HEADER_SETTINGS,
    MOST_STEPS,
    NUMBERS,
    PLAIN,
    SAMPLES,
    SIZES,
    Floats,
    NumbersContent,
    NumbersGroup,
    NumbersHeader,
    header_settings,
    named_values,
)
from rankscope.parsers.safe_values import RANK_LIMIT, safe_text
from rankscope.parsers.streams import STREAM_ERRORS
from rankscope.text.wording import plural

BLOCK_BYTES = 4 << 20
LONGEST_LINE = 1 << 20
"""Bytes of the longest line that is read; a genuine one has some thousands."""
MOST_ROWS = 1 << 20
"""Most tensors of one file; a recorder begins a new part long before."""
VERSION = 1
_BEGIN = re.compile(rb'\s*\{\s*"rankscope_numbers"\s*:')

Whole = Annotated[int, msgspec.Meta(ge=-(2**62), le=2**62)]
Rank = Annotated[int, msgspec.Meta(ge=0, lt=RANK_LIMIT)]
Short = Annotated[int, msgspec.Meta(ge=-(2**31), lt=2**31)]
Text = Annotated[str, msgspec.Meta(max_length=4096)]
Real = float | Literal["NaN", "Infinity", "-Infinity"]
Samples = Annotated[list[Real], msgspec.Meta(max_length=64)]
Size = Annotated[tuple[Whole, ...], msgspec.Meta(max_length=16)]
Frames = Annotated[list[tuple[Text, Text, Whole]], msgspec.Meta(max_length=256)]
Ranks = Annotated[list[Rank], msgspec.Meta(max_length=RANK_LIMIT)]


class NumbersLine(msgspec.Struct, gc=False):
    """Any line of the file: a header, a group, a stack, a tensor, the end of a step or of a part; keys that nobody asks
    for are left out."""

    site: Text | None = None
    step: Whole | None = None
    order: Whole | None = None
    micro: Short | None = None
    name: Text = ""
    occurrence: Short | None = None
    slot: Text | None = None
    slice: Short | None = None
    group: Text | None = None
    seq: Whole | None = None
    op: Text | None = None
    reduce_op: Text | None = None
    root: Short | None = None
    peer: Short | None = None
    dtype: Text | None = None
    numel: Whole | None = None
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
    nan: Whole | None = None
    inf: Whole | None = None
    zeros: Whole | None = None
    projection: Real | None = None
    samples: Samples | None = None
    sample_at: Annotated[list[Annotated[int, msgspec.Meta(ge=0, lt=64)]], msgspec.Meta(max_length=64)] | None = None
    recompute: bool | None = None
    stack_id: Whole | None = None
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
    dropped: Whole | None = None


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
    columns, lost = LineColumns(), Counter[str]()
    line = 1
    for block in _blocks(stream, lost):
        count = block.count(b"\n")
        _take(columns, block, line, lost)
        line += count
        if columns.rows >= MOST_ROWS:
            lost[f"more than {plural(MOST_ROWS, 'tensor')}: the rest is not read"] = 1
            break
    if not columns.headers:
        raise NotThisKindError("a record of numbers without a rank in its first line")
    return columns.content(_problem(lost, columns))


def _problem(lost: Counter[str], columns: LineColumns) -> str | None:
    notes = [f"{plural(count, 'line')} {what}" if what in _LINES else what for what, count in lost.items()]
    if columns.version > VERSION:
        notes.append(f"its format {columns.version} is newer than {VERSION}: some of it may be missing")
    if columns.dropped:
        notes.append(f"the recorder dropped {plural(columns.dropped, 'tensor')}")
    return "; ".join(notes) or None


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
        lost[f"packed file is damaged ({type(error).__name__})"] = 1
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


def _take(columns: LineColumns, block: bytes, line: int, lost: Counter[str]) -> None:
    """Adds the lines of a block, all at once if nothing is wrong with any."""
    try:
        rows = [] if b"\n\n" in block or block.startswith(b"\n") else _DECODER.decode_lines(block)
        if rows and len(rows) == block.count(b"\n") + (not block.endswith(b"\n")):
            columns.add(rows, range(line, line + len(rows)))
            return
    except (*_INVALID, ValueError):
        rows = []
    found, lines = [], []
    parts = block.split(b"\n")
    for number, text in enumerate(parts, line):
        if not text.strip():
            continue
        try:
            found.append(_DECODER.decode(text))
            lines.append(number)
        except _INVALID:
            lost[CUT if number == line + len(parts) - 1 else INVALID] += 1
    columns.add(found, lines)


# Columns of the rows, filled block by block.

_HASH = re.compile(r"[0-9a-fA-F]{16}")
_NO_HASH = "0" * 16
_FIELDS = NumbersLine.__struct_fields__
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
        self._texts: dict[Hashable, int] = {None: -1}
        self._sizes: dict[Hashable, int] = {None: -1}
        self._numbers: list[npt.NDArray[np.int64]] = []
        self._codes: list[npt.NDArray[np.int32]] = []
        self._floats: list[Floats] = []
        self._samples: list[Floats] = []
        self._sampled = 0
        self._stepped = 0
        self._random: list[tuple[int, str, str]] = []

    def add(self, found: Sequence[NumbersLine], lines: Sequence[int]) -> None:
        """Adds lines with their numbers in the file."""
        begin = 0
        for end, row in enumerate([*found, None]):
            if row is not None and row.site is not None:
                continue
            if begin < end and self.headers:
                self._add_rows(found[begin:end], lines[begin:end])
            if row is not None:
                self._tell(row)
            begin = end + 1

    def _tell(self, row: NumbersLine) -> None:
        """Takes a line that is no tensor."""
        if row.rankscope_numbers is not None and row.rank is not None:
            self.version = max(self.version, row.rankscope_numbers)
            run, host = safe_text(row.run) or "", safe_text(row.host) or ""
            told = header_settings({name: getattr(row, name) for name in HEADER_SETTINGS}, row.settings)
            self.headers.append(NumbersHeader(row.rank, run, row.world_size, host, row.pid, row.time_ns, told))
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
        self.dropped += max(0, row.dropped or 0)

    def _add_rows(self, rows: Sequence[NumbersLine], lines: Sequence[int]) -> None:
        """Adds tensors below the last header."""
        told = dict(zip(_FIELDS, zip(*map(msgspec.structs.astuple, rows), strict=True), strict=True))
        numbers = np.empty((len(NUMBERS), len(rows)), np.int64)
        columns = dict(zip(NUMBERS, numbers, strict=True))
        columns["line"][:], columns["header"][:] = lines, len(self.headers) - 1
        for name in PLAIN:
            columns[name][:] = _whole_numbers(told[name])
        columns["stack"][:] = _whole_numbers(told["stack_id"])
        columns["recompute"][:] = list(map(bool, told["recompute"]))
        columns["hash"][:], columns["told"][:] = _hashes(told["hash"])
        floats = np.array([told[name] for name in FLOATS], np.float64)
        for bit, name in enumerate(FLOATS, 1):
            own = told[name]
            columns["told"] |= (np.array([v is not None for v in own]) if None in own else True) * np.int64(1 << bit)
        self._add_samples(told["samples"], told["sample_at"], columns["held"], columns["sampled"])
        self._numbers.append(numbers)
        self._floats.append(floats)
        self._codes.append(self._coded(told))
        self.rows += len(rows)

    def _coded(self, told: dict[str, tuple[Any, ...]]) -> npt.NDArray[np.int32]:
        rows = []
        for name in CODES:
            table, own = self._sizes if name in SIZES else self._texts, told[name]
            for value in dict.fromkeys(own):
                table.setdefault(value, len(table) - 1)
            rows.append(list(map(table.__getitem__, own)))
        return np.array(rows, np.int32)

    def _add_samples(
        self, samples: Sequence[Any], places: Sequence[Any], held: npt.NDArray[np.int64],
        sampled: npt.NDArray[np.int64],
    ) -> None:  # fmt: skip
        """Adds the samples of rows: each value at its place among the 64, and a bit for each in `held`."""
        own = [one or () for one in samples]
        counts = np.fromiter(map(len, own), np.int64, len(own))
        for i in [i for i, at in enumerate(places) if at is not None] if any(places) else []:
            if len(set(places[i])) != counts[i]:
                own[i], counts[i] = (), 0
        some = counts > 0
        sampled[:] = np.where(some, self._sampled + np.cumsum(some) - 1, -1)
        block = _sample_block(own, counts[some])
        held[:] = np.where(counts < SAMPLES, (np.int64(1) << np.minimum(counts, SAMPLES - 1)) - 1, -1)
        for i in [i for i, at in enumerate(places) if at is not None and some[i]] if any(places) else []:
            at = np.array(places[i], np.int64)
            line = np.full(SAMPLES, np.nan)
            line[at] = own[i]
            block[sampled[i] - self._sampled] = line
            held[i] = np.bitwise_or.reduce(np.int64(1) << at)
        self._samples.append(block)
        self._sampled += len(block)

    def content(self, problem: str | None) -> NumbersContent:
        """The content of the file."""
        tables: dict[str, Any] = {
            name: np.concatenate(parts, axis=1)
            for name, parts in (("numbers", self._numbers), ("codes", self._codes), ("floats", self._floats))
            if parts
        }
        return NumbersContent(
            headers=self.headers, groups=list(self._groups), stacks=self._stacks,
            texts=[safe_text(text) or "" for text in list(self._texts)[1:]],
            sizes=[list(size) for size in list(self._sizes)[1:] if isinstance(size, tuple)],
            random_states=self._random, dropped=self.dropped, problem=problem, samples=self._samples, **tables,
        )  # fmt: skip


def _whole_numbers(values: Sequence[int | None]) -> npt.NDArray[np.int64]:
    """Numbers, with `NULL` for none."""
    if None in values:
        values = [NULL if value is None else value for value in values]
    return np.array(values, np.int64)


def _sample_block(own: Sequence[Any], counts: npt.NDArray[np.int64]) -> Floats:
    """Samples of the rows that have some, shape (rows, SAMPLES), with NaN behind the last one of each."""
    try:
        values = np.fromiter(chain.from_iterable(own), np.float64, int(counts.sum()))
    except (ValueError, TypeError):
        # "NaN" and "Infinity"
        values = np.fromiter(map(float, chain.from_iterable(own)), np.float64, int(counts.sum()))
    if (counts == SAMPLES).all():
        return values.reshape(len(counts), SAMPLES)
    block = np.full((len(counts), SAMPLES), np.nan)
    block[np.arange(SAMPLES) < counts[:, None]] = values
    return block


def _hashes(texts: Sequence[str | None]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Hashes as 64 bits, 0 for none, and whether each row has one. A text that is no hash is none."""
    told = [text is not None and _HASH.fullmatch(text) is not None for text in texts]
    raw = bytes.fromhex("".join(text if known and text else _NO_HASH for text, known in zip(texts, told, strict=True)))
    return np.frombuffer(raw, ">u8").astype(np.uint64).view(np.int64), np.array(told, np.int64)
