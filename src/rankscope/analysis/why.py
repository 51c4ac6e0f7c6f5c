"""Answers for one rank: why it is accused, or why it is not and how close it came."""

from __future__ import annotations

from collections.abc import Iterator

from rankscope.analysis.model import Analysis, Evidence, Finding, Reason, Why
from rankscope.analysis.rank_view import RankView, subject
from rankscope.analysis.why_not import acquit
from rankscope.analysis.wording import plural
from rankscope.kinds.finding_kinds import FINDINGS
from rankscope.schema import Dataset

WITNESSES = 3
"""Records of other ranks that are quoted."""
ABSENT = (
    "others wait in what it never issued, and it has nothing pending that could hold it up: the waiting ends with it"
)
SKIPPED = "it never issued what others wait in, but went on to what comes after it: it left that one out"
UNSEEN = "others wait for it, and no other root explains the wait: only then a rank without a dump is accused"


class NoSuchRankError(LookupError):
    """The job has no such rank; the message is for a person."""


def explain(dataset: Dataset, analysis: Analysis, rank: int) -> Why:
    """Why `rank` is accused or not, with what supports it. Raises NoSuchRankError where the job has no such rank."""
    view = RankView(dataset, rank)
    if not (0 <= rank < dataset.world_size or view.seen or view.groups):
        size = dataset.world_size
        known = f"the job has {plural(size, 'rank')}, 0 to {size - 1}" if size else "no rank of the job is known"
        raise NoSuchRankError(f"there is no rank {rank}: {known}")
    if dataset.from_traces:
        from rankscope.analysis.traces.why import explain_traced

        return explain_traced(dataset, analysis, rank)
    accusing = sorted((f for f in analysis.findings if rank in f.culprit_ranks), key=lambda f: not f.root_cause)
    if not accusing:
        return acquit(view, analysis)
    first, *others = accusing
    return Why(
        rank, True, first.id or None, f"rank {rank} is accused: {first.title}", tuple(_accused(view, first, others))
    )


def _accused(view: RankView, finding: Finding, others: list[Finding]) -> Iterator[Reason]:
    certainty = "; ".join((f"{finding.confidence} confidence", *finding.confidence_reasons))
    yield Reason("rule", Evidence(f"{finding.kind}: {_rule(view, finding)} ({certainty})"))
    own = [e for e in finding.evidence if e.rank == view.rank]
    for evidence in (*own, *[e for e in finding.evidence if e.rank != view.rank][:WITNESSES]):
        yield Reason("evidence", evidence)
    still, _ = view.repeats()
    if still is not None:
        yield Reason("evidence", still)
    for evidence in view.state(_groups(view, finding)) if view.seen else ():
        yield Reason("state", evidence)
    for evidence in finding.counter_evidence:
        if evidence.rank in (None, view.rank):
            yield Reason("against", evidence)
    clears = FINDINGS[finding.kind].clears
    yield Reason("clears", Evidence(clears.format(subject=subject(finding))))
    for other in others:
        yield Reason("also", Evidence(f"{other.id} {other.kind}: {other.title}"))


def _groups(view: RankView, finding: Finding) -> list[int]:
    """The group of the finding, or else the first in which the rank has something pending."""
    if finding.group is not None and view.rank in finding.group.ranks and finding.group.key >= 0:
        return [finding.group.key]
    return view.pending["group"].head(1).to_list()


def _rule(view: RankView, finding: Finding) -> str:
    if finding.kind == "missing-rank":
        return UNSEEN if not view.seen else SKIPPED if view.pending.height else ABSENT
    return FINDINGS[finding.kind].rule or finding.explanation
