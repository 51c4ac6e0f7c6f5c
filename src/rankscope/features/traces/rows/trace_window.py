"""Window of one process in one trace: its arrays, the meaning of names and lanes, and kernels that communicate.

torch's profiler describes collectives of process groups only. One-shot all-reduces, expert parallelism and symmetric
memory wait for other ranks as well: a rank that spins in one of their kernels does not compute.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path, PurePosixPath
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl

from rankscope.assemble.sources import SourceFile
from rankscope.features.traces.read import event_names
from rankscope.features.traces.read.model import TraceContent
from rankscope.parsers.matrices import Numbers
from rankscope.parsers.user_tables import TableError, TableForm, checked_pattern, with_users_rows

Mask = npt.NDArray[np.bool_]
ABSOLUTE_NS = 10**17
"""Smallest time since the epoch (1973); below it, the base of the file's clock is missing."""
_HANDLER = re.compile(r"^(?P<host>.+)_(?P<pid>\d{1,10})\.\d{10,20}\.pt\.trace\.json")


@dataclass
class TraceWindow:
    """The part of one file about one process."""

    place: int
    """Row of `files`."""
    source: SourceFile
    content: TraceContent
    base_ns: int = 0
    """Time that is added to the times of the file."""
    loops: dict[int, str] = field(default_factory=dict)
    """Name of the group for each thread that runs operations of one group only."""

    @property
    def rank(self) -> int:
        """The rank of the process; it must be settled."""
        return self.source.rank if self.source.rank is not None else 0

    @cached_property
    def start(self) -> Numbers:
        """The start of each span, on the clock of its host."""
        return self.content.column("start_ns") + self.base_ns

    @cached_property
    def end(self) -> Numbers:
        """The end of each span."""
        return self.start + self.content.column("duration_ns")

    @cached_property
    def categories(self) -> list[str]:
        """The current category of each lane; lanes without one have that of the process they belong to."""
        kinds = self._kinds_of_processes
        return [
            event_names.current_category(lane.category, "") or kinds.get((lane.pid, lane.tid), "") or
            kinds.get((lane.pid, None), "") for lane in self.content.lanes
        ]  # fmt: skip

    @cached_property
    def _kinds_of_processes(self) -> dict[tuple[int | None, int | None], str]:
        """Categories by process, and by process and thread, from their names: torch_npu gives events none."""
        labels = self.content.labels
        kinds: dict[tuple[int | None, int | None], str] = {
            (label.pid, None): event_names.PROCESS_CATEGORIES[label.text]
            for label in labels
            if label.kind == "process_name" and label.text in event_names.PROCESS_CATEGORIES
        }
        for label in labels:
            if kinds and label.kind == "thread_name" and label.text.startswith(event_names.MIRRORED_THREADS):
                kinds[label.pid, label.tid] = event_names.MIRROR
        return kinds

    @cached_property
    def communicates(self) -> Mask:
        """Whether each name is that of a kernel that communicates."""
        out = np.zeros(len(self.content.names), np.bool_)
        out[list(communicating_names(self.content.names))] = True
        return out

    @cached_property
    def on_device(self) -> Mask:
        """Whether each lane is a stream of a device."""
        return np.array([category in event_names.DEVICE_CATEGORIES for category in self.categories], np.bool_)

    @cached_property
    def tracks(self) -> list[tuple[bool, int, int]]:
        """Each thread and stream once: whether on a device, process or device, thread or stream."""
        return list(dict.fromkeys(key for key in self._lane_keys if key is not None))

    @cached_property
    def track_of_lane(self) -> npt.NDArray[np.int32]:
        """Row of `tracks` for each lane; -1 for lanes about the profiler itself."""
        index = {key: i for i, key in enumerate(self.tracks)}
        return np.array([-1 if key is None else index[key] for key in self._lane_keys], np.int32)

    @cached_property
    def track(self) -> npt.NDArray[np.int32]:
        """Row of `tracks` for each span."""
        lanes = self.content.code("lane")
        return self.track_of_lane[lanes] if len(lanes) else np.empty(0, np.int32)

    @cached_property
    def _lane_keys(self) -> list[tuple[bool, int, int] | None]:
        keys: list[tuple[bool, int, int] | None] = []
        for lane, category, device in zip(self.content.lanes, self.categories, self.on_device.tolist(), strict=True):
            placed = lane.pid is not None and lane.tid is not None and category not in event_names.PROFILER_CATEGORIES
            keys.append((device, lane.pid or 0, lane.tid or 0) if placed else None)
        return keys

    @cached_property
    def pids(self) -> list[int]:
        """Processes that ran operators, the one with the most lanes first."""
        lanes = list(zip(self.content.lanes, self.categories, self.on_device.tolist(), strict=True))
        operators = [lane.pid for lane, category, _ in lanes if category in ("cpu_op", "python_function")]
        hosts = operators or [lane.pid for lane, _, device in lanes if not device]
        counts = Counter(pid for pid in hosts if pid is not None and pid > 0)
        return [pid for pid, _ in sorted(counts.items(), key=lambda item: (-item[1], item[0]))]

    @cached_property
    def pid(self) -> int | None:
        """The id of the process."""
        return self.pids[0] if self.pids else None

    @cached_property
    def host(self) -> str:
        """The host; empty if unknown."""
        named = _HANDLER.match(self._name)
        told = named["host"] if named is not None and int(named["pid"]) in self.pids else ""
        return self.content.about.host or self.source.host or told

    @property
    def _name(self) -> str:
        return PurePosixPath(self.source.shown.replace("!", "/")).name

    @cached_property
    def bounds(self) -> tuple[int, int]:
        """Start of its first and end of its last span."""
        kept = self.track >= 0
        return (int(self.start[kept].min()), int(self.end[kept].max())) if kept.any() else (self.base_ns, self.base_ns)


def settle_clock_bases(windows: list[TraceWindow]) -> None:
    """Gives each window the base of its clock; a file without a base gets that of the others, as all ranks share
    one."""
    bases = Counter(w.content.about.base_ns for w in windows if w.content.about.base_ns is not None)
    usual = bases.most_common(1)[0][0] if bases else None
    for window in windows:
        base, starts = window.content.about.base_ns, window.content.column("start_ns")
        relative = starts.size > 0 and abs(int(starts.max())) < ABSOLUTE_NS
        window.base_ns = base if base is not None else usual if usual is not None and relative else 0
        if base is None and relative and starts.size:
            window.source.note = _NO_BASE if usual is None else _BORROWED_BASE


_NO_BASE = "the base of its clock is cut off: its times cannot be compared with other files"
_BORROWED_BASE = "the base of its clock is cut off: the base of the other traces is used"


# Kernels that communicate without a call of a process group: a table of the package, and a user's own of that form.

CATEGORY = "collective_comm"
"""Category of such kernels, as Kineto has it for devices that tell them apart."""
FORM = TableForm(
    "rankscope.features.traces.rows", "communication_kernels.tsv", "RANKSCOPE_KERNELS", "kernels",
    ("id", "library", "pattern", "source"), ("id", "pattern"),
)  # fmt: skip


class KernelPattern(NamedTuple):
    """Kernels of one library."""

    id: str
    library: str
    pattern: str
    """A regular expression of Rust's regex crate, which takes linear time for any pattern; searched in names."""
    source: str


@cache
def packaged_table() -> tuple[KernelPattern, ...]:
    """The table that comes with rankscope."""
    return _read(FORM.packaged_text(), FORM.file_name)


@cache
def _table_with(path: Path | None) -> tuple[tuple[KernelPattern, ...], str | None]:
    return with_users_rows(packaged_table(), read_table, path)


def current_table() -> tuple[tuple[KernelPattern, ...], str | None]:
    """The table of rankscope with the user's own, and why that cannot be read."""
    return _table_with(FORM.users_path())


def read_table(path: Path) -> tuple[KernelPattern, ...]:
    """A user's own table with the columns `id` and `pattern` at least. Raises TableError."""
    return _read(FORM.text_of(path), str(path))


def communicating_names(names: Sequence[str]) -> set[int]:
    """The places of names of kernels that communicate."""
    table, _ = current_table()
    pattern = "|".join(f"(?:{row.pattern})" for row in table)
    column = pl.Series(names, dtype=pl.String)
    return set(column.str.contains(pattern).fill_null(False).arg_true().to_list())


def _read(text: str, name: str) -> tuple[KernelPattern, ...]:
    found = []
    for place, values in FORM.rows(text, name):
        if checked_pattern(values["pattern"], place):
            raise TableError(f"{place}: pattern: it fits every name")
        found.append(KernelPattern(**values))
    return tuple(found)
