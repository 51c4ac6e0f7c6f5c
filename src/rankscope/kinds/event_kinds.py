"""Kinds of events in logs, sidecars and health checks: the column `kind` of `messages`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

EventSeverity = Literal["error", "warning", "info"]
SEVERITIES: tuple[EventSeverity, ...] = ("info", "warning", "error")
"""Severities, the worst last."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EventKind:
    """A kind of event."""

    name: str
    meaning: str
    """Text of its row in docs/report.md."""
    severity: EventSeverity = "info"
    """Severity of an event without a role in the table of known errors. An error means that this run of the job is
    over."""
    is_listed: bool = True
    """Its events are rows of `messages`; else rows of `ops` or `threads`, or members of groups."""
    is_bulk: bool = False
    """Logs have a line for each collective or group; such lines accuse nobody."""
    names_last: int = 0
    """Priority of the name in a line with several kinds: the smallest number wins."""
    is_exception: bool = False
    """It is an exception of Python, with its stack."""
    is_failure: bool = False
    """Later processes may belong to the next run."""
    waited: bool = False
    """Its rank waited for others in a collective or barrier."""
    gave_up: bool = False
    """Its rank waited until its timeout."""
    by_watchdog: bool = False
    """The watchdog ends the process."""
    exit_of: Literal["", "process", "task"] = ""
    """It holds an exit code: of a process of the job, or of a task of srun, which may be a launcher."""
    of_stacks: bool = False
    """A log with only such events is a file of stacks."""
    of_others: bool = False
    """It is about a rank whose log may be absent."""
    says_size: bool = False
    """It holds the size of the job or of a group."""
    of_failed_call: bool = False
    """Its ranks report the failed collective: absent members, and the call of another member."""
    names_part: bool = False
    """It may name a process, a device or a task instead of a rank."""
    by_launcher: bool = False
    """A launcher prints it that starts several processes of the job."""
    leaves_out: bool = False
    """Operations of a log stand on no lane, or on one that others cannot be compared with."""
    failure: str = ""
    """Kind of failure in the table of advice; "" where its known error tells."""
    of_numbers: bool = False
    """A framework checked numbers itself."""
    of_compiler: bool = False
    """torch.compile prints it: it becomes a row of `compilations`."""
    known_errors: frozenset[str] = frozenset()
    """Ids of known errors whose lines it reads whole: what it says of ranks stands, in its file, for what they say."""
    settings_source: str = ""
    """Column `source` of its rows of `settings`; "" for an event without settings."""


_ROWS = (
    EventKind(
        name="known-error", names_part=True, meaning="a line of the table of known errors; `pattern` says which",
        names_last=4, is_failure=True,
    ),
    EventKind(
        name="nccl-warning", meaning="a warning or an error of NCCL, with the calls that returned it",
        severity="warning", names_last=3
    ),
    EventKind(
        name="traceback", meaning="an exception of Python, with its stack", severity="error", is_exception=True,
        is_failure=True,
    ),
    EventKind(
        name="survived-exception",
        meaning="an exception that Python ignored, or that a program logged and went on from", is_exception=True,
    ),
    EventKind(
        name="step", meaning="a sign that a process went on after an exception: a step of training, an operation"
    ),
    EventKind(
        name="watchdog-timeout", failure="wait",
        meaning="a watchdog saw an operation time out", severity="error", is_failure=True,
        waited=True, gave_up=True, by_watchdog=True,
    ),
    EventKind(
        name="watchdog-thread-terminated", meaning="a watchdog ended its process after an error", severity="error",
        names_last=2, is_failure=True, by_watchdog=True,
    ),
    EventKind(name="async-error", meaning="NCCL reported an error to a watchdog", severity="error"),
    EventKind(name="heartbeat", failure="watchdog", meaning="a watchdog itself stood still", severity="error"),
    EventKind(
        name="dump-signal", meaning="a rank was asked to dump, or asked the others", severity="warning", names_last=1
    ),
    EventKind(name="dump-written", meaning="a rank wrote its dump", is_bulk=True),
    EventKind(name="pg-status", meaning="the progress of a rank in a process group", severity="warning"),
    EventKind(name="pg-created", meaning="a communicator of a process group was made", is_bulk=True),
    EventKind(
        name="pg-seat", meaning="the place of a process in a process group", is_listed=False, says_size=True
    ),
    EventKind(name="group-watched", meaning="a watchdog of a group began or ended"),
    EventKind(
        name="init-env", meaning="the settings of a process group", is_bulk=True, says_size=True, settings_source="c10d"
    ),
    EventKind(name="unique-id", meaning="a rank got the identity of a communicator, or waited for it"),
    EventKind(name="store-barrier", meaning="a rank waited in the store for the others of its group", says_size=True),
    EventKind(
        name="fingerprint", meaning="an operation that a rank is about to issue (DETAIL)", is_listed=False,
        is_bulk=True, says_size=True,
    ),
    EventKind(
        name="fingerprint-mismatch", meaning="two ranks were about to issue operations that do not fit together",
        severity="error", says_size=True, of_failed_call=True, known_errors=frozenset({"collective-mismatch"}),
    ),
    EventKind(
        name="monitored-barrier", meaning="ranks that a monitored barrier missed", severity="warning", waited=True,
        gave_up=True, of_failed_call=True, known_errors=frozenset({"monitored-barrier-late"}),
    ),
    EventKind(
        name="desync", meaning="torch's own report of who is behind", severity="error", waited=True, says_size=True,
        known_errors=frozenset({"desync-not-joined", "desync-never-joined"}),
    ),
    EventKind(name="failed-collective-stack", meaning="the stack of a collective that failed", severity="error"),
    EventKind(name="nccl-diagnosis", names_part=True, meaning="a diagnosis that NCCL makes of its own communicator"),
    EventKind(
        name="torchrun-failure", failure="died",
        by_launcher=True, meaning="torchrun's summary of a process that failed",
        severity="error",
        is_failure=True, exit_of="process",
    ),
    EventKind(
        name="child-exit", failure="died", by_launcher=True, names_part=True, meaning="a launcher saw a process end",
        severity="error", is_failure=True, exit_of="process"
    ),
    EventKind(
        name="srun-exit", failure="died", names_part=True, meaning="srun saw a task end",
        severity="error", is_failure=True, exit_of="task",
    ),
    EventKind(
        name="pod-exit", failure="died", names_part=True,
        meaning="Kubernetes saw a container end, or ended a pod itself",
        severity="error", is_failure=True, exit_of="task", known_errors=frozenset({"memory-limit"}),
    ),
    EventKind(
        name="experts-timeout", meaning="a kernel of DeepEP gave up waiting for the other ranks of its group",
        severity="error", waited=True, gave_up=True,
    ),
    EventKind(
        name="hccl-wait", failure="wait", meaning="HCCL gave up waiting for another member of a group",
        severity="error", waited=True, gave_up=True,
    ),
    EventKind(
        name="recompile", failure="recompiles",
        meaning="torch.compile compiles a function again, or gives up doing so", of_compiler=True
    ),
    EventKind(name="graph-break", failure="recompiles",
    meaning="torch.compile splits a function, and why", of_compiler=True),
    EventKind(
        name="analyser-report", meaning="output of another analyser: torchfrtrace, NVRx",
        severity="warning", of_others=True,
    ),
    EventKind(
        name="worker-died", failure="died", names_part=True, meaning="a framework saw a worker die",
        exit_of="process",
    ),
    EventKind(name="worker-seat", is_bulk=True, meaning="Ray tells the rank of one of its workers"),
    EventKind(
        name="oom-kill", failure="host-memory",
        names_part=True, meaning="the kernel killed a process because memory ran out",
        severity="error", is_failure=True,
    ),
    EventKind(
        name="memory-summary", names_part=True,
        meaning="a table of `torch.cuda.memory_summary()`: memory of a device, and how many requests failed",
    ),
    EventKind(
        name="hardware", names_part=True, meaning="a kernel, a driver or a tool reports broken or lost hardware",
        severity="warning",
        names_last=5,
    ),
    EventKind(
        name="numeric-check", severity="warning", of_numbers=True,
        meaning="a framework found weights that differ, or ran a step with an unexpected result again",
    ),
    EventKind(
        name="weights-match", of_numbers=True, meaning="a framework found that the weights of all replicas are equal"
    ),
    EventKind(name="signal", failure="died",
    names_part=True, meaning="a process got a signal", severity="warning", is_failure=True),
    EventKind(name="job-cancelled", meaning="the scheduler ended the job", severity="warning"),
    EventKind(
        name="abort", failure="died", severity="error", is_failure=True,
        meaning="an exception of C++ that nobody caught, which ends its process by SIGABRT",
    ),
    EventKind(name="group-left", meaning="a process ended without destroying its process groups: a warning"),
    EventKind(
        name="launch", by_launcher=True, is_bulk=True, meaning="how many processes and hosts a launcher starts"
    ),
    EventKind(name="restart", by_launcher=True, meaning="a launcher starts the processes again"),
    EventKind(name="process-end", meaning="the end of a process, from its sidecar", of_others=True),
    EventKind(name="earlier-end", meaning="why an earlier attempt of the job ended", of_others=True),
    EventKind(name="thread-dump", meaning="stacks that a process printed", is_listed=False, of_stacks=True),
    EventKind(
        name="no-answer", meaning="a rank did not send its stacks", severity="warning", of_stacks=True, of_others=True
    ),
    EventKind(name="health-check", meaning="a rank's watchdog says whether an operation timed out or failed"),
    EventKind(
        name="collect-env", meaning="the output of collect_env", is_bulk=True, settings_source="collect_env"
    ),
    EventKind(
        name="log-unplaced", severity="warning", leaves_out=True,
        meaning="operations of a log whose rank or group is not known",
    ),
    EventKind(
        name="log-unaligned", severity="warning", leaves_out=True,
        meaning="operations of a log that cannot be compared with those of other ranks",
    ),
    EventKind(
        name="log-disagrees", severity="warning",
        meaning="a log and a dump disagree on one operation",
    ),
    EventKind(name="log-counts", severity="warning", meaning="processes counted different numbers of operations"),
    EventKind(
        name="text-cut", of_others=True,
        meaning="the text ends within a message, or says that a part is left out: what stood there is not here",
    ),
    EventKind(name="log-cut", severity="warning", meaning="a log holds more than rankscope keeps"),
    EventKind(name="log-runs", meaning="several runs of the job follow each other in a log"),
    EventKind(name="log-processes", meaning="a log shows only how NCCL connects processes"),
)  # fmt: skip

EVENTS: dict[str, EventKind] = {row.name: row for row in _ROWS}
"""Every kind of event, by name."""
BULK = tuple(row.name for row in _ROWS if row.is_bulk)
"""Kinds with a line for each collective or group."""
NUMERIC_CHECKS = tuple(row.name for row in _ROWS if row.of_numbers)
"""Kinds about numbers that a framework checked itself."""
LEFT_OUT = tuple(row.name for row in _ROWS if row.leaves_out)
"""Kinds about operations of a log that are on no lane, or cannot be compared."""
