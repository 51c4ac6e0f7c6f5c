"""Results of NCCL's own hardware check: ranks with broken memory or links, and differing settings."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence

from rankscope.analysis.logs.failures import cut_text
from rankscope.analysis.logs.log_lines import LogLine
from rankscope.analysis.model import Finding
from rankscope.text.wording import ranks_text

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
    global_ = all(comms.get(line.values.get("comm")) == whole for line in own if _ranks(line))
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
        confidence_reasons=("nothing tells whether the job failed of it",),
        evidence=tuple(line.evidence() for line in own[:MOST_EVIDENCE]),
        next_steps=(f"Check the device and the links of {who}: nvidia-smi -q -d ECC, nvidia-smi nvlink -s, dmesg.",),
    )


def _differing(own: Sequence[LogLine]) -> Finding:
    versions = all("version" in line.text for line in own)
    return Finding(
        kind="version-mismatch" if versions else "settings-mismatch",
        severity="warning",
        title="NCCL's own check finds what should agree and does not: "
        f"{cut_text('; '.join(map(_short, own[:MOST_TOLD])))} "
        f"({own[0].place})",
        explanation="; ".join(map(_short, own[:MOST_EVIDENCE])) + ".",
        confidence="medium",
        confidence_reasons=("which side is right, the check does not say",),
        evidence=tuple(line.evidence() for line in own[:MOST_EVIDENCE]),
        next_steps=("Use one driver, one image and one environment on all nodes.",),
    )


def _ranks(line: LogLine) -> list[int]:
    ranges = line.values.get("ranks") or []
    return [rank for low, high in ranges if high < MOST_RANKS for rank in range(low, high + 1)]


def _short(line: LogLine) -> str:
    """The words of a line without the size and the address of the communicator."""
    return _COMM_SUFFIX.sub("", line.text).strip(" ,")
