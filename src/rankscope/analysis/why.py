"""Answers for one rank: why it is accused, or why it is not and how close it came."""

from __future__ import annotations

from collections.abc import Iterator

from rankscope.analysis.model import Analysis, Evidence, Finding, Reason, Why
from rankscope.analysis.why_not import acquit
from rankscope.analysis.why_view import RankView, subject
from rankscope.analysis.wording import plural
from rankscope.schema import Dataset

WITNESSES = 3
"""Records of other ranks that are quoted."""
RULES: dict[str, str] = {
    "gpu-stuck": "it issued what its peers issued, and only its device did not get there, or did not finish",
    "collective-mismatch": "of members that issued different things at one place the minority is accused; in a tie "
    "the replicas of the group decide, and without any all of them",
    "extra-collective": "what few members issue and the rest, who wait for nothing, never did, is one too many",
    "order-deadlock": "of ranks that wait for each other in a circle, those are accused whose order is not that of "
    "most; without a majority all of them",
    "p2p-unmatched": "one side of a send and receive was posted, and the other side, which waits for nothing, was not",
    "straggler": "it comes last in most collectives of a group, by a margin that chance does not explain",
}
"""Why a kind of finding accuses somebody."""
ABSENT = (
    "others wait in what it never issued, and it has nothing pending that could hold it up: the waiting ends with it"
)
SKIPPED = "it never issued what others wait in, but went on to what comes after it: it left that one out"
UNSEEN = "others wait for it, and no other root explains the wait: only then a rank without a dump is accused"
CLEARS: dict[str, str] = {
    "missing-rank": "a dump of it, as new as those of the others, in which it issued {subject} or waits in another "
    "operation",
    "gpu-stuck": "a later dump in which {subject} has finished on it, or the kernel in front of it turns out to wait "
    "for another rank",
    "collective-mismatch": "its program: if it took the branch that is meant at {subject}, the others are wrong",
    "extra-collective": "py-spy of the others: if they are all stuck at one place that has nothing to do with "
    "{subject}, they are the cause",
    "order-deadlock": "its program: if it entered the groups in the order that is meant, the others are wrong",
    "p2p-unmatched": "a dump of it, as new as that of its peer, in which it posted its side; or a schedule in which "
    "its peer should not wait for {subject}",
    "straggler": "a profile in which it is not late, or clocks of the hosts that are apart",
}
"""What would clear a rank, by the kind of finding that accuses it."""
_MISMATCHES = ("size-mismatch", "dtype-mismatch")


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
    clears = CLEARS.get(_family(finding.kind), "a newer dump in which it has moved on")
    yield Reason("clears", Evidence(clears.format(subject=subject(finding))))
    for other in others:
        yield Reason("also", Evidence(f"{other.id} {other.kind}: {other.title}"))


def _groups(view: RankView, finding: Finding) -> list[int]:
    """The group of the finding, or else the first in which the rank has something pending."""
    if finding.group is not None and view.rank in finding.group.ranks and finding.group.key >= 0:
        return [finding.group.key]
    return view.pending["group"].head(1).to_list()


def _family(kind: str) -> str:
    return "collective-mismatch" if kind in _MISMATCHES else kind


def _rule(view: RankView, finding: Finding) -> str:
    if finding.kind == "missing-rank":
        return UNSEEN if not view.seen else SKIPPED if view.pending.height else ABSENT
    return RULES.get(_family(finding.kind), finding.explanation)
