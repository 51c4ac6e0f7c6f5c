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


@contextlib.contextmanager
def memory_limit(size: int) -> Iterator[None]:
    """Within, no more is allocated than a file of `size` bytes can need; MemoryError is raised instead."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    wanted = _address_space() + BASE_BYTES + PER_BYTE * size
    hard = before[1]
    resource.setrlimit(resource.RLIMIT_AS, (wanted if hard == resource.RLIM_INFINITY else min(wanted, hard), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


def _address_space() -> int:
    """Bytes of address space in use; 0 where the system does not say."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[0])
    except (OSError, ValueError):
        return 16 << 30
    return pages * resource.getpagesize()
