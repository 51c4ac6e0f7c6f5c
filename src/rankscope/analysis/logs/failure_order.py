"""Which of several failures came first, as far as the places and times of lines can tell."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace

import polars as pl

from rankscope.analysis.logs.failures import Failure
from rankscope.analysis.logs.log_lines import CLOCKS_NS, TIMEOUTS, Line, precedes
from rankscope.analysis.model import Confidence
from rankscope.kinds.event_kinds import EVENTS
from rankscope.schema import Dataset
from rankscope.text.wording import duration


@dataclass(frozen=True)
class First:
    """The failures that began it."""

    failures: tuple[Failure, ...]
    """Of one cause, the first in front; empty if all of them followed from something else."""
    later: tuple[Failure, ...] = ()
    """Own failures, but after the first ones or after ranks had given up waiting."""
    rivals: tuple[Failure, ...] = ()
    """Those of `later` that may have been first."""
    confidence: Confidence = "high"
    reasons: tuple[str, ...] = ()


def find_first(
    failures: Sequence[Failure], lines: Sequence[Line], alive: Collection[int] = (), clocks: Clocks | None = None
) -> First:
    """The earliest failure, with those of the same cause; `alive` are ranks that dumps show waiting for another.

    Times are taken as printed. What is known of clocks only takes away from who is blamed, and how surely.
    """
    clocks = clocks or Clocks()
    gave_up, went_on = _first_timeouts(lines), _last_timeouts(lines)
    late = [
        f for f in failures
        if f.rank in alive or any(precedes(f.line, t) for t in went_on.get(f.line.who, ()))
        or any(t.who != f.line.who and _before(t, f.line, clocks) for t in gave_up)
    ]  # fmt: skip
    early = [f for f in failures if f not in late]
    if not early:
        return First((), tuple(late))
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
    return First((*chosen, *same), (*rest, *late), tuple(rivals), confidence, reasons)


def _chosen(heads: list[Failure], lines: Sequence[Line]) -> tuple[list[Failure], tuple[str, ...], Confidence]:
    """(failures, reasons, confidence) among those of which none is proven to be older than another."""
    if len({f.mark for f in heads}) == 1:
        return heads, (), "high"
    timed = [f for f in heads if f.line.time_ns is not None]
    if len(timed) == len(heads):
        return heads[:1], (), "high"
    told = {line.rank for line in lines if line.kind == "torchrun-failure" and line.values.get("first")}
    first = [f for f in heads if f.rank is not None and f.rank in told]
    if len(first) == 1:
        return first, ("only torchrun tells which of them ended first; their lines have no times",), "medium"
    return heads, ("which of them came first cannot be told: their lines have no times",), "low"


def _close(first: Failure, other: Failure) -> bool:
    """Whether clocks may have put two failures of different files in the wrong order."""
    one, two = first.line, other.line
    if one.file == two.file or one.time_ns is None or two.time_ns is None:
        return False
    return abs(two.time_ns - one.time_ns) <= max(CLOCKS_NS, one.resolution_ns or 0, two.resolution_ns or 0)


def _alike(one: tuple[str, str], other: tuple[str, str]) -> bool:
    """Whether two failures are of one cause: where, only a traceback tells."""
    return one[0] == other[0] and (one[1] == other[1] or not one[1] or not other[1])


def _before(one: Line, other: Line, clocks: Clocks) -> bool:
    """Whether a line is older by far, as printed or on one clock."""
    return precedes(one, other, CLOCKS_NS) or clocks.precedes(one, other, CLOCKS_NS)


def _earlier(one: Line, other: Line, clocks: Clocks) -> bool:
    """Whether a line is older if both are put on one clock, though it does not look so as printed."""
    return one.file != other.file and clocks.skew(one, other) != 0 and clocks.precedes(one, other)


def _clocks_text(rival: Failure, first: Failure, clocks: Clocks) -> str:
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
    why = "times are only to the second" if coarse else f"clocks of hosts may be {duration(CLOCKS_NS)} apart"
    return f"{who} failed within moments of it, and {why}"


def _last_timeouts(lines: Sequence[Line]) -> dict[object, list[Line]]:
    """By process the last lines in which it gave up waiting: what it printed before had not ended it."""
    found: dict[object, dict[int, Line]] = {}
    for line in lines:
        if line.rank is not None and line.pattern == "watchdog-timeout":
            found.setdefault(line.who, {})[line.file] = line
    return {who: list(of_file.values()) for who, of_file in found.items()}


def _first_timeouts(lines: Sequence[Line]) -> list[Line]:
    """Of each file and process the first line in which it gave up waiting."""
    found: dict[tuple[int, object], Line] = {}
    for line in lines:
        if line.pattern in TIMEOUTS or EVENTS[line.kind].gave_up:
            found.setdefault((line.file, line.who), line)
    # a job of thousands of ranks: the first of a file, and of another process, is enough
    first: dict[int, list[Line]] = {}
    for (file, _), line in found.items():
        if len(first.setdefault(file, [])) < 2:
            first[file].append(line)
    return [line for of_file in first.values() for line in of_file]


# How far the clocks of hosts are apart, by communicators that they set up: each is ready everywhere at once.

LEAST = 3
"""So many communicators must two hosts have in common."""
SPREAD = 4
"""The middle of what they say must be so many times what they differ by among themselves."""
SMALL_NS = 1_000_000_000
"""Less is not told from what a second-resolution time and the setting up itself differ by."""
MOST_HOSTS = 512


@dataclass(frozen=True)
class Clocks:
    """What is known of them."""

    ahead: dict[tuple[str, str], int] = field(default_factory=dict)
    """By two hosts: how many ns the first one's clock is ahead of the other's, where that is known and matters."""
    seen: dict[tuple[str, str], int] = field(default_factory=dict)
    """By how many communicators."""
    hosts: dict[int, str] = field(default_factory=dict)
    """The host of each rank."""

    def host(self, line: Line) -> str | None:
        """Where a line was printed."""
        return line.host or (None if line.rank is None else self.hosts.get(line.rank))

    def skew(self, one: Line, other: Line) -> int:
        """By how many ns the clock behind one line is ahead of that behind another; 0 where nothing is known."""
        return self.ahead.get((self.host(one) or "", self.host(other) or ""), 0)

    def precedes(self, one: Line, other: Line, apart_ns: int = 0) -> bool:
        """Whether a line is older, if both are put on one clock."""
        ahead = self.skew(one, other)
        times = (one.time_ns, one.since_ns, one.until_ns)
        moved = [None if at is None else at - ahead for at in times]
        return precedes(replace(one, time_ns=moved[0], since_ns=moved[1], until_ns=moved[2]), other, apart_ns)


def read_clocks(dataset: Dataset) -> Clocks:
    """What the communicators of logs tell."""
    rows = dataset.comms.filter(
        (pl.col("identity") != "") & pl.col("completed_ns").is_not_null() & pl.col("host").is_not_null()
    )
    known = dataset.comms.drop_nulls(["rank", "host"]).unique("rank", keep="first").select("rank", "host")
    hosts: dict[int, str] = dict(known.iter_rows())
    names = rows["host"].unique()
    if not 1 < len(names) <= MOST_HOSTS:
        return Clocks(hosts=hosts)
    ready = rows.group_by("identity", "host").agg(at=pl.col("completed_ns").median())
    pairs = ready.join(ready, on="identity", suffix="_b").filter(pl.col("host") != pl.col("host_b"))
    apart = pl.col("at") - pl.col("at_b")
    told = pairs.group_by("host", "host_b").agg(
        ahead=apart.median(), spread=(apart - apart.median()).abs().median(), seen=pl.len()
    )
    sure = told.filter(
        (pl.col("seen") >= LEAST)
        & (pl.col("ahead").abs() > SMALL_NS)
        & (pl.col("ahead").abs() > SPREAD * pl.col("spread"))
    )
    both = {(a, b): (int(ahead), seen) for a, b, ahead, _, seen in sure.iter_rows()}
    return Clocks({key: ahead for key, (ahead, _) in both.items()}, {key: n for key, (_, n) in both.items()}, hosts)
