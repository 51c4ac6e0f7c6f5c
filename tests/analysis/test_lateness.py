"""Late ranks in every state of a job: while it runs, in a hang, beside a failure; and what lateness is worth."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rankscope.analysis import analyse
from rankscope.analysis.model import Analysis
from rankscope.assemble.load import load
from rankscope.schema import Dataset
from tests.analysis.test_simulated import judge
from tests.builders import START_NS, JobBuilder
from tests.simulator.moments import When
from tests.simulator.options import ALL_MODES
from tests.simulator.scenario import make

US, MS = 1_000, 1_000_000


def stragglers(analysis: Analysis) -> list[tuple[int, ...]]:
    return [f.culprit_ranks for f in analysis.findings if f.kind == "straggler"]


def steps(late_ns: int, count: int = 20, world: int = 4, step_ns: int = 100 * MS) -> JobBuilder:
    """A job whose rank 1 issues the one collective of each step so much later than the others."""
    job = JobBuilder(world)
    for step in range(count):
        begin = START_NS + step * (step_ns + late_ns)
        for rank in range(world):
            created = begin + (step * 7919 * (rank + 1)) % (90 * US) + late_ns * (rank == 1)
            job.collective(ranks=[rank], created_ns=created, completed_ns=begin + late_ns + MS)
    return job


def read(scenario: tuple[str, int], mode: str, when: When, folder: Path) -> Analysis:
    options = ALL_MODES[mode]
    make(*scenario, job=options.job, when=when).write(folder, options)
    return analyse(load([folder]))


@pytest.mark.parametrize(("mode", "seed"), [("full", 3), ("full", 101), ("hook", 2), ("json", 4)])
def test_a_running_job_with_a_straggler_is_slow(mode: str, seed: int, tmp_path: Path) -> None:
    analysis = read(("straggler", seed), mode, "mid-step", tmp_path)
    (late,) = stragglers(analysis)
    assert analysis.status == "slow"
    assert analysis.verdict.startswith(f"rank {late[0]} arrives last in ")
    assert analysis.findings[0].kind == "straggler" and analysis.findings[0].root_cause
    assert not [f for f in analysis.findings if f.severity == "critical"]


def test_in_a_hang_a_straggler_stands_behind_the_cause(tmp_path: Path) -> None:
    analysis = read(("straggler", 1), "full", "hang", tmp_path)
    cause = analysis.findings[0]
    assert (analysis.status, cause.kind, cause.root_cause) == ("hang", "missing-rank", True)
    (late,) = [f for f in analysis.findings if f.kind == "straggler"]
    assert (late.root_cause, late.severity) == (False, "warning") and late.culprit_ranks != cause.culprit_ranks
    assert "No hang" not in late.explanation


def test_a_straggler_does_not_hide_an_exception() -> None:
    """The rank that raised waited for the straggler in each step, and not when it raised."""
    job = steps(8 * MS)
    values: dict[str, Any] = {"frames": [["main", "train.py", 16]], "causes": [], "launcher": False, "mixed": False}
    job.message("traceback", 2, exception="ValueError", message="expected 3 channels", **values)
    job.known("gloo-closed", 3, text="Connection closed by peer")
    analysis = analyse(job.build())
    (cause,) = [f for f in analysis.findings if f.root_cause]
    assert (analysis.status, cause.kind, cause.culprit_ranks) == ("failed", "rank-failed", (2,))
    assert stragglers(analysis) == [(1,)]


@pytest.mark.parametrize(("late_ms", "step_ms", "named"), [(8, 100, True), (8, 400, False), (0.8, 10, False)])
def test_lateness_that_costs_little_of_a_step_is_not_told(late_ms: float, step_ms: int, named: bool) -> None:
    analysis = analyse(steps(round(late_ms * MS), step_ns=step_ms * MS).build())
    assert (stragglers(analysis) == [(1,)], analysis.status) == (named, "slow" if named else "healthy")


@pytest.mark.parametrize(("late_in", "named"), [((0, 1, 3), False), (range(12), True)])
def test_one_delay_counts_once_for_all_collectives_of_a_burst(late_in: tuple[int, ...], named: bool) -> None:
    """Three collectives follow each other in each step; a rank of two that is late at the first is late at all."""
    job = JobBuilder(2)
    for step in range(13 if named else 6):
        begin = START_NS + step * 50 * MS
        for call in range(3):
            for rank in (0, 1):
                late = 5 * MS * ((step - 1 in late_in) if rank else (step - 1 not in late_in))
                created = begin + call * 80 * US + late + 7 * US * rank
                job.collective(ranks=[rank], created_ns=created, completed_ns=None, state="completed")
    assert stragglers(analyse(job.build())) == ([(1,)] if named else [])


def device_steps(count: int, groups: tuple[str, ...], late_ns: int = 2400 * US) -> Dataset:
    """Rank 6 of eight starts late on its device in the only collective that each of these groups has in a step."""
    job = JobBuilder(8, {name: list(range(8)) for name in groups})
    for step in range(count):
        for place, group in enumerate(groups):
            begin = START_NS + step * 10 * MS + place * 4 * MS
            for rank in range(8):
                wait = 0 if rank == 6 else late_ns
                length = 130 * US + (step * 7919 * (rank + 1)) % (9 * US) + wait
                job.collective(group, [rank], created_ns=begin, duration_ns=length, completed_ns=begin + length)
    return job.build()


def test_groups_of_the_same_ranks_show_a_late_device_in_few_steps() -> None:
    analysis = analyse(device_steps(6, ("default", "mesh")))
    (late,) = [f for f in analysis.findings if f.kind == "straggler"]
    assert late.culprit_ranks == (6,) and analysis.status == "slow"
    assert "in 11 of 11 collectives of mesh_default and mesh_mesh" in late.title


def test_too_few_collectives_are_chance() -> None:
    assert stragglers(analyse(device_steps(3, ("default",)))) == []
    assert stragglers(analyse(device_steps(6, ("default", "mesh"), late_ns=300 * US))) == []


@pytest.mark.parametrize("seed", [103, 104])
def test_a_snapshot_of_a_running_job_shows_a_late_device(seed: int, tmp_path: Path) -> None:
    analysis = read(("late-device", seed), "full", "mid-step", tmp_path)
    assert analysis.status == "slow" and len(stragglers(analysis)) == 1


SAMPLE: tuple[tuple[str, int, When, str], ...] = (
    ("host-stuck", 1, "before", "full"), ("host-stuck", 1, "mid-step", "hook"), ("host-stuck", 2, "after", "mixed"),
    ("crashed", 1, "mid-step", "json"), ("wrong-op", 1, "before", "two backends"), ("lost-send", 2, "mid-step", "full"),
    ("order", 1, "hang", "no-timing"), ("late-device", 5, "hang", "full"), ("straggler", 5, "hang", "hook"),
)  # fmt: skip
"""Cases of `benchmarks.moments`, which has them all."""


@pytest.mark.parametrize(("fault", "seed", "when", "mode"), SAMPLE)
def test_what_a_moment_shows_is_said_and_no_more(fault: str, seed: int, when: When, mode: str, tmp_path: Path) -> None:
    got, line = judge(make(fault, seed, job=ALL_MODES[mode].job, when=when), mode, tmp_path)
    assert got in ("exact", "allowed"), line
