"""Who writes the files of a rank: this process, one that has ended, or another job that runs in the same directory.

A process is alive if its host says so. On another host, or in another container, only signs of life tell: its files
are written again and again. No lock is taken, as file systems over a network may ignore one or hold it for ever.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import platform
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from .lineage import lineage, process_ticks

NEIGHBOUR = "job_{}"
"""Directory, beside the files of the first, for the second job and later ones that write at the same time."""
MOST_NEIGHBOURS = 64
SILENT_S = 60.0
"""A process of another host that has written nothing for three intervals and this long has ended."""
SELDOM_S = 600.0
"""The same for files without an interval."""
_END = b'{"end":true'
_HEAD_BYTES, _TAIL_BYTES = 1 << 20, 256


@functools.cache
def machine() -> str:
    """The id of this boot of the machine and of the space of process ids; empty where they are not told."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot}/{os.readlink('/proc/self/ns/pid')}"  # noqa: PTH115 - the link is not a path
    except OSError:
        return ""


def header(path: Path) -> dict[str, Any]:
    """The object in the first line of a file of the capture; empty if it cannot be read."""
    try:
        with path.open("rb") as file:
            head = json.loads(file.readline(_HEAD_BYTES))
    except (OSError, ValueError):
        return {}
    return head if isinstance(head, dict) else {}


class ChosenPlace(NamedTuple):
    """The directory for the files of a rank."""

    directory: Path
    other: dict[str, Any] | None = None
    """The facts of a process that writes to the place before this one; None if there is none."""
    stand_in: bool = False
    """Whether the files there are those of a process that only held the place."""


_chosen: dict[tuple[int, str, int], ChosenPlace] = {}
"""By process id, directory and rank: all files of one process lie together."""


def choose_place(directory: str, rank: int, mine: Mapping[str, Any], joined: bool, anew: bool = False) -> ChosenPlace:
    """The place of a rank's files; that of this process, unless it is chosen `anew`.

    `mine` are the facts of this process, `joined` whether it has a process group. Where another live process writes
    the files of the same rank, they go beside them.
    """
    key = os.getpid(), directory, rank
    if anew or key not in _chosen:
        _chosen[key] = _first_free(Path(directory), rank, mine, joined)
    return _chosen[key]


def _first_free(directory: Path, rank: int, mine: Mapping[str, Any], joined: bool) -> ChosenPlace:
    other = None
    for number in range(1, MOST_NEIGHBOURS + 1):
        place = directory if number == 1 else directory / NEIGHBOUR.format(number)
        writer = _living_writer(place, rank, mine)
        if writer is None or (joined and _stands_in(writer, mine)):
            return ChosenPlace(place, other, writer is not None)
        other = other or writer
    return ChosenPlace(place, other)


def _living_writer(place: Path, rank: int, mine: Mapping[str, Any]) -> dict[str, Any] | None:
    """The facts of a live process that writes the files of a rank, and is not `mine`; None without one."""
    for name in (f"capture_rank_{rank}.json", f"numbers_rank_{rank}.jsonl"):
        head = header(place / name)
        if head and not _is_same(head, mine) and _lives(place, name, rank, head, mine):
            return head
    return None


def _lives(place: Path, name: str, rank: int, head: Mapping[str, Any], mine: Mapping[str, Any]) -> bool:
    pid = head.get("pid")
    if head.get("ended") or not isinstance(pid, int) or _tail(place / name).startswith(_END):
        return False
    if head.get("machine") and head["machine"] == mine["machine"]:
        return (ticks := process_ticks(pid)) is not None and ticks == head.get("process_ticks")
    if not head.get("machine") and head.get("host") == mine["host"] and not _exists(pid):
        return False
    if _is_earlier_attempt(head, mine):
        # the launcher has ended it, or is about to
        return False
    interval, dumps = head.get("interval_s"), head.get("dumps")
    silent = 3 * interval + SILENT_S if isinstance(interval, int | float) else SELDOM_S
    names = [Path(dump).name for dump in dumps if isinstance(dump, str)] if isinstance(dumps, list) else []
    return time.time() - _last_write([place / dump for dump in (name, f"memory_rank_{rank}.jsonl", *names)]) < silent


def _last_write(paths: Iterable[Path]) -> float:
    """The time of the last write to any of the files, in seconds since the epoch; 0 if none is there."""
    newest = 0.0
    for path in paths:
        with contextlib.suppress(OSError):
            newest = max(newest, path.stat().st_mtime)
    return newest


def _stands_in(head: Mapping[str, Any], mine: Mapping[str, Any]) -> bool:
    """Whether a process without a process group only holds the place of `mine`, which has one: it started the ranks.

    That is so with one task for each node whose children are the ranks: the launcher numbers the tasks.
    """
    owner = lineage(True).owner
    is_owner = owner is not None and str(head.get("pid")) == owner.pid and head.get("machine") == mine["machine"]
    same_job = mine["job"] is not None and all(head.get(key) == mine[key] for key in ("job", "attempt"))
    return head.get("groups") == [] and (is_owner or same_job)


def described(head: Mapping[str, Any]) -> str:
    """A process for a message: "pid 17 on node07, job 4711"."""
    job = f", job {head['job']}" if head.get("job") else ""
    return f"pid {head.get('pid')} on {head.get('host') or platform.node()}{job}"


def _is_same(head: Mapping[str, Any], mine: Mapping[str, Any]) -> bool:
    return all(head.get(key) == mine[key] for key in ("host", "pid", "machine", "process_ticks"))


def _is_earlier_attempt(head: Mapping[str, Any], mine: Mapping[str, Any]) -> bool:
    counts = head.get("attempt"), mine["attempt"]
    known = mine["job"] is not None and head.get("job") == mine["job"]
    return known and all(isinstance(count, int) for count in counts) and counts[0] < counts[1]


def _tail(path: Path) -> bytes:
    """The last line of a file, or the end of it."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - _TAIL_BYTES))
            return file.read().rstrip(b"\n").rpartition(b"\n")[2]
    except OSError:
        return b""


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        return True
    return True
