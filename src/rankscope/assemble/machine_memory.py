"""Memory that this process may still take: of the machine, its control groups, its address space, and by the user.

Sources: proc(5), the kernel's cgroup-v2.rst and cgroup-v1/memory.rst. A page cache that the kernel gives back counts as
free, as in MemAvailable.
"""

from __future__ import annotations

import os
import re
import resource
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

VARIABLE = "RANKSCOPE_MEMORY"
"""Environment variable with the most memory that rankscope takes, as 4G: for a machine that others use, too."""
SHARE = 0.6
"""Share of the memory that entries may take; worker processes, logs and libraries need the rest."""
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_NO_LIMIT = 1 << 62
"""Version 1 writes the highest number of its counter for no limit."""


class _GroupFiles(NamedTuple):
    """Names of files of a control group."""

    limits: tuple[str, ...]
    use: str
    free: tuple[str, ...]
    """Rows of `memory.stat`, of bytes that the kernel takes back when it needs them."""


_VERSION_1 = _GroupFiles(
    ("memory.limit_in_bytes",), "memory.usage_in_bytes", ("total_inactive_file", "total_active_file")
)
_VERSION_2 = _GroupFiles(("memory.max", "memory.high"), "memory.current", ("inactive_file", "active_file"))


class MemorySizeError(ValueError):
    """The user's variable is no size; the message is for the user."""


@dataclass(frozen=True)
class MemoryLimits:
    """Bytes that this process may still take, by each limit; None where there is none."""

    machine: int | None = None
    """Available memory."""
    control_group: int | None = None
    """The least of the control groups, as of a container, a Slurm job or a session of systemd."""
    address_space: int | None = None
    """By `ulimit -v`."""
    asked: int | None = None
    """By the user's variable."""

    @property
    def least(self) -> int:
        """The bytes that all limits allow; the memory of the machine without any."""
        known = [one for one in (self.machine, self.control_group, self.address_space, self.asked) if one is not None]
        return max(0, min(known)) if known else os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def memory_limits(
    proc: Path = Path("/proc"), groups: Path = Path("/sys/fs/cgroup"), environment: Mapping[str, str] = os.environ
) -> MemoryLimits:
    """The limits of this process now. Raises MemorySizeError if the user's variable is no size."""
    pages = [int(text) for text in kernel_text(proc / "self" / "statm").split()[:2]] or [0, 0]
    mapped, resident = (count * os.sysconf("SC_PAGE_SIZE") for count in pages)
    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    asked = asked_bytes(environment)
    return MemoryLimits(
        machine=available_bytes(kernel_text(proc / "meminfo")),
        control_group=min(_group_rooms(kernel_text(proc / "self" / "cgroup"), groups), default=None),
        address_space=None if soft == resource.RLIM_INFINITY else max(0, soft - mapped),
        asked=None if asked is None else max(0, asked - resident),
    )


def entry_room() -> int:
    """Bytes that the entries of dumps may take, with all that follows from them. Raises MemorySizeError."""
    return int(memory_limits().least * SHARE)


def asked_bytes(environment: Mapping[str, str]) -> int | None:
    """The value of the user's variable; None if it is not set. Raises MemorySizeError if it is no size."""
    text = environment.get(VARIABLE, "").strip()
    if not text:
        return None
    match = re.fullmatch(r"(\d{1,15})([KMGT]?)(?:i?B)?", text, re.ASCII | re.IGNORECASE)
    if match is None:
        raise MemorySizeError(f"{VARIABLE}={text!r} is no size; 4G is 4 GiB")
    return int(match[1]) * _UNITS[match[2].upper()]


def available_bytes(meminfo: str) -> int | None:
    """Available bytes, by the text of /proc/meminfo."""
    found = re.search(r"^MemAvailable:\s+(\d+) kB", meminfo, re.MULTILINE)
    return int(found[1]) * 1024 if found else None


def _group_rooms(own: str, root: Path) -> Iterator[int]:
    """Bytes that each control group of a process still allows, from its own up to the topmost one.

    `own` is the text of /proc/self/cgroup. In a container its path may lie beyond `root`, which then is its own group.
    """
    for line in own.splitlines():
        _, controllers, path = (*line.split(":", 2), "", "")[:3]
        if not controllers:
            top, version = root, _VERSION_2
        elif "memory" in controllers.split(","):
            top, version = root / "memory", _VERSION_1
        else:
            continue
        folder = top / path.lstrip("/")
        for group in (folder, *folder.parents):
            if group.is_relative_to(top):
                known = [kernel_number(group / name) for name in version.limits]
                limits = [limit for limit in known if limit is not None and limit < _NO_LIMIT]
                yield from [max(0, limit - _used(group, version)) for limit in limits]


def _used(group: Path, version: _GroupFiles) -> int:
    """Bytes that a control group takes and cannot give back."""
    counts = dict(line.split(" ", 1) for line in kernel_text(group / "memory.stat").splitlines() if " " in line)
    return max(0, (kernel_number(group / version.use) or 0) - sum(int(counts.get(name, 0)) for name in version.free))


def kernel_text(path: Path) -> str:
    """The text of a file of the kernel; "" if there is none, as in some containers."""
    try:
        return path.read_text("utf-8", "replace")
    except OSError:
        return ""


def kernel_number(path: Path) -> int | None:
    """The number in a file of the kernel; None if it holds none, as "max"."""
    text = kernel_text(path).strip()
    return int(text) if text.isdecimal() else None
