"""The head of a record of NCCL: who wrote it, from where.

Source: ncclDebugLog in src/debug.cc of NCCL 2.4 to 2.30, of RCCL, and the strings of 2.31 and 2.32.
"""

from __future__ import annotations

import re
from typing import NamedTuple

LEVELS = ("INFO", "WARN", "CALL", "TRACE", "ERROR", "VERSION", "DIAG", "ABORT")
"""What stands behind "NCCL"."""
_HEAD = re.compile(
    r"(?P<host>[\w.<>\-]{1,255}):(?P<pid>\d{1,10})(?::(?P<tid>\d{1,10}))? (?:\[(?P<device>\d{1,4})\] )?"
    r"(?P<place>(?:[\w./:()\-]{1,200} ){0,3}?)(?:NCCL )?(?P<level>" + "|".join(LEVELS) + r")(?: |$)"
)


_SOURCE = re.compile(r"\.(?:cc|cu|cpp|hpp|c|h)$")


class Head(NamedTuple):
    """Who wrote a record, and what is left of it."""

    host: str
    """Up to its first dot."""
    pid: int
    tid: int | None
    device: int | None
    """The device that was current in the thread: neither the rank nor the number in nvml."""
    place: str
    """`init.cc:497` or `init.cc:497 (function)` of a warning; "" else."""
    level: str
    message: str


def head(text: str) -> Head | None:
    """The head of a record's text; None if it is not NCCL's."""
    found = _HEAD.match(text)
    if found is None:
        return None
    host, pid, tid, device, place, level = found.groups()
    if tid is None and _SOURCE.search(host):
        # `init.cc:1247 NCCL WARN`: somebody cut off who wrote it
        return None
    return Head(
        host, int(pid), None if tid is None else int(tid), None if device is None else int(device),
        place.strip(), level, text[found.end() :],
    )  # fmt: skip
