"""Leaks, ranks that are fuller than their peers, and healthy jobs of many shapes that accuse nobody."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import polars as pl
import pytest

from rankscope.analysis import analyse
from rankscope.analysis.model import Finding
from rankscope.features.memory.rules.memory_growth import find_growths
from rankscope.schema import Dataset
from tests.memory_writer import GIB, MIB, sampled_job

Held = Callable[[int, int], float]
NOISE: list[list[float]] = np.random.default_rng(7).normal(size=(64, 400)).tolist()


def memory_findings(job: Dataset) -> list[Finding]:
    return [finding for finding in analyse(job).findings if finding.kind.startswith("memory-")]


def leak(rank: int, step: int) -> float:
    return 20 * GIB + 400 * MIB * NOISE[rank][step] + (rank == 2) * step * 50 * MIB


def test_a_leak_is_named_with_slope_and_interval() -> None:
    job = sampled_job(leak)
    (found,) = memory_findings(job)
    assert (found.kind, found.culprit_ranks, found.severity) == ("memory-leak", (2,), "warning")
    (growth,) = find_growths(job.memory)
    assert growth.low <= 50 * MIB <= growth.high and abs(growth.slope / (50 * MIB) - 1) < 0.15
    assert "memory of rank 2 grows by" in analyse(job).verdict and "a step on cuda:2" in found.title


def test_a_leak_of_the_host_is_named() -> None:
    job = sampled_job(lambda rank, step: 900 * MIB + MIB * NOISE[rank][step] + (rank == 1) * step * MIB, device="host")
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
        lambda rank, step: (part if rank == 5 else 0.4) * 80 * GIB + 50 * MIB * NOISE[rank][step], ranks=8
    )
    (found,) = memory_findings(job)
    assert (found.kind, found.culprit_ranks, found.severity) == ("memory-uneven", (5,), severity)


def wave(rank: int, step: int) -> float:
    """Noise of a rank in a step, in MiB."""
    return MIB * NOISE[rank][step]


def lengths(rank: int, step: int) -> float:
    return 10 * GIB + (step * 7919 + rank * 104729) % 97 * 100 * MIB


HEALTHY: dict[str, tuple[str, Held]] = {
    "noisy": ("cuda", lambda rank, step: 20 * GIB + 500 * wave(rank, step)),
    "lengths of sequences": ("cuda", lengths),
    "caches that fill": ("cuda", lambda rank, step: 20 * GIB + wave(rank, 0) + 4 * GIB * (1 - math.exp(-step / 40))),
    "caches that fill slowly": ("cuda", lambda rank, step: 20 * GIB + wave(rank, 0) + GIB * math.log1p(step)),
    "garbage in saw teeth": ("host", lambda rank, step: 2 * GIB + (step + rank) % 31 * 20 * MIB),
    "a step up once": ("cuda", lambda rank, step: (20 + 6 * (step > 60)) * GIB + wave(rank, 0)),
    "steps up at validations": ("cuda", lambda rank, step: (20 + 6 * (step % 40 > 30)) * GIB + wave(rank, 0)),
    "stages of a pipeline": ("cuda", lambda rank, step: (40 - 4 * rank) * GIB + 50 * wave(rank, step)),
    "first ranks hold more": ("cuda", lambda rank, step: (50 if rank < 2 else 30) * GIB + 50 * wave(rank, step)),
    "rank 0 writes checkpoints": ("host", lambda rank, step: (30 if rank == 0 else 4) * GIB + wave(rank, step)),
    "pages that creep": ("host", lambda rank, step: 4 * GIB + step * 200_000 + wave(rank, 0)),
}


@pytest.mark.parametrize("name", HEALTHY)
def test_a_healthy_job_accuses_nobody(name: str) -> None:
    device, held = HEALTHY[name]
    job = sampled_job(held, ranks=8, device=device)
    assert memory_findings(job) == [] and "no rank leaks" in analyse(job).verdict


def test_few_samples_tell_no_leak() -> None:
    assert memory_findings(sampled_job(leak, samples=16)) == []


def test_memory_that_a_job_gives_back_behind_its_last_step_hides_no_leak() -> None:
    samples = 120
    given_back = sampled_job(lambda rank, step: 20 * GIB + (rank == 2) * step * 50 * MIB, samples=samples).memory
    last = pl.col("step") == samples - 1
    end = given_back.filter(last).with_columns(allocated=pl.lit(GIB, pl.Int64))
    (growth,) = find_growths(pl.concat([given_back, end, end]))
    assert growth.rank == 2
