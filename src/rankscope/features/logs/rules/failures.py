"""`rank-failed`: processes that failed by themselves, unlike those taken down, and which of them was first.

Exceptions, signals, exit codes and kills by the kernel, in their order as far as places and times of lines tell.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import polars as pl

from rankscope.analysis.model import Confidence, Evidence, Finding
from rankscope.features.logs.read.c10d.pod_reports import LOST
from rankscope.features.logs.rows.abort_ranks import exit_code, signal_number
from rankscope.features.logs.rules.end_timeline import (
    RankEnd,
    errors_of_abort,
    exception_name,
    read_ends,
    same_text,
    tells_of_others,
)
from rankscope.features.logs.rules.log_lines import (
    CLOCK_SKEW_NS,
    HostClocks,
    LogEvidence,
    LogLine,
    culprits_of,
    error_label,
    is_earlier,
    precedes,
    ranks_of,
    read_clocks,
    same_zone,
    who_text,
    with_ranks,
)
from rankscope.kinds.error_traits import EITHER_END, GAVE_UP
from rankscope.kinds.event_kinds import EVENTS
from rankscope.schema import Dataset, Frame
from rankscope.text.wording import duration, plural

TRACEBACK_LINES = 2000
"""Most lines between the head of a traceback and a known error that belongs to it."""
MOST_NEAR_ERRORS = 64
"""Most known errors after a traceback that are examined."""
MOMENT_NS = 1_000_000_000
"""Times of torchrun's summary are whole seconds."""
EARLY_NS = 30 * 60_000_000_000
"""The longest time between a fault of hardware and the first wait for its rank: a step, or a checkpoint."""
ZONES_NS = 14 * 3600 * 1_000_000_000
"""The largest difference between a local time and UTC."""
LATE_NS = 60_000_000_000
"""Others that have waited for so long already did not begin to wait for this fault."""
LONGEST_LABEL = 90
LONGEST_QUOTE = 160
MOST_CULPRITS = 8
MOST_WITNESSES = 3
MOST_LATER = 4
_LOADER_WORKER = re.compile(r"DataLoader worker \(pid\(?s?\)? (\d{1,10})\b")
SIGNALS = {4: "SIGILL", 7: "SIGBUS", 8: "SIGFPE", 9: "SIGKILL", 11: "SIGSEGV"}
"""Signals from the process itself or from the kernel. SIGTERM, SIGINT and SIGHUP come from a person or a launcher,
and watchdogs end waiting processes with SIGABRT, so these alone accuse nobody."""
_WORKER_ADVICE = "Read the log of this worker, and dmesg of its host: it was killed, or crashed in native code."
_POD_ADVICE = "kubectl describe pod, and kubectl describe node of its node: memory, disk, a drain, a more urgent job."
_UNKNOWN_PROCESS = (None, "", None, "")
"""`LogLine.who` of an unknown process."""


@dataclass(frozen=True)
class Failure:
    """The reason why one process ended by its own fault, as far as the log tells."""

    line: LogLine
    what: str
    """Short: "ValueError: bad sample index 17", "CUDA out of memory", "killed by SIGKILL"."""
    mark: tuple[str, str]
    """Equal for failures of the same cause."""
    strength: int
    """2: the reason itself; 1: only the end."""
    frames: tuple[Frame, ...] = ()
    mixed: bool = False
    meaning: str = ""
    advice: str = ""
    seen_end: bool = False
    """An exit code or signal confirms the end."""
    either_end: bool = False
    """The rank at the other end may be at fault instead."""

    @property
    def rank(self) -> int | None:
        """The rank, where the log tells it."""
        return self.line.rank


def find_failures(lines: Sequence[LogLine]) -> list[Failure]:
    """One failure for each process that failed by itself: the strongest, then the first. In the order of the files."""
    # processes that the launcher ended, whatever their exit code is
    by_launcher = (line for line in lines if line.kind == "signal" and line.values.get("sender") == "launcher")
    spared = {line.values["pid"] for line in by_launcher if line.values.get("pid") is not None}
    lines = with_ranks(without_ended(lines))
    harmed = [line for line in lines if line.role == "victim" or EVENTS[line.kind].by_watchdog]
    ends = read_ends(lines)
    failures = [f for f in _of_text(lines) if not _only_harm(f, ends)]
    failures += _of_ends(lines, spared, harmed)
    failures += _of_capture(ends, {failure.line.who for failure in failures})
    ended = {failure.line.who for failure in failures if failure.seen_end}
    ended |= {line.who for line in lines if EVENTS[line.kind].exit_of == "process" and line.rank is not None}
    best: dict[Any, Failure] = {}
    for failure in failures:
        known = best.get(failure.line.who)
        if known is None or failure.strength > known.strength:
            best[failure.line.who] = failure
    killed = {line.pid for line in lines if line.kind == "oom-kill" and line.pid is not None}
    whole = [
        replace(f, seen_end=f.seen_end or f.line.who in ended)
        for f in best.values()
        if not (killed and f.rank is None and _tells_of_killed(f.line, killed))
    ]
    return [f for f in whole if not _is_repeated(f, whole)]


def _tells_of_killed(line: LogLine, killed: Collection[int]) -> bool:
    """Whether a line says that a worker of its data loader is gone that the kernel killed: that line has the reason."""
    worker = _LOADER_WORKER.search(line.text)
    return worker is not None and int(worker[1]) in killed


def _is_repeated(failure: Failure, failures: Sequence[Failure]) -> bool:
    """Whether a line says of an unnamed process what another line says of a named one: slurmstepd counts kills."""
    line = failure.line
    if failure.mark[0] == "worker-died" and line.pid is None and not line.values.get("name"):
        # Ray tells of a dead actor in one line, and lists the same one in others
        return any(f is not failure and f.mark[0] == "worker-died" and f.line.pid is not None for f in failures)
    if failure.mark[0] != "host-out-of-memory" or line.rank is not None or line.pid is not None:
        return False
    named = [
        f.line for f in failures if f.mark[0] == failure.mark[0] and (f.rank is not None or f.line.pid is not None)
    ]
    return any(not line.host or not other.host or line.host == other.host for other in named)


def without_ended(lines: Iterable[LogLine]) -> list[LogLine]:
    """The lines without processes that torchrun itself ended: killed well after the first of its summary had failed.

    It sends SIGTERM when one process fails, and SIGKILL to those that are still there half a minute later.
    """
    lines = list(lines)
    first_ns: dict[int, int] = {}
    for line in lines:
        if line.kind == "torchrun-failure" and line.time_ns is not None:
            first_ns[line.file] = min(first_ns.get(line.file, line.time_ns), line.time_ns)
    return [
        line
        for line in lines
        if line.kind != "torchrun-failure"
        or line.time_ns is None
        or line.values.get("exitcode") not in (-9, -15)
        or line.time_ns <= first_ns[line.file] + MOMENT_NS
    ]


def find_tracebacks(lines: Sequence[LogLine]) -> list[tuple[LogLine, list[LogLine]]]:
    """Every traceback of a program, with the known errors among its lines."""
    errors: defaultdict[Any, list[LogLine]] = defaultdict(list)
    for line in lines:
        if line.pattern:
            errors[line.file, line.who].append(line)
            if line.role == "victim" and line.who != _UNKNOWN_PROCESS:
                errors[line.file, "harm"].append(line)
    return [
        (line, _errors_in(line, errors))
        for line in lines
        if line.kind == "traceback" and not line.values.get("launcher")
    ]


def _errors_in(traceback: LogLine, errors: Mapping[Any, Sequence[LogLine]]) -> list[LogLine]:
    """Known errors that are lines of a traceback: of its process, or of an unknown one."""
    near: list[LogLine] = []
    for who in (traceback.who, "harm" if traceback.who == _UNKNOWN_PROCESS else _UNKNOWN_PROCESS):
        of_process = errors.get((traceback.file, who), ())
        near += of_process[bisect_right([e.line for e in of_process], traceback.line) :][:MOST_NEAR_ERRORS]
    near = [e for e in sorted(near, key=lambda e: e.line) if e.line <= traceback.line + TRACEBACK_LINES]
    causes = [row for row in traceback.values.get("causes") or () if len(row) > 2]
    texts = [_whole(traceback.values.get("exception"), traceback.values.get("message"))]
    texts += [_whole(row[1], row[2]) for row in causes]
    return [e for e in near if any(same_text(e.text, text) for text in texts)]


def _whole(exception: Any, message: Any) -> str:
    return f"{exception or ''}: {message or ''}" if message else str(exception or "")


def _of_text(lines: Sequence[LogLine]) -> list[Failure]:
    """Failures from exceptions and known errors; an error in an exception belongs to it."""
    tracebacks = find_tracebacks(lines)
    aborts = [(line, errors_of_abort(line, lines)) for line in lines if line.kind == "abort"]
    inside = {(error.file, error.offset) for _, errors in (*tracebacks, *aborts) for error in errors}
    failures = [failure for line, errors in tracebacks for failure in _of_traceback(line, errors)]
    failures += [failure for line, errors in aborts for failure in _of_abort(line, errors)]
    failures += [
        _advised(Failure(line, error_label(line), (line.pattern, ""), 2), line)
        for line in lines
        if line.pattern and (line.file, line.offset) not in inside and _accuses_self(line)
    ]
    return sorted(failures, key=lambda f: (f.line.file, f.line.offset))


def _of_traceback(line: LogLine, errors: Sequence[LogLine]) -> list[Failure]:
    """The failure in a traceback: the oldest exception of the chain counts, not those of the cleanup."""
    rows = [[None, line.values.get("exception"), line.values.get("message"), line.values.get("frames")]]
    rows += [row for row in line.values.get("causes") or () if len(row) > 3]
    for _, exception, message, frames in reversed(rows):
        known = [e for e in errors if same_text(e.text, _whole(exception, message))]
        cause = next((e for e in known if _accuses_self(e)), None)
        of_others = tells_of_others(str(exception or ""))
        if cause is None and (of_others or any(e.role in ("root", "victim") for e in known)):
            return []
        if not exception:
            continue
        stack = _frames(frames)
        where = f"{stack[0].file}:{stack[0].line}" if stack else ""
        what = f"{exception_name(str(exception))}: {message}" if message else str(exception)
        mark = (cause.pattern if cause else str(exception), where)
        mixed = bool(line.values.get("mixed"))
        made = Failure(line, error_label(cause) if cause else cut_text(what), mark, 2, stack, mixed)
        return [_advised(made, cause)]
    return []


def _of_abort(line: LogLine, errors: Sequence[LogLine]) -> list[Failure]:
    """The failure in an exception of C++ that nobody caught; none if it tells of others, or a watchdog threw it."""
    said = [error for error in (line, *errors) if error.role in ("root", "victim") or error.kind != "known-error"]
    cause = next((error for error in said if _accuses_self(error)), None)
    exception, message = str(line.values.get("exception") or ""), str(line.values.get("message") or "")
    # without an exception the program ended while its threads ran, as after a signal
    open_ = bool(exception or message) and not tells_of_others(exception.replace("::", "."))
    if cause is None and (len(said) > 1 or line.role or not open_):
        return []
    what = cut_text(line.text)
    if cause is not None:
        what = error_label(cause)
    mark = (cause.pattern if cause is not None else exception, "")
    return [_advised(Failure(line, what, mark, 2, seen_end=True), cause)]


def _only_harm(failure: Failure, ends: Mapping[int, RankEnd]) -> bool:
    """Whether a traceback is of the exception that ended its rank, and the rank noted a failure elsewhere."""
    end = ends.get(failure.rank) if failure.rank is not None else None
    if end is None or not end.is_harm or failure.line.kind != "traceback":
        return False
    values = failure.line.values
    return same_text(end.error, _whole(values.get("exception"), values.get("message")))


def _of_capture(ends: Mapping[int, RankEnd], known: set[Any]) -> Iterator[Failure]:
    """Exceptions that ended ranks by their own notes, if there is no traceback of them."""
    for end in ends.values():
        if end.is_own and end.line.who not in known:
            mark = (end.error.partition(":")[0], "")
            made = Failure(end.line, cut_text(end.error), mark, 2, seen_end=True)
            yield _advised(made, end.line if end.line.pattern else None)


def _accuses_self(line: LogLine) -> bool:
    return line.role == "root" and line.values.get("accuses", "self") == "self"


def _advised(failure: Failure, error: LogLine | None) -> Failure:
    """The failure with meaning and advice of a known error."""
    if error is None:
        return failure
    meaning, advice = error.values.get("meaning"), error.values.get("next")
    either_end = error.has(EITHER_END)
    return replace(failure, meaning=str(meaning or ""), advice=str(advice or ""), either_end=either_end)


def cut_text(text: str) -> str:
    """A text short enough for a title."""
    text = " ".join(text.split())
    return text if len(text) <= LONGEST_LABEL else f"{text[: LONGEST_LABEL - 1]}…"


def stack_of(line: LogLine) -> tuple[Frame, ...]:
    """The frames of a traceback, innermost first."""
    return _frames(line.values.get("frames"))


def _frames(rows: Any) -> tuple[Frame, ...]:
    return tuple(Frame(str(r[0]), str(r[1]), int(r[2])) for r in rows or () if len(r) == 3)


def _of_ends(lines: Sequence[LogLine], spared: set[int], harmed: Sequence[LogLine]) -> Iterator[Failure]:
    """Failures from exit codes, signals and kills by the kernel.

    A worker whose server only sees that it died, or was aborted, may be a victim, too: unless it died before any line
    tells of harm.
    """
    of_srun: set[int] = set()
    for line in lines:
        if line.values.get("pid") in spared and line.kind != "oom-kill":
            continue
        if EVENTS[line.kind].exit_of == "task":
            # after the first task that ends badly srun kills the others
            if line.file in of_srun and str(line.values.get("how")).startswith("Killed"):
                continue
            of_srun.add(line.file)
        if line.kind == "worker-died" and not _tells_reason(line):
            if all(precedes(line, other) for other in harmed):
                # processes that die later follow from it and do not share its cause
                mark = ("worker-died", str(line.who))
                yield Failure(line, "died unexpectedly", mark, 1, advice=_WORKER_ADVICE, seen_end=True)
        elif line.kind == "pod-exit" and _is_after(line, harmed):
            # kubelet kills a container that does not end when its pod is to be deleted
            continue
        elif EVENTS[line.kind].exit_of:
            yield from _of_exit(line)
            if line.values.get("of_server") and _aborted_first(line, harmed):
                yield Failure(
                    line, "aborted (SIGABRT)", ("SIGABRT", str(line.who)), 1, advice=_WORKER_ADVICE, seen_end=True
                )
        elif line.kind == "signal":
            if line.values.get("signal") in SIGNALS and line.values.get("sender") != "launcher":
                yield _signalled(line, line.values["signal"])
        elif line.kind == "oom-kill":
            what = "killed by the kernel because memory ran out"
            yield Failure(line, what, ("host-out-of-memory", ""), 2, seen_end=True)
        elif line.kind == "memory-summary" and line.values.get("ooms"):
            what = "CUDA out of memory, by its memory summary"
            yield Failure(line, what, ("cuda-out-of-memory", ""), 1, meaning="A request found no memory on its device.")


def _aborted_first(line: LogLine, harmed: Sequence[LogLine]) -> bool:
    """Whether a process ended by SIGABRT before any line that tells of harm; watchdogs end waiting processes so."""
    return signal_number(exit_code(line.values)) == 6 and all(precedes(line, other) for other in harmed)


def _tells_reason(line: LogLine) -> bool:
    """Whether the end of a worker is a kill for memory, or a signal that comes from itself or the kernel."""
    return bool(line.values.get("how")) or signal_number(exit_code(line.values)) in SIGNALS


def _is_after(line: LogLine, harmed: Sequence[LogLine]) -> bool:
    """Whether a container was ended by SIGKILL after others were harmed, for no reason of its own."""
    killed = signal_number(exit_code(line.values)) == 9 and line.values.get("reason") in (None, "Error")
    return killed and any(is_earlier(other, line) for other in harmed)


def _of_exit(line: LogLine) -> Iterator[Failure]:
    how = str(line.values.get("how") or "")
    number = signal_number(exit_code(line.values))
    if how.startswith("Out Of Memory"):
        yield Failure(line, "killed because memory ran out", ("host-out-of-memory", ""), 2, seen_end=True)
    elif number in SIGNALS:
        yield _signalled(line, number)
    elif how in LOST:
        what = f"its pod was ended by Kubernetes ({how})"
        yield Failure(line, what, ("pod-lost", how), 2, advice=_POD_ADVICE, seen_end=True)


def _signalled(line: LogLine, number: int) -> Failure:
    name = SIGNALS[number]
    if number != 9:
        return Failure(line, f"ended by {name}", (name, ""), 2, seen_end=True)
    advice = (
        "dmesg of its host: the kernel kills processes when memory runs out; a scheduler or a person may have "
        "killed it too."
    )
    return Failure(line, "killed by SIGKILL", (name, ""), 1, advice=advice, seen_end=True)


def split_timely(logs: LogEvidence) -> tuple[list[Failure], list[tuple[LogLine, str]]]:
    """The failures that may be causes, and the faults of hardware that came too early for that, with the reason.

    A fault while others waited already stays a cause, with a doubt.
    """
    timely: list[Failure] = []
    untimely: list[tuple[LogLine, str]] = []
    for failure in find_failures(logs.lines):
        line = failure.line
        if line.time_ns is None or not line.is_kernel:
            timely.append(failure)
            continue
        # begins of waits that watchdogs ended, of other processes
        waits = [
            (other.time_ns - ran * 1_000_000, other)
            for other in logs.lines
            if isinstance(ran := other.values.get("ran_ms"), int)
            and other.time_ns is not None
            and other.who != line.who
        ]
        if reason := _too_early(line, line.time_ns, waits, logs.dataset):
            untimely.append((line, reason))
        else:
            timely.append(replace(failure, line=_doubted(line, line.time_ns, waits)))
    return timely, untimely


def _too_early(line: LogLine, at_ns: int, waits: Sequence[tuple[int, LogLine]], dataset: Dataset) -> str:
    """The reason why a fault is too old to be the cause; "" if it may be."""
    in_utc = bool(line.values.get("utc"))
    if waits:
        since, first = min(waits, key=lambda wait: wait[0])
        zones = 0 if in_utc == bool(first.values.get("utc")) else ZONES_NS
        if since - at_ns > EARLY_NS + CLOCK_SKEW_NS + zones:
            return f"the job went on for {duration(since - at_ns)} after it"
    began = dataset.comms.filter(pl.col("rank") == line.rank)["started_ns"].min() if line.rank is not None else None
    if isinstance(began, int) and at_ns + CLOCK_SKEW_NS + (ZONES_NS if in_utc else 0) < began:
        return f"it came {duration(began - at_ns)} before the rank set up its first communicator"
    return ""


def _doubted(line: LogLine, at_ns: int, waits: Sequence[tuple[int, LogLine]]) -> LogLine:
    """The line, with a doubt if others had waited for long when it was written, or if the order cannot be told."""
    begins = [at for at, other in waits if same_zone(line, other)]
    if line.values.get("doubt") or not waits:
        return line
    if not begins:
        text = "its time is in another time zone than the job's: the order is not known"
    elif at_ns - min(begins) > LATE_NS:
        text = f"others had waited for {duration(at_ns - min(begins))} when it came"
    else:
        return line
    return replace(line, values={**line.values, "doubt": text})


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

    @property
    def of_either_end(self) -> bool:
        """Whether the rank at the other end of the first one may be at fault instead."""
        return bool(self.failures) and self.failures[0].either_end


def first_failures(logs: LogEvidence) -> FirstFailures:
    """The earliest failure, with those of the same cause.

    Times are taken as printed. Known clock differences only reduce the blame and the confidence.
    """
    # ranks whose own dumps show them waiting for another rank with a dump had not ended then
    dumped = set(logs.dataset.dumps["rank"].drop_nulls().to_list())
    proven = [r for r in logs.dump_roots if r.culprit_ranks and dumped.issuperset(r.culprit_ranks)]
    alive = {rank for root in proven for rank in root.waiting_ranks if rank in dumped}
    return _first_of(logs.once(split_timely)[0], logs.lines, alive, read_clocks(logs.dataset))


def _first_of(
    failures: Sequence[Failure], lines: Sequence[LogLine], alive: Collection[int], clocks: HostClocks
) -> FirstFailures:
    gave_up, went_on = _first_timeouts(lines), _last_timeouts(lines)
    late = [
        f
        for f in failures
        if f.rank in alive
        # the watchdog of a lost GPU still gives up
        or (not f.line.is_hardware and any(precedes(f.line, timeout) for timeout in went_on.get(f.line.who, ())))
        or any(t.who != f.line.who and _before(t, f.line, clocks) and same_zone(t, f.line) for t in gave_up)
    ]
    early = [f for f in failures if f not in late]
    if not early:
        return FirstFailures((), tuple(late))
    strongest = max(f.strength for f in early)
    heads = [f for f in early if not any(precedes(o.line, f.line) for o in early)]
    heads = [f for f in heads if f.strength == strongest] or heads
    heads.sort(key=lambda f: (f.line.time_ns is None, f.line.time_ns or 0, f.line.file, f.line.offset))
    chosen, reasons, confidence = _chosen(heads, lines)
    first = chosen[0]
    marks = {f.mark for f in chosen}
    same = [f for f in early if f not in chosen and any(_alike(f.mark, mark) for mark in marks)]
    rest = [f for f in early if f not in chosen and f not in same]
    rivals = [f for f in rest if f in heads or _close(first, f)]
    if rivals and confidence == "high":
        confidence, reasons = "medium", (*reasons, _close_text(first, rivals[0]))
    earlier = [
        f
        for f in rest
        if f.line.file != first.line.file
        and clocks.skew(f.line, first.line) != 0
        and clocks.precedes(f.line, first.line)
    ]
    if earlier:
        confidence, reasons = "low", (*reasons, _clocks_text(earlier[0], first, clocks))
        rivals += [f for f in earlier if f not in rivals]
    return FirstFailures((*chosen, *same), (*rest, *late), tuple(rivals), confidence, reasons)


def _chosen(heads: list[Failure], lines: Sequence[LogLine]) -> tuple[list[Failure], tuple[str, ...], Confidence]:
    """(failures, reasons, confidence) among failures of which none is proven to be older than another."""
    if len({f.mark for f in heads}) == 1:
        return heads, (), "high"
    if all(f.line.time_ns is not None for f in heads):
        return heads[:1], (), "high"
    by_torchrun = {line.rank for line in lines if line.kind == "torchrun-failure" and line.values.get("first")}
    first = [f for f in heads if f.rank is not None and f.rank in by_torchrun]
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
    last: dict[object, dict[int, LogLine]] = {}
    for line in lines:
        if line.rank is not None and line.pattern == "watchdog-timeout":
            last.setdefault(line.who, {})[line.file] = line
    return {who: list(of_file.values()) for who, of_file in last.items()}


def _first_timeouts(lines: Sequence[LogLine]) -> list[LogLine]:
    """By file and process the first line of a timeout."""
    of_process: dict[tuple[int, object], LogLine] = {}
    for line in lines:
        if line.has(GAVE_UP) or EVENTS[line.kind].gave_up:
            of_process.setdefault((line.file, line.who), line)
    # for thousands of ranks: the first one of a file, and of another process, suffices
    first: dict[int, list[LogLine]] = {}
    for (file, _), line in of_process.items():
        if len(first.setdefault(file, [])) < 2:
            first[file].append(line)
    return [line for of_file in first.values() for line in of_file]


def find_first(logs: LogEvidence) -> Iterator[Finding]:
    """The root cause; nothing if nobody failed by itself."""
    first = logs.once(first_failures)
    if not first.failures:
        return
    chief, failed = first.failures[0], [f.line for f in first.failures]
    ranks = ranks_of(failed)
    ended = (-15, -6, -9)
    harmed = {
        line.rank
        for line in logs.lines
        if line.rank is not None
        and (
            line.role == "victim"
            or EVENTS[line.kind].by_watchdog
            or (line.kind == "torchrun-failure" and line.values.get("exitcode") in ended)
        )
    }
    waiting = tuple(sorted(harmed - set(ranks)))
    # several that got too much share the rank that sent it
    open_ = first.of_either_end and len(ranks) > 1
    confidence, reasons = _sure(first, logs.dataset)
    people = f"all {logs.world} ranks" if logs.world > 1 and len(ranks) == logs.world else who_text(failed)
    steps = [chief.advice] if chief.advice else []
    if chief.frames:
        steps.append(f"Read the traceback at {chief.line.place}.")
    yield Finding(
        kind="rank-failed",
        severity="critical",
        title=f"{people} failed: {chief.what} ({chief.line.place})",
        explanation=_explained(first, people),
        root_cause=True,
        culprit_ranks=() if open_ else ranks,
        culprits=() if open_ else culprits_of(failed, logs.place),
        candidates=tuple(sorted({*(ranks if open_ else ()), *ranks_of(f.line for f in first.rivals)})),
        waiting_ranks=waiting,
        blast_radius=len(waiting),
        confidence=confidence,
        confidence_reasons=reasons,
        stack=chief.frames,
        evidence=(*_accused(first.failures), *_ends(logs.lines, ranks), *_harm(logs.lines, chief.line)),
        counter_evidence=tuple(
            f.line.evidence(f"{who_text([f.line])} failed too: {f.what}") for f in first.rivals[:MOST_LATER]
        ),
        next_steps=tuple(steps),
    )


def find_later(logs: LogEvidence) -> Iterator[Finding]:
    """Failures that came after others: worth knowing, but no cause."""
    first = logs.once(first_failures)
    if not first.later:
        return
    failed = [f.line for f in first.later]
    yield Finding(
        kind="rank-failed",
        severity="warning" if not first.failures else "info",
        title=f"{who_text(failed)} failed too: {first.later[0].what} ({first.later[0].line.place})",
        explanation=(
            "These failures came after another one, after ranks had given up waiting, or on ranks that went on: "
            "they are no cause."
        ),
        culprit_ranks=ranks_of(failed),
        culprits=culprits_of(failed, logs.place),
        evidence=_accused(first.later),
        stack=first.later[0].frames,
    )


def _explained(first: FirstFailures, people: str) -> str:
    chief = first.failures[0]
    text = f"The first failure that the logs hold is of {people}: {chief.what}"
    if chief.frames:
        at = chief.frames[0]
        text += f", raised in {at.function} ({at.file}:{at.line})"
    text += f". {chief.meaning}" if chief.meaning else "."
    joined = [row["text"] for f in first.failures[:MOST_CULPRITS] if (row := f.line.values.get("joined"))]
    return f"{text} {' '.join(f'{t[0].upper()}{t[1:]}.' for t in dict.fromkeys(joined))}" if joined else text


def _sure(first: FirstFailures, dataset: Dataset) -> tuple[Confidence, tuple[str, ...]]:
    chief, line = first.failures[0], first.failures[0].line
    guessed = dataset.files.filter(pl.col("rank_source").cast(pl.String) == "guess")["file"].to_list()
    doubt = str(line.values.get("doubt") or "")
    # as a kernel's log that counts from the start of the host
    timeless = line.is_kernel and line.since_ns is None and line.until_ns is None
    doubts = [
        (chief.rank is None, "the log does not say which rank it is"),
        (chief.rank is not None and line.file in guessed, "the rank of the log is a guess"),
        (chief.mixed, "tracebacks of several processes are mixed there"),
        (line.torn, "the log is torn there"),
        (
            chief.strength == 1,
            "a summary counts failed requests, and does not show whether the program went on"
            if line.kind == "memory-summary"
            else "the logs do not show why it was killed",
        ),
        (bool(doubt), doubt),
        (chief.either_end, "the rank at the other end may be the one whose size is wrong"),
        (timeless, "the line has no time: it may be older than the job"),
    ]
    reasons = [reason for holds, reason in doubts if holds]
    lowered = bool(reasons) and first.confidence == "high"
    return "medium" if lowered else first.confidence, (*first.reasons, *reasons)


def _accused(failures: Sequence[Failure]) -> tuple[Evidence, ...]:
    """The lines of failures, and those that tell whose process or device they are about."""
    shown = failures[:MOST_CULPRITS]
    joined = {row["text"]: row for f in shown if (row := f.line.values.get("joined"))}
    return (
        *(f.line.evidence() for f in shown),
        *(Evidence(text, file=row["file"], line=row["line"]) for text, row in joined.items()),
    )


def _ends(lines: Sequence[LogLine], ranks: Sequence[int]) -> list[Evidence]:
    """The ends of these ranks as the launcher saw them, and the rank that it takes for the root cause."""
    summary = [line for line in lines if line.kind == "torchrun-failure"]
    ends = [line.evidence() for line in summary if line.rank in ranks][:MOST_CULPRITS]
    others = [line for line in summary if line.values.get("first") and line.rank not in ranks]
    return ends + [
        line.evidence(f"torchrun calls rank {line.rank} the root cause: it is only the first that ended")
        for line in others[:1]
    ]


def _harm(lines: Sequence[LogLine], chief: LogLine) -> list[Evidence]:
    """The first lines of other processes that only show harm, one of each kind."""
    kinds = Counter(line.pattern for line in lines if line.role == "victim")
    evidence = []
    for pattern, count in kinds.most_common(MOST_WITNESSES):
        shown = next(line for line in lines if line.pattern == pattern and line.role == "victim")
        text = shown.text if len(shown.text) <= LONGEST_QUOTE else f"{shown.text[: LONGEST_QUOTE - 1]}…"
        earlier = shown.file == chief.file and shown.offset < chief.offset
        when = "an earlier line, but a consequence" if earlier else "a consequence"
        evidence.append(shown.evidence(f"{when} ({plural(count, 'line')}): {text}"))
    return evidence
