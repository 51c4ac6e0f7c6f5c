"""Order of several failures, as far as places and times of lines tell, and `rank-failed` of the first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace

import polars as pl

from rankscope.analysis.model import Confidence, Culprit, Evidence, Finding
from rankscope.features.logs.rules.failures import Failure
from rankscope.features.logs.rules.log_lines import (
    CLOCK_SKEW_NS,
    LogLine,
    culprits_of,
    precedes,
    ranks_of,
    who_text,
)
from rankscope.kinds.error_traits import GAVE_UP
from rankscope.kinds.event_kinds import EVENTS
from rankscope.schema import Dataset
from rankscope.text.wording import duration, plural


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
        if line.has(GAVE_UP) or EVENTS[line.kind].gave_up:
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


MOST_CULPRITS = 8
MOST_WITNESSES = 3
MOST_LATER = 4
LONGEST_QUOTE = 160


def failed_finding(
    first: FirstFailures, lines: Sequence[LogLine], place: Callable[[int], Culprit], guessed: frozenset[int], world: int
) -> Finding | None:
    """The root cause; None if nobody failed by itself. `guessed` are files whose rank is a guess."""
    if not first.failures:
        return None
    chief, own = first.failures[0], [f.line for f in first.failures]
    ranks = ranks_of(own)
    harmed = harmed_ranks(lines, ranks)
    confidence, reasons = _sure(first, guessed)
    people = who_text(own)
    people = f"all {world} ranks" if world > 1 and len(ranks) == world else people
    return Finding(
        kind="rank-failed",
        severity="critical",
        title=f"{people} failed: {chief.what} ({chief.line.place})",
        explanation=_explained(first, people),
        root_cause=True,
        culprit_ranks=ranks,
        culprits=culprits_of(own, place),
        candidates=tuple(sorted({f.rank for f in first.rivals if f.rank is not None})),
        waiting_ranks=harmed,
        blast_radius=len(harmed),
        confidence=confidence,
        confidence_reasons=reasons,
        stack=chief.frames,
        evidence=(*_accused(first.failures), *_ends(lines, ranks), *_harm(lines, chief.line)),
        counter_evidence=tuple(
            f.line.evidence(f"{who_text([f.line])} failed too: {f.what}") for f in first.rivals[:MOST_LATER]
        ),
        next_steps=_steps(chief, people),
    )


def late_finding(first: FirstFailures, place: Callable[[int], Culprit]) -> Finding | None:
    """A finding on failures that came after others: worth knowing, but no cause."""
    if not first.later:
        return None
    own = [f.line for f in first.later]
    return Finding(
        kind="rank-failed",
        severity="warning" if not first.failures else "info",
        title=f"{who_text(own)} failed too: {first.later[0].what} ({first.later[0].line.place})",
        explanation=(
            "These failures came after another one, after ranks had given up waiting, or on ranks that went on: "
            "they are no cause."
        ),
        culprit_ranks=ranks_of(own),
        culprits=culprits_of(own, place),
        evidence=_accused(first.later),
        stack=first.later[0].frames,
    )


def harmed_ranks(lines: Sequence[LogLine], without: Sequence[int]) -> tuple[int, ...]:
    """Ranks that wait, gave up or were taken down, by their lines."""
    ended = (-15, -6, -9)
    found = {
        line.rank
        for line in lines
        if line.rank is not None
        and (
            line.role == "victim" or EVENTS[line.kind].by_watchdog
            or (line.kind == "torchrun-failure" and line.values.get("exitcode") in ended)
        )
    }  # fmt: skip
    return tuple(sorted(found - set(without)))


def _explained(first: FirstFailures, people: str) -> str:
    chief = first.failures[0]
    text = f"The first failure that the logs hold is of {people}: {chief.what}"
    if chief.frames:
        at = chief.frames[0]
        text += f", raised in {at.function} ({at.file}:{at.line})"
    text += f". {chief.meaning}" if chief.meaning else "."
    joined = [told["text"] for f in first.failures[:MOST_CULPRITS] if (told := f.line.values.get("joined"))]
    return f"{text} {'; '.join(t[0].upper() + t[1:] for t in dict.fromkeys(joined))}." if joined else text


def _sure(first: FirstFailures, guessed: frozenset[int]) -> tuple[Confidence, tuple[str, ...]]:
    chief = first.failures[0]
    confidence, reasons = first.confidence, list(first.reasons)
    doubts = [
        (chief.rank is None, "the log does not say which rank it is"),
        (chief.rank is not None and chief.line.file in guessed, "the rank of the log is a guess"),
        (chief.mixed, "tracebacks of several processes are mixed there"),
        (chief.line.torn, "the log is torn there"),
        (chief.strength == 1, "the logs do not show why it was killed"),
        (bool(chief.line.values.get("doubt")), str(chief.line.values.get("doubt") or "")),
        (_timeless(chief.line), "the line has no time: it may be older than the job"),
    ]
    for holds, reason in doubts:
        if holds:
            confidence = "medium" if confidence == "high" else confidence
            reasons.append(reason)
    return confidence, tuple(reasons)


def _accused(failures: Sequence[Failure]) -> tuple[Evidence, ...]:
    """The lines of failures, and those that tell whose process or device they are about."""
    own = failures[:MOST_CULPRITS]
    joined = {told["text"]: told for f in own if (told := f.line.values.get("joined"))}
    return (
        *(f.line.evidence() for f in own),
        *(Evidence(text, file=told["file"], line=told["line"]) for text, told in joined.items()),
    )


def _timeless(line: LogLine) -> bool:
    """Whether a line about hardware has no time, as a kernel's log that counts from the start of the host."""
    return line.is_kernel and line.since_ns is None and line.until_ns is None


def _ends(lines: Sequence[LogLine], ranks: Sequence[int]) -> list[Evidence]:
    """The ends of these ranks as the launcher saw them, and the rank that it takes for the root cause."""
    told = [line for line in lines if line.kind == "torchrun-failure"]
    own = [line.evidence() for line in told if line.rank in ranks][:MOST_CULPRITS]
    others = [line for line in told if line.values.get("first") and line.rank not in ranks]
    return own + [
        line.evidence(f"torchrun calls rank {line.rank} the root cause: it is only the first that ended")
        for line in others[:1]
    ]


def _harm(lines: Sequence[LogLine], chief: LogLine) -> list[Evidence]:
    """The first lines of other processes that only show harm, one of each kind."""
    kinds = Counter(line.pattern for line in lines if line.role == "victim")
    out = []
    for pattern, count in kinds.most_common(MOST_WITNESSES):
        shown = next(line for line in lines if line.pattern == pattern and line.role == "victim")
        when = (
            "printed before it, but only harm" if shown.file == chief.file and shown.offset < chief.offset else "harm"
        )
        out.append(shown.evidence(f"{when} ({plural(count, 'line')}): {_cut(shown.text)}"))
    return out


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST_QUOTE else f"{text[: LONGEST_QUOTE - 1]}…"


def _steps(chief: Failure, people: str) -> tuple[str, ...]:
    steps = [chief.advice] if chief.advice else []
    if chief.frames:
        steps.append(f"Read the traceback at {chief.line.place}.")
    elif not steps:
        steps.append(f"Read what {people} printed before {chief.line.place}.")
    return tuple(steps)
