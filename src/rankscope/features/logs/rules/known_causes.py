"""`known-error`: causes that accuse no rank, unknown errors out of NCCL, and what is left of jobs without a cause.

An error that the table of known errors lacks is still a failure if it came out of NCCL. Warnings without a trail of
calls that returned it are often only advice, or NCCL then succeeded in another way.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence

import polars as pl

from rankscope.analysis.model import Evidence, Finding
from rankscope.features.logs.read.c10d.ascend import WORLD_GROUP
from rankscope.features.logs.read.c10d.watchdog import SCHEDULER
from rankscope.features.logs.rules.failures import cut_text, find_tracebacks, stack_of, without_ended
from rankscope.features.logs.rules.initialisation import PARAMETER_PATTERNS, find_parameter_counts
from rankscope.features.logs.rules.log_lines import (
    LogEvidence,
    LogLine,
    earliest_line,
    error_label,
    precedes,
    ranks_of,
    read_noise,
    separate_errors,
    who_text,
)
from rankscope.features.logs.rules.unmatched import uneven_pairs_text
from rankscope.kinds.error_traits import (
    ANY_CONNECTION,
    AT_SHUTDOWN,
    GAVE_UP,
    NOT_CONNECTED,
    REFUSED_CALL,
    RETRIED,
    UNSURE,
)
from rankscope.kinds.event_kinds import EVENTS
from rankscope.text.wording import plural, ranks_text

MOST_EVIDENCE = 8
MOST_KINDS = 4
LONGEST_NAME = 24
"""Longer names of groups are hashes of their ranks."""
_CALL = re.compile(r"RPC call to (\w{1,60}) timed out")
"""The call of vLLM that its workers did not answer."""
_ENGINE_STEPS = (
    "Find the first worker that printed an error, died, or stopped printing before this.",
    "Take stacks of all workers while it hangs: rankscope stacks -o dumps on each host; VLLM_LOGGING_LEVEL=DEBUG and "
    "NCCL_DEBUG=INFO for the next start.",
)
_HASH = re.compile(r"[0-9a-fA-F:]+|.{65,}")
_DEFAULT_NAMES = ("default_pg", "0", "undefined")
_HCCL_STEPS = (
    "Collect the plog of all ranks (~/ascend/log, or ASCEND_PROCESS_LOG_PATH) and find the first error in time.",
    "npu-smi info, and hccn_tool -i N -link -g for each device of the hosts; HCCL_EXEC_TIMEOUT gives a slow step more "
    "time.",
)
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
_OUTER_CALL = re.compile(r"(?:^|/)(?:init|group|enqueue|bootstrap|collectives)\.(?:cc|cu|cpp):\d+ -> [1-5]\b")
"""Places where an error leaves NCCL; 6 is an error of another rank, 7 is none."""
_THREAD_CALL = re.compile(r"(?:^|/)(?:proxy|net)\.(?:cc|cu|cpp):\d+ -> [1-5]\b")
"""Threads of NCCL that end with an error of their own."""
_RESULT = re.compile(r" -> [1-5]\b")
_OUTCOMES = (", and these logs do not show whether it found another way", " and gives up the call")
_FEWEST_CALLS = 2
"""Fewest such calls: one alone may be a try."""
_CODES = {
    1: " (a CUDA call failed)", 2: " (a system call failed)", 3: " (internal error)", 4: " (invalid argument)",
    5: " (invalid usage)",
}  # fmt: skip
_NUMBERS = re.compile(r"0x[0-9a-fA-F]+|\d+")
_WARNING_HEAD = re.compile(r".*? NCCL (?:WARN|ERROR) |^\S+ \[\d+\] \S+ WARN ")


def known_causes(logs: LogEvidence) -> list[Finding]:
    """A finding for each known cause that accuses nobody, the earliest in the logs first."""
    # the rule on counts of parameters says more
    gone = PARAMETER_PATTERNS if any(True for _ in find_parameter_counts(logs)) else ()
    lines = [line for line in logs.lines if line.pattern not in gone]
    by_pattern: defaultdict[str, list[LogLine]] = defaultdict(list)
    for line in separate_errors(lines):
        if line.role == "root" and line.values.get("accuses") in ("nobody", None):
            by_pattern[line.pattern].append(line)
    fatal = {error.pattern for _, errors in find_tracebacks(lines) for error in errors}
    causes = {pattern: _cause(same, pattern in fatal) for pattern, same in by_pattern.items()}
    refused = {pattern for pattern, same in by_pattern.items() if same[0].has(REFUSED_CALL)}
    deeper = any(cause.severity == "critical" for pattern, cause in causes.items() if pattern not in refused)
    shown = [cause for pattern, cause in causes.items() if not (deeper and pattern in refused)]
    return sorted(shown, key=lambda f: (f.severity != "critical", f.evidence[0].time_ns or 0))


def find_known_causes(logs: LogEvidence) -> Iterator[Finding]:
    """The known causes that accuse nobody."""
    yield from logs.once(known_causes)


def _cause(lines: list[LogLine], fatal: bool) -> Finding:
    first = earliest_line(lines)
    meaning, advice = first.values.get("meaning"), first.values.get("next")
    return Finding(
        kind="known-error",
        severity="warning" if first.has(UNSURE) and not fatal and not any(map(_failed_call, lines)) else "critical",
        title=f"{error_label(first)}, reported by {who_text(lines)} ({first.place})",
        explanation=f"{f'{meaning} ' if meaning else ''}The rank that prints it need not be at fault.",
        candidates=ranks_of(lines),
        confidence="medium",
        confidence_reasons=("the line alone does not say which rank is at fault",),
        evidence=_first_in_front(first, lines),
        next_steps=(str(advice),) if advice else (),
    )


def _first_in_front(first: LogLine, lines: Sequence[LogLine]) -> tuple[Evidence, ...]:
    return tuple(line.evidence() for line in [first, *(o for o in lines if o is not first)][:MOST_EVIDENCE])


def _failed_call(line: LogLine) -> bool:
    """Whether the line is a warning whose error came out of NCCL, or ended a thread of it."""
    return _is_warning(line) and any(_OUTER_CALL.search(row) or _THREAD_CALL.search(row) for row in _trail(line))


def find_unknown_causes(logs: LogEvidence) -> Iterator[Finding]:
    """The first warning of NCCL that made a call fail, where the table of known errors lacks it."""
    first_timeouts: dict[int, LogLine] = {}
    for line in logs.lines:
        if line.has(GAVE_UP):
            first_timeouts.setdefault(line.file, line)
    # calls also fail in the teardown after a timeout
    warnings = [
        line
        for line in logs.lines
        if line.role in ("", "context")
        and _is_warning(line)
        and any(_RESULT.search(row) for row in _trail(line))
        and all(precedes(line, timeout) for timeout in first_timeouts.values())
    ]
    if not warnings:
        return
    failed = [line for line in warnings if _failed_call(line)]
    warnings = failed or warnings
    alike: defaultdict[str, list[LogLine]] = defaultdict(list)
    for line in warnings:
        alike[_NUMBERS.sub("", _warning_text(line))].append(line)
    first = earliest_line(warnings)
    same = alike[_NUMBERS.sub("", _warning_text(first))]
    words = f"a call {'of' if failed else 'inside'} NCCL failed: {cut_text(_warning_text(first))}"
    yield Finding(
        kind="known-error",
        severity="critical" if failed else "warning",
        title=f"{words}, reported by {who_text(same)} ({first.place})",
        explanation=(
            f"NCCL says so in a warning{_OUTCOMES[bool(failed)]}. The rank that prints it need not be at fault."
        ),
        candidates=ranks_of(same),
        confidence="low",
        confidence_reasons=("rankscope does not know this error, and the line does not say which rank is at fault",),
        evidence=_first_in_front(first, warnings),
        next_steps=(f"The source of NCCL at {_innermost(first)} tells what failed there.",),
    )


def _is_warning(line: LogLine) -> bool:
    return line.values.get("level") in ("WARN", "ERROR")


def _trail(line: LogLine) -> list[str]:
    """The calls that returned the error of a line, innermost first."""
    trail = line.values.get("trail")
    return [str(row) for row in trail] if isinstance(trail, list) else []


def _innermost(line: LogLine) -> str:
    return _trail(line)[0].split(" ")[0]


def _warning_text(line: LogLine) -> str:
    """The words of a warning, without its head."""
    head = _WARNING_HEAD.match(line.text)
    return line.text[head.end() :].strip() if head else line.text.strip()


def find_returned_errors(logs: LogEvidence) -> Iterator[Finding]:
    """Failed calls of which lines tell only the place in NCCL."""
    lines = [line for line in logs.lines if sum(bool(_OUTER_CALL.search(row)) for row in _trail(line)) >= _FEWEST_CALLS]
    if not lines:
        return
    first = earliest_line(lines)
    place, _, result = _trail(first)[0].partition(" -> ")
    what = _CODES.get(int(result.split(" ")[0]), "")
    yield Finding(
        kind="rank-failed",
        severity="critical",
        title=f"a call of NCCL failed in {who_text(lines)} at {place}{what} ({first.place})",
        explanation="No line says why: NCCL prints only which of its calls returned the error.",
        candidates=ranks_of(lines),
        confidence="low",
        confidence_reasons=("the lines do not say which rank is at fault",),
        evidence=tuple(line.evidence(" < ".join(_trail(line)[:MOST_EVIDENCE])) for line in lines[:MOST_EVIDENCE]),
        next_steps=(f"Read the source of NCCL at {_innermost(first)}; collect the logs of all ranks.",),
    )


def find_timeouts(logs: LogEvidence) -> Iterator[Finding]:
    """Ranks that gave up waiting for unknown ranks."""
    lines = [line for line in logs.lines if line.has(GAVE_UP) or line.kind == "watchdog-timeout"]
    known = {line.who for line in lines}
    lines += [
        line
        for line in logs.lines
        if line.kind == "pg-status" and line.values.get("at_work") is not None and line.who not in known
    ]
    asked = [line for line in logs.lines if line.values.get("from_rank") is not None]
    beats = [line for line in logs.lines if line.kind == "heartbeat"]
    schedulers = [line for line in beats if line.values.get("problem") == SCHEDULER]
    stuck = [line for line in beats if line not in schedulers]
    if lines:
        more = uneven_pairs_text(logs.dataset) + _first_collective_text(logs.lines) + _cut_text_end(logs.lines, lines)
        yield _waited(lines, more, _groups_of(logs.lines))
    elif asked:
        yield _asked(asked)
    elif schedulers:
        yield _stuck_schedulers(schedulers, logs.lines)
    elif stuck:
        yield Finding(
            kind="known-error",
            severity="critical",
            title=f"the watchdog of {who_text(stuck)} made no progress ({stuck[0].place})",
            explanation="A call into CUDA or NCCL did not return, or another thread held the interpreter lock.",
            waiting_ranks=ranks_of(stuck),
            confidence="low",
            confidence_reasons=("it may be stuck on its own, or while a failed group is torn down",),
            evidence=tuple(line.evidence() for line in stuck[:MOST_EVIDENCE]),
            next_steps=("Take stacks of all its threads: py-spy dump --native, or gdb.",),
        )


def _first_collective_text(lines: Sequence[LogLine]) -> str:
    """A sentence on ranks that all gave up in the first operation of a group, none of which ever completed."""
    progress = [line for line in lines if line.kind == "pg-status" and line.values.get("at_work") is not None]
    first = [line for line in progress if line.values["at_work"] == 1 and (line.values.get("last_completed") or 0) < 1]
    if not progress or len(first) < len(progress):
        return ""
    return (
        " It is the first operation of the group, and none has ever completed: the ranks may not reach each other. "
        "Look at the transport before a rank: NCCL_P2P_DISABLE=1 to test (ACS, IOMMU), NCCL_SOCKET_IFNAME."
    )


def _cut_text_end(lines: Sequence[LogLine], waiting: Sequence[LogLine]) -> str:
    """A sentence on a text that lacks a part, so that lines of other ranks may be missing."""
    files = {line.file for line in waiting}
    cut = next((line for line in lines if line.kind == "text-cut" and line.file in files), None)
    return f" The text is cut at {cut.place}: lines of other ranks may have stood there." if cut is not None else ""


def _stuck_schedulers(lines: list[LogLine], others: Sequence[LogLine]) -> Finding:
    """Schedulers of a server that made no forward pass for so long that their watchdog ended them."""
    seconds = next((line.values["seconds"] for line in lines if line.values.get("seconds")), None)
    for_long = f" for {seconds:,} s" if seconds else ""
    missing = any(line.pattern == "py-spy-missing" for line in others)
    steps = ("Install py-spy in the image of the server (pip install py-spy): it could take no stacks.",)
    return Finding(
        kind="known-error",
        severity="critical",
        title=f"the scheduler of {who_text(lines)} made no forward pass{for_long} ({lines[0].place}); these logs do "
        "not show what held it",
        explanation="The watchdog of SGLang tells that the main loop of its scheduler stood still: in a kernel, in a "
        "collective that waits for another rank, in a compilation, or with a request that does not end.",
        waiting_ranks=ranks_of(lines),
        confidence="low",
        confidence_reasons=("the scheduler may have waited for another rank",),
        evidence=tuple(line.evidence() for line in lines[:MOST_EVIDENCE]),
        next_steps=(
            *(steps if missing else ()),
            "Take stacks of the schedulers of all ranks: rankscope stacks -o dumps on each host.",
            "--watchdog-timeout gives a slow first pass more time.",
        ),
    )


def _asked(lines: list[LogLine]) -> Finding:
    """Ranks that gave up waiting, by the ranks that they asked for a dump."""
    ranks = tuple(sorted({int(line.values["from_rank"]) for line in lines}))
    return Finding(
        kind="known-error",
        severity="critical",
        title=f"{ranks_text(ranks)} gave up waiting, as {who_text(lines)} was told ({lines[0].place}); these logs do "
        "not show which rank did not come",
        explanation=(
            "A rank that gives up waiting asks all others for a dump. A rank that was asked need not have waited."
        ),
        waiting_ranks=ranks,
        confidence="low",
        confidence_reasons=("the log of the rank that gave up is not loaded",),
        evidence=tuple(line.evidence() for line in lines[:MOST_EVIDENCE]),
        next_steps=(f"Read the log of {ranks_text(ranks)}.", *_STEPS),
    )


def _groups_of(lines: Sequence[LogLine]) -> dict[tuple[object, int], str]:
    """By process and number of a work the name of its group, from the progress that ranks print; no default group."""
    named: dict[tuple[object, int], str] = {}
    for line in lines:
        group, work = line.values.get("pg_desc") or line.values.get("pg_guid"), line.values.get("at_work")
        if isinstance(work, int) and group and group not in _DEFAULT_NAMES:
            named.setdefault((line.who, work), _short(str(group)))
    return named


def _steps(lines: Sequence[LogLine]) -> tuple[str, ...]:
    """Advice on what to collect; variables of torch's watchdog do nothing for HCCL."""
    if any(line.pattern == "engine-call-timeout" for line in lines):
        return _ENGINE_STEPS
    return _HCCL_STEPS if any(line.values.get("layer") == "hccl" for line in lines) else _STEPS


def _waited(lines: list[LogLine], sends: str, groups: Mapping[tuple[object, int], str]) -> Finding:
    first, ranks = earliest_line(lines), ranks_of(lines)
    by_place: defaultdict[str, list[LogLine]] = defaultdict(list)
    named = {line.values.get("seq"): _waited_in(line) for line in lines if line.values.get("op")}
    for line in (first, *lines):
        group = groups.get((line.who, line.values.get("seq") or line.values.get("at_work") or -1))
        place = named.get(line.values.get("at_work")) or _waited_in(line)
        by_place[f"{place} of {group}" if place and group else place].append(line)
    (at, there), *others = by_place.items()
    others = [(place, waiting) for place, waiting in others if place]
    behind = _furthest_behind(lines)
    far = ""
    if behind is not None:
        rank, seq, furthest = behind
        far = f"[Rank {rank}] of its group is furthest behind, at #{seq}"
    more = f" and others elsewhere{', ' + far if far else ''}" if others else ""
    awaited = next((line for line in lines if line.values.get("awaited") is not None), None)
    known = awaited is not None or first.values.get("waits_for") is not None
    open_ = "why it did not come" if known else "which rank did not come"
    if len(others) == 1:
        (place, waiting), who = others[0], who_text(there)
        more = f" and{place}" if who_text(waiting) == who else f" and {who_text(waiting)}{place}"
    return Finding(
        kind="known-error",
        severity="critical",
        title=f"{who_text(there)} gave up waiting{at}{more} ({first.place}); these logs do not show {open_}",
        explanation=(
            f"{who_text(there).capitalize()} only timed out; "
            + ("the rank that did not come is the cause." if known else "these logs do not name the missing rank.")
            + (f" {far}; others wait in #{furthest}." if far else "")
            + sends
        ),
        waiting_ranks=ranks,
        confidence="low",
        confidence_reasons=("the log covers only ranks that waited",),
        evidence=tuple(line.evidence() for line in lines[:MOST_EVIDENCE]),
        next_steps=_steps(lines),
    )


def _waited_in(line: LogLine) -> str:
    """ " in allreduce #7"; empty if the line does not say."""
    op, seq = line.values.get("op"), line.values.get("seq")
    seq = line.values.get("at_work") if seq is None else seq
    if (call := _CALL.search(line.text)) is not None and line.pattern == "engine-call-timeout":
        return f" for its workers to answer {call[1]}"
    if line.values.get("waits_for") is not None:
        return f" for [Rank {line.values['waits_for']}] of its group to set up NCCL"
    if line.values.get("hccl_group") or line.values.get("awaited") is not None:
        return _waited_in_hccl(line)
    if seq is None:
        guid = line.values.get("pg_guid") if line.values.get("library") == "nccl2" else None
        return f" in {str(op).lower()}" if op else f" in group {_short(str(guid))}" if guid else ""
    return (f" in {str(op).lower()}" if op else " at") + f" #{seq}"


def _waited_in_hccl(line: LogLine) -> str:
    """ " in AllReduce of group_name_4 (16 members) for rank 12 of that group": a place in a group is no global rank."""
    values = line.values
    group, awaited = values.get("hccl_group"), values.get("awaited")
    size = f" ({values['group_size']:,} members)" if values.get("group_size") else ""
    text = f" in {values['op']}" if values.get("op") else ""
    text += f" of {_short(str(group))}{size}" if group else ""
    whose = "" if group == WORLD_GROUP else " of that group" if group else " of its group"
    return text + (f" for rank {awaited}{whose}" if awaited is not None else "")


def _short(name: str) -> str:
    """The name of a group; the beginning of a hash."""
    return name if len(name) <= LONGEST_NAME or not _HASH.fullmatch(name) else f"{name[:8]}…"


def _furthest_behind(lines: list[LogLine]) -> tuple[int, int, int] | None:
    """The rank of a group that gave up at the lowest number, that number, and the highest one; None unless the lines
    tell only ranks in the group."""
    lowest: dict[int, int] = {}
    ranks: dict[int, int] = {}
    for line in lines:
        inside, seq = line.values.get("rank_in_group"), line.values.get("seq")
        if line.values.get("op") in _P2P_OPS or not isinstance(inside, int) or not isinstance(seq, int):
            continue
        if line.rank is not None and ranks.setdefault(inside, line.rank) != line.rank:
            # two at one place: numbers of several groups
            return None
        lowest[inside] = min(seq, lowest.get(inside, seq))
    if len(set(lowest.values())) < 2:
        return None
    last = min(lowest, key=lambda rank: lowest[rank])
    return last, lowest[last], max(lowest.values())


def find_signalled(logs: LogEvidence) -> Iterator[Finding]:
    """Ranks of which only signs of a timeout are left: that they dump for it, or go down after it."""
    own = [line for line in logs.lines if line.values.get("own") is True]
    asked = [line for line in logs.lines if line.pattern == "dump-signal" and line not in own]
    down = [line for line in read_noise(logs.dataset) if line.pattern == TEARDOWN]
    if not (own or asked or down):
        return
    first = earliest_line(own or down or asked)
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
        title = f"another rank failed or timed out in a collective, as {who_text(asked)} was told ({first.place})"
    yield Finding(
        kind="known-error",
        severity="critical",
        title=f"{title}; these logs do not show which rank did not come",
        explanation="Ranks dump and go down like this after a timeout or an error. The lines that name the cause "
        "are missing.",
        waiting_ranks=tuple(sorted({*ranks, *others})),
        confidence="low",
        confidence_reasons=("the lines that name the operation are missing",),
        evidence=tuple(line.evidence() for line in [*own, *down, *asked][:MOST_EVIDENCE]),
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


def find_unexplained_ends(logs: LogEvidence) -> Iterator[Finding]:
    """Processes that ended with errors of unknown cause."""
    threw = [line for line, _ in find_tracebacks(logs.lines)]
    exits = [
        line
        for line in without_ended(logs.lines)
        if EVENTS[line.kind].exit_of
        and (
            line.values["exitcode"] not in _REQUESTED_EXITS
            # entries of torchrun's summary are failures, also where the code is cut off
            or (line.values["exitcode"] is None and line.kind == "torchrun-failure")
        )
    ]
    lines = [line for line in threw if line.values.get("exception")]
    # srun tells only of its own tasks: of torchrun, if that starts the ranks
    lines = lines or [line for line in exits if EVENTS[line.kind].exit_of == "process"] or exits
    lines = lines or [line for line in logs.lines if line.kind == "signal" and line.values.get("signal") == 6]
    # in a job that runs on, a traceback without its end is still being written
    lines = lines or ([] if logs.moves else threw)
    if not lines:
        return
    first = earliest_line(lines)
    how = f": {cut_text(first.text)}"
    if EVENTS[first.kind].exit_of:
        codes = [line.values["exitcode"] for line in lines if line.values["exitcode"] is not None]
        how = f" with exit code {codes[0] if codes else 'unknown'}"
    elif first.kind == "signal":
        how = " by SIGABRT"
    elif first.kind == "traceback" and not first.values.get("exception"):
        how = " with an exception that is cut off"
    yield Finding(
        kind="rank-failed",
        severity="critical",
        title=f"{who_text(lines)} ended{how} ({first.place}); these logs do not show why",
        explanation="No cause is here: exceptions of communication point to a failure elsewhere.",
        candidates=ranks_of(lines),
        confidence="low",
        confidence_reasons=("the rank that ends first is often a victim",),
        stack=stack_of(first),
        evidence=tuple(line.evidence() for line in lines[:MOST_EVIDENCE]),
        next_steps=("Collect the logs of all ranks, and dmesg of their hosts.",),
    )


def find_harmed(logs: LogEvidence) -> Iterator[Finding]:
    """Processes that met harm from elsewhere; a warning if the harm does not show that the job broke."""
    harm = [line for line in logs.lines if line.role == "victim"]
    lines = [line for line in harm if not _is_mild(line)] or harm
    if not lines:
        return
    first = _first_harm(lines)
    mild, label = _is_mild(first), error_label(first)
    who = who_text([line for line in lines if error_label(line) == label])
    title = f"{who}: {label} ({first.place}){'' if mild else '; these logs do not show what failed first'}"
    if first.has(AT_SHUTDOWN):
        title = f"{who} {label}, whose process had ended ({first.place})"
    meaning, advice = first.values.get("meaning") or "", first.values.get("next")
    yield Finding(
        kind="rank-failed",
        severity="warning" if mild else "critical",
        title=title,
        explanation=f"{meaning} The rank that prints it is a victim of something else.".strip(),
        waiting_ranks=ranks_of(lines),
        confidence="low",
        confidence_reasons=("the log covers only ranks that were harmed",),
        evidence=_first_in_front(first, lines),
        next_steps=(*((str(advice),) if advice else ()), _STEPS[0]),
    )


def _first_harm(lines: Sequence[LogLine]) -> LogLine:
    """The line of harm to look at first: of those that no other is known to precede, one of a rank that was never
    connected, because others lose their connection to such a rank when it gives up; else the earliest."""
    alone = [line for line in lines if line.has(NOT_CONNECTED) and not any(precedes(other, line) for other in lines)]
    return earliest_line(alone or lines)


def _is_mild(line: LogLine) -> bool:
    """Whether a line of harm does not show that the job broke."""
    foreign = line.has(ANY_CONNECTION) and (_LIBRARY_NAMES.search(line.text) is None or "retrying" in line.text)
    return foreign or line.has(AT_SHUTDOWN) or line.has(RETRIED)


def find_broken(logs: LogEvidence) -> Iterator[Finding]:
    """Processes that met harm which shows that the job broke."""
    yield from (finding for finding in find_harmed(logs) if finding.severity == "critical")


def count_harm(logs: LogEvidence) -> Iterator[Finding]:
    """One note that counts the lines that follow from others, and the meaningless ones."""
    harm = [line for line in logs.lines if line.role == "victim"]
    if not harm:
        return
    noise = logs.dataset.messages.filter(pl.col("role") == "noise").height
    kinds = Counter(line.pattern for line in harm)
    listed = ", ".join(f"{pattern} ({count})" for pattern, count in kinds.most_common(MOST_KINDS))
    ranks = ranks_of(harm)
    of = f" of {ranks_text(ranks)}" if ranks else ""
    yield Finding(
        kind="known-error",
        severity="info",
        title=f"{plural(len(harm), 'line')} of the logs only show harm from elsewhere",
        explanation=f"{listed}{of}; {plural(noise, 'line')} more are harmless.",
        waiting_ranks=ranks,
        evidence=tuple({line.pattern: line.evidence() for line in reversed(harm)}.values()),
    )
