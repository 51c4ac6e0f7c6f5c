"""Exceptions that only tell of a failure elsewhere."""

from __future__ import annotations

_MESSENGERS = (
    "DistBackendError", "DistNetworkError", "DistStoreError", "ChildFailedError", "SignalException",
    "KeyboardInterrupt", "SystemExit", "ConnectionResetError", "BrokenPipeError", "EOFError", "CheckpointException",
    "ActorDiedError", "RayActorError", "ActorUnavailableError", "WorkerCrashedError", "NodeDiedError", "OwnerDiedError",
    "TuneError", "TrainingFailedError", "WorkerGroupError", "ControllerError", "EngineDeadError",
    "RendezvousClosedError", "RendezvousGracefulExitError",
    "ProcessRaisedException", "ProcessExitedException",
)  # fmt: skip
"""Unless the table of known errors says otherwise."""


def tells_of_others(exception: str) -> bool:
    """Whether an exception of this name, with or without its module, tells of a failure elsewhere."""
    return short_name(exception) in _MESSENGERS


def short_name(exception: str) -> str:
    """The name of an exception without its module."""
    return exception.rsplit(".", 1)[-1]
