"""Writer of the rows: JSON lines in a file of bounded parts, written by a thread, so that no disk delays the job.

numbers_rank_3.jsonl                the part that is being written; it ends at a line, but for what a crash tore
numbers_rank_3.0.jsonl              complete parts: the first one, and the last ones that the limit leaves room for
earlier_1/numbers_rank_3.jsonl      those of an earlier process of this rank
"""

from __future__ import annotations

import base64
import contextlib
import json
import logging
import math
import os
import queue
import struct
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from ..files import EARLIER_PREFIX
from ..identity import rank_and_world
from ..writers import choose_place, described
from .linear_hash import MASK
from .run_facts import code_settings
from .tensor_summary import STATISTICS

_LOG = logging.getLogger("rankscope.capture")
VERSION = 1
PARTS = 8
"""Parts that the limit holds."""
_MOST_WAITING = 4
"""Recorded steps that wait for the disk; later ones are dropped and counted."""
END_WAIT_S = 5.0
"""Longest wait of the end of the process for the last rows."""
_WHOLE = ("nan", "inf", "zeros")
_SINGLE = ("f32", "bf16", "f16", "f8e4m3", "f8e5m2", "f8e4m3fnuz", "f8e5m2fnuz", "i8", "u8", "bool")
"""Types whose values are all float32 as well: their samples take half of the bytes."""
_NAMES = {math.inf: "Infinity", -math.inf: "-Infinity"}


class StepRows(NamedTuple):
    """The rows of a recorded step."""

    heads: list[dict[str, Any]]
    """Lines of groups and stacks before them."""
    rows: list[tuple[Any, Any]]
    """Rows (`TensorRow`), and the hash of each with its statistics and samples, or None without a summary."""
    end: dict[str, Any]
    dropped: int
    """Rows that were lost since the step before."""
    unwaited: int


class PartWriter(threading.Thread):
    """The writing thread."""

    def __init__(self, directory: str, limit: int, header: dict[str, Any]) -> None:
        super().__init__(name="rankscope-numbers", daemon=True)
        self._directory = Path(directory)
        self._part_bytes = max(limit // PARTS, 1 << 16)
        self._header = header
        self._queue: queue.Queue[StepRows | None] = queue.Queue(_MOST_WAITING)
        self._ranks: tuple[int, int | None] | None = None
        """The rank and the number of ranks, once the job's own thread has asked torch for them."""
        self._rank: int | None = None
        self._part = 0
        self._file: int | None = None
        self._size = 0
        self._known: list[bytes] = []
        """Lines of groups and stacks, for each part again."""
        self._told = 0
        """Number of them that this part has."""
        self._late: list[dict[str, Any]] = []
        """Lines of groups and stacks of a step that was dropped."""
        self._rows: dict[int, int] = {}
        """Rows of complete parts."""
        self._part_rows = 0
        self._dropped = 0
        self._unwaited = 0
        self._failed = ""

    def put(self, step: StepRows) -> None:
        """Hands a step over; drops and counts it if the disk is too slow."""
        self.locate()
        step = step._replace(heads=self._late + step.heads)
        self._late = []
        try:
            self._queue.put_nowait(step)
        except queue.Full:
            self._late = step.heads
            self._dropped += len(step.rows) + step.dropped

    def locate(self) -> None:
        """Asks torch for the rank, in a thread of the job: one in torch while the process ends would abort it."""
        if self._ranks is None:
            rank, world = rank_and_world()
            self._ranks = rank or 0, world

    def close(self) -> None:
        """Writes what waits, and the end; waits at most `END_WAIT_S` seconds for it."""
        until = time.monotonic() + END_WAIT_S
        with contextlib.suppress(queue.Full):
            self._queue.put(None, timeout=END_WAIT_S)
            self.join(max(0.0, until - time.monotonic()))

    def run(self) -> None:
        """Writes steps until the end."""
        while (step := self._queue.get()) is not None:
            self._dropped += step.dropped
            self._unwaited = step.unwaited
            try:
                self._write_step(step)
            except Exception as error:  # noqa: BLE001 - no error here may reach the job
                self._dropped += len(step.rows)
                text = f"{self._directory}: cannot write: {getattr(error, 'strerror', None) or error}"
                if text != self._failed:
                    self._failed = text
                    _LOG.warning("rankscope.capture.numbers: %s", text)
        if self._file is not None:
            with contextlib.suppress(OSError):
                self._end_part()

    def _write_step(self, step: StepRows) -> None:
        """Writes the lines of a step in one go, and begins another part if this one is full."""
        self._known += [_line(head) for head in step.heads]
        data = b"".join([*_lines(step.rows), _line(step.end)])
        if self._file is not None and self._size + len(data) > self._part_bytes:
            self._end_part()
            self._set_aside_part()
        if self._file is None:
            self._begin_part()
        self._append(b"".join([*self._known[self._told :], data]))
        self._told = len(self._known)
        self._part_rows += len(step.rows)

    def _path(self, part: int | None = None) -> Path:
        number = "" if part is None else f".{part}"
        return self._directory / f"numbers_rank_{self._rank}{number}.jsonl"

    def _begin_part(self) -> None:
        assert self._ranks is not None
        rank, world = self._ranks
        if self._rank is None:
            place = choose_place(str(self._directory), rank, self._header, joined=True)
            if place.other is not None:
                _LOG.warning("rankscope.capture.numbers: %s also writes here; see %s", described(place.other), place[0])
            self._directory = place.directory
            self._directory.mkdir(parents=True, exist_ok=True)
            self._set_earlier_aside(rank)
            self._rank = rank
            self._header["settings"] = {**self._header.get("settings", {}), "code": code_settings()}
        head = {"rankscope_numbers": VERSION, **self._header, "time_ns": time.time_ns(), "part": self._part}
        head |= {"rank": self._rank, "world_size": world}
        self._file = os.open(self._path(), os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o644)
        self._size = self._told = 0
        try:
            self._append(_line(head))
        except OSError:
            os.close(self._file)
            self._file = None
            raise

    def _append(self, data: bytes) -> None:
        """Appends whole lines; takes a line that did not fit away again. Raises OSError."""
        assert self._file is not None
        written = 0
        try:
            while written < len(data):
                written += os.write(self._file, data[written:])
        except OSError:
            with contextlib.suppress(OSError):
                os.ftruncate(self._file, self._size)
            raise
        self._size += written

    def _end_part(self) -> None:
        """Writes the last line of a part, and closes it."""
        assert self._file is not None
        try:
            self._append(_line({"end": True, "dropped": self._dropped, "unwaited": self._unwaited}))
        finally:
            os.close(self._file)
            self._file = None

    def _set_aside_part(self) -> None:
        """Gives a complete part its number, and removes the oldest but the first one beyond the limit."""
        self._path().replace(self._path(self._part))
        self._rows[self._part] = self._part_rows
        self._part, self._part_rows = self._part + 1, 0
        while len(self._rows) >= PARTS:
            oldest = min(part for part in self._rows if part)
            self._path(oldest).unlink(missing_ok=True)
            self._dropped += self._rows.pop(oldest)

    def _set_earlier_aside(self, rank: int) -> None:
        """Moves the files of an earlier process of this rank, in the place of those of the one before it."""
        earlier = self._directory / f"{EARLIER_PREFIX}1"
        left = _parts(self._directory, rank)
        if left:
            earlier.mkdir(exist_ok=True)
            for path in _parts(earlier, rank):
                path.unlink(missing_ok=True)
        for path in left:
            path.replace(earlier / path.name)


def _parts(directory: Path, rank: int) -> list[Path]:
    name = f"numbers_rank_{rank}"
    return [*directory.glob(f"{name}.jsonl"), *directory.glob(f"{name}.*.jsonl")]


def _line(content: dict[str, Any]) -> bytes:
    return json.dumps(content, separators=(",", ":")).encode("utf-8", "replace") + b"\n"


def _lines(rows: list[tuple[Any, Any]]) -> Iterator[bytes]:
    """The line of each row."""
    for row, summary in rows:
        yield _line(row.facts if summary is None else row.facts | _summary(row, *summary))


def _summary(row: Any, bits: int, numbers: list[float]) -> dict[str, Any]:
    """The keys of the summary of a row."""
    summary: dict[str, Any] = {"hash": f"{bits & MASK:016x}"}
    for place, name in enumerate(STATISTICS):
        summary[name] = int(numbers[place]) if name in _WHOLE else _number(numbers[place])
    first = len(STATISTICS)
    samples = numbers[first : first + len(row.samples)]
    name, kind = ("samples_f32", "f") if row.facts.get("dtype") in _SINGLE else ("samples_f64", "d")
    summary[name] = base64.b64encode(struct.pack(f"<{len(samples)}{kind}", *samples)).decode()
    return summary | ({"sample_at": list(row.samples)} if row.is_part else {})


def _number(value: float) -> float | str:
    return value if math.isfinite(value) else _NAMES.get(value, "NaN")
