"""The content of one log, as arrays and small tables, and its form between processes: compact columns of integers."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rankscope.features.logs.read.log_record import Event, event_from
from rankscope.kinds.input_kinds import LOG, REPORT
from rankscope.parsers.line_prefixes import Stamp
from rankscope.parsers.matrices import Codes, ColumnMatrix, Numbers

if TYPE_CHECKING:
    import polars as pl

TAIL_ROWS = 20_000
"""Last operations of a communicator that are kept in full."""
MOST_ROWS, LEAST_ROWS = 1_000_000, 32
"""Most kept operations of all communicators of a log, and fewest of each of them."""
MOST_SETTINGS = 200_000
"""Most kept settings of one log."""
CHECKPOINT_STEP = 1024
"""Collectives between two values of the running hash."""

NUMBERS = (
    "ordinal", "count", "reduction", "root", "op_count", "offset", "line", "stamp_ns",
)  # fmt: skip
"""Columns with a separate number for each operation; NULL for an unknown one.

`ordinal` counts from 0: collectives separately, and sends, receives and signals separately. `root` is the peer of a
send or receive. `op_count` is the number in the line, which is no sequence number.
"""
CODES = ("comm", "op", "datatype", "flags")
"""Columns of indices into a table of repeated values, and small numbers; -1 for an unknown one."""
TORN, IS_P2P, IS_CALL = 1, 2, 4
"""Bits of `flags`."""


class LogWriter(NamedTuple):
    """A process that wrote to the log."""

    host: str
    pid: int
    rank: int | None = None
    """Global rank, where a prefix has it."""
    label: str = ""
    """The launcher's prefix."""
    torn_at: int | None = None
    """Offset of its first cut record: from there on lines may be missing, and ordinals be wrong."""
    records: int = 0
    offset: int = 0
    """Offset of its first record."""
    device: int | None = None
    """The device of threads that issue operations; None if they differ, or without such threads."""
    glued: bool = False
    """Its head was only seen in the middle of lines: its host may begin with a piece of another record."""


class Comm(NamedTuple):
    """One life of a communicator in one process: a pointer from its initialisation to its end."""

    process: int
    """Index into `processes`."""
    pointer: str
    """The pointer as text: other processes may have an equal one, and it is used again after the end."""
    offset: int
    """Offset of its initialisation, or of its first line."""
    line: int
    init: bool = False
    """A line of its initialisation was seen: ordinals then count from its first collective."""
    rank: int | None = None
    """Rank in the communicator."""
    nranks: int | None = None
    device: int | None = None
    nvml_device: int | None = None
    bus_id: str = ""
    comm_id: str = ""
    """commId as printed; "" where the version does not print it. For splits in 2.21 and 2.22 it is meaningless."""
    parent: str = ""
    """Pointer of the communicator from which it was split."""
    parent_comm: int | None = None
    """Index of the parent in `comms`, if it is in the same log."""
    split: int | None = None
    """splitCount; childCount from 2.29 on."""
    color: int | None = None
    key: int | None = None
    function: str = ""
    state: str = "seen"
    """The last printed state: seen, start, complete, finalized, revoked, aborting, destroyed, aborted."""
    started: Stamp | None = None
    completed: Stamp | None = None
    ended: Stamp | None = None
    start_offset: int | None = None
    """Offset of its line "Init START"; the two below are of "Init COMPLETE" and of its end."""
    complete_offset: int | None = None
    end_offset: int | None = None
    collectives: int = 0
    """The number of all of them, kept or not."""
    p2p: int = 0
    first_op_count: int | None = None
    fingerprints: list[int] = []
    """A running hash of operation, count, datatype and root, after each CHECKPOINT_STEP collectives: equal on all ranks
    that issued the same ones in the same order. A very long log keeps the last ones."""


class LogSetting(NamedTuple):
    """A variable or value that a process prints as used."""

    process: int
    """-1 for an unknown process."""
    name: str
    value: str
    offset: int
    line: int


class NcclWarning(NamedTuple):
    """A warning or error of NCCL."""

    process: int
    level: str
    place: str
    """File and line in NCCL's source."""
    text: str
    trail: list[str]
    """The calls that returned the error, innermost first: `init.cc:867 -> 5`."""
    offset: int
    line: int
    tid: int | None
    stamp: Stamp | None
    torn: bool


class RasComm(NamedTuple):
    """A row of NCCL's RAS about one communicator."""

    comm: str
    """Its hash in JSON, `#group-index (hash)` in the text."""
    size: int | None
    present: int | None
    missing: int | None
    status: str
    rank: int | None
    """The rank of the row; None for the communicator itself."""
    host: str
    pid: int | None
    device: int | None
    counts: dict[str, int]
    """How often the rank launched each kind of collective."""
    offset: int
    line: int
    text: str
    answer: int = 0
    """Offset of the beginning of the answer that holds it."""
    time_ns: int | None = None
    """Time of that answer, as printed."""


class InspectorRow(NamedTuple):
    """A row of NCCL's Inspector about one kind of operation of one rank of one communicator."""

    comm: str
    name: str
    rank: int | None
    nranks: int | None
    host: str
    pid: int | None
    op: str
    rows: int
    first_seq: int
    last_seq: int
    """Last coll_sn, which counts all operations of the kind in the communicator, also those without a dump."""
    total_us: float
    slowest_us: float
    dumped_us: int
    """Time of the last dump."""


_TABLES: dict[str, type[Any]] = {
    "processes": LogWriter, "comms": Comm, "settings": LogSetting, "warnings": NcclWarning, "ras": RasComm,
    "inspected": InspectorRow,
}  # fmt: skip
_STAMPS = ("started", "completed", "ended", "stamp")


@dataclass
class LogContent(ColumnMatrix):
    """One log, or a range of one."""

    number_names = NUMBERS
    code_names = CODES

    processes: list[LogWriter] = field(default_factory=list)
    comms: list[Comm] = field(default_factory=list)
    ops: list[str] = field(default_factory=list)
    """Names of operations as NCCL prints them: AllReduce."""
    settings: list[LogSetting] = field(default_factory=list)
    """NCCL_* variables; `version` is the library's."""
    warnings: list[NcclWarning] = field(default_factory=list)
    ras: list[RasComm] = field(default_factory=list)
    inspected: list[InspectorRow] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    training: pl.DataFrame | None = None
    """Values of the steps of a trainer, with the columns of `training_lines.PRINTED`; None without any."""
    counts: dict[str, int] = field(default_factory=dict)
    """How many lines, records, torn records and records of each kind."""
    problem: str | None = None
    ranged: bool = False
    """The content is a range of a log, with all of its operations, and is joined with the other ranges."""
    numbers: Numbers = field(default_factory=lambda: np.empty((len(NUMBERS), 0), np.int64))
    """Shape (len(NUMBERS), operations kept), by communicator, each in the order of the log."""
    codes: Codes = field(default_factory=lambda: np.empty((len(CODES), 0), np.int32))
    """Shape (len(CODES), operations kept)."""
    _packed: list[tuple[list[Spec], list[memoryview]]] = field(default_factory=list)
    _training: bytes = b""

    @property
    def rows(self) -> int:
        """Number of all operations, kept or not, and of events."""
        kept = int(self.numbers.shape[1])
        operations = kept if self.ranged else sum(comm.collectives + comm.p2p for comm in self.comms)
        return operations + len(self.events)

    def header(self) -> dict[str, Any]:
        """All but the arrays, as JSON values."""
        tables = {name: list(map(_plain, getattr(self, name))) for name in _TABLES}
        kept = int(self.numbers.shape[1])
        plain = {"ops": self.ops, "counts": self.counts, "problem": self.problem, "ranged": self.ranged, "kept": kept}
        self._packed = [pack_table(a) if kept else ([], []) for a in (self.numbers, self.codes)]
        specs = [spec for spec, _ in self._packed]
        self._training = _frame_bytes(self.training)
        plain["training"] = len(self._training)
        return {**tables, **plain, "columns": specs, "events": list(map(_plain, self.events))}

    def body(self) -> list[memoryview]:
        """The arrays as bytes, as the last `header()` describes them."""
        return [
            *([memoryview(self._training)] if self._training else ()),
            *(p for _, parts in self._packed for p in parts),
        ]


def _frame_bytes(frame: pl.DataFrame | None) -> bytes:
    if frame is None:
        return b""
    written = io.BytesIO()
    frame.write_ipc(written, compression="lz4")
    return written.getvalue()


def _frame_from(data: memoryview) -> pl.DataFrame | None:
    # a process that reads only dumps starts without it
    import polars as pl

    return pl.read_ipc(bytes(data), use_pyarrow=False) if data else None


def log_from(header: dict[str, Any], body: memoryview, *more: object) -> LogContent:
    """The log whose `header()` and `body()` these are."""
    del more
    kept, (of_numbers, of_codes) = header["kept"], header["columns"]
    named: dict[str, Any] = {name: [_row(kind, row) for row in header[name]] for name, kind in _TABLES.items()}
    events = [event_from(row) for row in header["events"]]
    plain: dict[str, Any] = {name: header[name] for name in ("ops", "counts", "problem", "ranged")}
    training, body = body[: header["training"]], body[header["training"] :]
    content = LogContent(**plain, **named, events=events, training=_frame_from(training) if training else None)
    if kept:
        content.numbers, rest = unpack_table(of_numbers, body, kept, np.int64)
        content.codes, _ = unpack_table(of_codes, rest, kept, np.int32)
    return content


def _plain(row: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(tuple(value) if isinstance(value, Stamp) else value for value in row)


def _row(kind: type[Any], values: list[Any]) -> Any:
    row = kind(*values)
    stamps = {n: Stamp(*getattr(row, n)) for n in _STAMPS if getattr(row, n, None) is not None}
    return row._replace(**stamps) if stamps else row


_TYPES = ("u1", "u2", "u4")
Spec = list[Any]
"""Type and smallest value of a column; a column of one value has the type ""."""


def pack_table(columns: npt.NDArray[Any]) -> tuple[list[Spec], list[memoryview]]:
    """A table of shape (columns, rows) with at least one row, as its specs and bytes."""
    specs: list[Spec] = []
    body: list[memoryview] = []
    for column in columns:
        low, high = int(column.min()), int(column.max())
        kind = "" if low == high else next((t for t in _TYPES if high - low <= np.iinfo(t).max), "i8")
        specs.append([kind, 0 if kind == "i8" else low])
        if kind:
            narrow = column if kind == "i8" else column - low
            body.append(np.ascontiguousarray(narrow, kind).data.cast("B"))
    return specs, body


def unpack_table(
    specs: Sequence[Spec], body: memoryview, rows: int, into: type[np.integer[Any]]
) -> tuple[Any, memoryview]:
    """The packed table, and the rest of the bytes."""
    table = np.empty((len(specs), rows), into)
    for column, (kind, low) in zip(table, specs, strict=True):
        if not kind:
            column[:] = low
            continue
        size = np.dtype(kind).itemsize * rows
        np.add(np.frombuffer(body[:size], kind), into(low), out=column, casting="unsafe")
        body = body[size:]
    return table, body


# What a log tells as a whole.

FEWEST_LOG_LINES = 3
"""Fewest lines of NCCL in a log without other events."""


def tells_anything(log: LogContent) -> bool:
    """Whether it says anything; a text that only looks like a log does not."""
    return log.rows > 0 or _has_tables(log) or only_starts(log)


def only_starts(log: LogContent) -> bool:
    """Whether it only shows how NCCL connects some processes."""
    return not log.rows and not _has_tables(log) and log.counts.get("INFO", 0) >= FEWEST_LOG_LINES


def _has_tables(log: LogContent) -> bool:
    settings = [row for row in log.settings if row.name != "transport"]
    return log.training is not None or any((log.comms, settings, log.warnings, log.ras, log.inspected))


def shown_kind(log: LogContent) -> str:
    """The kind of a log in the table of files: one that holds nothing but the output of collect_env has its own."""
    is_report = bool(log.events) and not log.processes and all(event.kind == "collect-env" for event in log.events)
    return REPORT.name if is_report else LOG.name
