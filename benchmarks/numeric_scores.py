"""Scores of what is said about the numbers of a faulty run, alone and beside a trusted one.

A job notes when each rank first does something wrongly, and how many tensors were recorded before. A place is right if
that moment lies between the last tensor that is known to be right and the named one.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import polars as pl

from benchmarks.numeric_plan import NumericJob
from benchmarks.numeric_runs import Marks, marks, recorded
from rankscope.analysis.facts import Facts
from rankscope.analysis.model import Analysis
from rankscope.features.numbers.rules.model import BrokenRule
from rankscope.features.numbers.rules.number_findings import NumberCause, NumbersJudgement, judge_numbers, with_numbers
from rankscope.features.numbers.rules.reference import compare_numbers, joined_judgement
from rankscope.schema import Dataset

PLACED = ("operation", "bracket", "schedule", "law")
"""Scores of a right place: the operation itself, the tensors between which it lies, the operation that is left out,
and the operation whose law is broken."""
_IN_SCHEDULE = ("schedule-differs", "schedule-changes")


@dataclass(frozen=True)
class Score:
    """Scores of a run."""

    job: NumericJob
    alone: str
    """"rank" (only ranks that did it), "group" (a group with one of them), "wrong" or "silent"."""
    rules: str
    """Rules that the first root without a reference breaks."""
    beside: str
    """One of `PLACED`, "later" (the right rank, further on), "wrong", "silent", or "same": no bit differs."""
    titles: tuple[str, str]
    """Verdicts alone, and beside the trusted run."""


def score(job: NumericJob, base: Path, trusted: Dataset) -> Score:
    """The score of a run that lies in `base`."""
    run, truth = recorded(base / job.name), marks(base / job.name)
    alone = judge_numbers(run)
    beside = joined_judgement(run, alone, compare_numbers(run, trusted))
    first = _roots(alone)[:1]
    return Score(
        job, said_alone(run, alone, truth), "+".join(one.rule for one in (first[0].rules if first else ())),
        "same" if _is_same(beside) else _said_beside(run, beside, truth), (verdict(run, alone), verdict(run, beside)),
    )  # fmt: skip


def _is_same(beside: NumbersJudgement) -> bool:
    return not any(count.broken for count in beside.counts if count.rule == "RX") and not _roots(beside)


def verdict(run: Dataset, judged: NumbersJudgement) -> str:
    """The first line of the report."""
    return with_numbers(Facts(run), Analysis("", "unknown"), judged).verdict


def _roots(judged: NumbersJudgement) -> list[NumberCause]:
    return [cause for cause in judged.causes if cause.is_root]


def said_alone(run: Dataset, judged: NumbersJudgement, truth: Marks) -> str:
    """The score of what the laws say; "wrong" if any root names a rank that did nothing wrongly, or comes too early."""
    roots = _roots(judged)
    if not roots:
        return "silent"
    if any(_is_innocent(run, one, truth) for one in roots):
        return "wrong"
    return "rank" if roots[0].first.ranks else "group"


def _is_innocent(run: Dataset, cause: NumberCause, truth: Marks) -> bool:
    broken = cause.first
    suspects = broken.ranks or broken.candidates or broken.members
    step = run.tensors["step"][broken.row]
    early = cause.variant not in _IN_SCHEDULE and step < min((own[0][0] for own in truth.values()), default=1 << 30)
    outside = not set(broken.ranks) <= set(truth) if broken.ranks else not set(suspects) & set(truth)
    return early or outside


def _said_beside(run: Dataset, judged: NumbersJudgement, truth: Marks) -> str:
    roots = _roots(judged)
    if not roots:
        return "silent"
    if any(_is_innocent(run, one, truth) for one in roots):
        return "wrong"
    # the report lists proofs first
    return max(
        (_place(run, one, truth) for one in roots), key=["later", "law", "bracket", "schedule", "operation"].index
    )


def _place(run: Dataset, cause: NumberCause, truth: Marks) -> str:
    if cause.variant not in ("differs-from-reference", "schedule-differs"):
        return "law"
    exact = "so it made the difference" in cause.first.note
    ranks = [rank for rank in cause.first.ranks if rank in truth]
    rows = {run.tensors["rank"][row]: row for row in (cause.first.row, *cause.first.rows)}
    fits = [_fits(run, rows[rank], truth[rank], exact=exact, broken=cause.first) for rank in ranks if rank in rows]
    right = "schedule" if cause.variant == "schedule-differs" else "operation" if exact else "bracket"
    return right if fits and all(fits) else "later"


def _fits(run: Dataset, row: int, moments: list[tuple[int, int]], *, exact: bool, broken: BrokenRule) -> bool:
    """Whether a moment of the fault lies between the last right tensor, or the inputs, and this one."""
    told = run.tensors.select("rank", "order", "step", pl.col("site", "name", "op", "slot").cast(pl.String), "seq")
    own = told.row(row, named=True)
    if exact:
        same = told.filter(*(pl.col(key).eq_missing(own[key]) for key in ("rank", "step", "site", "name", "op", "seq")))
        begin = same.filter(pl.col("slot").str.starts_with("in"))["order"].min()
        begin = begin if begin is not None and own["site"] != "optimizer" else -1
    else:
        begin = -1 if broken.after is None else run.tensors["order"][broken.after]
        begin = -1 if run.tensors["rank"][row] != run.tensors["rank"][broken.row] else begin
    return any(int(str(begin)) < order <= own["order"] for _, order in moments)
