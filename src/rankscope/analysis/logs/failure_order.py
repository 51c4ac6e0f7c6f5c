"""Order of several failures, as far as places and times of lines tell."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace

import polars as pl

from rankscope.analysis.logs.failures import Failure
from rankscope.analysis.logs.log_lines import CLOCK_SKEW_NS, TIMEOUT_PATTERNS, LogLine, precedes
from rankscope.analysis.model import Confidence
from rankscope.kinds.event_kinds import EVENTS
from rankscope.schema import Dataset
from rankscope.text.wording import duration


@dataclass(frozen=True)
class FirstFailures:
    """The first failures of a job."""

    failures: tuple[Failure, ...]
    """Failures of one cause, the first in front; empty if all of them followed from something else."""
    later: tuple[Failure, ...] = ()
    """Own failures after the first ones, or after ranks had given up waiting."""
    rivals: tuple[Failure, ...] = ()
    """Those of `later` that may have been first."""
    confidence: Confidence = "high"
    reasons: tuple[str, ...] = ()


def find_first(
    failures: Sequence[Failure], lines: Sequence[LogLine], alive: Collection[int] = (), clocks: HostClocks | None = None
) -> FirstFailures:
    """The earliest failure, with those of the same cause; `alive` are ranks that dumps show waiting for another.

    Times are taken as printed. Known clock differences only reduce the blame and the confidence.
    """
    clocks = clocks or HostClocks()
    gave_up, went_on = _first_timeouts(lines), _last_timeouts(lines)
    late = [
        f for f in failures
        if f.rank in alive or _went_on(f.line, went_on.get(f.line.who, ()))
        or any(t.who != f.line.who and _before(t, f.line, clocks) and same_zone(t, f.line) for t in gave_up)
    ]  # fmt: skip
    early = [f for f in failures if f not in late]
    if not early:
        return FirstFailures((), tuple(late))
    strongest = max(f.strength for f in early)
    heads = [f for f in early if not any(precedes(o.line, f.line) for o in early)]
    heads = [f for f in heads if f.strength == strongest] or heads
    heads.sort(key=lambda f: (f.line.time_ns is None, f.line.time_ns or 0, f.line.file, f.line.offset))
    chosen, reasons, confidence = _chosen(heads, lines)
    marks = {f.mark for f in chosen}
    same = [f for f in early if f not in chosen and any(_alike(f.mark, mark) for mark in marks)]
    rest = [f for f in early if f not in chosen and f not in same]
    rivals = [f for f in rest if f in heads or _close(chosen[0], f)]
    if rivals and confidence == "high":
        confidence, reasons = "medium", (*reasons, _close_text(chosen[0], rivals[0]))
    if chosen and (earlier := [f for f in rest if _earlier(f.line, chosen[0].line, clocks)]):
        confidence, reasons = "low", (*reasons, _clocks_text(earlier[0], chosen[0], clocks))
        rivals += [f for f in earlier if f not in rivals]
    return FirstFailures((*chosen, *same), (*rest, *late), tuple(rivals), confidence, reasons)


def same_zone(one: LogLine, other: LogLine) -> bool:
    """Whether times can be compared: of a kernel's log in UTC and a job's in local time the order is not known."""
    kernel = one.is_kernel or other.is_kernel
    return not kernel or one.file == other.file or bool(one.values.get("utc")) == bool(other.values.get("utc"))


def _went_on(line: LogLine, timeouts: Sequence[LogLine]) -> bool:
    """Whether its process went on after a line; the watchdog of a lost GPU still gives up."""
    return not line.is_hardware and any(precedes(line, timeout) for timeout in timeouts)


def _chosen(heads: list[Failure], lines: Sequence[LogLine]) -> tuple[list[Failure], tuple[str, ...], Confidence]:
    """(failures, reasons, confidence) among failures of which none is proven to be older than another."""
    if len({f.mark for f in heads}) == 1:
        return heads, (), "high"
    timed = [f for f in heads if f.line.time_ns is not None]
    if len(timed) == len(heads):
        return heads[:1], (), "high"
    told = {line.rank for line in lines if line.kind == "torchrun-failure" and line.values.get("first")}
    first = [f for f in heads if f.rank is not None and f.rank in told]
    if len(first) == 1:
        return first, ("only torchrun shows which of them ended first; their lines have no times",), "medium"
    return heads, ("their order is not known: their lines have no times",), "low"


def _close(first: Failure, other: Failure) -> bool:
    """Whether clocks may reverse the order of two failures of different files."""
    one, two = first.line, other.line
    if one.file == two.file or one.time_ns is None or two.time_ns is None:
        return False
    return abs(two.time_ns - one.time_ns) <= max(CLOCK_SKEW_NS, one.resolution_ns or 0, two.resolution_ns or 0)


def _alike(one: tuple[str, str], other: tuple[str, str]) -> bool:
    """Whether two failures have one cause; the place of the failure is known only for tracebacks."""
    return one[0] == other[0] and (one[1] == other[1] or not one[1] or not other[1])


def _before(one: LogLine, other: LogLine, clocks: HostClocks) -> bool:
    """Whether a line is older by far, as printed or on one clock."""
    return precedes(one, other, CLOCK_SKEW_NS) or clocks.precedes(one, other, CLOCK_SKEW_NS)


def _earlier(one: LogLine, other: LogLine, clocks: HostClocks) -> bool:
    """Whether a line is older on one clock, although not as printed."""
    return one.file != other.file and clocks.skew(one, other) != 0 and clocks.precedes(one, other)


def _clocks_text(rival: Failure, first: Failure, clocks: HostClocks) -> str:
    ahead = clocks.skew(rival.line, first.line)
    one, other = clocks.host(rival.line), clocks.host(first.line)
    fast, slow = (one, other) if ahead > 0 else (other, one)
    who = f"rank {rival.rank}" if rival.rank is not None else "another process"
    seen = clocks.seen[one or "", other or ""]
    return (
        f"{who} may have failed first: the clock of {fast} is {duration(abs(ahead))} ahead of that of {slow}, by "
        f"{seen} communicators that both set up"
    )


def _close_text(first: Failure, rival: Failure) -> str:
    who = f"rank {rival.rank}" if rival.rank is not None else "another process"
    if rival.line.host and rival.line.host == first.line.host and rival.line.resolution_ns == 1:
        return f"{who} failed within moments of it"
    coarse = rival.line.resolution_ns is not None and rival.line.resolution_ns >= 10**9
    why = "times are only to the second" if coarse else f"clocks of hosts may be {duration(CLOCK_SKEW_NS)} apart"
    return f"{who} failed within moments of it, and {why}"


def _last_timeouts(lines: Sequence[LogLine]) -> dict[object, list[LogLine]]:
    """By process the last lines of a timeout; earlier lines did not end it."""
    found: dict[object, dict[int, LogLine]] = {}
    for line in lines:
        if line.rank is not None and line.pattern == "watchdog-timeout":
            found.setdefault(line.who, {})[line.file] = line
    return {who: list(of_file.values()) for who, of_file in found.items()}


def _first_timeouts(lines: Sequence[LogLine]) -> list[LogLine]:
    """By file and process the first line of a timeout."""
    found: dict[tuple[int, object], LogLine] = {}
    for line in lines:
        if line.pattern in TIMEOUT_PATTERNS or EVENTS[line.kind].gave_up:
            found.setdefault((line.file, line.who), line)
    # for thousands of ranks: the first one of a file, and of another process, suffices
    first: dict[int, list[LogLine]] = {}
    for (file, _), line in found.items():
        if len(first.setdefault(file, [])) < 2:
            first[file].append(line)
    return [line for of_file in first.values() for line in of_file]


# Clock differences of hosts, from communicators, which become ready everywhere at the same time.

FEWEST_COMMS = 3
"""Fewest communicators that two hosts must share."""
SKEW_FACTOR = 4
"""Smallest ratio of the median difference to the spread of the differences."""
SKEW_FLOOR_NS = 1_000_000_000
"""Smallest difference that is told apart from timestamps in seconds and from the setup itself."""
MOST_HOSTS = 512


@dataclass(frozen=True)
class HostClocks:
    """Known clock differences of hosts."""

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
    told = pairs.group_by("host", "host_b").agg(
        ahead=apart.median(), spread=(apart - apart.median()).abs().median(), seen=pl.len()
    )
    sure = told.filter(
        (pl.col("seen") >= FEWEST_COMMS)
        & (pl.col("ahead").abs() > SKEW_FLOOR_NS)
        & (pl.col("ahead").abs() > SKEW_FACTOR * pl.col("spread"))
    )
    both = {(a, b): (int(ahead), seen) for a, b, ahead, _, seen in sure.iter_rows()}
    return HostClocks({key: ahead for key, (ahead, _) in both.items()}, {key: n for key, (_, n) in both.items()}, hosts)
