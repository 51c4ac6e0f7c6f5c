"""Operations of which only the issue is known: logs of NCCL, and some hooks, never tell that one is finished.

Once the job is known to stand still, a rank that issued a collective which another member never reached waits in it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

import polars as pl

from rankscope.analysis.model import Analysis, Finding
from rankscope.schema import Dataset
from rankscope.schema.tables import State
from rankscope.text.wording import ranks_text


def as_waiting(dataset: Dataset, files: Collection[int] | None = None) -> Dataset | None:
    """The dataset with such operations of `files` (or all) as pending; None if there are none.

    Only in groups with a known frontier of every member.
    """
    least = _least(dataset) if files is None else _least(dataset, among=dataset.seen_ranks)
    rows = dataset.ops.select("file", "group", "seq", "is_p2p", "state").join(
        least, on="group", how="left", maintain_order="left"
    )  # fmt: skip
    waits = (pl.col("state") == "unknown") & ~pl.col("is_p2p") & (pl.col("seq") > pl.col("least"))
    if files is not None:
        waits &= pl.col("file").is_in(list(files))
    waiting = rows.select(waits.fill_null(value=False)).to_series()
    if not waiting.any():
        return None
    state = pl.when(pl.lit(waiting)).then(pl.lit("scheduled", dtype=State)).otherwise("state")
    return replace(dataset, ops=dataset.ops.with_columns(state=state))


def _least(dataset: Dataset, among: Sequence[int] | None = None) -> pl.DataFrame:
    """By group the last collective that every member is known to have issued: group, least.

    If only the ranks `among` left a dump, a group with other members waits for these in its last operation at the
    latest, so `least` is one less.
    """
    members = dataset.groups.select("group", rank="ranks").explode("rank")
    told = members if among is None else members.filter(pl.col("rank").is_in(list(among)))
    sizes = members.group_by("group").agg(size=pl.len()).join(told.group_by("group").agg(told=pl.len()), on="group")
    known = dataset.frontiers.drop_nulls("last_enqueued").group_by("group").agg(
        least=pl.col("last_enqueued").min(), known=pl.len()
    )  # fmt: skip
    return (
        sizes.join(known, on="group").filter(pl.col("known") == pl.col("told"))
        .select("group", least=pl.col("least") - (pl.col("told") < pl.col("size")).cast(pl.Int64))
    )  # fmt: skip


def if_it_runs(analysis: Analysis, reason: str) -> Analysis:
    """The results of such a dataset as a suspicion, because a log also falls silent if all of its processes are killed.

    Then they end one after the other, and the first one killed looks like the rank that the others wait for. `reason`
    says how long the logs have been silent.
    """
    if not any(finding.root_cause for finding in analysis.findings):
        return analysis
    findings = tuple(_suspected(f) if f.root_cause else _weaker(f) for f in analysis.findings)
    verdict = f"{reason}; if the processes still run, {analysis.verdict}"
    return replace(analysis, status="unknown", verdict=verdict, findings=findings)


def _suspected(finding: Finding) -> Finding:
    return replace(
        finding, severity="warning", root_cause=False, title=f"if the processes still run: {finding.title}",
        culprit_ranks=(), culprits=(), candidates=finding.culprit_ranks or finding.candidates, confidence="low",
        confidence_reasons=("logs also fall silent when all processes are killed",),
        next_steps=(f"Check whether the processes still run, those of {_ranks(finding)} first.", *finding.next_steps),
    )  # fmt: skip


def _weaker(finding: Finding) -> Finding:
    return replace(finding, severity="warning") if finding.severity == "critical" else finding


def _ranks(finding: Finding) -> str:
    ranks = finding.culprit_ranks or finding.candidates
    return ranks_text(ranks) if ranks else "the ranks that are named"
