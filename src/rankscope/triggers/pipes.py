"""Trigger pipes: a byte written to one makes NCCL's recorder of that rank write a dump, and the job goes on.

torch makes `<prefix><rank>.pipe` for each rank if TORCH_NCCL_DEBUG_INFO_PIPE_FILE gives the prefix, and reads it about
every second (DumpPipe in torch's FlightRecorder.hpp). TORCH_FR_DUMP_TEMP_FILE names the dump.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

_NAME = re.compile(r"(\d{1,7})\.pipe$")
_GONE_ERRORS = (errno.ENXIO, errno.EPIPE)


@dataclass(frozen=True)
class TriggerPipe:
    """A trigger pipe of one rank."""

    path: Path
    rank: int


@dataclass(frozen=True)
class TriggerResult:
    """The result of one request."""

    pipe: TriggerPipe
    problem: str | None
    """The reason why the request failed; None for success."""


def find_pipes(directories: Iterable[Path]) -> list[TriggerPipe]:
    """The trigger pipes in these directories (not below them), by rank. Opens nothing."""
    found = []
    for directory in directories:
        try:
            entries = list(os.scandir(directory))
        except OSError:
            continue
        for entry in entries:
            match = _NAME.search(entry.name)
            if match is not None and _is_pipe(entry):
                found.append(TriggerPipe(Path(entry.path), int(match[1])))
    return sorted(found, key=lambda pipe: (pipe.rank, str(pipe.path)))


def _is_pipe(entry: os.DirEntry[str]) -> bool:
    try:
        return stat.S_ISFIFO(entry.stat(follow_symlinks=False).st_mode)
    except OSError:
        return False


def ask_pipes(pipes: Iterable[TriggerPipe]) -> list[TriggerResult]:
    """Writes to every pipe, and never waits: a pipe without reader gives a problem."""
    return [TriggerResult(pipe, _ask(pipe.path)) for pipe in pipes]


def _ask(path: Path) -> str | None:
    try:
        # a path that meanwhile became something else must not block the open, and must not be written
        handle = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        return "nobody reads it: the process has ended" if error.errno in _GONE_ERRORS else str(error.strerror)
    try:
        if not stat.S_ISFIFO(os.fstat(handle).st_mode):
            return "not a pipe"
        os.write(handle, b"1")
    except BlockingIOError:
        return "it is full: the process does not read it"
    except OSError as error:
        return str(error.strerror)
    finally:
        os.close(handle)
    return None
