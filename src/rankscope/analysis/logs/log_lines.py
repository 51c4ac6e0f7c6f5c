"""Log lines that matter to a verdict, in a comparable order."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import orjson
import polars as pl

from rankscope.analysis.model import Evidence
from rankscope.kinds.event_kinds import BULK, EVENTS
from rankscope.schema import Dataset

TIMEOUT_PATTERNS = (
    "watchdog-timeout", "blocking-wait-timeout", "gloo-timeout", "store-wait", "store-id-timeout",
    "store-barrier-timeout", "hccl-timeout", "finalize-timeout", "engine-call-timeout",
)  # fmt: skip
"""Known errors of ranks that waited until they gave up."""
CLOCK_SKEW_NS = 2_000_000_000
"""Largest difference between clocks of hosts, and between the writers of one log."""
LONGEST_TEXT = 300
LONGEST_PATH = 32
_HEAD = re.compile(r"^(?:\[[^\]]{1,40}\] )?([^\s:]{1,255}):(\d{1,10}):\d{1,10} \[(\d{1,4})\] ")
_GPU = re.compile(r"\bGPU (\d{1,3})\b")


@dataclass(frozen=True, slots=True)
class LogLine:
    """One line of a log, or one event of several lines at its first line."""

    kind: str
    role: str
    pattern: str
    rank: int | None
    host: str | None
    pid: int | None
    device: int | None
    group: int | None
    """Row of `Dataset.groups`."""
    file: int
    path: str
    line: int
    offset: int
    time_ns: int | None
    """As printed."""
    since_ns: int | None
    """As printed, or the time of the last earlier line in the file with one: a lower limit."""
    until_ns: int | None
    """As printed, or the time of the next line in the file with one: an upper limit."""
    resolution_ns: int | None
    text: str
    values: dict[str, Any]
    torn: bool

    @property
    def who(self) -> tuple[int | None, str, int | None, str]:
        """Identity of the process: the rank if it is known, else host, process and launcher's prefix."""
        if self.rank is not None:
            return self.rank, "", None, ""
        if self.pid is not None:
            return None, self.host or "", self.pid, ""
        return None, self.host or "", None, str(self.values.get("label") or self.in_group or self.part)

    @property
    def in_group(self) -> str:
        """ "[Rank 3]": the name of an otherwise unknown process by its rank in some group; else ""."""
        rank = self.values.get("rank_in_group")
        return f"[Rank {rank}]" if isinstance(rank, int) and not EVENTS[self.kind].is_exception else ""

    @property
    def is_hardware(self) -> bool:
        """Whether a kernel, a driver or a tool tells of hardware there."""
        return "fatal" in self.values

    @property
    def is_kernel(self) -> bool:
        """Whether the kernel of a host, or a tool, tells of hardware or of a killed process there."""
        return self.is_hardware or self.kind == "oom-kill" or "oom-kill" in (self.values.get("kinds") or ())

    @property
    def part(self) -> str:
        """The device that a line about hardware names: "the GPU at 0000:5d:00"; else ""."""
        values = self.values
        kind = {"gpu": "GPU", "switch": "NVSwitch", "port": "port"}.get(str(values.get("device")), "")
        if not self.is_hardware or not kind:
            return ""
        if values.get("bus"):
            return f"the {kind} at {str(values['bus']).removesuffix('.0')}"
        number = values.get("port") if values.get("port") is not None else values.get("gpu")
        return f"{kind} {number}" if number is not None else f"a {kind}"

    @property
    def place(self) -> str:
        """ "train.log:812"; a long path is cut to its end."""
        return f"{short_path(self.path)}:{self.line}"

    def evidence(self, text: str = "") -> Evidence:
        """The line as evidence; with its own words unless `text` is given."""
        words = text or (self.text if len(self.text) <= LONGEST_TEXT else f"{self.text[:LONGEST_TEXT]}…")
        return Evidence(words, file=self.path or None, rank=self.rank, line=self.line, time_ns=self.time_ns)


def short_path(path: str) -> str:
    """A path for a title: its end if it is long."""
    name = path if len(path) <= LONGEST_PATH else path.replace("!", "/").rsplit("/", 1)[-1]
    return name if len(name) <= LONGEST_PATH else f"…{name[1 - LONGEST_PATH :]}"


def read_lines(dataset: Dataset) -> list[LogLine]:
    """All lines but bulk and noise, sorted by file and place in it."""
    if dataset.messages.is_empty():
        return []
    return _lines(dataset, ~pl.col("kind").is_in(BULK) & (pl.col("role") != "noise"))


def read_noise(dataset: Dataset) -> list[LogLine]:
    """The first line of each kind of noise in each file, with the `ranks` of all."""
    return _lines(dataset, pl.col("role") == "noise")


def _lines(dataset: Dataset, wanted: pl.Expr) -> list[LogLine]:
    told = dataset.messages.sort("file", "offset", maintain_order=True)
    time = pl.col("time_ns")
    told = told.with_columns(since_ns=time.forward_fill().over("file"), until_ns=time.backward_fill().over("file"))
    paths = dict(dataset.files.select("file", "path").iter_rows())
    return [_line(row, paths) for row in told.filter(wanted).iter_rows(named=True)]


def _line(row: dict[str, Any], paths: dict[int, str]) -> LogLine:
    values = _values(row["values"])
    host, pid, device = row["host"], row["pid"], None
    if (head := _HEAD.match(row["text"])) is not None:
        host, pid, device = host or head[1], int(head[2]) if pid is None else pid, int(head[3])
    elif row["rank"] is None and (gpu := _GPU.search(row["text"])) is not None:
        device = int(gpu[1])
    return LogLine(
        kind=row["kind"], role=row["role"] or "", pattern=row["pattern"] or "", rank=row["rank"],
        host=host or values.get("host"), pid=values.get("pid") if pid is None else pid, device=device,
        group=row["group"], file=row["file"], path=paths.get(row["file"], ""), line=row["line"] or 0,
        offset=row["offset"] or 0, time_ns=row["time_ns"], since_ns=row["since_ns"],
        until_ns=row["until_ns"], resolution_ns=row["resolution_ns"], text=row["text"] or "",
        values=values, torn=bool(row["torn"]),
    )  # fmt: skip


def _values(text: str | None) -> dict[str, Any]:
    try:
        found = orjson.loads(text or "{}")
    except orjson.JSONDecodeError:
        return {}
    return found if isinstance(found, dict) else {}


def earliest_line(own: Sequence[LogLine]) -> LogLine:
    """The first line in time; of lines without a time the first in its file."""
    return min(own, key=lambda line: (line.since_ns is None, line.since_ns or 0, line.file, line.offset))


def ranks_of(lines: Iterable[LogLine]) -> tuple[int, ...]:
    """The known ranks of these lines, sorted."""
    return tuple(sorted({line.rank for line in lines if line.rank is not None}))


def apart_ns(one: LogLine, other: LogLine) -> int:
    """The largest clock difference of two lines; 0 for the same host."""
    return 0 if one.host and one.host == other.host else CLOCK_SKEW_NS


def precedes(one: LogLine, other: LogLine, apart_ns: int = 0) -> bool:
    """Whether a line is proven to be older: by its place in the same file, or by a time difference above `apart_ns`."""
    if one.file == other.file:
        return one.offset < other.offset
    if one.until_ns is None or other.since_ns is None:
        return False
    return one.until_ns + apart_ns < other.since_ns
