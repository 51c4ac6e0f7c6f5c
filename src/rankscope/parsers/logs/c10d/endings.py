"""Ends of processes, as printed by srun, slurmstepd, the kernel, torchrun and the C library."""

from __future__ import annotations

import re
from collections.abc import Iterator

from rankscope.parsers.logs.c10d.event_builder import matched_number, message_event
from rankscope.parsers.logs.c10d.hardware_lines import host_before
from rankscope.parsers.logs.log_record import Event, Record

LITERALS = (
    "srun: error: ", "slurmstepd: error: ", "oom-kill", "oom_kill", "Killed process ", "closing signal SIG",
    "failed (exitcode: ", "Fatal Python error: ", "got signal: ", "Process received signal", "Signal: ",
    "core dumped", "restart_count=", "will restart worker group", "exits with return code = ", " terminated with ",
    " died, exit code", " noticed that process rank ", "Kill process ", "oom_reaper: reaped process ",
    "\": badness ",
)  # fmt: skip
_RESTART = re.compile(r"\brestart_count=(\d{1,6})\b|(\d{1,6})/(\d{1,6}) attempts left; will restart worker group")
_SRUN = re.compile(r"srun: error: ([\w.\-]{1,255}): tasks? ([\d,\-]{1,2000}): (.{1,200})")
_EXIT = re.compile(r"Exited with exit code (\d{1,5})")
_CANCELLED = re.compile(
    r"slurmstepd: error: \*{3} (?:STEP|JOB) (\S{1,60}) ON (\S{1,255}) CANCELLED AT \S{1,30}"
    r"(?: DUE TO (.{1,60}?))? \*{3}"
)
_KILLED = re.compile(
    r"(?:Kill(?:ed)?|oom_reaper: reaped) process (\d{1,10})(?:,? \(([^)]{0,64})\))?"
    r"|oom-kill:.{0,600}?\btask=([^,]{1,64}),pid=(\d{1,10})"
    r"|sending SIG(?:TERM|KILL) to process (\d{1,10})(?: uid \d{1,10})? \"([^\"]{1,64})\": badness"
)
"""Lines of the kernel, the first of old and new ones, and of earlyoom."""
_STEP = re.compile(r"Detected (\d{1,6}) oom.kill event")
_CHILD = re.compile(r"failed \(exitcode: (-?\d{1,5})\) local_rank: (\d{1,6}) \(pid: (\d{1,10})\)")
_LAUNCHED = re.compile(r"\bexits with return code = (-?\d{1,5})\b")
_SPAWNED = re.compile(r"\bprocess (\d{1,6}) terminated with (?:signal (SIG[A-Z]{2,8})|exit code (\d{1,5}))")
_WORKER = re.compile(r"Worker \S{1,80} pid (\d{1,10}) died, exit code: (-?\d{1,5})")
_MPIRUN = re.compile(
    r" noticed that process rank (\d{1,7}) with PID (\d{1,10}) on node (\S{1,255}) exited on signal (\d{1,3})\b"
)
_CLOSING = re.compile(r"Sending process (\d{1,10}) closing signal (SIG[A-Z]{2,8})")
_FATAL = re.compile(r"Fatal Python error: ([^\n]{1,200})")
_GOT_SIGNAL = re.compile(r"Process (\d{1,10}) got signal: (\d{1,3})")
_SIGNAL_NAME = re.compile(r"(?:^|\] )Signal: ([A-Z][\w ]{1,40}) \((\d{1,3})\)")
_CORE = re.compile(
    r"(Segmentation fault|Aborted|Bus error|Illegal instruction|Floating point exception) +\(core dumped\)"
)
_SIGNAL_BY_NAME = {
    "SIGHUP": 1, "SIGINT": 2, "SIGILL": 4, "SIGABRT": 6, "SIGBUS": 7, "SIGFPE": 8, "SIGKILL": 9, "SIGSEGV": 11,
    "SIGTERM": 15,
}  # fmt: skip
_SIGNAL_BY_WORDS = {
    "Segmentation fault": 11, "Aborted": 6, "Bus error": 7, "Illegal instruction": 4, "Floating point exception": 8,
}  # fmt: skip


def events(record: Record) -> Iterator[Event]:
    """The events in a record."""
    text = record.text
    if (task := _SRUN.search(text)) is not None:
        yield from _srun(record, task)
    elif (step := _STEP.search(text)) is not None:
        host = host_before(record)
        yield message_event("oom-kill", record, pid=None, name=None, count=matched_number(record, step), host=host)
    elif (killed := _KILLED.search(text)) is not None:
        yield _killed(record, killed)
    elif (cancelled := _CANCELLED.search(text)) is not None:
        yield message_event("job-cancelled", record, step=cancelled[1], host=cancelled[2], why=cancelled[3])
    elif (child := _child(record)) is not None:
        yield child
    elif (again := _RESTART.search(text)) is not None:
        yield from _restart(record, again)
    else:
        yield from _signals(record)


def _killed(record: Record, killed: re.Match[str]) -> Event:
    """Values: `pid`, None if the line is cut there; `name` of the process; `host`, where syslog tells it."""
    group = next(group for group in (1, 4, 5) if killed[group])
    name = killed[2] or killed[3] or killed[6]
    pid = matched_number(record, killed, group)
    return message_event("oom-kill", record, pid=pid, name=name, count=1, host=host_before(record))


def _child(record: Record) -> Event | None:
    """The end of a child, as its launcher prints it. Values: `exitcode`, `local_rank`, `pid`, None if unknown.

    DeepSpeed prints the command of the child that it started last, not of the one that ended.
    """
    text = record.text
    if (child := _CHILD.search(text)) is not None:
        code, local_rank, pid = map(int, child.groups())
        return _ended(record, code, local_rank, pid)
    if (launched := _LAUNCHED.search(text)) is not None:
        return _ended(record, int(launched[1]), None, None)
    if (worker := _WORKER.search(text)) is not None:
        return _ended(record, int(worker[2]), None, int(worker[1]))
    if (noticed := _MPIRUN.search(text)) is not None:
        made = _ended(record, -int(noticed[4]), None, int(noticed[2]) or None)
        # one process of mpirun is one rank wherever mpirun starts the ranks itself
        return made._replace(rank=int(noticed[1]), values={**made.values, "host": noticed[3]})
    if (spawned := _SPAWNED.search(text)) is not None:
        code = int(spawned[3]) if spawned[3] else -_SIGNAL_BY_NAME.get(spawned[2], 0)
        return _ended(record, code, int(spawned[1]), None) if code else None
    return None


def _ended(record: Record, code: int, local_rank: int | None, pid: int | None) -> Event:
    names = [f"local rank {local_rank}"] if local_rank is not None else []
    names += [f"process {pid}"] if pid is not None else []
    text = f"{', '.join(names) or 'a child'} ended with exit code {code}"
    return message_event("child-exit", record, text, exitcode=code, local_rank=local_rank, pid=pid)


def _restart(record: Record, again: re.Match[str]) -> Iterator[Event]:
    """Values: `count`, the number of the restart; `begun`: its workers are started, not only to be."""
    count = int(again[1]) if again[1] else int(again[3]) - int(again[2]) + 1
    if count > 0:
        yield message_event("restart", record, count=count, begun=again[1] is not None)


def ranges_in(listed: str) -> list[list[int]]:
    """First and last of each range in `0-2,5`."""
    found = re.findall(r"(?:^|,)(\d{1,9})(?:-(\d{1,9}))?(?=,|$)", listed)
    return [[int(low), int(high or low)] for low, high in found]


def _srun(record: Record, task: re.Match[str]) -> Iterator[Event]:
    """Values: `host`, `tasks` (first and last of ranges; ranks only where srun starts each), `how`, `exitcode`."""
    how = task[3].strip()
    code = _EXIT.search(how)
    yield message_event(
        "srun-exit", record, host=task[1], tasks=ranges_in(task[2]), how=how, exitcode=matched_number(record, code)
    )


def _signals(record: Record) -> Iterator[Event]:
    """Values: `signal` as a number, `pid`, `sender`: "launcher" where torchrun ends a bystander."""
    text = record.text
    if (closing := _CLOSING.search(text)) is not None:
        yield message_event(
            "signal", record, signal=_SIGNAL_BY_NAME.get(closing[2]), pid=int(closing[1]), sender="launcher"
        )
    elif (got := _GOT_SIGNAL.search(text)) is not None:
        yield message_event("signal", record, signal=int(got[2]), pid=int(got[1]), sender="outside")
    elif (named := _SIGNAL_NAME.search(text)) is not None:
        yield message_event("signal", record, signal=int(named[2]), pid=None, sender=None)
    elif (words := _FATAL.search(text) or _CORE.search(text)) is not None:
        yield message_event("signal", record, signal=_SIGNAL_BY_WORDS.get(words[1].strip()), pid=None, sender=None)
