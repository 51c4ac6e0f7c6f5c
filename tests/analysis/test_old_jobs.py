"""A snapshot of a job that is long over is no running job, however new its files are."""

from __future__ import annotations

from dataclasses import replace

import polars as pl
import pytest

from rankscope.analysis import analyse
from rankscope.analysis.freeze import COPY_AGE_NS, Freeze
from rankscope.analysis.live_state import SECOND, JobProgress, LiveState, VerdictGate, with_state
from rankscope.analysis.model import Analysis
from rankscope.schema import Dataset
from tests.builders import START_NS, JobBuilder

WEEK_NS = 7 * COPY_AGE_NS


def job(*, hangs: bool, written_ns: int) -> Dataset:
    """Dumps written at a time, of a job in which rank 2 does not come, or which ended well."""
    builder = JobBuilder(4)
    for _ in range(4):
        builder.collective()
    if hangs:
        builder.collective(ranks=[0, 1, 3], state="scheduled")
    dataset = builder.build()
    return replace(dataset, files=dataset.files.with_columns(mtime_ns=pl.lit(written_ns)))


def watched(dataset: Dataset, now_ns: int, asked_ns: int | None = None) -> tuple[LiveState, Analysis]:
    """What is said of the job when it is first looked at, at a time."""
    told: list[LiveState] = []

    def settle(freeze: Freeze) -> Freeze:
        look = JobProgress(100 * SECOND, fresh=False, now_ns=now_ns)
        gate = VerdictGate(asked_ns)
        gate, _, _ = gate.look(dataset, freeze, replace(look, at_ns=0, fresh=True))
        _, live, allowed = gate.look(dataset, freeze, look)
        told.append(live)
        return allowed

    analysis = analyse(dataset, settle)
    return told[0], with_state(analysis, told[0], 4)


@pytest.mark.parametrize(
    ("hangs", "state", "status"), [(True, "silent", "hang"), (False, "idle", "healthy")]
)  # fmt: skip
def test_the_copy_of_an_old_job_is_judged(hangs: bool, state: str, status: str) -> None:
    now_ns = START_NS + WEEK_NS
    live, analysis = watched(job(hangs=hangs, written_ns=now_ns - SECOND), now_ns)
    assert (live.state, analysis.status) == (state, status)
    assert live.reason == "the newest operation is 7 d old"


@pytest.mark.parametrize("hangs", [True, False])
def test_a_job_of_which_nothing_is_known_yet_is_not_called_progressing(hangs: bool) -> None:
    live, analysis = watched(job(hangs=hangs, written_ns=START_NS + SECOND), START_NS + 2 * SECOND)
    assert (live.state, analysis.status) == ("waiting", "unknown")
    assert "it is not known yet whether operations go on" in analysis.verdict


def test_a_job_called_frozen_early_says_who_asked_for_it() -> None:
    dataset = job(hangs=True, written_ns=START_NS + 18 * SECOND)
    live, _ = watched(dataset, START_NS + 19 * SECOND)
    assert live.state != "frozen"
    live, _ = watched(dataset, START_NS + 19 * SECOND, 15 * SECOND)
    assert live.state == "frozen" and live.reason.endswith("; called frozen after 15 s, as --freeze-after says")
