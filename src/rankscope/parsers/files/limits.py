"""Bounds on what decoding one file may allocate."""

from __future__ import annotations

import contextlib
import resource
from collections.abc import Iterator
from pathlib import Path

BASE_BYTES = 256 << 20
"""May always be allocated."""
PER_BYTE = 48
"""Objects take up to 14 bytes for each byte of a genuine pickle, and columns are made beside them."""


WORKER_BYTES = 4 << 30
"""Nor does a worker ever allocate more outside of `memory_limit`: reading directories of archives, sending results."""


def limit_worker() -> None:
    """Bounds this process for good."""
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    resource.setrlimit(resource.RLIMIT_AS, (_at_most(_address_space() + WORKER_BYTES, hard), hard))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


@contextlib.contextmanager
def memory_limit(size: int) -> Iterator[None]:
    """Within, no more is allocated than a file of `size` bytes can need; MemoryError is raised instead."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    wanted = _address_space() + BASE_BYTES + PER_BYTE * size
    resource.setrlimit(resource.RLIMIT_AS, (_at_most(wanted, before[1]), before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


def _at_most(wanted: int, hard: int) -> int:
    return wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)


def _address_space() -> int:
    """Bytes of address space in use; 0 where the system does not say."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[0])
    except (OSError, ValueError):
        return 16 << 30
    return pages * resource.getpagesize()
