"""The logs of a job as rules read them: lines that matter to a verdict, their order, and the names of processes."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, TypeVar

import orjson
import polars as pl

from rankscope.analysis.facts import Facts
from rankscope.analysis.model import Culprit, Evidence, Finding, GroupRef
from rankscope.kinds.error_traits import GAVE_UP
from rankscope.kinds.event_kinds import BULK, EVENTS
from rankscope.schema import Dataset
from rankscope.text.wording import rank_ranges, ranks_text

_Read = TypeVar("_Read")

CLOCK_SKEW_NS = 2_000_000_000
"""Largest difference between clocks of hosts, and between the writers of one log."""
FEWEST_COMMS = 3
"""Fewest communicators that two hosts must share."""
SKEW_FACTOR = 4
"""Smallest ratio of the median difference to the spread of the differences."""
SKEW_FLOOR_NS = 1_000_000_000
"""Smallest difference that is told apart from timestamps in seconds and from the setup itself."""
MOST_HOSTS = 512
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

    def has(self, trait: str) -> bool:
        """Whether it is a known error with that trait."""
        return trait in (self.values.get("traits") or ())

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
        kind = {"gpu": "GPU", "switch": "NVSwitch", "port": "port", "pcie": "PCIe device"}.get(
            str(values.get("device")), ""
        )
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


@dataclass
class LogEvidence:
    """The logs of one job, and the findings that rules of logs build on."""

    facts: Facts
    place: Callable[[int], Culprit]
    """The culprit of a rank, with its host."""
    lines: Sequence[LogLine]
    """All lines that matter, without survived errors and steps."""
    survived: Sequence[LogLine]
    """Errors after which their processes went on."""
    moves: bool
    """Whether the job is watched and runs on: missing lines may still come."""
    dump_roots: Sequence[Finding]
    """Root causes that dumps show."""
    roots: Sequence[Finding] = ()
    """Root causes so far: those of dumps, joined with those of the stages of rules before this one."""
    _once: dict[Any, Any] = field(default_factory=dict)

    @property
    def dataset(self) -> Dataset:
        """The tables of the job."""
        return self.facts.dataset

    def is_cut(self, lines: Iterable[LogLine]) -> bool:
        """Whether the text of any of these lines lacks a part: what a rank printed there is not here."""
        files = self.cut_files
        return bool(files) and any(line.file in files for line in lines)

    @cached_property
    def cut_files(self) -> frozenset[int]:
        """The files whose text ends within a message, or says that a part of it was left out."""
        return frozenset(line.file for line in self.lines if line.kind == "text-cut")

    @property
    def world(self) -> int:
        """The number of ranks; 0 if unknown."""
        return self.dataset.world_size

    @cached_property
    def gave_up(self) -> dict[int, LogLine]:
        """By rank the first line that says that it gave up waiting."""
        return {line.rank: line for line in reversed(self.lines) if line.rank is not None and line.has(GAVE_UP)}

    @property
    def waited(self) -> bool:
        """Whether any process gave up waiting."""
        return any(line.has(GAVE_UP) for line in self.lines)

    @cached_property
    def covered(self) -> set[int]:
        """Ranks with a line of their own."""
        return {line.rank for line in self.lines if line.rank is not None and not EVENTS[line.kind].of_others}

    @cached_property
    def hurt(self) -> set[int | None]:
        """Ranks that lines show as victims, or waiting."""
        return {line.rank for line in self.lines if line.role == "victim" or EVENTS[line.kind].waited} - {None}

    def once(self, read: Callable[[LogEvidence], _Read]) -> _Read:
        """The result of a function that reads these logs, which is called once."""
        if read not in self._once:
            self._once[read] = read(self)
        known: _Read = self._once[read]
        return known

    def group(self, at: int | None) -> GroupRef | None:
        """The group in a row of `groups`, for a finding."""
        return None if at is None else group_ref(self.dataset, at)


def group_ref(dataset: Dataset, at: int) -> GroupRef:
    """The group in a row of `groups`, for a finding."""
    group = dataset.group_list[at]
    return GroupRef(group.name, group.description, group.ranks, key=group.id)


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
    messages = dataset.messages.sort("file", "offset", maintain_order=True)
    time = pl.col("time_ns")
    messages = messages.with_columns(
        since_ns=time.forward_fill().over("file"), until_ns=time.backward_fill().over("file")
    )
    paths = dict(dataset.files.select("file", "path").iter_rows())
    return [_line(row, paths) for row in messages.filter(wanted).iter_rows(named=True)]


def _line(row: dict[str, Any], paths: dict[int, str]) -> LogLine:
    values = _values(row["values"])
    host, pid, device = row["host"], row["pid"], None
    if (head := _HEAD.match(row["text"])) is not None:
        host, pid, device = host or head[1], int(head[2]) if pid is None else pid, int(head[3])
    elif row["rank"] is None and (gpu := _GPU.search(row["text"])) is not None:
        device = int(gpu[1])
    return LogLine(
        kind=row["kind"],
        role=row["role"] or "",
        pattern=row["pattern"] or "",
        rank=row["rank"],
        host=host or values.get("host"),
        pid=values.get("pid") if pid is None else pid,
        device=device,
        group=row["group"],
        file=row["file"],
        path=paths.get(row["file"], ""),
        line=row["line"] or 0,
        offset=row["offset"] or 0,
        time_ns=row["time_ns"],
        since_ns=row["since_ns"],
        until_ns=row["until_ns"],
        resolution_ns=row["resolution_ns"],
        text=row["text"] or "",
        values=values,
        torn=bool(row["torn"]),
    )


def _values(text: str | None) -> dict[str, Any]:
    try:
        found = orjson.loads(text or "{}")
    except orjson.JSONDecodeError:
        return {}
    return found if isinstance(found, dict) else {}


def with_ranks(lines: Sequence[LogLine]) -> list[LogLine]:
    """The lines, with the rank of their process if any line tells both."""
    named: defaultdict[tuple[str, int | None], set[int]] = defaultdict(set)
    for line in lines:
        if line.rank is not None and line.pid is not None:
            named[line.host or "", line.pid].add(line.rank)
            # without the host where the process number is unique
            named["", line.pid].add(line.rank)
    ranks = {process: of_process.pop() for process, of_process in named.items() if len(of_process) == 1}
    if not ranks:
        return list(lines)
    return [replace(line, rank=_rank_of(line, ranks)) if line.rank is None else line for line in lines]


def _rank_of(line: LogLine, ranks: Mapping[tuple[str, int | None], int]) -> int | None:
    if line.is_hardware or line.kind == "oom-kill" or line.pid is None:
        # numbers of a kernel count on its host only, and the assembly has looked them up
        return None if line.pid is None else ranks.get((line.host or "", line.pid))
    return ranks.get((line.host or "", line.pid), ranks.get(("", line.pid)))


def separate_errors(lines: Sequence[LogLine]) -> list[LogLine]:
    """Known errors but those whose lines an event of the same file reads whole."""
    whole = (line for line in lines if line.kind != "fingerprint-mismatch" or len(line.values["fingerprints"]) > 1)
    read = {(line.file, error) for line in whole for error in EVENTS[line.kind].known_errors}
    return [line for line in lines if line.pattern and (line.file, line.pattern) not in read]


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


def is_earlier(one: LogLine, other: LogLine) -> bool:
    """Whether one line is certainly older, as clocks of two hosts may differ."""
    if one.time_ns is None or other.time_ns is None:
        return False
    return one.time_ns + apart_ns(one, other) < other.time_ns


def same_zone(one: LogLine, other: LogLine) -> bool:
    """Whether times can be compared: of a kernel's log in UTC and a job's in local time the order is not known."""
    kernel = one.is_kernel or other.is_kernel
    return not kernel or one.file == other.file or bool(one.values.get("utc")) == bool(other.values.get("utc"))


@dataclass(frozen=True)
class HostClocks:
    """Known clock differences of hosts, from communicators: these become ready everywhere at the same time."""

    ahead: dict[tuple[str, str], int] = field(default_factory=dict)
    """By two hosts: nanoseconds that the first one's clock is ahead, if known and relevant."""
    seen: dict[tuple[str, str], int] = field(default_factory=dict)
    """By two hosts: number of communicators that show it."""
    hosts: dict[int, str] = field(default_factory=dict)
    """The host of each rank."""

    def host(self, line: LogLine) -> str | None:
        """The host that printed a line."""
        return line.host or (None if line.rank is None else self.hosts.get(line.rank))

    def skew(self, one: LogLine, other: LogLine) -> int:
        """Nanoseconds that the clock of one line is ahead of that of the other; 0 if unknown."""
        return self.ahead.get((self.host(one) or "", self.host(other) or ""), 0)

    def precedes(self, one: LogLine, other: LogLine, apart_ns: int = 0) -> bool:
        """Whether a line is older by `apart_ns`, on one clock."""
        ahead = self.skew(one, other)
        times = (one.time_ns, one.since_ns, one.until_ns)
        moved = [None if at is None else at - ahead for at in times]
        return precedes(replace(one, time_ns=moved[0], since_ns=moved[1], until_ns=moved[2]), other, apart_ns)


def read_clocks(dataset: Dataset) -> HostClocks:
    """The clock differences that communicators in logs show."""
    rows = dataset.comms.filter(
        (pl.col("identity") != "") & pl.col("completed_ns").is_not_null() & pl.col("host").is_not_null()
    )
    known = dataset.comms.drop_nulls(["rank", "host"]).unique("rank", keep="first").select("rank", "host")
    hosts: dict[int, str] = dict(known.iter_rows())
    names = rows["host"].unique()
    if not 1 < len(names) <= MOST_HOSTS:
        return HostClocks(hosts=hosts)
    ready = rows.group_by("identity", "host").agg(at=pl.col("completed_ns").median())
    pairs = ready.join(ready, on="identity", suffix="_b").filter(pl.col("host") != pl.col("host_b"))
    apart = pl.col("at") - pl.col("at_b")
    apart_hosts = pairs.group_by("host", "host_b").agg(
        ahead=apart.median(), spread=(apart - apart.median()).abs().median(), seen=pl.len()
    )
    sure = apart_hosts.filter(
        (pl.col("seen") >= FEWEST_COMMS)
        & (pl.col("ahead").abs() > SKEW_FLOOR_NS)
        & (pl.col("ahead").abs() > SKEW_FACTOR * pl.col("spread"))
    )
    both = {(a, b): (int(ahead), seen) for a, b, ahead, _, seen in sure.iter_rows()}
    return HostClocks({key: ahead for key, (ahead, _) in both.items()}, {key: n for key, (_, n) in both.items()}, hosts)


MOST_NAMED = 4
LONGEST_HOST = 24
MOST_TASKS = 1 << 16
UNKNOWN_PROCESS = "a process"


def culprits_of(lines: Sequence[LogLine], place: Callable[[int], Culprit]) -> tuple[Culprit, ...]:
    """Each process once as a culprit, ranks first; `place` adds the host of a rank."""
    ranks = sorted({line.rank for line in lines if line.rank is not None})
    known = [_placed(place(rank), next(line for line in lines if line.rank == rank)) for rank in ranks]
    unknown = {line.who: line for line in lines if line.rank is None}
    return (*known, *(Culprit(None, line.host, line.pid, _device(line)) for line in unknown.values()))


def who_text(lines: Sequence[LogLine]) -> str:
    """ "rank 3", "ranks 3,5", "process 4711 on node07 (GPU 3)", "a process"."""
    ranks = sorted({line.rank for line in lines if line.rank is not None})
    rest = list({line.who: _process(line) for line in lines if line.rank is None}.values())
    named = [name for name in rest if name != UNKNOWN_PROCESS]
    named = sorted(named) if all(name.startswith("[Rank ") for name in named) else named
    rest = named if named or ranks else rest[:1]
    more = [f"{len(rest) - MOST_NAMED} more"] if len(rest) > MOST_NAMED else []
    parts = [*([ranks_text(ranks)] if ranks else []), *rest[:MOST_NAMED], *more]
    return " and ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts)


def _placed(culprit: Culprit, line: LogLine) -> Culprit:
    return Culprit(culprit.rank, culprit.host or line.host, line.pid, culprit.device or _device(line))


def _device(line: LogLine) -> str | None:
    return None if line.device is None else f"GPU {line.device}"


_PLACES = re.compile(r"\[([A-Z_]+\d+(?: [A-Z_]+\d+)*)\]")
"""How SGLang names a process whose rank its places do not tell: `[DP1 TP2]`."""


def _process(line: LogLine) -> str:
    label = str(line.values.get("label") or "").strip(" :|")
    local = line.values.get("local_rank")
    beside = f" (local rank {local})" if local is not None else f" ({line.in_group})" if line.in_group else ""
    if not beside and (inner := _PLACES.search(label)) is not None:
        beside = f" ({inner[1]})"
    part = line.part if line.pid is None else ""
    unnumbered = line.in_group or part or _tasks(line)
    unnumbered = unnumbered or (f"the process of local rank {local}" if beside else UNKNOWN_PROCESS)
    if line.kind == "worker-died" and line.pid is None and line.values.get("name"):
        return str(line.values["name"])
    name = (
        f"process {line.pid}{beside}"
        if line.pid is not None
        else f"the process {places[1]}"
        if (places := _PLACES.fullmatch(label)) is not None
        else f"the process behind {label}"
        if label
        else unnumbered
    )
    short = line.host if line.host is None or len(line.host) <= LONGEST_HOST else f"{line.host[: LONGEST_HOST - 1]}…"
    host = f" on {short}" if short else ""
    return f"{name}{host}" + (f" (GPU {line.device})" if line.device is not None and not part else "")


def _tasks(line: LogLine) -> str:
    """ "task 5", "tasks 4-7" for what srun says of its tasks; "" for other lines."""
    ranges = line.values.get("tasks") or ()
    numbers = [number for first, last in ranges for number in range(first, min(last, first + MOST_TASKS) + 1)]
    return f"{'task' if len(numbers) == 1 else 'tasks'} {rank_ranges(numbers)}" if numbers else ""


_WORDS = {"cuda": "CUDA", "nccl": "NCCL", "gpu": "GPU", "ib": "IB", "ecc": "ECC", "xid": "Xid", "imex": "IMEX"}


_OUT_OF_MEMORY = re.compile(r"\b(?:HIP|NPU|XPU|MUSA|MPS) out of memory")
_XID = re.compile(
    r"NVRM: Xid \((?:PCI:)?([0-9A-Fa-f:.]{4,20})\): (\d{1,4})(?:.{0,200}caused by previous Xid (\d{1,4}))?"
)


_SIZES = re.compile(r"op\.preamble\.length <= op\.nbytes\. (\d{1,18}) vs (\d{1,18})")
"""The bytes that gloo received, and those that it expected."""
LONGEST_CHECK = 80
_CHECK = re.compile(rf"enforce fail at [^\]]{{1,300}}\] (.{{1,{LONGEST_CHECK}}})")
"""The condition of gloo that does not hold."""


def error_label(error: LogLine) -> str:
    """The name of a known error in the table, or the words of its id; with sizes or condition of a line of gloo."""
    name = str(error.values.get("title") or "") or " ".join(_WORDS.get(w, w) for w in error.pattern.split("-"))
    if error.pattern == "cuda-out-of-memory" and (device := _OUT_OF_MEMORY.search(error.text)) is not None:
        return device[0]
    if error.is_hardware and (xid := _XID.search(error.text)) is not None:
        after = f" after Xid {xid[3]}" if xid[3] else ""
        lost = f"{name}: " if error.pattern in ("gpu-lost", "ecc") else ""
        return f"{lost}Xid {xid[2]} of the GPU at {xid[1]}{after}, reported by the driver"
    if error.pattern == "gloo-size" and (sizes := _SIZES.search(error.text)) is not None:
        return f"{name}: {sizes[1]} bytes came, {sizes[2]} were expected"
    if error.pattern == "gloo-check" and (check := _CHECK.search(error.text)) is not None:
        return f"{name}: {check[1]}{'…' if len(check[1]) == LONGEST_CHECK else ''}"
    return name
