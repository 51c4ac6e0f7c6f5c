"""The content of one dump, as arrays and small tables, and its form between processes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from rankscope.parsers.contents import StackFrame
from rankscope.parsers.matrices import Codes, ColumnMatrix, Numbers
from rankscope.parsers.members import GroupConfig, Members, config_from, unpack_members

NUMBERS = (
    "record_id", "seq", "p2p_seq", "op_id", "created_ns", "started_ns", "completed_ns", "duration_ns",
)  # fmt: skip
"""Columns with a separate number for each entry."""
CODES = ("call", "shape", "stack")
"""Columns of indices into a table of repeated values; -1 for none."""


class RecordedCall(NamedTuple):
    """Repeated values of entries; None where the version of the format lacks one."""

    pg_id: int | None
    name: str | None
    description: str | None
    thread_name: str | None
    thread_id: str | None
    profiling_name: str
    state: str | None
    retired: bool | None
    timeout_ms: int | None
    is_p2p: bool | None


class RecordedShape(NamedTuple):
    """Arguments of an operation, as JSON text; None where the version of the format lacks them."""

    in_sizes: str | None
    out_sizes: str | None
    in_dtypes: str | None
    out_dtypes: str | None


class GroupStatus(NamedTuple):
    """A row of pg_status: counters of the last operation, -1 for none."""

    pg_id: str
    enqueued: int
    started: int
    completed: int


class OmittedEntries(NamedTuple):
    """Entries that were read and left out, for the user wants only the last ones; facts on the whole dump."""

    entries: int
    has_gaps: bool
    """Record numbers of the whole dump leave some out."""
    any_completed: bool
    any_started: bool
    begin_ns: int | None
    """The first time of an issue."""


_TABLES: dict[str, type[Any]] = {
    "status": GroupStatus,
    "calls": RecordedCall,
    "shapes": RecordedShape,
    "frames": StackFrame,
}


@dataclass
class Dump(ColumnMatrix):
    """One dump: a header, tables of repeated values, and a column for each number, oldest entry first."""

    number_names = NUMBERS
    code_names = CODES

    version: str = ""
    library_version: str | None = None
    """Empty on gloo; None where the version of the format lacks it."""
    config: list[GroupConfig] = field(default_factory=list)
    status: list[GroupStatus] | None = None
    """None where the version of the format has no pg_status."""
    calls: list[RecordedCall] = field(default_factory=list)
    shapes: list[RecordedShape] = field(default_factory=list)
    frames: list[StackFrame] = field(default_factory=list)
    stacks: list[list[int]] = field(default_factory=list)
    """Lists of indices into `frames`, innermost first."""
    truncated: bool = False
    rank: int | None = None
    """The rank of its writer; None in formats that leave it to the name of the file."""
    replayed: Members | None = None
    """Of a replay the ranks that are in it; None of any other job."""
    problem: str | None = None
    slow: str | None = None
    """The reason why the read took three times as long as usual; None if it did not."""
    omitted: OmittedEntries | None = None
    """None if the dump holds all entries of its file."""
    numbers: Numbers = field(default_factory=lambda: np.empty((len(NUMBERS), 0), np.int64))
    """Shape (len(NUMBERS), entries)."""
    codes: Codes = field(default_factory=lambda: np.empty((len(CODES), 0), np.int32))
    """Shape (len(CODES), entries)."""

    @property
    def rows(self) -> int:
        """Number of entries."""
        return int(self.numbers.shape[1])

    def header(self) -> dict[str, Any]:
        """All but the arrays, as JSON values."""
        plain = {"version", "library_version", "stacks", "truncated", "rank", "problem", "slow"}
        header: dict[str, Any] = {name: getattr(self, name) for name in plain}
        for name in _TABLES:
            rows = getattr(self, name)
            header[name] = None if rows is None else list(map(tuple, rows))
        replayed = None if self.replayed is None else self.replayed.packed
        omitted = None if self.omitted is None else tuple(self.omitted)
        config = [group.row() for group in self.config]
        return {**header, "config": config, "replayed": replayed, "omitted": omitted}

    def body(self) -> list[memoryview]:
        """The arrays as bytes."""
        return [np.ascontiguousarray(a).data.cast("B") for a in (self.numbers, self.codes) if a.size]


def dump_from(header: dict[str, Any], body: memoryview, rows: int) -> Dump:
    """The dump whose `header()` and `body()` these are; the arrays are views of `body`."""
    split = len(NUMBERS) * 8 * rows
    numbers = np.frombuffer(body[:split], np.int64).reshape(len(NUMBERS), rows)
    codes = np.frombuffer(body[split:], np.int32).reshape(len(CODES), rows)
    named = {k: list(map(kind._make, header[k])) for k, kind in _TABLES.items() if header[k] is not None}
    config = list(map(config_from, header["config"]))
    replayed = None if header["replayed"] is None else unpack_members(header["replayed"])
    omitted = None if header["omitted"] is None else OmittedEntries(*header["omitted"])
    own = {"config": config, "replayed": replayed, "omitted": omitted}
    return Dump(**{**header, **named, **own}, numbers=numbers, codes=codes)
