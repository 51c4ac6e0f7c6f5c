"""Dumps that `rankscope.capture` left of real NCCL jobs, one with a fault each: no job of these tests can be run anew.

Four ranks on one H100 (torch 2.11, NCCL 2.28; each rank as a host of its own), which train in pairs, in tensor and in
data parallel groups, with a dump every second. Archives keep the times of the files; paths and hosts are made up.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pytest

from rankscope.analysis import analyse
from rankscope.analysis.model import Analysis
from rankscope.assemble.load import load

JOBS = Path(__file__).parent / "nccl"


class Truth(NamedTuple):
    """What was done to a job, and what has to be said of it."""

    status: str
    kind: str
    culprits: tuple[int, ...]
    candidates: tuple[int, ...] = ()


TRUTHS = {
    # in step 14 rank 1 only receives in a ring, and launches the next step, as all do
    "send_left_out": Truth("hang", "p2p-unmatched", (1,)),
    # in step 14 rank 1 broadcasts where the others sum; NCCL finishes both, and some steps on rank 1 leaves by mistake
    "wrong_operation": Truth("mismatch", "collective-mismatch", (1,)),
    # rank 0 was stopped by SIGSTOP: what it did after its last dump nobody can know
    "stopped": Truth("hang", "missing-rank", (), (0,)),
    # a kernel that never ends stands in front of the collective on rank 3; start times were recorded
    "device_stuck": Truth("hang", "gpu-stuck", (3,)),
    # rank 1 takes 0.4 s longer for every step
    "straggler": Truth("slow", "straggler", (1,)),
}


def said(name: str) -> Analysis:
    return analyse(load([JOBS / f"{name}.tar.gz"]))


@pytest.mark.parametrize("name", TRUTHS)
def test_who_is_to_blame_in_a_real_nccl_job(name: str) -> None:
    truth, analysis = TRUTHS[name], said(name)
    first = analysis.findings[0]
    assert (analysis.status, first.kind) == (truth.status, truth.kind), analysis.verdict
    assert analysis.culprits == truth.culprits
    assert first.candidates == truth.candidates or truth.culprits


def test_there_is_a_truth_for_every_job() -> None:
    assert {path.name.removesuffix(".tar.gz") for path in JOBS.iterdir()} == set(TRUTHS)
    ranks = [load([path]).seen_ranks for path in sorted(JOBS.iterdir())]
    assert ranks == [(0, 1, 2, 3)] * len(TRUTHS)
