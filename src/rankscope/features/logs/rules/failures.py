"""Processes that failed by themselves, unlike those taken down: exceptions, signals, exit codes, kills by the
kernel."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from rankscope.features.logs.rules.exits import RankEnd, exception_name, read_ends, tells_of_others
from rankscope.features.logs.rules.log_lines import LogLine, error_label
from rankscope.kinds.event_kinds import EVENTS
from rankscope.schema import Frame

TRACEBACK_LINES = 2000
"""Most lines between the head of a traceback and a known error that belongs to it."""
MOST_NEAR_ERRORS = 64
"""Most known errors after a traceback that are examined."""
MOMENT_NS = 1_000_000_000
"""Times of torchrun's summary are whole seconds."""
_UNKNOWN_PROCESS = (None, "", None, "")
"""`LogLine.who` of an unknown process."""
LONGEST_QUOTE = 90
SIGNALS = {4: "SIGILL", 7: "SIGBUS", 8: "SIGFPE", 9: "SIGKILL", 11: "SIGSEGV"}
"""Signals from the process itself or from the kernel. SIGTERM, SIGINT and SIGHUP come from a person or a launcher,
and watchdogs end waiting processes with SIGABRT, so these alone accuse nobody."""
_SRUN_SIGNALS = {"Killed": 9, "Segmentation fault": 11, "Aborted": 6, "Bus error": 7, "Illegal instruction": 4}
"""Signal numbers by the words of srun."""


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

    @property
    def rank(self) -> int | None:
        """The rank, where the log tells it."""
        return self.line.rank


def find_failures(lines: Sequence[LogLine]) -> list[Failure]:
    """One failure for each process that failed by itself: the strongest, then the first. In the order of the files."""
    spared = _spared(lines)
    lines = with_ranks(without_ended(lines))
    aborted = {line.who for line in lines if line.role == "victim" or line.kind.startswith("watchdog")}
    told = read_ends(lines)
    found = [f for f in _of_text(lines) if not _only_harm(f, told)] + [*_of_ends(lines, spared, bool(aborted))]
    found += _of_capture(told, {failure.line.who for failure in found})
    ended = {failure.line.who for failure in found if failure.seen_end} | _exited(lines)
    best: dict[Any, Failure] = {}
    for failure in found:
        known = best.get(failure.line.who)
        if known is None or failure.strength > known.strength:
            best[failure.line.who] = failure
    whole = [replace(f, seen_end=f.seen_end or f.line.who in ended) for f in best.values()]
    return [f for f in whole if not _told_again(f, whole)]


def _told_again(failure: Failure, all_: Sequence[Failure]) -> bool:
    """Whether a line says of an unnamed process what another line says of a named one: slurmstepd counts kills."""
    line = failure.line
    if failure.mark[0] != "host-out-of-memory" or line.rank is not None or line.pid is not None:
        return False
    named = (f.line for f in all_ if f.mark[0] == failure.mark[0] and (f.rank is not None or f.line.pid is not None))
    return any(not line.host or not other.host or line.host == other.host for other in named)


def _spared(lines: Iterable[LogLine]) -> set[int]:
    """Processes that the launcher ended, whatever their exit code is."""
    ended = (line for line in lines if line.kind == "signal" and line.values.get("sender") == "launcher")
    return {line.values["pid"] for line in ended if line.values.get("pid") is not None}


def without_ended(lines: Iterable[LogLine]) -> list[LogLine]:
    """The lines without processes that torchrun itself ended: killed well after the first of its summary had failed.

    It sends SIGTERM when one process fails, and SIGKILL to those that are still there half a minute later.
    """
    lines = list(lines)
    first: dict[int, int] = {}
    for line in lines:
        if line.kind == "torchrun-failure" and line.time_ns is not None:
            first[line.file] = min(first.get(line.file, line.time_ns), line.time_ns)
    return [line for line in lines if not _ended_by_torchrun(line, first.get(line.file))]


def _ended_by_torchrun(line: LogLine, first_ns: int | None) -> bool:
    if line.kind != "torchrun-failure" or line.time_ns is None or first_ns is None:
        return False
    return line.values.get("exitcode") in (-9, -15) and line.time_ns > first_ns + MOMENT_NS


def _exited(lines: Iterable[LogLine]) -> set[Any]:
    return {line.who for line in lines if EVENTS[line.kind].exit_of == "process" and line.rank is not None}


def find_tracebacks(lines: Sequence[LogLine]) -> list[tuple[LogLine, list[LogLine]]]:
    """Every traceback of a program, with the known errors among its lines."""
    errors: defaultdict[Any, list[LogLine]] = defaultdict(list)
    for line in lines:
        if line.pattern:
            errors[line.file, line.who].append(line)
            if line.role == "victim" and line.who != _UNKNOWN_PROCESS:
                errors[line.file, "harm"].append(line)
    return [
        (line, _errors_in(line, _near(line, errors)))
        for line in lines
        if line.kind == "traceback" and not line.values.get("launcher")
    ]


def _near(traceback: LogLine, errors: Mapping[Any, Sequence[LogLine]]) -> list[LogLine]:
    """Known errors that may be lines of a traceback: of its process, or of an unknown one."""
    other = "harm" if traceback.who == _UNKNOWN_PROCESS else _UNKNOWN_PROCESS
    found = [
        error
        for who in (traceback.who, other)
        for own in (errors.get((traceback.file, who), ()),)
        for error in own[bisect_right([e.line for e in own], traceback.line) :][:MOST_NEAR_ERRORS]
    ]
    return sorted(found, key=lambda error: error.line)


def _of_text(lines: Sequence[LogLine]) -> list[Failure]:
    """Failures from tracebacks and known errors; an error inside a traceback belongs to it."""
    tracebacks = find_tracebacks(lines)
    inside = {(error.file, error.offset) for _, errors in tracebacks for error in errors}
    found = [failure for line, errors in tracebacks for failure in _of_traceback(line, errors)]
    alone = (x for x in lines if x.pattern and (x.file, x.offset) not in inside)
    found += [_of_error(line) for line in alone if _accuses_self(line)]
    return sorted(found, key=lambda f: (f.line.file, f.line.offset))


def _errors_in(traceback: LogLine, errors: Sequence[LogLine]) -> list[LogLine]:
    """Known errors that are lines of a traceback."""
    whole = _whole(traceback.values.get("exception"), traceback.values.get("message"))
    causes = [_whole(row[1], row[2]) for row in traceback.values.get("causes") or () if len(row) > 2]
    near = [e for e in errors if e.line <= traceback.line + TRACEBACK_LINES]
    return [e for e in near if any(_same(e.text, text) for text in (whole, *causes))]


def _whole(exception: Any, message: Any) -> str:
    return f"{exception or ''}: {message or ''}" if message else str(exception or "")


def _same(text: str, whole: str) -> bool:
    return bool(text and whole) and (whole[:100] in text or text[:100] in whole)


def _of_traceback(line: LogLine, errors: Sequence[LogLine]) -> list[Failure]:
    """The failure in a traceback: the oldest exception of the chain counts, not those of the cleanup."""
    rows = [[None, line.values.get("exception"), line.values.get("message"), line.values.get("frames")]]
    rows += [row for row in line.values.get("causes") or () if len(row) > 3]
    for _, exception, message, frames in reversed(rows):
        whole = _whole(exception, message)
        known = [e for e in errors if _same(e.text, whole)]
        cause = next((e for e in known if _accuses_self(e)), None)
        of_others = tells_of_others(str(exception or ""))
        if cause is None and (of_others or any(e.role in ("root", "victim") for e in known)):
            return []
        if not exception:
            continue
        stack = _frames(frames)
        where = f"{stack[0].file}:{stack[0].line}" if stack else ""
        what = (
            error_label(cause)
            if cause
            else cut_text(f"{exception_name(str(exception))}: {message}" if message else str(exception))
        )
        made = Failure(line, what, (cause.pattern if cause else str(exception), where), 2, stack)
        made = replace(made, mixed=bool(line.values.get("mixed")))
        return [_advised(made, cause)]
    return []


def _of_error(line: LogLine) -> Failure:
    return _advised(Failure(line, error_label(line), (line.pattern, ""), 2), line)


def _only_harm(failure: Failure, ends: Mapping[int, RankEnd]) -> bool:
    """Whether a traceback is of the exception that ended its rank, and the rank noted a failure elsewhere."""
    end = ends.get(failure.rank) if failure.rank is not None else None
    if end is None or not end.is_harm or failure.line.kind != "traceback":
        return False
    values = failure.line.values
    return _same(end.error, _whole(values.get("exception"), values.get("message")))


def _of_capture(ends: Mapping[int, RankEnd], known: set[Any]) -> list[Failure]:
    """Exceptions that ended ranks by their own notes, if there is no traceback of them."""
    return [
        _advised(
            Failure(end.line, cut_text(end.error), (end.error.partition(":")[0], ""), 2, seen_end=True),
            end.line if end.line.pattern else None,
        )
        for end in ends.values()
        if end.reason == "exception" and not end.is_harm and end.line.who not in known
    ]


def _accuses_self(line: LogLine) -> bool:
    return line.role == "root" and line.values.get("accuses", "self") == "self"


def _advised(failure: Failure, error: LogLine | None) -> Failure:
    if error is None:
        return failure
    told = error.values
    return replace(failure, meaning=str(told.get("meaning") or ""), advice=str(told.get("next") or ""))


def cut_text(text: str) -> str:
    """A text short enough for a title."""
    text = " ".join(text.split())
    return text if len(text) <= LONGEST_QUOTE else f"{text[: LONGEST_QUOTE - 1]}…"


def stack_of(line: LogLine) -> tuple[Frame, ...]:
    """The frames of a traceback, innermost first."""
    return _frames(line.values.get("frames"))


def _frames(rows: Any) -> tuple[Frame, ...]:
    return tuple(Frame(str(r[0]), str(r[1]), int(r[2])) for r in rows or () if len(r) == 3)


def _of_ends(lines: Sequence[LogLine], spared: set[int], aborted: bool) -> list[Failure]:
    """Failures from exit codes, signals and kills by the kernel."""
    found = []
    of_srun: set[int] = set()
    for line in lines:
        if line.values.get("pid") in spared and line.kind != "oom-kill":
            continue
        if EVENTS[line.kind].exit_of == "task":
            # after the first task that ends badly srun kills the others
            if line.file in of_srun and str(line.values.get("how")).startswith("Killed"):
                continue
            of_srun.add(line.file)
        if EVENTS[line.kind].exit_of:
            found += _of_exit(line)
        elif line.kind == "signal":
            number = line.values.get("signal")
            found += [_signalled(line, number)] if number in SIGNALS and line.values.get("sender") != "launcher" else []
        elif line.kind == "worker-died" and not aborted:
            found.append(_died(line))
        elif line.kind == "oom-kill":
            found.append(
                Failure(
                    line, ("killed by the kernel because memory ran out"), ("host-out-of-memory", ""), 2, seen_end=True
                )
            )
    return found


def _died(line: LogLine) -> Failure:
    advice = "Read the log of this worker, and dmesg of its host: it was killed, or crashed in native code."
    # processes that die later follow from it and do not share its cause
    return Failure(line, "died unexpectedly", ("worker-died", str(line.who)), 1, advice=advice, seen_end=True)


def _of_exit(line: LogLine) -> list[Failure]:
    code = line.values.get("exitcode")
    how = str(line.values.get("how") or "")
    number = -code if isinstance(code, int) and code < 0 else code - 128 if isinstance(code, int) and code > 128 else 0
    number = next((n for words, n in _SRUN_SIGNALS.items() if how.startswith(words)), number)
    if number in SIGNALS:
        return [_signalled(line, number)]
    if how.startswith("Out Of Memory"):
        return [Failure(line, "killed because memory ran out", ("host-out-of-memory", ""), 2, seen_end=True)]
    return []


def _signalled(line: LogLine, number: Any) -> Failure:
    name = SIGNALS[number]
    advice = (
        "dmesg of its host: the kernel kills processes when memory runs out; a scheduler or a person may have "
        "killed it too."
    )
    how = "killed by SIGKILL" if number == 9 else f"ended by {name}"
    return Failure(line, how, (name, ""), 2 if number != 9 else 1, advice=advice if number == 9 else "", seen_end=True)


# Ranks of processes: the rank in one line holds for all lines of its process.


def with_ranks(lines: Sequence[LogLine]) -> list[LogLine]:
    """The lines, with the rank of their process if any line tells both."""
    ranks = _ranks_by_process(lines)
    if not ranks:
        return list(lines)
    return [replace(line, rank=_rank_of(line, ranks)) if line.rank is None else line for line in lines]


def _key(line: LogLine) -> tuple[str, int | None]:
    return line.host or "", line.pid


def _rank_of(line: LogLine, ranks: Mapping[tuple[str, int | None], int]) -> int | None:
    if line.is_hardware or line.kind == "oom-kill" or line.pid is None:
        # numbers of a kernel count on its host only, and the assembly has looked them up
        return None if line.pid is None else ranks.get(_key(line))
    return ranks.get(_key(line), ranks.get(("", line.pid)))


def _ranks_by_process(lines: Iterable[LogLine]) -> dict[tuple[str, int | None], int]:
    """The rank of each process that a line tells; without the host if the process number is unique."""
    found: defaultdict[tuple[str, int | None], set[int]] = defaultdict(set)
    for line in lines:
        if line.rank is not None and line.pid is not None:
            found[_key(line)].add(line.rank)
            found["", line.pid].add(line.rank)
    return {key: ranks.pop() for key, ranks in found.items() if len(ranks) == 1}
