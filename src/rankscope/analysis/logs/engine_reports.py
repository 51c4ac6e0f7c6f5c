"""Suspicions from lines of libraries above NCCL: expert parallelism, and other analysers."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace

from rankscope.analysis.logs.log_lines import LogLine, earliest_line, ranks_of
from rankscope.analysis.logs.process_names import who_text
from rankscope.analysis.model import Finding, GroupRef
from rankscope.kinds.event_kinds import EVENTS
from rankscope.schema import Frame
from rankscope.text.wording import plural, ranks_text

MOST_EVIDENCE = 6
MOST_RANKS = 1 << 20
_LACKING = re.compile(r"Missing dump files from ranks \{([\d, ]{1,10000})\}")
"""The exception with which torchfrtrace ends."""


def find_experts(lines: Sequence[LogLine]) -> Finding | None:
    """The ranks that gave up waiting in a kernel of DeepEP, once each, and those that they waited for."""
    own = [line for line in lines if line.kind == "experts-timeout"]
    if not own:
        return None
    gave_up = ranks_of(own)
    awaited = tuple(sorted(_awaited(own) - set(gave_up)))
    covered = {line.rank for line in lines if line.rank is not None and not EVENTS[line.kind].of_others}
    silent = () if awaited else tuple(sorted(covered - set(gave_up)))
    phase = Counter(line.values["phase"] for line in own if line.values.get("phase")).most_common(1)
    where = f"{phase[0][0]} of DeepEP" if phase else "a kernel of DeepEP"
    named = f"they waited for {ranks_text(awaited)}" if awaited else _silent_text(silent)
    first = earliest_line(own)
    return Finding(
        kind="missing-rank",
        severity="critical",
        title=f"{who_text(own)} gave up waiting in the {where} ({first.place}); {named}".replace("the a ", "a "),
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
        evidence=tuple(line.evidence() for line in _one_each(own)[:MOST_EVIDENCE]),
        next_steps=(
            "Read the earlier lines of the ranks that did not print it: an exception, an empty batch, another path.",
            "Take stacks of all ranks: py-spy dump --native.",
        ),
    )


def _silent_text(silent: Sequence[int]) -> str:
    if silent:
        return f"{ranks_text(silent)} did not"
    return "look for the ranks of their group that did not print it"


def _awaited(own: Sequence[LogLine]) -> set[int]:
    """Global ranks that did not come, by all lines that name one; the group is taken to hold ranks in a row."""
    found: set[int] = set()
    for line in own:
        peer, within = line.values.get("peer"), line.values.get("ep_rank")
        if isinstance(peer, int) and isinstance(within, int):
            rank = peer + (line.rank - within if line.rank is not None else 0)
            found |= {rank} if 0 <= rank < MOST_RANKS else set()
    return found


def _one_each(own: Sequence[LogLine]) -> list[LogLine]:
    """The most telling line of each process: kernels print one for each thread."""
    best: dict[object, LogLine] = {}
    for line in own:
        known = best.get(line.who)
        if known is None or (known.values.get("peer") is None and line.values.get("peer") is not None):
            best[line.who] = line
    return list(best.values())


# What other analysers printed: read for what it holds, with the advice to bring what they looked at.


def find_analysed(lines: Sequence[LogLine]) -> list[Finding]:
    """One finding for each analyser that printed ranks."""
    by_tool: defaultdict[str, list[LogLine]] = defaultdict(list)
    for line in lines:
        if line.kind == "analyser-report":
            by_tool[str(line.values.get("tool"))].append(line)
        elif line.kind == "traceback" and (lacking := _LACKING.search(line.text)) is not None:
            ranks = [int(rank) for rank in re.findall(r"\d{1,7}", lacking[1])]
            by_tool["torchfrtrace"].append(replace(line, values={"what": "no-dump", "ranks": ranks}))
    return [_analysed(tool, _telling(own)) for tool, own in by_tool.items()]


def _telling(own: Sequence[LogLine]) -> Sequence[LogLine]:
    """The reports on collectives; without any, those on dumps that were not there, else the first row of a table."""
    for what in (("missing", "errors", "hanging"), ("no-dump",)):
        found = [line for line in own if line.values.get("what") in what]
        if found:
            return found
    return own[:1]


def _analysed(tool: str, own: Sequence[LogLine]) -> Finding:
    first = own[0]
    ranks = _ranks(first.values)
    others = sorted({rank for line in own[1:] for rank in _ranks(line.values)} - set(ranks))
    also = f" It has {plural(len(own) - 1, 'more report')}" if len(own) > 1 else ""
    also += f", which also name {ranks_text(others)}" if others else ""
    return Finding(
        kind="missing-rank",
        severity="warning",
        title=f"{tool} says that {_said(first.values, ranks)} ({first.place})",
        explanation=(
            f"{tool} says this, not the job: it looks at each group by itself, and also names ranks that only wait "
            f"for others.{also}{'.' if also else ''}"
        ),
        candidates=tuple(ranks) if first.values.get("what") != "no-dump" else (),
        confidence="low",
        confidence_reasons=("the dumps that it read are not loaded",),
        group=_group(first.values),
        seq=first.values.get("seq"),
        op=first.values.get("op"),
        stack=tuple(Frame(str(f[0]), str(f[1]), int(f[2])) for f in first.values.get("frames") or ()),
        evidence=tuple(line.evidence() for line in own[:MOST_EVIDENCE]),
        next_steps=("Give the flight recorder dumps themselves: rankscope DIRECTORY_OF_DUMPS.",),
    )


def _ranks(values: Mapping[str, object]) -> list[int]:
    found = values.get("ranks")
    return sorted({rank for rank in found if isinstance(rank, int)}) if isinstance(found, list) else []


def _said(values: Mapping[str, object], ranks: Sequence[int]) -> str:
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
    return f"{who} never joined {where}" if what == "missing" else f"{who} did not fit at {where}"


def _group(values: Mapping[str, object]) -> GroupRef | None:
    members = values.get("expected")
    if not isinstance(members, list) or not values.get("group"):
        return None
    return GroupRef(
        str(values["group"]), str(values.get("desc") or ""), tuple(m for m in members if isinstance(m, int))
    )
