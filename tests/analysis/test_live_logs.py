"""Whether a job goes on that is only watched by its logs, of which no line says when it was printed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rankscope.analysis import analyse
from rankscope.analysis.freeze import Freeze
from rankscope.analysis.live_state import SECOND, JobProgress, LiveState, VerdictGate, with_state
from rankscope.analysis.model import Analysis
from rankscope.assemble.load import LoadOptions, load
from rankscope.schema import Dataset
from tests.builders import START_NS
from tests.features.logs.read.lines import coll, info, life

RANKS = 4


class Printed:
    """A log that grows, and what is said of its job."""

    def __init__(self, folder: Path) -> None:
        self._path, self._gate, self._at_s = folder / "job.log", VerdictGate(), 0
        self._lines = [info(life(rank=rank), pid=4100 + rank) for rank in range(RANKS)]
        self._steps = 0

    def steps(self, count: int) -> None:
        """All ranks print so many collectives more."""
        for step in range(self._steps, self._steps + count):
            self._lines += [info(coll(count=step, op_count=step), pid=4100 + rank) for rank in range(RANKS)]
        self._steps += count

    def alone(self, rank: int) -> None:
        """One rank prints a collective that all others have printed."""
        self._lines.append(info(coll(count=self._steps, op_count=self._steps), pid=4100 + rank))

    def after(self, seconds: int) -> tuple[LiveState, Analysis]:
        """What is said so much later, if something has been printed until then that tells nothing."""
        self._lines.append("step 1 loss 2.5")
        self._at_s += seconds
        self._path.write_text("".join(f"{line}\n" for line in self._lines))
        os.utime(self._path, ns=(START_NS, START_NS + self._at_s * SECOND))
        return self._look(load([self._path], LoadOptions(jobs=1)), fresh=True)

    def silent(self, seconds: int) -> tuple[LiveState, Analysis]:
        """What is said so much later, if nothing was printed."""
        self._at_s += seconds
        return self._look(load([self._path], LoadOptions(jobs=1)), fresh=False)

    def _look(self, dataset: Dataset, *, fresh: bool) -> tuple[LiveState, Analysis]:
        told: list[LiveState] = []

        def settle(freeze: Freeze) -> Freeze:
            self._gate, live, allowed = self._gate.look(dataset, freeze, JobProgress(self._at_s * SECOND, fresh))
            told.append(live)
            return allowed

        analysis = analyse(dataset, settle)
        return told[0], with_state(analysis, told[0], len(dataset.seen_ranks), logs=dataset.from_logs)


@pytest.fixture
def job(tmp_path: Path) -> Printed:
    """One that has issued some collectives, seen for the first time."""
    printed = Printed(tmp_path)
    printed.steps(20)
    live, analysis = printed.after(1)
    assert live.state == "waiting" and analysis.status == "unknown"
    return printed


def test_more_operations_in_a_log_are_progress_at_the_pace_of_its_file(job: Printed) -> None:
    job.steps(50)
    live, analysis = job.after(10)
    assert live.state == "progressing" and analysis.status == "progressing"
    assert analysis.verdict == "4 ranks: operations go on"
    assert [rate.per_s for rate in live.rates] == [5.0]


def test_lines_that_tell_of_no_operation_are_neither_progress_nor_a_standstill(job: Printed) -> None:
    job.steps(50)
    job.after(10)
    live, _ = job.after(2)
    assert live.state == "progressing"
    for _ in range(9):
        live, analysis = job.after(10)
        assert live.state == "waiting" and not live.rates
        assert analysis.status == "unknown" and not analysis.culprits
    assert live.reason == "the newest operation is 1 min 32 s older than the last line of the logs"
    job.steps(1)
    live, _ = job.after(1)
    assert live.state == "progressing"


def test_ranks_that_only_catch_up_go_on_as_well(job: Printed) -> None:
    job.steps(50)
    for rank in range(RANKS):
        job.alone(rank)
        live, _ = job.after(10)
        assert live.state == "progressing"
    live, _ = job.after(10)
    assert live.state == "waiting"


def test_a_log_in_which_nothing_stands_any_more_is_silent(job: Printed) -> None:
    job.steps(50)
    job.after(10)
    live, _ = job.silent(59)
    assert live.state == "progressing"
    live, analysis = job.silent(150)
    assert live.state == "silent" and analysis.status == "unknown"
