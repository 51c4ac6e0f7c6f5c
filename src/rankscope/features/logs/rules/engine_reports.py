"""Suspicions from lines of libraries above NCCL: expert parallelism, other analysers, and checks of numbers."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from rankscope.analysis.model import Culprit, Finding, GroupRef, Severity
from rankscope.features.logs.rules.log_lines import (
    LogEvidence,
    LogLine,
    earliest_line,
    ranks_of,
    read_lines,
    who_text,
)
from rankscope.kinds.event_kinds import NUMERIC_CHECKS
from rankscope.schema import Dataset, Frame
from rankscope.text.wording import plural, ranks_text

KIND = "numeric-divergence"
MOST_EVIDENCE = 6
LONGEST_RANKS = 40
MOST_RANKS = 1 << 20
_MEMORY = "Run the memory test and the stress test of that device before it gets another job."
_REPLAY = "Run the step again on other hardware, with deterministic kernels (--deterministic-mode)."
_EXPLAINED = (
    "Megatron checks results, and can run a step with an unexpected one again, on the same device and on another one."
)
_LACKING = re.compile(r"Missing dump files from ranks \{([\d, ]{1,10000})\}")
"""The exception with which torchfrtrace ends."""


def find_experts(logs: LogEvidence) -> Iterator[Finding]:
    """The ranks that gave up waiting in a kernel of DeepEP, once each, and those that they waited for."""
    lines = [line for line in logs.lines if line.kind == "experts-timeout"]
    if not lines:
        return
    gave_up = ranks_of(lines)
    # the group is taken to hold ranks in a row
    peers = {
        line.values["peer"] + (line.rank - line.values["ep_rank"] if line.rank is not None else 0)
        for line in lines
        if isinstance(line.values.get("peer"), int) and isinstance(line.values.get("ep_rank"), int)
    }
    awaited = tuple(sorted(rank for rank in peers - set(gave_up) if 0 <= rank < MOST_RANKS))
    silent = () if awaited else tuple(sorted(logs.covered - set(gave_up)))
    phase = Counter(line.values["phase"] for line in lines if line.values.get("phase")).most_common(1)
    where = f"{phase[0][0]} of DeepEP" if phase else "a kernel of DeepEP"
    others = "look for the ranks of their group that did not print it"
    if awaited:
        others = f"they waited for {ranks_text(awaited)}"
    elif silent:
        others = f"{ranks_text(silent)} did not"
    # kernels print a line for each thread; one with a peer is the most telling of a process
    best: dict[object, LogLine] = {}
    for line in lines:
        known = best.get(line.who)
        if known is None or (known.values.get("peer") is None and line.values.get("peer") is not None):
            best[line.who] = line
    first = earliest_line(lines)
    yield Finding(
        kind="missing-rank",
        severity="critical",
        title=f"{who_text(lines)} gave up waiting in the {where} ({first.place}); {others}".replace("the a ", "a "),
        explanation=(
            "Experts exchange tokens by kernels of their own, which print this when other ranks of the group do "
            "not come. A rank that prints it was waiting; look for the ranks of the group that did not print it."
        ),
        candidates=awaited or silent,
        waiting_ranks=gave_up,
        blast_radius=len(gave_up),
        confidence="low",
        confidence_reasons=(
            "the printed ranks count within the group of experts, which need not be all ranks",
            "kernels that failed for another reason end in the same way",
        ),
        evidence=tuple(line.evidence() for line in list(best.values())[:MOST_EVIDENCE]),
        next_steps=(
            "Read the earlier lines of the ranks that did not print it: an exception, an empty batch, another path.",
            "Take stacks of all ranks: py-spy dump --native.",
        ),
    )


def find_analysed(logs: LogEvidence) -> Iterator[Finding]:
    """A finding for each other analyser that printed ranks, with the advice to bring what it looked at."""
    by_tool: defaultdict[str, list[LogLine]] = defaultdict(list)
    for line in logs.lines:
        if line.kind == "analyser-report" and line.values.get("what") != "slow":
            by_tool[str(line.values.get("tool"))].append(line)
        elif line.kind == "traceback" and (lacking := _LACKING.search(line.text)) is not None:
            ranks = [int(rank) for rank in re.findall(r"\d{1,7}", lacking[1])]
            by_tool["torchfrtrace"].append(replace(line, values={"what": "no-dump", "ranks": ranks}))
    if slow := [line for line in logs.lines if line.kind == "analyser-report" and line.values.get("what") == "slow"]:
        yield _slow(slow)
    for tool, lines in by_tool.items():
        # reports on collectives; without any, those on dumps that were not there, else the first row of a table
        judged = [line for line in lines if line.values.get("what") in ("missing", "errors", "hanging")]
        yield _analysed(tool, judged or [line for line in lines if line.values.get("what") == "no-dump"] or lines[:1])


def _analysed(tool: str, lines: Sequence[LogLine]) -> Finding:
    first = lines[0]
    ranks = _ranks(first.values)
    others = sorted({rank for line in lines[1:] for rank in _ranks(line.values)} - set(ranks))
    also = f" It has {plural(len(lines) - 1, 'more report')}" if len(lines) > 1 else ""
    also += f", which also name {ranks_text(others)}" if others else ""
    members = first.values.get("expected")
    group = None
    if isinstance(members, list) and first.values.get("group"):
        known = tuple(member for member in members if isinstance(member, int))
        group = GroupRef(str(first.values["group"]), str(first.values.get("desc") or ""), known)
    return Finding(
        kind="missing-rank",
        severity="warning",
        title=f"{tool} says that {_report_text(first.values, ranks)} ({first.place})",
        explanation=(
            f"{tool} says this, not the job: it looks at each group by itself, and also names ranks that only wait "
            f"for others.{also}{'.' if also else ''}"
        ),
        candidates=tuple(ranks) if first.values.get("what") != "no-dump" else (),
        confidence="low",
        confidence_reasons=("the dumps that it read are not loaded",),
        group=group,
        seq=first.values.get("seq"),
        op=first.values.get("op"),
        stack=tuple(Frame(str(f[0]), str(f[1]), int(f[2])) for f in first.values.get("frames") or ()),
        evidence=tuple(line.evidence() for line in lines[:MOST_EVIDENCE]),
        next_steps=("Give the flight recorder dumps themselves: rankscope DIRECTORY_OF_DUMPS.",),
    )


def _slow(lines: Sequence[LogLine]) -> Finding:
    """The ranks that NVRx calls slow, or that it gives the lowest scores without calling them so."""
    counts = Counter(rank for line in lines for rank in _ranks(line.values))
    warned = [line for line in lines if line.values.get("ranks")]
    tables = [line for line in lines if line.values.get("worst")]
    scores = [tuple(row) for line in tables for row in line.values["worst"]]
    lowest = min(scores, key=lambda row: row[2], default=None)
    first = (warned or lines)[0]
    ranks = sorted(counts, key=lambda rank: (-counts[rank], rank))
    low = f"rank {lowest[0]} on {lowest[1]} has the lowest score, {lowest[2]:g}" if lowest else ""
    often = f", rank {ranks[0]} in {counts[ranks[0]]} reports" if len(ranks) > 1 and counts[ranks[0]] > 1 else ""
    said = f"{ranks_text(sorted(ranks), LONGEST_RANKS)} {'is' if len(ranks) == 1 else 'are'} slow" if ranks else low
    own = {str(line.values.get("measure")) for line in warned or lines} == {"individual"}
    against = "the best of the same rank before" if own else "the fastest rank"
    return Finding(
        kind="straggler",
        severity="warning" if ranks else "info",
        title=f"{first.values['tool']} says that {said}{often} ({first.place})",
        explanation=f"{plural(len(lines), 'report')} of {first.values['tool']}, whose scores compare the kernels of "
        f"each GPU with {against}.{f' {low[0].upper()}{low[1:]}.' if low and ranks else ''} The log does not show what "
        "the rank is late in.",
        candidates=tuple(sorted(ranks)),
        confidence="low",
        confidence_reasons=("it is the judgement of another tool, without the times behind it",),
        evidence=tuple(
            line.evidence()
            for line in list({line.offset: line for line in (*warned, *tables)}.values())[:MOST_EVIDENCE]
        ),
        next_steps=(
            "Record a trace of each rank with torch.profiler over the same steps: rankscope DIRECTORY_OF_TRACES names "
            "what a late rank is late in.",
            f"Look at the GPU of {ranks_text(sorted(ranks), LONGEST_RANKS) if ranks else 'this rank'}: nvidia-smi -q "
            "-d CLOCK,PERFORMANCE,TEMPERATURE.",
        ),
    )


def _ranks(values: Mapping[str, object]) -> list[int]:
    ranks = values.get("ranks")
    return sorted({rank for rank in ranks if isinstance(rank, int)}) if isinstance(ranks, list) else []


def _report_text(values: Mapping[str, object], ranks: Sequence[int]) -> str:
    """ "rank 0 never joined _all_gather_base #88 of tp"."""
    who, what = ranks_text(ranks) if ranks else "members", values.get("what")
    if what == "no-dump":
        return f"it had no dump of {who}, and so does not judge"
    if what == "table":
        return "ranks have these entries: tables without a judgement"
    if values.get("seq") is None:
        return f"{who} {'hangs' if len(ranks) == 1 else 'hang'}"
    of = f" of {values['desc']}" if values.get("desc") else ""
    where = f"{values.get('op') or 'the collective'} #{values['seq']}{of}"
    if what == "missing":
        return f"{who} never joined {where}"
    kinds = values.get("kinds")
    why = [str(kind).replace("_", " ").lower() for kind in kinds] if isinstance(kinds, list) else []
    return f"{who} did not fit at {where}" + (f": {', '.join(why)}" if why else "")


def numeric_reports(dataset: Dataset) -> list[Finding]:
    """A finding for the weights that differ, and one for each verdict on ranks whose step was run again."""
    lines = [line for line in read_lines(dataset) if line.kind in NUMERIC_CHECKS]
    hashes = [line for line in lines if line.values.get("check") == "weight-hash"]
    reruns: defaultdict[tuple[int | None, str], list[LogLine]] = defaultdict(list)
    for line in lines:
        if line.values.get("check") == "rerun":
            reruns[line.rank, "" if line.rank is not None else str(line.who)].append(line)
    verdicts: defaultdict[RerunVerdict, list[list[LogLine]]] = defaultdict(list)
    for of_rank in reruns.values():
        outcomes = {line.values.get("outcome") for line in of_rank}
        verdict = next((verdict for verdict in VERDICTS if outcomes & set(verdict.outcomes)), VERDICTS[-1])
        verdicts[verdict].append(of_rank)
    if len(verdicts) > 1:
        # lines without a rank are of those that other lines name
        verdicts[VERDICTS[-1]] = [of_rank for of_rank in verdicts[VERDICTS[-1]] if of_rank[0].rank is not None]
    matches = [line for line in lines if line.kind == "weights-match"]
    findings = [_weight_finding(dataset, hashes, matches)] if hashes else []
    return findings + [_rerun_finding(verdict, verdicts[verdict]) for verdict in VERDICTS if verdicts[verdict]]


def _weight_finding(dataset: Dataset, lines: Sequence[LogLine], matches: Sequence[LogLine]) -> Finding:
    """Weights of data-parallel replicas that differ from those of the first replica."""
    ranks = ranks_of(lines)
    names = list(dict.fromkeys(str(line.values.get("name")) for line in lines))
    wrong, members = _odd_replicas(dataset, ranks)
    last = max((int(line.values["iteration"]) for line in matches), default=None)
    more = f" and {plural(len(names) - 1, 'more parameter')}" if len(names) > 1 else ""
    who = ranks_text(wrong or ranks, LONGEST_RANKS)
    differs = "differ" if more else "differs"
    title = f"{names[0]}{more} on {who} {differs} from the other data-parallel replicas"
    if not wrong:
        title = f"{names[0]}{more} on {who} {differs} from the first data-parallel replica"
    since = f" The last check without a difference was after {plural(last, 'iteration')}." if last is not None else ""
    return Finding(
        kind=KIND,
        severity="critical",
        title=title,
        root_cause=True,
        explanation=f"Megatron compares SHA-1 hashes of weights with those of the first replica.{since}"
        + ("" if wrong else " Two replicas do not tell which of them is wrong, and the first one may be."),
        culprit_ranks=wrong,
        culprits=tuple(Culprit(rank) for rank in wrong),
        candidates=() if wrong else members,
        confidence="high" if wrong else "medium",
        confidence_reasons=("equal weights have equal hashes",),
        evidence=tuple(line.evidence() for line in lines[:MOST_EVIDENCE]),
        about=tuple(sorted({*ranks, *members})),
        next_steps=(
            "Record gradients and parameters with rankscope.capture, to see which step first parts them.",
            "Run the memory test of the devices of these ranks.",
        ),
    )


def _odd_replicas(dataset: Dataset, ranks: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The ranks that are wrong, by majority in their data-parallel groups, and all candidates; none are wrong if the
    groups are not known or have no majority."""
    groups = [
        tuple(members)
        for text, members in dataset.groups.select("description", "ranks").iter_rows()
        if "DATA_PARALLEL" in text.upper() and set(members) & set(ranks)
    ]
    groups = [min(of_rank, key=len) for rank in ranks if (of_rank := [group for group in groups if rank in group])]
    wrong: set[int] = set()
    everybody = set(ranks)
    for members in dict.fromkeys(groups):
        odd = {rank for rank in members if rank in ranks}
        everybody |= set(members)
        rest = set(members) - odd
        wrong |= odd if len(odd) < len(rest) else rest if len(rest) == 1 < len(odd) else set()
    known = {rank for members in groups for rank in members}
    return (tuple(sorted(wrong)) if set(ranks) <= known else ()), tuple(sorted(everybody))


class RerunVerdict(NamedTuple):
    """Meaning of the lines of a rank whose step was run again; the first of `VERDICTS` that fits."""

    outcomes: tuple[str, ...]
    severity: Severity
    what: str
    next_step: str


VERDICTS = (
    # the line of the second run names the device that gave the other result, not the wrong one
    RerunVerdict(("persistent", "elsewhere-other"), "critical",
                 "gave a wrong result again and again, which another device does not give", _MEMORY),
    RerunVerdict(("transient", "here-other"), "warning", "gave an unexpected result, and not again in a second run",
                 f"{_MEMORY} A kernel that is not deterministic does the same. {_REPLAY}"),
    RerunVerdict(("correct", "elsewhere-same"), "warning",
                 "got an unexpected result that another device gives as well: look at the data and the code",
                 "Look at the batch of this step, the learning rate and the scale of the loss."),
    RerunVerdict(("here-same",), "warning", "got the same unexpected result twice",
                 "Resume from the checkpoint on another device: that tells a broken device from broken data."),
    RerunVerdict(("refused", "unexpected"), "warning", "got a result that a check refused", _REPLAY),
)  # fmt: skip
_PERSISTENT, _TRANSIENT = VERDICTS[:2]


def _accused(verdict: RerunVerdict, lines: Sequence[LogLine]) -> LogLine | None:
    """The line that names the device with the wrong result; None if no device is accused, or it is not named."""
    wanted = {_PERSISTENT: ("here-same",), _TRANSIENT: _TRANSIENT.outcomes}.get(verdict, ())
    wrong = [line for line in lines if line.values.get("outcome") in wanted]
    return next((line for line in wrong if line.values.get("node") is not None), wrong[0] if wrong else None)


def _rerun_finding(verdict: RerunVerdict, ranks: Sequence[Sequence[LogLine]]) -> Finding:
    """The finding on ranks with the same verdict; `ranks` has the lines of each."""
    accused = [line for lines in ranks if (line := _accused(verdict, lines)) is not None]
    all_ranks = ranks_of([line for lines in ranks for line in lines])
    wrong = ranks_of(accused)
    shown = [line for lines in ranks for line in lines][:MOST_EVIDENCE]
    steps = sorted({line.values["iteration"] for line in shown if line.values.get("iteration") is not None})
    who = ranks_text(all_ranks, LONGEST_RANKS) if all_ranks else "a rank"
    node = accused[0].values.get("node") if accused and len(ranks) == 1 else None
    place = f" ({_device(accused[0])} of {node})" if node is not None else ""
    unnamed = verdict is _PERSISTENT and not accused
    return Finding(
        kind=KIND,
        severity=verdict.severity,
        root_cause=True,
        title=f"{who}{place} {verdict.what}{f', in iteration {steps[0]}' if steps else ''}",
        explanation=_EXPLAINED
        + (" The line of the first run, which names the wrong device, is not in these logs." if unnamed else ""),
        culprit_ranks=wrong,
        culprits=tuple(Culprit(line.rank, line.values.get("node"), None, _device(line)) for line in accused),
        candidates=tuple(rank for rank in all_ranks if rank not in wrong),
        confidence="high" if verdict is _PERSISTENT else "medium",
        confidence_reasons=(
            "two devices gave different results"
            if verdict is _PERSISTENT
            else "a check alone does not tell a broken device from wrong data",
        ),
        evidence=tuple(line.evidence() for line in shown),
        next_steps=(verdict.next_step,),
        about=all_ranks,
    )


def _device(line: LogLine) -> str | None:
    device = line.values.get("device")
    return None if device is None else f"device {device}"
