"""`known-error`: causes that accuse no rank, and a count of the lines that only show harm."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import NamedTuple

import polars as pl

from rankscope.analysis.model import Finding
from rankscope.features.logs.rules.failures import cut_text, find_tracebacks, stack_of, without_ended
from rankscope.features.logs.rules.log_lines import (
    LogLine,
    alone_told,
    earliest_line,
    error_label,
    ranks_of,
    read_noise,
    who_text,
)
from rankscope.features.logs.rules.nccl_errors import failed_call, uneven_pairs_text
from rankscope.kinds.error_traits import ANY_CONNECTION, AT_SHUTDOWN, GAVE_UP, REFUSED_CALL, RETRIED, UNSURE
from rankscope.kinds.event_kinds import EVENTS
from rankscope.schema import Dataset
from rankscope.text.wording import plural, ranks_text

MOST_EVIDENCE = 8
MOST_KINDS = 4
LONGEST_NAME = 24
"""Longer names of groups are hashes of their ranks."""
_REQUESTED_EXITS = (None, 0, -15, 143)
"""Exit codes without a failure, or of an end that a person or a launcher wanted."""
_P2P_OPS = ("SEND", "RECV", "RECVANYSOURCE", "COALESCED")
"""Operations whose numbers are, or may be, those of sends and receives."""
TEARDOWN = "teardown"
"""The lines of a process that its watchdog takes down."""
_LIBRARY_NAMES = re.compile(r"NCCL WARN|gloo|c10d|ProcessGroup")
_STEPS = (
    "Collect the logs and the flight recorder dumps of all ranks.",
    "Set TORCH_FR_BUFFER_SIZE=2000 and TORCH_NCCL_DUMP_ON_TIMEOUT=1 for the next run.",
)


def known_causes(lines: Sequence[LogLine]) -> list[Finding]:
    """A finding for each known cause that accuses nobody, the earliest in the logs first."""
    by_pattern: defaultdict[str, list[LogLine]] = defaultdict(list)
    for line in alone_told(lines):
        if line.role == "root" and line.values.get("accuses") in ("nobody", None):
            by_pattern[line.pattern].append(line)
    fatal = {error.pattern for _, errors in find_tracebacks(lines) for error in errors}
    causes = {pattern: _cause(same, pattern in fatal) for pattern, same in by_pattern.items()}
    refused = {pattern for pattern, same in by_pattern.items() if same[0].has(REFUSED_CALL)}
    deeper = any(cause.severity == "critical" for pattern, cause in causes.items() if pattern not in refused)
    found = [cause for pattern, cause in causes.items() if not (deeper and pattern in refused)]
    return sorted(found, key=lambda f: (f.severity != "critical", f.evidence[0].time_ns or 0))


def _cause(own: list[LogLine], fatal: bool) -> Finding:
    first = earliest_line(own)
    told = first.values
    meaning = f"{told['meaning']} " if told.get("meaning") else ""
    return Finding(
        kind="known-error",
        severity="warning" if first.has(UNSURE) and not fatal and not any(map(failed_call, own)) else "critical",
        title=f"{error_label(first)}, reported by {who_text(own)} ({first.place})",
        explanation=f"{meaning}The rank that prints it need not be at fault.",
        candidates=ranks_of(own),
        confidence="medium",
        confidence_reasons=("the line alone does not say which rank is at fault",),
        evidence=tuple(line.evidence() for line in [first, *(o for o in own if o is not first)][:MOST_EVIDENCE]),
        next_steps=(str(told["next"]),) if told.get("next") else (),
    )


def timeout_finding(lines: Sequence[LogLine], dataset: Dataset) -> Finding | None:
    """A finding on ranks that gave up waiting for unknown ranks; None if none did."""
    own = [line for line in lines if line.has(GAVE_UP) or line.kind == "watchdog-timeout"]
    told = {line.who for line in own}
    stated = [line for line in lines if line.kind == "pg-status" and line.values.get("at_work") is not None]
    own += [line for line in stated if line.who not in told]
    if own:
        return _waited(own, uneven_pairs_text(dataset))
    asked = [line for line in lines if line.values.get("from_rank") is not None]
    return _asked(asked) or _stuck([line for line in lines if line.kind == "heartbeat"])


def _asked(own: list[LogLine]) -> Finding | None:
    """Ranks that gave up waiting, by the ranks that they asked for a dump."""
    if not own:
        return None
    ranks = tuple(sorted({int(line.values["from_rank"]) for line in own}))
    return Finding(
        kind="known-error",
        severity="critical",
        title=f"{ranks_text(ranks)} gave up waiting, as {who_text(own)} was told ({own[0].place}); these logs do "
        "not show which rank did not come",
        explanation=(
            "A rank that gives up waiting asks all others for a dump. A rank that was asked need not have waited."
        ),
        waiting_ranks=ranks,
        confidence="low",
        confidence_reasons=("the log of the rank that gave up is not loaded",),
        evidence=tuple(line.evidence() for line in own[:MOST_EVIDENCE]),
        next_steps=(f"Read the log of {ranks_text(ranks)}.", *_STEPS),
    )


def signalled_finding(lines: Sequence[LogLine], dataset: Dataset) -> Finding | None:
    """A finding on ranks of which only signs of a timeout are left: that they dump for it, or go down after it."""
    own = [line for line in lines if line.values.get("own") is True]
    told = [line for line in lines if line.pattern == "dump-signal" and line not in own]
    down = [line for line in read_noise(dataset) if line.pattern == TEARDOWN]
    if not (own or told or down):
        return None
    first = earliest_line(own or down or told)
    timed_out = [line for line in own if line.pattern == "dump-signal"]
    ranks = ranks_of(own)
    others = sorted({rank for line in down for rank in line.values.get("ranks", ())} - set(ranks))
    if timed_out:
        title = f"{who_text(timed_out)} gave up waiting{_progress(timed_out[0])} ({timed_out[0].place})"
        title += f", and {ranks_text(others)} failed or timed out" if others else ""
    elif own or down:
        title = f"{who_text(own) if own else ranks_text(others) if others else who_text(down)} failed or timed out in "
        title += f"a collective ({first.place})"
    else:
        title = f"another rank failed or timed out in a collective, as {who_text(told)} was told ({first.place})"
    return Finding(
        kind="known-error",
        severity="critical",
        title=f"{title}; these logs do not show which rank did not come",
        explanation="Ranks dump and go down like this after a timeout or an error. The lines that name the cause "
        "are missing.",
        waiting_ranks=tuple(sorted({*ranks, *others})),
        confidence="low",
        confidence_reasons=("the lines that name the operation are missing",),
        evidence=tuple(line.evidence() for line in [*own, *down, *told][:MOST_EVIDENCE]),
        next_steps=_STEPS,
    )


def _progress(line: LogLine) -> str:
    """ " in default_pg, with 12 of 90 works completed"; empty if the line does not say."""
    group = line.values.get("pg_desc") or line.values.get("pg_guid")
    done, issued = line.values.get("last_completed"), line.values.get("last_enqueued")
    works = ""
    if isinstance(done, int) and isinstance(issued, int) and issued > 0:
        works = f", with {max(done, 0)} of {plural(issued, 'work')} completed"
    return (f" in {_short(str(group))}" if group else "") + works


def _stuck(own: list[LogLine]) -> Finding | None:
    if not own:
        return None
    return Finding(
        kind="known-error",
        severity="critical",
        title=f"the watchdog of {who_text(own)} made no progress ({own[0].place})",
        explanation="A call into CUDA or NCCL did not return, or another thread held the interpreter lock.",
        waiting_ranks=ranks_of(own),
        confidence="low",
        confidence_reasons=("it may be stuck on its own, or while a failed group is torn down",),
        evidence=tuple(line.evidence() for line in own[:MOST_EVIDENCE]),
        next_steps=("Take stacks of all its threads: py-spy dump --native, or gdb.",),
    )


def _waited(own: list[LogLine], sends: str) -> Finding:
    first = earliest_line(own)
    ranks = ranks_of(own)
    by_place: defaultdict[str, list[LogLine]] = defaultdict(list)
    named = {line.values.get("seq"): _waited_in(line) for line in own if line.values.get("op")}
    for line in (first, *own):
        by_place[named.get(line.values.get("at_work")) or _waited_in(line)].append(line)
    (at, there), *others = by_place.items()
    others = [(place, lines) for place, lines in others if place]
    last = _behind(own)
    far = f"[Rank {last.rank}] of its group is furthest behind, at #{last.seq}" if last else ""
    more = f" and others elsewhere{', ' + far if far else ''}" if others else ""
    open_ = "why it did not come" if first.values.get("waits_for") is not None else "which rank did not come"
    if len(others) == 1:
        (place, waiting), who = others[0], who_text(there)
        more = f" and{place}" if who_text(waiting) == who else f" and {who_text(waiting)}{place}"
    return Finding(
        kind="known-error",
        severity="critical",
        title=f"{who_text(there)} gave up waiting{at}{more} ({first.place}); these logs do not show {open_}",
        explanation=(
            "A rank that gives up waiting is a victim: find the rank that did not come."
            + (f" {far}; others wait in #{last.first}." if last else "")
            + sends
        ),
        waiting_ranks=ranks,
        confidence="low",
        confidence_reasons=("the log covers only ranks that waited",),
        evidence=tuple(line.evidence() for line in own[:MOST_EVIDENCE]),
        next_steps=_STEPS,
    )


def _waited_in(line: LogLine) -> str:
    """ " in allreduce #7"; empty if the line does not say."""
    op, seq = line.values.get("op"), line.values.get("seq")
    seq = line.values.get("at_work") if seq is None else seq
    if line.values.get("waits_for") is not None:
        return f" for [Rank {line.values['waits_for']}] of its group to set up NCCL"
    if seq is None:
        guid = line.values.get("pg_guid") if line.values.get("library") == "nccl2" else None
        return f" in {str(op).lower()}" if op else f" in group {_short(str(guid))}" if guid else ""
    return (f" in {str(op).lower()}" if op else " at") + f" #{seq}"


def _short(name: str) -> str:
    """The name of a group; the beginning of a hash."""
    return name if len(name) <= LONGEST_NAME else f"{name[:8]}…"


def _failed(line: LogLine) -> bool:
    """Whether an end was a failure; the entries of torchrun's summary are failures, also where the code is cut off."""
    code = line.values["exitcode"]
    return code not in _REQUESTED_EXITS or (code is None and line.kind == "torchrun-failure")


def ended_finding(lines: Sequence[LogLine], *, moves: bool = False) -> Finding | None:
    """A finding on processes that ended with errors of unknown cause; None if none did.

    In a watched job that `moves`, a traceback without its end is still being written.
    """
    threw = [line for line, _ in find_tracebacks(lines)]
    own = [line for line in threw if line.values.get("exception")]
    ended = (line for line in without_ended(lines) if EVENTS[line.kind].exit_of)
    exits = [line for line in ended if _failed(line)]
    # srun tells only of its own tasks: of torchrun, if that starts the ranks
    own = own or [line for line in exits if EVENTS[line.kind].exit_of == "process"] or exits
    own = own or ([] if moves else threw)
    if not own:
        return None
    first = earliest_line(own)
    exited = EVENTS[first.kind].exit_of != ""
    code = next((line.values["exitcode"] for line in own if exited and line.values["exitcode"] is not None), "unknown")
    how = f" with exit code {code}" if exited else f": {cut_text(first.text)}"
    if first.kind == "traceback" and not first.values.get("exception"):
        how = " with an exception that is cut off"
    return Finding(
        kind="rank-failed",
        severity="critical",
        title=f"{who_text(own)} ended{how} ({first.place}); these logs do not show why",
        explanation="No cause is here: exceptions of communication point to a failure elsewhere.",
        candidates=ranks_of(own),
        confidence="low",
        confidence_reasons=("the rank that ends first is often a victim",),
        stack=stack_of(first),
        evidence=tuple(line.evidence() for line in own[:MOST_EVIDENCE]),
        next_steps=("Collect the logs of all ranks, and dmesg of their hosts.",),
    )


def harmed_finding(lines: Sequence[LogLine]) -> Finding | None:
    """A finding on processes that met harm from elsewhere, if there is nothing else; None if none did."""
    harm = [line for line in lines if line.role == "victim"]
    own = [line for line in harm if not _mild(line)] or harm
    if not own:
        return None
    first = earliest_line(own)
    mild = _mild(first)
    same = [line for line in own if error_label(line) == error_label(first)]
    late = first.has(AT_SHUTDOWN)
    ranks = ranks_of(own)
    return Finding(
        kind="rank-failed",
        severity="warning" if mild else "critical",
        title=f"{who_text(same)} {error_label(first)}, whose process had ended ({first.place})"
        if late
        else f"{who_text(same)}: {error_label(first)} ({first.place})"
        + ("" if mild else "; these logs do not show what failed first"),
        explanation=(
            f"{first.values.get('meaning') or ''} The rank that prints it is a victim of something else."
        ).strip(),
        waiting_ranks=ranks,
        confidence="low",
        confidence_reasons=("the log covers only ranks that were harmed",),
        evidence=tuple(line.evidence() for line in own[:MOST_EVIDENCE]),
        next_steps=(*((str(first.values["next"]),) if first.values.get("next") else ()), _STEPS[0]),
    )


def _mild(line: LogLine) -> bool:
    """Whether a line of harm does not show that the job broke."""
    foreign = line.has(ANY_CONNECTION) and (_LIBRARY_NAMES.search(line.text) is None or "retrying" in line.text)
    return foreign or line.has(AT_SHUTDOWN) or line.has(RETRIED)


class _Behind(NamedTuple):
    rank: int
    """Rank in its group."""
    seq: int
    first: int
    """The place at which the rank that is furthest ahead waits."""


def _behind(own: list[LogLine]) -> _Behind | None:
    """The rank of a group that gave up at the lowest number, if the lines tell only ranks in the group."""
    lowest: dict[int, int] = {}
    ranks: dict[int, int] = {}
    for line in own:
        inside, seq = line.values.get("rank_in_group"), line.values.get("seq")
        if line.values.get("op") in _P2P_OPS:
            continue
        if isinstance(inside, int) and isinstance(seq, int):
            if line.rank is not None and ranks.setdefault(inside, line.rank) != line.rank:
                # two at one place: numbers of several groups
                return None
            lowest[inside] = min(seq, lowest.get(inside, seq))
    if len(lowest) < 2 or len(set(lowest.values())) < 2:
        return None
    last = min(lowest, key=lambda rank: lowest[rank])
    return _Behind(last, lowest[last], max(lowest.values()))


def harm_finding(lines: Sequence[LogLine], dataset: Dataset) -> Finding | None:
    """One note that counts the lines that follow from others, and the meaningless ones."""
    harm = [line for line in lines if line.role == "victim"]
    noise = dataset.messages.filter(pl.col("role") == "noise").height
    if not harm:
        return None
    kinds = Counter(line.pattern for line in harm)
    told = ", ".join(f"{pattern} ({count})" for pattern, count in kinds.most_common(MOST_KINDS))
    ranks = sorted({line.rank for line in harm if line.rank is not None})
    return Finding(
        kind="known-error",
        severity="info",
        title=f"{plural(len(harm), 'line')} of the logs only show harm from elsewhere",
        explanation=f"{told}{f' of {ranks_text(ranks)}' if ranks else ''}; {plural(noise, 'line')} more are harmless.",
        waiting_ranks=tuple(ranks),
        evidence=tuple({line.pattern: line.evidence() for line in reversed(harm)}.values()),
    )
