"""Faults of hardware that are no proven cause: from NCCL's own check, kernels, drivers, schedulers and tools.

A fault that fits in time with the failure of the job is a cause, and stands in `failures`.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence

from rankscope.analysis.model import Finding
from rankscope.features.logs.rules.failures import cut_text, first_failures, split_timely
from rankscope.features.logs.rules.log_lines import (
    LogEvidence,
    LogLine,
    culprits_of,
    earliest_line,
    error_label,
    ranks_of,
    who_text,
)
from rankscope.text.wording import plural, ranks_text

MOST_EVIDENCE = 8
MOST_TEXTS = 3
MOST_RANKS = 1 << 20
MOST_FAULTS = 8
_COMM_SUFFIX = re.compile(r"\s*(?:\bacross \d+ ranks)?(?: in comm 0x[0-9a-fA-F]+)?(?= for |,|$)")
_BY_PROGRAM = "programs often cause it themselves, or it follows from another failure"
_CORRECTED = "the PCIe bus corrected it: single ones are harmless, many of them mean a bad slot, cable or riser"
_UNPROVEN = "the logs do not show that the job failed because of it"


def find_faults(logs: LogEvidence) -> Iterator[Finding]:
    """A finding for each rank, device or host with faults of hardware that are no proven cause."""
    first, (_, untimely) = logs.once(first_failures), logs.once(split_timely)
    failures = (*first.failures, *first.later)
    causes = {(f.line.file, f.line.offset) for f in failures}
    accused = {f.line.who for f in failures}
    reasons = {(line.file, line.offset): reason for line, reason in untimely}
    by_who: defaultdict[tuple[object, str], list[LogLine]] = defaultdict(list)
    # the port above a device does not know which kind of device it is
    by_bus = {
        line.values["bus"]: line.who
        for line in reversed(logs.lines)
        if line.is_hardware and line.values.get("bus") and line.values.get("device") != "pcie"
    }
    for line in (*logs.lines, *(line for line, _ in untimely if not line.is_hardware)):
        at = (line.file, line.offset)
        fault = (line.is_hardware or at in reasons) and at not in causes and line.kind != "nccl-diagnosis"
        if fault and not (line.role == "root" and line.who in accused):
            who = by_bus.get(line.values.get("bus"), line.who) if line.is_hardware else line.who
            by_who[who, reasons.get(at, "")].append(line)
    for (_, misfit), lines in list(by_who.items())[:MOST_FAULTS]:
        yield _fault(list({(line.file, line.offset): line for line in lines}.values()), misfit, logs)


def _fault(lines: list[LogLine], misfit: str, logs: LogEvidence) -> Finding:
    """The finding on the faults of one rank, device or host; `misfit` tells why they came too early to be a cause."""
    first = earliest_line(lines)
    fatal = any(line.values.get("fatal") for line in lines)
    why = misfit or (_UNPROVEN if fatal or first.values.get("number") is None else _BY_PROGRAM)
    corrected = all(line.values.get("corrected") for line in lines)
    if corrected:
        why = _CORRECTED
    named = [line for line in lines if line.values.get("device") != "pcie"] or lines
    who = who_text(named)
    joined = first.values.get("joined")
    more = f" {joined['text'][0].upper()}{joined['text'][1:]} ({joined['file']}:{joined['line']})." if joined else ""
    return Finding(
        kind="hardware-fault",
        severity="info" if misfit or corrected else "warning",
        title=f"{who}: {_listed(list(dict.fromkeys(map(_fault_text, lines))))} ({first.place}); no proven cause",
        explanation=f"{plural(len(lines), 'line')} of kernels, drivers or tools; {why}.{more}",
        candidates=() if misfit else ranks_of(lines),
        culprits=culprits_of(named, logs.place) if first.rank is None else (),
        confidence="low",
        confidence_reasons=(why,),
        evidence=tuple(line.evidence() for line in lines[:MOST_EVIDENCE]),
        next_steps=(f"Check the hardware of {who}: dmesg, nvidia-smi -q, dcgmi diag, ibstat.",),
    )


def _fault_text(line: LogLine) -> str:
    number = line.values.get("number")
    if line.values.get("device") == "switch":
        return f"SXid {number} of {line.part}"
    if number is not None:
        return error_label(line)
    return cut_text("; ".join(map(str, line.values["facts"])) if line.values.get("facts") else line.text)


def find_diagnosed(logs: LogEvidence) -> Iterator[Finding]:
    """Faults, and values that differ, by NCCL's own check. It tells of hardware, not of a job's failure."""
    lines = [line for line in logs.lines if line.kind == "nccl-diagnosis"]
    if faults := [line for line in lines if line.values.get("what") == "fault"]:
        sizes = {line.values.get("comm"): line.values["size"] for line in lines if line.values.get("size")}
        yield _check_faults(faults, sizes, max([logs.world, *(line.values.get("size") or 0 for line in lines)]))
    if differs := [line for line in lines if line.values.get("what") == "differs"]:
        versions = all("version" in line.text for line in differs)
        yield Finding(
            kind="version-mismatch" if versions else "settings-mismatch",
            severity="warning",
            title="NCCL's own check finds values that should agree and do not: "
            f"{cut_text('; '.join(map(_short, differs[:MOST_TEXTS])))} ({differs[0].place})",
            explanation="; ".join(map(_short, differs[:MOST_EVIDENCE])) + ".",
            confidence="medium",
            confidence_reasons=("the check does not say which side is right",),
            evidence=tuple(line.evidence() for line in differs[:MOST_EVIDENCE]),
            next_steps=("Use one driver, one image and one environment on all nodes.",),
        )


def _check_faults(lines: Sequence[LogLine], sizes: dict[str | None, int], whole: int) -> Finding:
    """The finding on faults; `sizes` of communicators show which of them has all `whole` ranks."""
    by_rank: defaultdict[int, list[LogLine]] = defaultdict(list)
    for line in lines:
        ranges = line.values.get("ranks") or ([[line.rank, line.rank]] if line.rank is not None else [])
        for rank in (rank for low, high in ranges if high < MOST_RANKS for rank in range(low, high + 1)):
            by_rank[rank].append(line)
    # the ranks of a communicator of a part of the job are unknown
    global_ = all(sizes.get(line.values.get("comm")) == whole for line in lines if line.values.get("ranks"))
    ranks = tuple(sorted(by_rank))
    what = _listed([_short(line) for line in (by_rank[ranks[0]] if len(ranks) == 1 else lines)])
    who = ranks_text(ranks) if ranks else "the hardware"
    inside = " of a communicator" if ranks and not global_ else ""
    return Finding(
        kind="known-error",
        severity="warning",
        title=f"NCCL's own check finds faults of {who}{inside}: {cut_text(what)} ({lines[0].place})",
        explanation=f"{what}. The check looks at devices, links and bandwidth; it does not say that the job failed.",
        candidates=ranks if global_ else (),
        confidence="low",
        confidence_reasons=("the logs do not show whether the job failed because of it",),
        evidence=tuple(line.evidence() for line in lines[:MOST_EVIDENCE]),
        next_steps=(f"Check the device and the links of {who}: nvidia-smi -q -d ECC, nvidia-smi nvlink -s, dmesg.",),
    )


def _short(line: LogLine) -> str:
    """The words of a line without the size and the address of the communicator."""
    return _COMM_SUFFIX.sub("", line.text).strip(" ,")


def _listed(texts: Sequence[str]) -> str:
    """The first texts, and how many more there are."""
    return "; ".join(texts[:MOST_TEXTS]) + (f"; and {len(texts) - MOST_TEXTS} more" if texts[MOST_TEXTS:] else "")
