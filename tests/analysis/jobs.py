"""Small jobs whose fault is known, built row by row."""

from __future__ import annotations

from collections.abc import Sequence

from tests.builders import JobBuilder

MESH = {"1": [0, 1], "2": [2, 3], "3": [0, 2], "4": [1, 3]}


def running(world_size: int = 4, steps: int = 10) -> JobBuilder:
    """A job of one group whose steps have all finished."""
    job = JobBuilder(world_size)
    for _ in range(steps):
        job.collective()
    return job


def mesh(steps: int = 5) -> JobBuilder:
    """Four ranks as tp x dp; every group has finished its steps."""
    job = JobBuilder(4, MESH)
    job.descriptions.update({"1": "tp", "2": "tp", "3": "dp", "4": "dp"})
    for _ in range(steps):
        for name in MESH:
            job.collective(name)
    return job


def wide_mesh(pairs: int, steps: int = 5) -> JobBuilder:
    """`pairs` groups of two with one description, and a data parallel group for each side."""
    groups: dict[str, Sequence[int]] = {f"tp{i}": [2 * i, 2 * i + 1] for i in range(pairs)}
    groups |= {f"dp{side}": list(range(side, 2 * pairs, 2)) for side in (0, 1)}
    job = JobBuilder(2 * pairs, groups)
    job.descriptions.update({name: name[:2] for name in groups})
    for _ in range(steps):
        for name in groups:
            job.collective(name)
    return job
