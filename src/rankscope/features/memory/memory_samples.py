"""Samples of the memory of one process, as lines of JSON: docs/memory.md describes the form.

A line that is no sample is counted and left out; so is the last line of a file that was being written.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Annotated, Any

import msgspec
import numpy as np

from rankscope.parsers.contents import NotThisKindError
from rankscope.parsers.matrices import NULL, Numbers
from rankscope.parsers.safe_values import RANK_LIMIT, safe_text
from rankscope.text.wording import plural

SAMPLE_NUMBERS = ("line", "device", "time_ns", "step", "allocated", "reserved", "peak", "capacity")
"""Columns of a sample; `device` is an index into `MemorySamples.devices`."""
MOST_SAMPLE_LINES = 1 << 18
MOST_DEVICES = 64
VERSION = 1
_BEGIN = re.compile(rb'\s*\{\s*"rankscope_memory"\s*:')
_DEVICE = re.compile(r"host|[a-z]{2,16}:\d{1,4}")

Bytes = Annotated[int, msgspec.Meta(ge=0, le=2**62)]
Rank = Annotated[int, msgspec.Meta(ge=0, lt=RANK_LIMIT)]


class SampleHeader(msgspec.Struct):
    """The first line: who wrote the file."""

    rankscope_memory: int
    rank: Rank
    world_size: Annotated[int, msgspec.Meta(ge=0, le=RANK_LIMIT)] | None = None
    host: str | None = None
    pid: Bytes | None = None
    started_ns: Bytes | None = None


class SampleLine(msgspec.Struct):
    """One sample of one device; sizes are bytes."""

    time_ns: Bytes
    device: str
    step: Bytes | None = None
    allocated: Bytes | None = None
    reserved: Bytes | None = None
    peak: Bytes | None = None
    capacity: Bytes | None = None


_HEADER, _LINE = msgspec.json.Decoder(SampleHeader), msgspec.json.Decoder(SampleLine)
_INVALID = (msgspec.MsgspecError, RecursionError, UnicodeDecodeError)


@dataclass
class MemorySamples:
    """The samples of one process."""

    rank: int
    world_size: int | None = None
    host: str = ""
    pid: int | None = None
    started_ns: int | None = None
    devices: list[str] = field(default_factory=list)
    numbers: Numbers = field(default_factory=lambda: np.empty((len(SAMPLE_NUMBERS), 0), np.int64))
    """Shape (len(SAMPLE_NUMBERS), samples), with NULL for unknown values."""
    problem: str | None = None

    @property
    def rows(self) -> int:
        """Number of samples."""
        return int(self.numbers.shape[1])

    def header(self) -> dict[str, Any]:
        """All but the numbers, as JSON values."""
        return {name: value for name, value in self.__dict__.items() if name != "numbers"}

    def body(self) -> list[memoryview]:
        """The numbers as bytes."""
        return [np.ascontiguousarray(self.numbers).data.cast("B")] if self.rows else []


def samples_from(header: dict[str, Any], body: memoryview, *_: object) -> MemorySamples:
    """The samples whose `header()` and `body()` these are."""
    return MemorySamples(**header, numbers=np.frombuffer(body, np.int64).reshape(len(SAMPLE_NUMBERS), -1))


def looks_like_samples(head: bytes) -> bool:
    """Whether a file with these first bytes holds samples of memory."""
    return _BEGIN.match(head) is not None


def decode_samples(data: bytes) -> MemorySamples:
    """The samples in `data`. Raises NotThisKindError without a first line that has a rank."""
    first, _, rest = data.partition(b"\n")
    try:
        head = _HEADER.decode(first)
    except _INVALID as error:
        raise NotThisKindError("samples of memory without a rank in their first line") from error
    devices: dict[str, int] = {}
    found, lost = [], 0
    for line in _lines(rest, devices):
        if line is None:
            lost += 1
        else:
            found.append(line)
    notes = [f"{plural(lost, 'line')} that cannot be read"] if lost else []
    if head.rankscope_memory > VERSION:
        notes.append(f"its format {head.rankscope_memory} is newer than {VERSION}: some of it may be missing")
    if rest.count(b"\n") > MOST_SAMPLE_LINES:
        notes.append(f"more than {plural(MOST_SAMPLE_LINES, 'sample')}: the rest is not read")
    return MemorySamples(
        head.rank, head.world_size, safe_text(head.host) or "", head.pid, head.started_ns, list(devices),
        np.array(found, np.int64).reshape(-1, len(SAMPLE_NUMBERS)).T, "; ".join(notes) or None,
    )  # fmt: skip


def _lines(data: bytes, devices: dict[str, int]) -> Iterator[tuple[int, ...] | None]:
    """The columns of each sample; None for a line that is none."""
    for number, text in enumerate(data.split(b"\n", MOST_SAMPLE_LINES)[:MOST_SAMPLE_LINES], 2):
        if not text.strip():
            continue
        try:
            line = _LINE.decode(text)
        except _INVALID:
            yield None
            continue
        if not _DEVICE.fullmatch(line.device) or (line.device not in devices and len(devices) >= MOST_DEVICES):
            yield None
            continue
        place = devices.setdefault(line.device, len(devices))
        values = (line.step, line.allocated, line.reserved, line.peak, line.capacity)
        yield (number, place, line.time_ns, *(NULL if value is None else value for value in values))
