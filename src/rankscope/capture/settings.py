"""Settings of the capture."""

from __future__ import annotations

import importlib.metadata
import os
import signal
from dataclasses import dataclass, replace

STACK_MODES = ("auto", "always", "never")
RECORDED_OPERATIONS = 2000
"""Default number of recorded operations; torch's own default since it is on by default."""
_BUFFER = ("TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE")
"""Variables for the number of recorded operations, new and old. 0 turns the recorder off."""

RECORDER_OFF = "the flight recorder is off: {}"


@dataclass(frozen=True)
class CaptureSettings:
    """Settings of the capture of a rank."""

    directory: str
    interval: float = 10.0
    """Seconds between dumps. All ranks dump at multiples of it on the wall clock, so that their dumps match."""
    keep: int = 2
    """Number of kept earlier dumps of this process, and of kept earlier runs of this rank."""
    signal: str | None = "SIGUSR2"
    """Signal that requests a dump; None for no signal."""
    stacks: str = "auto"
    """Whether dumps have stacks. The first one with stacks makes torch import its compiler, which takes seconds and 70
    MB: "auto" does that only if the rank stood still between two dumps, or is asked or dies."""
    share: float = 0.005
    """Largest share of time for dumps: slow dumps become rarer."""
    memory: float = 1.0
    """Least seconds between two samples of memory; 0 for none."""
    stall_after: float = 60.0
    """Seconds without progress after which the stacks of all threads are taken; 0 for never."""


def checked_settings(settings: CaptureSettings) -> CaptureSettings:
    """The settings with an absolute directory; raises ValueError for invalid ones."""
    if settings.interval <= 0:
        raise ValueError(f"interval must be more than 0 seconds: {settings.interval}")
    if settings.keep < 0:
        raise ValueError(f"keep must not be negative: {settings.keep}")
    if not 0 < settings.share <= 1:
        raise ValueError(f"share must be above 0 and at most 1: {settings.share}")
    if settings.memory < 0:
        raise ValueError(f"memory must not be negative: {settings.memory}")
    if settings.stall_after < 0:
        raise ValueError(f"stall_after must not be negative: {settings.stall_after}")
    if settings.stacks not in STACK_MODES:
        raise ValueError(f"stacks must be one of {', '.join(STACK_MODES)}: {settings.stacks!r}")
    if settings.signal is not None and settings.signal not in signal.Signals.__members__:
        raise ValueError(f"no such signal: {settings.signal}")
    # the job may change its directory later
    directory = os.path.abspath(settings.directory)  # noqa: PTH100 - resolve() would ask the file system, which may hang
    return replace(settings, directory=directory)


def turn_recorder_on(made: bool) -> str | None:
    """Turns the recorder on for the first process group, which reads the settings once; returns the problem.

    `made`: a process group already exists.
    """
    if (said := recorder_off()) is not None:
        return RECORDER_OFF.format(said)
    if any(os.environ.get(name) for name in _BUFFER):
        return None
    if made:
        if _is_recent():
            return None
        return f"{_BUFFER[0]} was not set before the process group was made: some versions of torch record nothing then"
    for name in _BUFFER[:1] if _is_recent() else _BUFFER:
        os.environ[name] = str(RECORDED_OPERATIONS)
    return None


def recorder_off() -> str | None:
    """The variable and its value that turn the recorder off; None without one. The first that is set counts."""
    name = next((name for name in _BUFFER if os.environ.get(name)), None)
    try:
        return f"{name}={os.environ[name]}" if name is not None and int(os.environ[name]) <= 0 else None
    except ValueError:
        return None


def _is_recent() -> bool:
    """Whether torch knows the new name, warns of the old one, and turns the recorder on by default."""
    try:
        major, minor = importlib.metadata.version("torch").split(".")[:2]
        return (int(major), int(minor)) >= (2, 10)
    except (importlib.metadata.PackageNotFoundError, ValueError):
        return False
