"""Ends of processes, as the capture in each notes them: normal, by an exception, or because others had ended."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from rankscope.features.logs.rules.log_lines import CLOCK_SKEW_NS, LogLine, is_earlier
from rankscope.kinds.error_traits import GAVE_UP

STOP_REASONS = ("terminated", "interrupted")
"""Reasons that a person or a signal caused."""
_MESSENGERS = (
    "DistBackendError", "DistNetworkError", "DistStoreError", "ChildFailedError", "SignalException",
    "KeyboardInterrupt", "SystemExit", "ConnectionResetError", "BrokenPipeError", "EOFError", "CheckpointException",
    "ActorDiedError", "RayActorError", "ActorUnavailableError", "WorkerCrashedError", "NodeDiedError", "OwnerDiedError",
    "TuneError", "TrainingFailedError", "WorkerGroupError", "ControllerError", "EngineDeadError",
    "RendezvousClosedError", "RendezvousGracefulExitError",
    "ProcessRaisedException", "ProcessExitedException",
)  # fmt: skip
"""Exceptions of messengers, unless the table of known errors says otherwise."""


@dataclass(frozen=True)
class RankEnd:
    """The end of one rank."""

    rank: int
    reason: str
    """"exit", "exception", "terminated" or "interrupted"."""
    line: LogLine

    @property
    def error(self) -> str:
        """Name of the exception; empty without one."""
        return str(self.line.values.get("error") or "")

    @property
    def is_harm(self) -> bool:
        """Whether its exception tells of a failure elsewhere."""
        if self.reason != "exception":
            return False
        role = self.line.values.get("role")
        return role == "victim" or (role != "root" and tells_of_others(self.error.partition(":")[0]))

    @property
    def gave_up(self) -> bool:
        """Whether it waited until its timeout; False if its connection was closed."""
        return self.is_harm and self.line.has(GAVE_UP)


def read_ends(lines: Iterable[LogLine]) -> dict[int, RankEnd]:
    """The known ends by rank."""
    return {
        line.rank: RankEnd(line.rank, str(line.values.get("reason")), line)
        for line in lines
        if line.kind == "process-end" and line.rank is not None
    }


@dataclass(frozen=True)
class JobEnds:
    """The ends of a job in which some ended because of others."""

    ends: Mapping[int, RankEnd]
    world: int
    own: frozenset[int] = frozenset()
    """Ranks that failed by themselves."""

    @property
    def harmed(self) -> Sequence[RankEnd]:
        """Ends that other ranks caused."""
        return [end for end in self.ends.values() if end.is_harm and end.rank not in self.own]

    @property
    def silent(self) -> frozenset[int]:
        """Ranks without a noted end: killed, or still alive."""
        return frozenset(range(self.world)) - self.ends.keys()

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


def tells_of_others(exception: str) -> bool:
    """Whether an exception of this name, with or without its module, tells of a failure elsewhere."""
    return exception_name(exception) in _MESSENGERS


def exception_name(exception: str) -> str:
    """The name of an exception without its module."""
    return exception.rsplit(".", 1)[-1]
