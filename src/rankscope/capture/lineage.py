"""Whether this process is a rank, or the child of one that must leave the rank's files alone.

A process that starts the capture leaves a mark in its environment: who it is, whether it has a process group, and
what its launcher told it. Every child inherits it, however it was started: by fork, spawn, a fork server, a shell.

- A process without a mark of another one is what the launcher started.
- One with other variables of a launcher than the marked process was started by another launcher, or was given a rank
  of its own.
- Any other one below a process with a process group is its child: a worker of a DataLoader, a helper, an engine.
- Below a process without a group it may become a rank, as with `torch.multiprocessing.spawn`, once it has a group.
"""

from __future__ import annotations

import hashlib
import multiprocessing
import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

OWNER = "RANKSCOPE_CAPTURE_OWNER"
"""Name of the mark in the environment."""
RANK_VARIABLES = ("RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID")
"""Variables in which launchers tell a rank."""
MEETING_VARIABLES = ("TORCHELASTIC_RUN_ID", "SLURM_STEP_ID", "MASTER_ADDR", "MASTER_PORT")
"""Variables that differ between two launchers of one machine, and are the same on all ranks of one."""
_FORK_SERVER = "multiprocessing.forkserver"
_known: dict[int, Lineage] = {}
"""By process id: a fork inherits its parent's entry, which is not its own."""


class OwnerMark(NamedTuple):
    """The mark of a process that started the capture."""

    pid: str
    ticks: str
    """When it began, in clock ticks since the machine booted; ids of processes are used again."""
    joined: str
    """"1" if it had a process group."""
    rank: str
    """Digest of what its launcher told it of its rank."""
    meeting: str
    """Digest of what its launcher told it of the job."""

    @property
    def text(self) -> str:
        """The value of the variable."""
        return ":".join(self)


class Lineage:
    """The place of this process below others that started the capture."""

    def __init__(self, joined: bool) -> None:
        fields = os.environ.get(OWNER, "").split(":")
        mark = OwnerMark(*fields) if len(fields) == len(OwnerMark._fields) else None
        self.owner = None if mark is not None and mark[:2] == _own_mark(joined)[:2] else mark
        """The mark of the process above that started the capture; None without one."""
        within = is_multiprocessing_child()
        elsewhere = self.owner is not None and self.owner.meeting != _digest(MEETING_VARIABLES)
        launched = self._was_launched() or (elsewhere and not within)
        self.is_child_of_rank = self.owner is not None and self.owner.joined == "1" and (within or not launched)
        self._launched = launched
        self._marks = False

    def mark(self, joined: bool) -> None:
        """Tells children started from now on of this process; called in the thread of the job."""
        self._marks = True
        self.renew_mark(joined)

    def renew_mark(self, joined: bool) -> None:
        """Changes the mark if there is one; in any thread, as a variable that is there keeps its place for readers."""
        if self._marks and os.environ.get(OWNER) != (text := _own_mark(joined).text):
            os.environ[OWNER] = text

    @property
    def has_own_launcher(self) -> bool:
        """Whether the rank in the environment is that of this process, and not of the one above it."""
        return self._launched or self._was_launched()

    def _was_launched(self) -> bool:
        return self.owner is None or self.owner.rank != _digest(RANK_VARIABLES)


def lineage(joined: bool) -> Lineage:
    """The lineage of this process; `joined`: it has a process group."""
    if os.getpid() not in _known:
        _known[os.getpid()] = Lineage(joined)
    return _known[os.getpid()]


def is_multiprocessing_child() -> bool:
    """Whether multiprocessing started this process, also while it imports the script again."""
    inherits = getattr(multiprocessing.current_process(), "_inheriting", False)
    return multiprocessing.parent_process() is not None or inherits


def imports_for_fork_server() -> bool:
    """Whether a fork server, or a process from it, imports the script. No thread may be started: it forks later."""
    inherits = getattr(multiprocessing.current_process(), "_inheriting", False)
    return inherits and any(_FORK_SERVER in argument for argument in sys.orig_argv)


def _own_mark(joined: bool) -> OwnerMark:
    pid = os.getpid()
    ticks = str(process_ticks(pid) or 0)
    return OwnerMark(str(pid), ticks, str(int(joined)), _digest(RANK_VARIABLES), _digest(MEETING_VARIABLES))


def meeting() -> str | None:
    """A digest of what the launcher told all ranks of a run of their meeting place; None if it told nothing."""
    return _digest(MEETING_VARIABLES) if any(os.environ.get(name) for name in MEETING_VARIABLES) else None


def process_ticks(pid: int) -> int | None:
    """When a process began, in clock ticks since the machine booted; None if it has ended, or without /proc."""
    try:
        # the name of the program stands in parentheses, and may hold anything
        values = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return None
    return int(values[19]) if len(values) > 19 and values[0] not in "ZX" else None


def _digest(names: Iterable[str]) -> str:
    text = "\n".join(os.environ.get(name, "") for name in names)
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:12]
