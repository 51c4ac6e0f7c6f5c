"""Jobs that run for real on four gloo ranks while the tests do, and torch's own analyzer on the same dumps."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from rankscope.assemble.load import load
from tests.jobs import maker
from tests.jobs.official import Complaint, complaints
from tests.jobs.scenarios import EXPECTED, SAMPLES, causes, check, report
from tests.torch_forks import printed

pytestmark = pytest.mark.torch

RANKS = {0, 1, 2, 3}
SLOWER = (1, 4, 12)
"""Of the runs, one after the other: on a machine that is too busy for one, the next has more time for everything."""
LONGEST_PAUSE_NS = 100_000_000
"""A job is called still after twenty times as long."""
LONGEST_SPREAD_NS = 15_000_000
"""The rank that is late is twice as late."""


@pytest.mark.parametrize("name", EXPECTED)
def test_a_job_that_runs_now_is_told_as_it_is(name: str, tmp_path: Path) -> None:
    for slower in SLOWER:
        printed([maker.__file__, name, str(tmp_path / str(slower)), str(slower)], tmp_path)
        try:
            check(name, tmp_path / str(slower) / name)
        except AssertionError:
            if slower == SLOWER[-1] or not held_up(tmp_path / str(slower) / name):
                raise
        else:
            return


def held_up(folder: Path) -> bool:
    """Whether the machine made a job pause for so long that its dumps, 2 s after the last event, show no standstill.

    In traces: or so that ranks which all are in time came to a collective at other times.
    """
    dataset = load([folder])
    if dataset.ops.is_empty():
        return came_apart(dataset.traced, EXPECTED[folder.name].culprits)
    ops = dataset.ops
    events = pl.concat([ops["created_ns"], ops["completed_ns"]]).drop_nulls().sort()
    longest = events.diff().max()
    return isinstance(longest, int) and longest > LONGEST_PAUSE_NS


def came_apart(traced: pl.DataFrame, late: list[int]) -> bool:
    """Whether the ranks that are not late came to a collective further apart than half of what the late one is."""
    others = traced.filter(~pl.col("rank").is_in(late)).with_columns(came=pl.coalesce("started_ns", "created_ns"))
    numbered = others.sort("came").with_columns(at=pl.int_range(pl.len()).over("rank", "group", "op"))
    spread = numbered.group_by("group", "op", "at").agg(pl.col("came").max() - pl.col("came").min())["came"].max()
    return isinstance(spread, int) and spread > LONGEST_SPREAD_NS


@pytest.fixture(scope="module")
def complained() -> dict[str, list[Complaint]]:
    """What torch's analyzer says of the bundled jobs."""
    names = ["healthy", "straggler", "early_return", "wrong_collective", "size_mismatch", "two_groups"]
    return dict(zip(names, complaints([SAMPLES / name for name in names]), strict=True))


@pytest.mark.parametrize("name", ["healthy", "straggler"])
def test_where_nothing_hangs_torchs_analyzer_agrees(name: str, complained: dict[str, list[Complaint]]) -> None:
    assert complained[name] == []
    assert report(SAMPLES / name)[0] == 0


def test_a_missing_rank_is_the_same_for_torchs_analyzer(complained: dict[str, list[Complaint]]) -> None:
    cause = causes(report(SAMPLES / "early_return")[1])[0]
    assert complained["early_return"] == [
        Complaint("0:default_pg", cause["seq"], cause["culprit_ranks"]),
    ]


@pytest.mark.parametrize("name", ["wrong_collective", "size_mismatch"])
def test_a_mismatch_stands_at_the_same_place_for_torchs_analyzer(
    name: str, complained: dict[str, list[Complaint]]
) -> None:
    """It takes the first file it meets for right, so it blames the culprit or everybody else."""
    cause = causes(report(SAMPLES / name)[1])[0]
    first = complained[name][0]
    assert first.seq == cause["seq"]
    assert set(first.ranks) in (set(cause["culprit_ranks"]), RANKS - set(cause["culprit_ranks"]))


def test_the_cause_is_among_the_hangs_torchs_analyzer_lists(complained: dict[str, list[Complaint]]) -> None:
    cause = causes(report(SAMPLES / "two_groups")[1])[0]
    listed = complained["two_groups"]
    assert len(listed) == 3
    name = f"{cause['group']['id']}:{cause['group']['description']}"
    assert Complaint(name, cause["seq"], cause["culprit_ranks"]) in listed
