"""Metrics of a followed job, as Prometheus' own parser reads them."""

from __future__ import annotations

from dataclasses import replace
from typing import get_args

import polars as pl
import pytest
from prometheus_client.parser import text_string_to_metric_families

from rankscope.analysis.job_state import JobState
from rankscope.analysis.live_state import LiveState
from rankscope.analysis.model import Finding
from rankscope.kinds.finding_kinds import STATUSES
from rankscope.report.prometheus_text import MOST_GROUPS, MOST_RANKS, FollowedState, render_metrics
from tests.builders import START_NS, JobBuilder
from tests.report import samples

SECOND = 10**9
NOW_NS = START_NS + 100 * SECOND
LIVE = LiveState("frozen", "nothing moves", 60 * SECOND, since_ns=START_NS + 40 * SECOND)
Read = dict[str, dict[frozenset[tuple[str, str]], float]]


def read(state: FollowedState, source: str = "dumps", *, watching: bool = True) -> Read:
    """Samples by name and labels, without `source`; every metric has a help, a type and that label."""
    found: Read = {}
    for family in text_string_to_metric_families(render_metrics(state, source, NOW_NS, watching=watching).decode()):
        assert family.documentation.endswith(".") and family.type in ("gauge", "counter")
        for sample in family.samples:
            labels = dict(sample.labels)
            assert labels.pop("source") == source and sample.name.startswith("rankscope_")
            assert frozenset(labels.items()) not in found.setdefault(sample.name, {}), "each set of labels stands once"
            found[sample.name][frozenset(labels.items())] = sample.value
    return found


def one(metrics: Read, name: str, **labels: str) -> float:
    return metrics[f"rankscope_{name}"][frozenset(labels.items())]


def test_a_hang_is_read_back() -> None:
    metrics = read(FollowedState(*samples.hang(), LIVE, 3))
    assert one(metrics, "job_status", status="hang") == 1 and one(metrics, "job_state", state="frozen") == 1
    assert sum(metrics["rankscope_job_status"].values()) == sum(metrics["rankscope_job_state"].values()) == 1
    assert len(metrics["rankscope_job_status"]) == len(STATUSES)
    assert len(metrics["rankscope_job_state"]) == len(get_args(JobState))
    assert one(metrics, "ranks", presence="seen") == 4 and one(metrics, "ranks", presence="missing") == 0
    assert one(metrics, "culprits") == 1 and one(metrics, "culprit", rank="3", kind="missing-rank") == 1
    assert one(metrics, "findings", severity="critical") == 1
    assert one(metrics, "progress_age_seconds") == 60 and one(metrics, "freeze_after_seconds") == 60
    assert one(metrics, "progress_timestamp_seconds") == pytest.approx(START_NS / SECOND + 40)
    assert one(metrics, "read_errors") == 1 and one(metrics, "files") == 4
    assert one(metrics, "updates_total") == 3 and one(metrics, "watching") == 1 and one(metrics, "follow_trouble") == 0


def test_groups_tell_how_far_their_members_are_apart() -> None:
    metrics = read(FollowedState(*samples.hang(), LIVE))
    assert one(metrics, "groups") == 2
    numbers = metrics["rankscope_group_last_sequence_number"]
    values = {dict(key)["member"]: number for key, number in numbers.items() if ("group", "41") in key}
    assert values == {"furthest": 1, "hindmost": 0}


def test_a_healthy_job_has_no_culprits_and_unknown_times_are_left_out() -> None:
    metrics = read(FollowedState(*samples.healthy(), LiveState("waiting", ""), trouble="gone"), watching=False)
    assert one(metrics, "culprits") == 0 and "rankscope_culprit" not in metrics
    assert "rankscope_progress_age_seconds" not in metrics
    assert one(metrics, "follow_trouble") == 1 and one(metrics, "watching") == 0


def test_ages_follow_the_newest_file_and_are_never_negative() -> None:
    dataset, analysis = samples.healthy()
    files = dataset.files.with_columns(mtime_ns=pl.lit(NOW_NS - 5 * SECOND))
    metrics = read(FollowedState(replace(dataset, files=files), analysis, LIVE))
    assert one(metrics, "newest_file_age_seconds") == 5
    ahead = replace(LIVE, since_ns=NOW_NS + SECOND)
    assert one(read(FollowedState(dataset, analysis, ahead)), "progress_age_seconds") == 0


def test_hostile_labels_are_escaped() -> None:
    dataset, analysis = samples.hostile()
    evil = 'a"b\\c\nd\x1b[0m{}'
    groups = dataset.groups.with_columns(name=pl.lit(evil), description=pl.lit(evil))
    text = render_metrics(FollowedState(replace(dataset, groups=groups), analysis, LIVE), evil, NOW_NS).decode()
    assert all(line.isprintable() for line in text.splitlines())
    shown = 'a"b\\c\\nd\\x1b[0m{}'
    labels = [s.labels for family in text_string_to_metric_families(text) for s in family.samples]
    assert {told["source"] for told in labels} == {shown}
    assert {told["group"] for told in labels if "group" in told} == {shown, f"{shown} (1)"}
    assert len({frozenset(told.items()) for told in labels if "group" in told}) == 4, "each set of labels stands once"


def test_large_jobs_have_few_metrics() -> None:
    world = 600
    job = JobBuilder(world, {f"g{number}": [number, number + 1] for number in range(0, world, 2)})
    job.collective("g598", ranks=[598], state="scheduled")
    dataset = job.build()
    root = Finding("missing-rank", "critical", "", "", root_cause=True, culprit_ranks=tuple(range(world)))
    state = FollowedState(dataset, replace(samples.healthy()[1], findings=(root,)), LIVE)
    metrics = read(state)
    assert len(metrics["rankscope_culprit"]) == MOST_RANKS and one(metrics, "culprits") == world
    groups = {dict(key)["group"] for key in metrics.get("rankscope_group_last_sequence_number", {})}
    assert len(groups) == MOST_GROUPS and "g598" in groups, "its members are furthest apart"
    assert one(metrics, "groups") == world / 2 + 1
    assert len(render_metrics(state, "dumps", NOW_NS)) < 100_000
