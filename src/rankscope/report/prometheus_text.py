"""The state of a followed job as metrics, in the text format of Prometheus.

https://prometheus.io/docs/instrumenting/exposition_formats/#text-based-format
Names have a unit, in base units; every metric has the label `source`, so that several jobs may share a directory.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args

import polars as pl

from rankscope import __version__
from rankscope.analysis.job_state import JobState
from rankscope.analysis.live_state import LiveState
from rankscope.analysis.model import Analysis
from rankscope.kinds.finding_kinds import SEVERITIES, STATUSES
from rankscope.schema import Dataset
from rankscope.text.escaping import plain

MOST_RANKS = 64
"""Most culprits with a metric of their own."""
MOST_GROUPS = 100
"""Most groups with metrics of their own: those whose members are furthest apart, then the largest."""
LONGEST_LABEL = 200
_SECOND_NS = 1e9
Labels = Mapping[str, str]
Samples = list[tuple[Labels, float]]


class PrometheusMetric(NamedTuple):
    """A metric with its samples."""

    name: str
    """Without the prefix `rankscope_`."""
    help: str
    samples: Samples
    type: Literal["gauge", "counter"] = "gauge"


@dataclass(frozen=True)
class FollowedState:
    """A followed job at one moment."""

    dataset: Dataset
    analysis: Analysis
    live: LiveState
    updates: int = 0
    """Number of updates so far."""
    trouble: str = ""
    """Problem of following; "" if there is none."""


def render_metrics(state: FollowedState, source: str, now_ns: int, *, watching: bool = True) -> bytes:
    """All metrics of a job. `source` is the user's name of its files, `watching` whether the job is still followed."""
    metrics = [*_of_job(state), *_of_ranks(state), *_of_times(state, now_ns), *_of_following(state, watching)]
    return "".join(line for metric in metrics for line in _lines(metric, source)).encode()


def _lines(metric: PrometheusMetric, source: str) -> Iterator[str]:
    if not metric.samples:
        return
    name = f"rankscope_{metric.name}"
    yield f"# HELP {name} {metric.help}\n# TYPE {name} {metric.type}\n"
    for labels, value in metric.samples:
        told = ",".join(f'{key}="{_escaped(text)}"' for key, text in {"source": source, **labels}.items())
        yield f"{name}{{{told}}} {int(value) if value == int(value) else repr(value)}\n"


def _escaped(text: str) -> str:
    """A text of a file as the value of a label; `plain` leaves no line ends."""
    return plain(text, LONGEST_LABEL).replace("\\", "\\\\").replace('"', '\\"')


def _one(value: float) -> Samples:
    return [({}, value)]


def _enum(label: str, values: list[str], current: str) -> Samples:
    return [({label: value}, value == current) for value in values]


def _of_job(state: FollowedState) -> Iterator[PrometheusMetric]:
    found = state.analysis.findings
    severities: Samples = [({"severity": name}, sum(f.severity == name for f in found)) for name in SEVERITIES]
    yield PrometheusMetric(
        "job_status",
        "Status of the verdict: 1 for the current one, 0 for the others.",
        _enum("status", list(STATUSES), state.analysis.status),
    )
    yield PrometheusMetric(
        "job_state",
        "JobState of the job while it is watched: 1 for the current one, 0 for the others.",
        _enum("state", list(get_args(JobState)), state.live.state),
    )
    yield PrometheusMetric("findings", "Findings by severity.", severities)


def _of_ranks(state: FollowedState) -> Iterator[PrometheusMetric]:
    dataset, culprits = state.dataset, state.analysis.culprits
    ranks: Samples = [
        ({"presence": "seen"}, len(dataset.seen_ranks)),
        ({"presence": "missing"}, len(dataset.unseen_ranks)),
    ]
    kinds = {
        rank: finding.kind
        for finding in reversed(state.analysis.findings)
        if finding.root_cause
        for rank in finding.culprit_ranks
    }
    named: Samples = [({"rank": str(rank), "kind": kinds[rank]}, 1) for rank in culprits[:MOST_RANKS]]
    yield PrometheusMetric("ranks", "Ranks of the job, by whether they left files that could be read.", ranks)
    yield PrometheusMetric("culprits", "Culprit ranks of all root causes.", _one(len(culprits)))
    yield PrometheusMetric("culprit", f"1 for each culprit rank, for at most {MOST_RANKS}.", named)
    yield PrometheusMetric("groups", "Process groups of the job.", _one(dataset.groups.height))
    yield PrometheusMetric(
        "group_last_sequence_number",
        "Number of the last collective that members of a group issued: of the furthest and of the hindmost, for at "
        f"most {MOST_GROUPS} groups.",
        _sequence_numbers(dataset),
    )


def _sequence_numbers(dataset: Dataset) -> Samples:
    last = pl.col("last_enqueued")
    table = (
        dataset.frontiers.drop_nulls("last_enqueued")
        .group_by("group")
        .agg(furthest=last.max(), hindmost=last.min(), ranks=pl.len())
        .sort(pl.col("hindmost") - pl.col("furthest"), -pl.col("ranks").cast(pl.Int64), "group")
        .head(MOST_GROUPS)
    )
    samples: Samples = []
    seen: set[str] = set()
    for row in table.sort("group").iter_rows(named=True):
        group = dataset.group_list[row["group"]]
        name = plain(group.name, LONGEST_LABEL - 20)
        # Prometheus refuses a file in which a set of labels stands twice
        name = f"{name} ({group.id})" if name in seen else name
        seen.add(name)
        labels = {"group": name, "description": group.description}
        samples += [({**labels, "member": member}, row[member]) for member in ("furthest", "hindmost")]
    return samples


def _of_times(state: FollowedState, now_ns: int) -> Iterator[PrometheusMetric]:
    live = state.live
    newest: int | None = state.dataset.files["mtime_ns"].max()  # type: ignore[assignment]
    for name, what, at_ns in (
        ("progress", "the newest operation, by the clocks of the ranks", live.since_ns),
        ("newest_file", "the newest file", newest),
    ):
        if at_ns is not None:
            yield PrometheusMetric(f"{name}_timestamp_seconds", f"Time of {what}.", _one(at_ns / _SECOND_NS))
            age = max(0, now_ns - at_ns) / _SECOND_NS
            yield PrometheusMetric(f"{name}_age_seconds", f"Seconds since the time of {what}.", _one(age))
    yield PrometheusMetric(
        "freeze_after_seconds", "Standstill from which the job is called frozen.", _one(live.needed_ns / _SECOND_NS)
    )
    yield PrometheusMetric("collectives_per_second", "Collectives a second over all groups.", _one(live.per_s))


def _of_following(state: FollowedState, watching: bool) -> Iterator[PrometheusMetric]:
    files = state.dataset.files
    broken = files["problem"].is_not_null().sum()
    yield PrometheusMetric("files", "Files of the job.", _one(files.height))
    yield PrometheusMetric("read_errors", "Files that could not be read, or only in part.", _one(int(broken)))
    yield PrometheusMetric(
        "follow_trouble", "Whether the files cannot be seen, or the file system is full.", _one(bool(state.trouble))
    )
    yield PrometheusMetric("updates_total", "Updates of the verdict.", _one(state.updates), "counter")
    yield PrometheusMetric("watching", "Whether the job is still followed; 0 once rankscope has ended.", _one(watching))
    yield PrometheusMetric("build_info", "Version of rankscope.", [({"version": __version__}, 1)])
