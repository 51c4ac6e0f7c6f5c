"""What logs say of whether a job still moves."""

from __future__ import annotations

import dataclasses

import polars as pl
import pytest

from rankscope.analysis import analyse
from rankscope.analysis.root_cause import standstill
from rankscope.schema import Dataset
from tests.builders import START_NS, JobBuilder

SECOND = 1_000_000_000


def moving(kind: str | None, seconds: float | None = 33) -> Dataset:
    """A job caught a moment after its newest event, and rank 2 half a minute before; with a line of a log."""
    job = JobBuilder(4)
    for _ in range(5):
        job.collective()
    job.collective(ranks=[0, 1, 3], state="scheduled", delay_ns=30 * SECOND)
    if kind is not None:
        job.message(kind, rank=0, seconds=seconds, reason="NCCL error: remote process exited or there was a ...")
    dataset = job.build()
    newest = dataset.ops["created_ns"].max()
    assert isinstance(newest, int)
    at = pl.when(pl.col("rank") == 2).then(START_NS + SECOND).otherwise(newest + SECOND)
    return dataclasses.replace(dataset, files=dataset.files.with_columns(mtime_ns=at.cast(pl.Int64)))


@pytest.mark.parametrize(
    ("kind", "stopped", "proven"),
    [(None, False, False), ("traceback", False, False), ("async-error", True, False), ("watchdog-timeout", True, True)],
)
def test_what_proves_that_a_job_had_stopped(kind: str | None, stopped: bool, proven: bool) -> None:
    freeze = standstill(moving(kind))
    assert (freeze.stopped, freeze.proven) == (stopped, proven)


def test_the_rank_that_was_killed_is_a_candidate_once_nccl_failed() -> None:
    assert not analyse(moving(None)).is_critical
    (root,) = [f for f in analyse(moving("async-error")).findings if f.root_cause]
    assert (root.kind, root.culprit_ranks, root.candidates) == ("missing-rank", (), (2,))


@pytest.mark.parametrize("seconds", [None, 2, -3600, 3600 * 9 + 33])
def test_an_error_that_a_job_got_over_or_of_another_time_proves_nothing(seconds: float | None) -> None:
    assert standstill(moving("async-error", seconds)).stopped is False
    assert not analyse(moving("async-error", seconds)).culprits
