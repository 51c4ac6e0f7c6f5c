"""Operations of ranks that no group names: the dumps of two jobs in one directory."""

from __future__ import annotations

from dataclasses import replace

import polars as pl

from rankscope.analysis.facts import Facts
from rankscope.analysis.instances import Instance
from rankscope.analysis.replicas import ReplicaCohorts
from tests.builders import JobBuilder


def test_a_rank_of_another_job_has_its_place_in_the_order_of_steps() -> None:
    job = JobBuilder(4)
    for _ in range(3):
        job.collective()
    dataset = job.build()
    strange = pl.when(pl.col("rank") == 3).then(33).otherwise(pl.col("rank")).cast(pl.Int32)
    cohorts = ReplicaCohorts(Facts(replace(dataset, ops=dataset.ops.with_columns(rank=strange))))
    first, second = (Instance((0, seq)) for seq in (1, 2))
    assert cohorts.precedes(first, second) and not cohorts.precedes(second, first)
