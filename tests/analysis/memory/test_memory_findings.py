"""Leaks, ranks that are fuller than their peers, and healthy jobs of many shapes that accuse nobody."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from rankscope.analysis import analyse
from rankscope.analysis.memory.memory_growth import find_growths
from rankscope.analysis.model import Finding
from rankscope.schema import Dataset
from tests.memory_writer import GIB, MIB, sampled_job

Held = Callable[[int, int], float]
NOISE = np.random.default_rng(7).normal(size=(64, 400))


def memory_findings(job: Dataset) -> list[Finding]:
    return [finding for finding in analyse(job).findings if finding.kind.startswith("memory-")]


def leak(rank: int, step: int) -> float:
    return 20 * GIB + 400 * MIB * NOISE[rank, step] + (rank == 2) * step * 50 * MIB


def test_a_leak_is_named_with_slope_and_interval() -> None:
    job = sampled_job(leak)
    (found,) = memory_findings(job)
    assert (found.kind, found.culprit_ranks, found.severity) == ("memory-leak", (2,), "warning")
    (growth,) = find_growths(job.memory)
    assert growth.low <= 50 * MIB <= growth.high and abs(growth.slope / (50 * MIB) - 1) < 0.15
    assert "memory of rank 2 grows by" in analyse(job).verdict and "a step on cuda:2" in found.title


def test_a_leak_of_the_host_is_named() -> None:
    job = sampled_job(lambda rank, step: 900 * MIB + MIB * NOISE[rank, step] + (rank == 1) * step * MIB, device="host")
    (found,) = memory_findings(job)
    assert (found.kind, found.culprit_ranks) == ("memory-leak", (1,)) and "on the host" in found.title


def test_a_leak_of_all_ranks_names_nobody() -> None:
    (found,) = memory_findings(sampled_job(lambda _, step: 20 * GIB + step * 50 * MIB))
    assert (
        found.kind == "memory-leak" and found.culprit_ranks == () and found.title.startswith("memory of 4 of 4 ranks")
    )


@pytest.mark.parametrize(("part", "severity"), [(0.6, "info"), (0.95, "warning")])
def test_a_rank_with_a_larger_batch_is_named(part: float, severity: str) -> None:
    job = sampled_job(
        lambda rank, step: (part if rank == 5 else 0.4) * 80 * GIB + 50 * MIB * NOISE[rank, step], ranks=8
    )
    (found,) = memory_findings(job)
    assert (found.kind, found.culprit_ranks, found.severity) == ("memory-uneven", (5,), severity)


HEALTHY: dict[str, tuple[str, Held]] = {
    "flat": ("cuda", lambda r, s: 20 * GIB),
    "noisy": ("cuda", lambda r, s: 20 * GIB + 500 * MIB * NOISE[r, s]),
    "lengths of sequences": ("cuda", lambda r, s: 10 * GIB + (s * 7919 + r * 104729) % 97 * 100 * MIB),
    "caches that fill": ("cuda", lambda r, s: 20 * GIB + 4 * GIB * (1 - math.exp(-s / 40))),
    "caches that fill slowly": ("cuda", lambda r, s: 20 * GIB + GIB * math.log1p(s)),
    "garbage in saw teeth": ("host", lambda r, s: 2 * GIB + (s + r) % 31 * 20 * MIB),
    "a step up once": ("cuda", lambda r, s: (20 + 6 * (s > 60)) * GIB),
    "steps up at validations": ("cuda", lambda r, s: (20 + 6 * (s % 40 > 30)) * GIB),
    "stages of a pipeline": ("cuda", lambda r, s: (40 - 4 * r) * GIB + 50 * MIB * NOISE[r, s]),
    "first ranks hold more by design": ("cuda", lambda r, s: (50 if r < 2 else 30) * GIB + 50 * MIB * NOISE[r, s]),
    "rank 0 writes checkpoints": ("host", lambda r, s: (30 if r == 0 else 4) * GIB + MIB * NOISE[r, s]),
    "pages that creep": ("host", lambda r, s: 4 * GIB + s * 200_000),
}


@pytest.mark.parametrize("name", HEALTHY)
def test_a_healthy_job_accuses_nobody(name: str) -> None:
    device, held = HEALTHY[name]
    job = sampled_job(held, ranks=8, device=device)
    assert memory_findings(job) == [] and "no rank leaks" in analyse(job).verdict


def test_few_samples_tell_no_leak() -> None:
    assert memory_findings(sampled_job(leak, samples=16)) == []
