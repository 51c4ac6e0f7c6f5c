"""One timeline of the ends of processes: what all sources say of each, joined before anybody is accused.

Sidecars note how and when a process ends, launchers its exit code, Python and the C++ runtime the exception. They are
joined by rank, host and process id; a line without any of these by what it says, if only one process fits.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from rankscope.features.logs.rows.abort_ranks import ABORT_LINES, exit_code, says_message, signal_number
from rankscope.features.logs.rules.log_lines import CLOCK_SKEW_NS, LogLine, is_earlier
from rankscope.kinds.error_traits import GAVE_UP
from rankscope.kinds.event_kinds import EVENTS

STOP_REASONS = ("terminated", "interrupted")
"""Reasons that a person or a signal caused."""
CODE, SIGNAL = "code", "signal"
"""Reasons that only a launcher tells: an exit code, or a signal that nobody sent who ends jobs."""
SIGNAL_NAMES = {
    1: "SIGHUP", 2: "SIGINT", 4: "SIGILL", 6: "SIGABRT", 7: "SIGBUS", 8: "SIGFPE", 9: "SIGKILL", 11: "SIGSEGV",
    15: "SIGTERM",
}  # fmt: skip
_SENT = {15: "terminated", 2: "interrupted", 1: "terminated"}
"""Reasons by the signals that launchers, schedulers and persons send."""
_MESSENGERS = (
    "DistBackendError", "DistNetworkError", "DistStoreError", "ChildFailedError", "SignalException",
    "KeyboardInterrupt", "SystemExit", "ConnectionResetError", "BrokenPipeError", "EOFError", "CheckpointException",
    "ActorDiedError", "RayActorError", "ActorUnavailableError", "WorkerCrashedError", "NodeDiedError", "OwnerDiedError",
    "TuneError", "TrainingFailedError", "WorkerGroupError", "ControllerError", "EngineDeadError",
    "RendezvousClosedError", "RendezvousGracefulExitError",
    "ProcessRaisedException", "ProcessExitedException",
)  # fmt: skip
"""Exceptions of messengers, unless the table of known errors says otherwise."""


def tells_of_others(exception: str) -> bool:
    """Whether an exception of this name, with or without its module, tells of a failure elsewhere."""
    return exception_name(exception) in _MESSENGERS


def exception_name(exception: str) -> str:
    """The name of an exception without its module."""
    return exception.rsplit(".", 1)[-1]


def same_text(text: str, whole: str) -> bool:
    """Whether a line and a message, either of which may be cut, are one."""
    return bool(text and whole) and (whole[:100] in text or text[:100] in whole)


def errors_of_abort(abort: LogLine, lines: Iterable[LogLine]) -> list[LogLine]:
    """The lines with the message of an exception of C++ that nobody caught."""
    message = str(abort.values.get("message") or "")
    return [
        line
        for line in lines
        if line.file == abort.file
        and 0 <= line.line - abort.line <= ABORT_LINES
        and line.kind != abort.kind
        and says_message(line.text, message)
    ]


@dataclass(frozen=True)
class RankEnd:
    """The end of one rank."""

    rank: int
    reason: str
    """"exit", "exception", "terminated" or "interrupted"; of a launcher CODE or SIGNAL, too."""
    line: LogLine
    """The sidecar, else the line of the launcher, whose time is not kept: it is that of when it looked."""
    code: int | None = None
    """The exit code that a launcher saw."""

    @property
    def noted(self) -> bool:
        """Whether the process noted it itself."""
        return self.line.kind == "process-end"

    @property
    def error(self) -> str:
        """Name and message of the exception; empty without one."""
        return str(self.line.values.get("error") or "")

    @property
    def is_harm(self) -> bool:
        """Whether its exception tells of a failure elsewhere."""
        if self.reason != "exception":
            return False
        role = self.line.values.get("role")
        return role == "victim" or (role != "root" and tells_of_others(self.error.partition(":")[0]))

    @property
    def is_own(self) -> bool:
        """Whether its exception may be the fault of the rank: neither harm nor an error that accuses others."""
        values = self.line.values
        accuses_others = values.get("role") == "root" and values.get("accuses", "self") != "self"
        return self.reason == "exception" and not self.is_harm and not accuses_others

    @property
    def gave_up(self) -> bool:
        """Whether it waited until its timeout; False if its connection was closed."""
        return self.is_harm and self.line.has(GAVE_UP)

    @property
    def how(self) -> str:
        """ "ended with exit code 3", "ended by SIGABRT"; else what the process noted."""
        if self.noted:
            return self.line.text + (f" with exit code {self.code}" if self.reason == "exit" and self.code else "")
        number = signal_number(self.code)
        if number:
            return f"ended by {SIGNAL_NAMES.get(number, f'signal {number}')}"
        return f"ended with exit code {self.code}"


def read_ends(lines: Iterable[LogLine]) -> dict[int, RankEnd]:
    """The known ends by rank: as the processes noted them, else as launchers saw them."""
    seen: dict[int, RankEnd] = {}
    noted: dict[int, RankEnd] = {}
    for line in lines:
        if line.rank is None:
            continue
        if line.kind == "process-end":
            noted[line.rank] = RankEnd(line.rank, str(line.values.get("reason")), line)
        elif EVENTS[line.kind].exit_of and (code := exit_code(line.values)) is not None:
            number = signal_number(code)
            if EVENTS[line.kind].exit_of == "task" and number == 9 and line.values.get("reason") in (None, "Error"):
                # after the first task that ends badly srun kills the others, and so does kubelet with deleted pods
                number = 15
            reason = _SENT.get(number, SIGNAL) if number else CODE if code else "exit"
            if line.kind == "torchrun-failure" or line.rank not in seen:
                seen[line.rank] = RankEnd(line.rank, reason, replace(line, time_ns=None), code)
    coded = {rank: replace(end, code=seen[rank].code if rank in seen else None) for rank, end in noted.items()}
    return {rank: coded.get(rank) or seen[rank] for rank in sorted(noted.keys() | seen.keys())}


@dataclass(frozen=True)
class JobEnds:
    """The ends of a job in which some ended because of others."""

    ends: Mapping[int, RankEnd]
    world: int
    own: frozenset[int] = frozenset()
    """Ranks that failed by themselves."""
    hurt: frozenset[int] = frozenset()
    """Ranks of which lines tell that others harmed them, or that they waited."""
    explained: frozenset[int] = frozenset()
    """Ranks of which any line tells why they ended."""

    @cached_property
    def harmed(self) -> Sequence[RankEnd]:
        """Noted ends that other ranks caused."""
        return [end for end in self.ends.values() if end.is_harm and end.rank not in self.own]

    @property
    def silent(self) -> frozenset[int]:
        """Ranks without a known end: killed, or still alive."""
        return frozenset(range(self.world)) - self.ends.keys()

    @property
    def unexplained(self) -> Sequence[RankEnd]:
        """Ends that only a launcher saw, by an exit code or a signal of which no line tells the reason."""
        return [
            end
            for end in self.ends.values()
            if end.reason in (CODE, SIGNAL) and end.rank not in self.own | self.explained
        ]

    @property
    def waited(self) -> bool:
        """Whether the first harmed rank gave up waiting; False if a connection to it was closed."""
        first = min((end.line.time_ns or 0 for end in self.harmed), default=0)
        return any(end.gave_up and (end.line.time_ns or 0) <= first + CLOCK_SKEW_NS for end in self.harmed)

    def before(self, reasons: Sequence[str]) -> list[RankEnd]:
        """Ends for one of these reasons before those of all harmed ranks."""
        ends = (end for end in self.ends.values() if end.reason in reasons)
        return [end for end in ends if all(is_earlier(end.line, other.line) for other in self.harmed)]

    def after(self, reasons: Sequence[str]) -> list[RankEnd]:
        """Ends for one of these reasons after that of a harmed rank."""
        ends = (end for end in self.ends.values() if end.reason in reasons)
        return [end for end in ends if any(is_earlier(other.line, end.line) for other in self.harmed)]
