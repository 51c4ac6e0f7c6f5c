"""Lines that are no proven cause: broken hardware, by NCCL's own check, kernels and tools; survived errors."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import polars as pl

from rankscope.analysis.model import Culprit, Finding
from rankscope.features.logs.rules.failure_order import same_zone
from rankscope.features.logs.rules.failures import Failure, cut_text, find_tracebacks
from rankscope.features.logs.rules.log_lines import (
    CLOCK_SKEW_NS,
    LogLine,
    culprits_of,
    earliest_line,
    error_label,
    ranks_of,
    who_text,
)
from rankscope.kinds.event_kinds import EVENTS
from rankscope.schema import Dataset
from rankscope.text.wording import duration, plural, ranks_text

MOST_EVIDENCE = 8
MOST_TOLD = 3
MOST_RANKS = 1 << 20
_COMM_SUFFIX = re.compile(r"\s*(?:\bacross \d+ ranks)?(?: in comm 0x[0-9a-fA-F]+)?(?= for |,|$)")


def find_diagnosed(lines: Sequence[LogLine], world: int) -> list[Finding]:
    """At most one finding for faults and one for differences. A check tells of the hardware, not of a job's failure.

    `world` is the number of ranks of the job, 0 if unknown.
    """
    own = [line for line in lines if line.kind == "nccl-diagnosis"]
    faults = [line for line in own if line.values.get("what") == "fault"]
    differs = [line for line in own if line.values.get("what") == "differs"]
    whole = max([world, *(line.values.get("size") or 0 for line in own)])
    comms = {line.values.get("comm"): line.values["size"] for line in own if line.values.get("size")}
    found = [_faults(faults, comms, whole)] if faults else []
    return found + ([_differing(differs)] if differs else [])


def _faults(own: Sequence[LogLine], comms: dict[str | None, int], whole: int) -> Finding:
    by_rank: defaultdict[int, list[LogLine]] = defaultdict(list)
    for line in own:
        for rank in _ranks(line):
            by_rank[rank].append(line)
    # the ranks of a communicator of a part of the job are unknown
    global_ = all(comms.get(line.values.get("comm")) == whole for line in own if line.values.get("ranks"))
    ranks = tuple(sorted(by_rank))
    told = by_rank[ranks[0]] if len(ranks) == 1 else own
    what = "; ".join(_short(line) for line in told[:MOST_TOLD]) + (
        f"; and {len(told) - MOST_TOLD} more" if told[MOST_TOLD:] else ""
    )
    who = ranks_text(ranks) if ranks else "the hardware"
    inside = " of a communicator" if ranks and not global_ else ""
    return Finding(
        kind="known-error",
        severity="warning",
        title=f"NCCL's own check finds faults of {who}{inside}: {cut_text(what)} ({own[0].place})",
        explanation=f"{what}. The check looks at devices, links and bandwidth; it does not say that the job failed.",
        candidates=ranks if global_ else (),
        confidence="low",
        confidence_reasons=("the logs do not show whether the job failed because of it",),
        evidence=tuple(line.evidence() for line in own[:MOST_EVIDENCE]),
        next_steps=(f"Check the device and the links of {who}: nvidia-smi -q -d ECC, nvidia-smi nvlink -s, dmesg.",),
    )


def _differing(own: Sequence[LogLine]) -> Finding:
    versions = all("version" in line.text for line in own)
    return Finding(
        kind="version-mismatch" if versions else "settings-mismatch",
        severity="warning",
        title="NCCL's own check finds values that should agree and do not: "
        f"{cut_text('; '.join(map(_short, own[:MOST_TOLD])))} ({own[0].place})",
        explanation="; ".join(map(_short, own[:MOST_EVIDENCE])) + ".",
        confidence="medium",
        confidence_reasons=("the check does not say which side is right",),
        evidence=tuple(line.evidence() for line in own[:MOST_EVIDENCE]),
        next_steps=("Use one driver, one image and one environment on all nodes.",),
    )


def _ranks(line: LogLine) -> list[int]:
    ranges = line.values.get("ranks") or ([[line.rank, line.rank]] if line.rank is not None else [])
    return [rank for low, high in ranges if high < MOST_RANKS for rank in range(low, high + 1)]


def _short(line: LogLine) -> str:
    """The words of a line without the size and the address of the communicator."""
    return _COMM_SUFFIX.sub("", line.text).strip(" ,")


# Faults that kernels, drivers and schedulers tell: a cause only if one fits in time with the failure of the job.

EARLY_NS = 30 * 60_000_000_000
"""The longest time between a fault and the first wait for its rank: a step, or a checkpoint."""
ZONES_NS = 14 * 3600 * 1_000_000_000
"""The largest difference between a local time and UTC."""
LATE_NS = 60_000_000_000
"""Others that have waited for so long already did not begin to wait for this fault."""
MOST_FAULTS = 8
_BY_PROGRAM = "programs often cause it themselves, or it follows from another failure"
_UNPROVEN = "the logs do not show that the job failed because of it"


class UntimelyFault(NamedTuple):
    """A fault that cannot be the cause, for its time."""

    line: LogLine
    reason: str


def split_timely(
    failures: Sequence[Failure], lines: Sequence[LogLine], dataset: Dataset
) -> tuple[list[Failure], list[UntimelyFault]]:
    """The failures that may be causes, and the faults of hardware that came too early for that.

    A fault while others waited already stays a cause, with a doubt.
    """
    timely: list[Failure] = []
    untimely: list[UntimelyFault] = []
    for failure in failures:
        line = failure.line
        about = line.time_ns is not None and line.is_kernel
        reason = _too_early(line, lines, dataset) if about else ""
        if reason:
            untimely.append(UntimelyFault(line, reason))
        else:
            timely.append(replace(failure, line=_doubted(line, lines)) if about else failure)
    return timely, untimely


def _waits(lines: Sequence[LogLine], without: LogLine) -> list[tuple[int, LogLine]]:
    """Begins of waits that watchdogs ended, of other processes."""
    return [
        (line.time_ns - ran * 1_000_000, line)
        for line in lines
        if isinstance(ran := line.values.get("ran_ms"), int) and line.time_ns is not None and line.who != without.who
    ]


def _slack(one: LogLine, other_utc: bool) -> int:
    """The largest difference of two printed times of one moment."""
    return CLOCK_SKEW_NS + (0 if bool(one.values.get("utc")) == other_utc else ZONES_NS)


def _too_early(line: LogLine, lines: Sequence[LogLine], dataset: Dataset) -> str:
    """The reason why a fault is too old to be the cause; "" if it may be."""
    assert line.time_ns is not None
    waits = _waits(lines, line)
    if waits:
        since, first = min(waits, key=lambda wait: wait[0])
        before = since - line.time_ns
        if before > EARLY_NS + _slack(line, bool(first.values.get("utc"))):
            return f"the job went on for {duration(before)} after it"
    began = dataset.comms.filter(pl.col("rank") == line.rank)["started_ns"].min() if line.rank is not None else None
    if isinstance(began, int) and line.time_ns + _slack(line, False) < began:
        return f"it came {duration(began - line.time_ns)} before the rank set up its first communicator"
    return ""


def _doubted(line: LogLine, lines: Sequence[LogLine]) -> LogLine:
    """The line, with a doubt if others had waited for long when it was written, or if the order cannot be told."""
    waits = _waits(lines, line)
    near = [at for at, other in waits if same_zone(line, other)]
    if line.values.get("doubt") or line.time_ns is None or not waits:
        return line
    if not near:
        text = "its time is in another time zone than the job's: the order is not known"
    elif line.time_ns - min(near) > LATE_NS:
        text = f"others had waited for {duration(line.time_ns - min(near))} when it came"
    else:
        return line
    return replace(line, values={**line.values, "doubt": text})


def find_faults(
    lines: Sequence[LogLine],
    failures: Sequence[Failure],
    untimely: Sequence[UntimelyFault],
    place: Callable[[int], Culprit],
) -> list[Finding]:
    """A finding for each rank, device or host with faults of hardware that are no proven cause."""
    causes = {(f.line.file, f.line.offset) for f in failures}
    accused = {f.line.who for f in failures}
    reasons = {(fault.line.file, fault.line.offset): fault.reason for fault in untimely}
    by_who: defaultdict[object, list[LogLine]] = defaultdict(list)
    for line in (*lines, *(fault.line for fault in untimely if not fault.line.is_hardware)):
        told = (line.is_hardware or (line.file, line.offset) in reasons) and (line.file, line.offset) not in causes
        if told and not (line.role == "root" and line.who in accused) and line.kind != "nccl-diagnosis":
            by_who[line.who, reasons.get((line.file, line.offset), "")].append(line)
    found = [_fault(own, reasons.get((own[0].file, own[0].offset), ""), place) for own in by_who.values()]
    return found[:MOST_FAULTS]


def _fault(own: list[LogLine], misfit: str, place: Callable[[int], Culprit]) -> Finding:
    own = list({(line.file, line.offset): line for line in own}.values())
    first = earliest_line(own)
    texts = list(dict.fromkeys(_fault_text(line) for line in own))
    told = "; ".join(texts[:MOST_TOLD]) + (f"; and {len(texts) - MOST_TOLD} more" if texts[MOST_TOLD:] else "")
    fatal = any(line.values.get("fatal") for line in own)
    why = misfit or (_UNPROVEN if fatal or first.values.get("number") is None else _BY_PROGRAM)
    who = who_text(own)
    joined = first.values.get("joined")
    more = f" {joined['text'][0].upper()}{joined['text'][1:]} ({joined['file']}:{joined['line']})." if joined else ""
    return Finding(
        kind="hardware-fault",
        severity="info" if misfit else "warning",
        title=f"{who}: {told} ({first.place}); no proven cause",
        explanation=f"{plural(len(own), 'line')} of kernels, drivers or tools; {why}.{more}",
        candidates=() if misfit else ranks_of(own),
        culprits=culprits_of(own, place) if first.rank is None else (),
        confidence="low",
        confidence_reasons=(why,),
        evidence=tuple(line.evidence() for line in own[:MOST_EVIDENCE]),
        next_steps=(f"Check the hardware of {who}: dmesg, nvidia-smi -q, dcgmi diag, ibstat.",),
    )


def _fault_text(line: LogLine) -> str:
    number = line.values.get("number")
    if line.values.get("device") == "switch":
        return f"SXid {number} of {line.part}"
    if number is not None:
        return error_label(line)
    if line.values.get("facts"):
        return cut_text("; ".join(map(str, line.values["facts"])))
    return cut_text(line.text)


STEPS_OF_OTHERS = 3
"""Fewest different steps of other ranks after an exception that show that its rank takes part in them."""
MOST_SURVIVED = 4
_KILLED = 128
"""Exit codes from here on, and negative ones, are of signals."""


@dataclass(frozen=True)
class SurvivedErrors:
    """The lines of logs, without exceptions that did not end their process."""

    lines: list[LogLine]
    """Without these exceptions, the known errors in them, and the steps that prove it."""
    survived: list[LogLine] = field(default_factory=list)


def part_survived(lines: Sequence[LogLine], dataset: Dataset) -> SurvivedErrors:
    """Lines and survived exceptions, apart."""
    steps = [line for line in lines if line.kind == "step"]
    alone = _alone(lines)
    threw = [
        line for line in lines
        if (line.file, line.offset) in alone or (EVENTS[line.kind].is_exception and not line.values.get("launcher"))
    ]  # fmt: skip
    if not threw:
        return SurvivedErrors([line for line in lines if line.kind != "step"])
    judge = _SurvivalJudge(lines, steps, threw, _begun_communicators(dataset))
    survived = [line for line in threw if judge.survived(line)]
    blamed = judge.blamed(survived)
    survived = [line for line in survived if (line.file, line.offset) not in blamed]
    gone = {(line.file, line.offset) for line in (*survived, *steps)}
    own = [line for line in survived if line.kind == "traceback"]
    if own:
        inside = find_tracebacks([*own, *(line for line in lines if line.pattern)])
        gone |= {(error.file, error.offset) for _, errors in inside for error in errors}
    rest = [
        replace(line, kind="traceback") if line.kind == "survived-exception" else line
        for line in lines
        if (line.file, line.offset) not in gone
    ]
    return SurvivedErrors(rest, survived)


def _alone(lines: Sequence[LogLine]) -> set[tuple[int, int]]:
    """The places of errors without a traceback that accuse the rank that prints them: a program may go on after one."""
    own = [
        line for line in lines
        if line.kind == "known-error" and line.role == "root" and line.values.get("accuses") == "self"
        and not line.is_kernel
    ]  # fmt: skip
    if not own:
        return set()
    inside = {(error.file, error.offset) for _, errors in find_tracebacks(lines) for error in errors}
    return {(line.file, line.offset) for line in own} - inside


def survived_finding(survived: Sequence[LogLine]) -> Finding | None:
    """A note on survived exceptions; None without any."""
    if not survived:
        return None
    first = survived[0]
    name = cut_text(first.text) if first.text else "an exception"
    more = f" and {plural(len(survived) - 1, 'more exception')}" if len(survived) > 1 else ""
    return Finding(
        kind="known-error",
        severity="info",
        title=f"{who_text(survived)} went on after {name} ({first.place}){more}",
        explanation=(
            "Python ignored these errors, a program logged them as harmless, or steps followed: they are no cause."
        ),
        evidence=tuple(line.evidence() for line in survived[:MOST_SURVIVED]),
    )


@dataclass(frozen=True)
class _SurvivalJudge:
    lines: Sequence[LogLine]
    steps: Sequence[LogLine]
    threw: Sequence[LogLine]
    begun: Mapping[tuple[int, int], int]
    """By file and rank the last line in which a communicator begins."""

    def survived(self, line: LogLine) -> bool:
        """Whether the process of an error survived it."""
        told = line.kind == "survived-exception" or bool(line.values.get("survived"))
        return told or self._went_on(line) or self._others_went_on(line)

    def blamed(self, survived: Sequence[LogLine]) -> set[tuple[int, int]]:
        """The last of them of each rank that ended with an error code and has no other traceback."""
        gone = {(line.file, line.offset) for line in survived}
        open_ = {line.who for line in self.threw if (line.file, line.offset) not in gone}
        last = {line.who: line for line in survived if line.values.get("survived") != "ignored"}
        ended = {line.who for line in self.lines if _failed(line)} - open_
        return {(line.file, line.offset) for who, line in last.items() if line.rank is not None and who in ended}

    def _went_on(self, line: LogLine) -> bool:
        own = line.rank is not None or bool(line.values.get("label")) or line.pid is not None
        stepped = own and any(s.who == line.who and s.file == line.file and s.offset > line.offset for s in self.steps)
        return stepped or (line.rank is not None and self.begun.get((line.file, line.rank), 0) > line.line)

    def _others_went_on(self, line: LogLine) -> bool:
        """Whether other ranks did several steps after it, and did not only print old ones while the job ended."""
        later = [step for step in self.steps if step.file == line.file and step.offset > line.offset]
        later = later[: bisect_right([step.offset for step in later], self._next(line))]
        numbers = {step.values["step"] for step in later if step.values.get("step") is not None}
        if len(numbers) < STEPS_OF_OTHERS:
            return False
        if all(step.time_ns is not None for step in later):
            return True
        after = [other for other in self.lines if other.file != line.file or other.offset > line.offset]
        rivals = any(EVENTS[o.kind].is_exception and o.who != line.who and o.offset > later[-1].offset for o in after)
        return rivals or not any(_ends(other) for other in after)

    def _next(self, line: LogLine) -> int:
        """The offset of the next traceback of another process in the file."""
        found = (o.offset for o in self.threw if o.file == line.file and o.offset > line.offset and o.who != line.who)
        return min(found, default=1 << 62)


def _failed(line: LogLine) -> bool:
    code = line.values.get("exitcode")
    return EVENTS[line.kind].exit_of == "process" and isinstance(code, int) and 0 < code < _KILLED


def _ends(line: LogLine) -> bool:
    """Whether a line shows that the job ends."""
    kind = EVENTS[line.kind]
    return line.role == "victim" or (kind.is_failure and not kind.is_exception and line.kind != "known-error")


def _begun_communicators(dataset: Dataset) -> dict[tuple[int, int], int]:
    begun: defaultdict[tuple[int, int], int] = defaultdict(int)
    told = dataset.comms.drop_nulls(["file", "rank", "line"]).select("file", "rank", "line")
    for file, rank, line in told.iter_rows():
        begun[file, rank] = max(line, begun[file, rank])
    return dict(begun)
