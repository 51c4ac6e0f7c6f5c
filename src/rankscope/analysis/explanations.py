"""Explanations for one rank: why it is accused, or why it is not and how close it came."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from rankscope.analysis.model import Analysis, ChainStep, Divergence, Evidence, Finding, RankExplanation, Reason
from rankscope.analysis.presence import Absence
from rankscope.analysis.rank_view import RankView, group_of, label_of, operation_name, operation_text, step_evidence
from rankscope.kinds.features import called
from rankscope.kinds.finding_kinds import FINDINGS
from rankscope.kinds.functions import function
from rankscope.schema import Dataset
from rankscope.text.wording import duration, plural, ranks_text

MOST_WITNESSES = 3
"""Most quoted records of other ranks."""
ABSENCE_RULE = (
    "others wait in a collective that it never issued, and it has nothing pending that could hold it up: the "
    "chain of waits ends there"
)
SKIP_RULE = "it never issued the collective that others wait in, but issued a later one: it left that one out"
LEFT_OUT_RULE = (
    "one side of a send and receive was posted, the other was left out: its rank went on, and now waits in a later "
    "operation"
)
MISSING_DUMP_RULE = (
    "others wait for it, and no other root explains the wait: a rank without a dump is accused only then"
)


class NoSuchRankError(LookupError):
    """Raised for a rank that the job does not have; the message is for the user."""


def explain_rank(dataset: Dataset, analysis: Analysis, rank: int) -> RankExplanation:
    """Explains why `rank` is accused or not, with evidence. Raises NoSuchRankError if the job has no such rank."""
    view = RankView(dataset, rank)
    if not (0 <= rank < dataset.world_size or view.seen or view.groups):
        size = dataset.world_size
        known = f"the job has {plural(size, 'rank')}, 0 to {size - 1}" if size else "no rank of the job is known"
        raise NoSuchRankError(f"there is no rank {rank}: {known}")
    if dataset.from_traces:
        explained: RankExplanation = function(next(called(dataset, "explain")))(dataset, analysis, rank)
        return explained
    accusing = sorted((f for f in analysis.findings if rank in f.culprit_ranks), key=lambda f: not f.root_cause)
    if not accusing:
        return explain_acquittal(view, analysis)
    first, *others = accusing
    return RankExplanation(
        rank, True, first.id or None, f"rank {rank} is accused: {first.title}", tuple(_accused(view, first, others))
    )


def end_of_chain(dataset: Dataset, analysis: Analysis, rank: int) -> str:
    """A sentence on a rank that no chain leads on from: a root cause, one that waits with its peers, or none of it."""
    view = RankView(dataset, rank)
    pending = operation_name(view.pending.row(0, named=True)) if view.pending.height else ""
    if rank in analysis.culprits:
        held = f"rank {rank} is a root cause, although it has {pending} pending"
        return held if pending else f"rank {rank} waits for nobody: it is a root cause"
    return f"rank {rank}: {_short(view, analysis, _cause(view, analysis))}"


def _accused(view: RankView, finding: Finding, others: list[Finding]) -> Iterator[Reason]:
    certainty = "; ".join((f"{finding.confidence} confidence", *finding.confidence_reasons))
    yield Reason("rule", Evidence(f"{finding.kind}: {_rule(view, finding)} ({certainty})"))
    own = [e for e in finding.evidence if e.rank == view.rank]
    for evidence in (*own, *[e for e in finding.evidence if e.rank != view.rank][:MOST_WITNESSES]):
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
    yield Reason("clears", Evidence(clears.format(subject=operation_text(finding))))
    for other in others:
        yield Reason("also", Evidence(f"{other.id} {other.kind}: {other.title}"))


def _groups(view: RankView, finding: Finding) -> list[int]:
    """The group of the finding, else the first group in which the rank has a pending operation."""
    if finding.group is not None and view.rank in finding.group.ranks and finding.group.key >= 0:
        return [finding.group.key]
    return view.pending["group"].head(1).to_list()


def _rule(view: RankView, finding: Finding) -> str:
    if finding.kind == "missing-rank":
        return MISSING_DUMP_RULE if not view.seen else SKIP_RULE if view.pending.height else ABSENCE_RULE
    if finding.kind == "p2p-unmatched" and view.pending.height:
        return LEFT_OUT_RULE
    return FINDINGS[finding.kind].rule or finding.explanation


# Ranks that are not accused: their waits, their differences from a culprit, and how close they came.

MOST_STEPS = 8
"""Most quoted steps of a chain."""
MOST_GROUPS = 4
"""Most groups whose frontier is quoted."""
NOTABLE_LAG_NS = 1_000_000_000
"""Smallest age difference between dumps that is worth telling."""


def explain_acquittal(view: RankView, analysis: Analysis) -> RankExplanation:
    """The explanation for a rank that no finding accuses."""
    cause = _cause(view, analysis)
    lines = (
        *_waits(view, analysis, cause), *_states(view, analysis, cause),
        *_unlike(view, cause), *_close(view, analysis),
    )  # fmt: skip
    title = f"rank {view.rank} is not accused: {_short(view, analysis, cause)}"
    return RankExplanation(view.rank, False, cause.id or None if cause else None, title, lines)


def _cause(view: RankView, analysis: Analysis) -> Finding | None:
    """The finding that explains the wait of a rank, else the first root; None if nothing hangs."""
    roots = [f for f in analysis.findings if f.root_cause or f.kind == "not-frozen"]
    return next((f for f in roots if view.rank in f.waiting_ranks), roots[0] if roots else None)


def _short(view: RankView, analysis: Analysis, cause: Finding | None) -> str:
    if not view.seen:
        return _unseen(view, analysis, cause)
    steps = analysis.waits.get(view.rank, ())
    if steps:
        behind = f", at the end for rank {steps[-1].for_rank}" if steps[-1].for_rank != steps[0].for_rank else ""
        return f"it waits for rank {steps[0].for_rank}{behind}"
    if view.pending.height:
        return f"it waits in {operation_name(view.pending.row(0, named=True))}{_company(view, cause)}"
    nothing = "the operation that it waits in is not known" if view.is_cut_off else "it does not wait in any operation"
    return f"{nothing}; {view.summary()}"


def _company(view: RankView, cause: Finding | None) -> str:
    """The others in the operation that a rank waits in, as far as the cause tells of it."""
    if cause is None or view.rank not in cause.waiting_ranks:
        return ", and these dumps do not show why"
    if cause.kind == "stuck-in-collective" and cause.group is not None and view.rank in cause.group.ranks:
        return ", as all members do"
    return f", held up by {cause.id} {cause.kind}"


def _unseen(view: RankView, analysis: Analysis, cause: Finding | None) -> str:
    lost = "no dump of it was read" if view.dataset.unread_directories else "it left no dump"
    lost = "its dump could not be read" if view.rank in view.dataset.unread_dumps else lost
    unread = "its dump was not opened" if view.dataset.beside.directory else "--ranks left it out"
    lost = unread if view.rank in view.dataset.unopened_ranks else lost
    if not view.groups:
        return f"{lost}, and no group lists it: it may not be part of the job"
    waiting = [rank for rank, steps in analysis.waits.items() if any(s.for_rank == view.rank for s in steps)]
    if waiting:
        return f"{lost}; {plural(len(waiting), 'rank')} may wait for it"
    return f"{lost}, and " + (
        "the recorded operations explain the wait without it" if cause else "no rank is seen waiting for it"
    )


def _waits(view: RankView, analysis: Analysis, cause: Finding | None) -> Iterator[Reason]:
    for path, problem in view.unread:
        yield Reason("close", Evidence(problem, file=path, rank=view.rank))
    steps = analysis.waits.get(view.rank, ())
    shown = steps if len(steps) <= MOST_STEPS else (*steps[: MOST_STEPS // 2], *steps[-MOST_STEPS // 2 :])
    for step in shown:
        yield Reason("waits", step_evidence(view.dataset, step))
    if len(shown) < len(steps):
        yield Reason("waits", Evidence(f"({plural(len(steps) - len(shown), 'step')} in between)"))
    if cause is None:
        yield Reason("root", Evidence(f"nobody is accused: {analysis.verdict}"))
        return
    held = view.rank in cause.waiting_ranks
    verb = ("it ends there" if steps else "it is held up") if held else "the cause is elsewhere"
    yield Reason("root", Evidence(f"{verb}: {cause.id} {cause.kind}: {cause.title}"))


def _states(view: RankView, analysis: Analysis, cause: Finding | None) -> Iterator[Reason]:
    steps = analysis.waits.get(view.rank, ())
    for evidence in view.state(_groups_of_steps(view, steps, cause)) if view.seen else ():
        yield Reason("state", evidence)
    if cause is not None and view.rank in cause.waiting_ranks:
        yield from _end(view, steps, cause)


def _end(view: RankView, steps: Sequence[ChainStep], cause: Finding) -> Iterator[Reason]:
    """The frontier of the rank at the end of the wait chain."""
    last = [step.for_rank for step in steps[-1:] if step.for_rank in cause.culprit_ranks]
    for rank in (*last, *cause.culprit_ranks)[:1]:
        root = RankView(view.dataset, rank)
        groups = [cause.group.key] if cause.group and rank in cause.group.ranks else []
        groups += [group for step in steps[-1:] if (group := group_of(view.dataset, step)) is not None]
        for evidence in root.state(groups[:1]) if root.seen else ():
            idle = "" if root.pending.height else "; it has nothing pending"
            yield Reason("state", replace(evidence, text=f"{evidence.text}{idle}"))


def _groups_of_steps(view: RankView, steps: Sequence[ChainStep], cause: Finding | None) -> list[int]:
    """The groups that matter: where it waits and where that began, else the last one it used."""
    found = [group_of(view.dataset, step) for step in steps if step.rank == view.rank]
    found += view.pending["group"].to_list()
    if cause is not None and cause.group is not None and view.rank in cause.group.ranks:
        found.append(cause.group.key)
    found = found or view.ops["group"].tail(1).to_list()
    return list(dict.fromkeys(group for group in found if group is not None))[:MOST_GROUPS]


def _unlike(view: RankView, cause: Finding | None) -> Iterator[Reason]:
    """Actions of the rank that a culprit would not have taken."""
    if cause is None or cause.group is None or cause.seq is None or not view.seen:
        return
    place, accused = operation_text(cause), ranks_text(cause.culprit_ranks)
    if view.rank not in cause.group.ranks:
        yield Reason(
            "unlike",
            view.evidence(f"it is not a member of {cause.group.description or cause.group.id}, where the hang began"),
        )
    elif cause.peer is not None:
        if cause.peer == view.rank:
            yield Reason("unlike", view.evidence(f"it posted its side of {place}; {accused} did not"))
    elif not cause.culprit_ranks:
        return
    elif (row := view.at(cause.group.key, cause.seq)) is not None:
        seen = [RankView(view.dataset, rank) for rank in cause.culprit_ranks if rank in view.dataset.seen_ranks]
        came = any(other.at(cause.group.key, cause.seq) is not None for other in seen)
        text = _did(cause, row["state"], place, accused, came=came) if seen else f"it issued {place}"
        yield Reason("unlike", view.evidence(text, row))
    else:
        why = view.absence(cause.group.key, cause.seq)
        if why in (Absence.OVERWRITTEN, Absence.FILTERED):
            yield Reason("unlike", view.evidence(f"it issued {place}: the entry is {why} in its dump"))


def _did(cause: Finding, state: str, place: str, accused: str, *, came: bool) -> str:
    if cause.kind == "gpu-stuck":
        what = {"completed": "finished", "started": "started"}.get(state, "issued")
        return f"it {what} {place}; {accused} did not" if what != "issued" else f"it issued {place}, as all members did"
    if cause.kind == "order-deadlock" and not came:
        return f"it issued {place}; {accused} waits elsewhere and has not reached it"
    kind = FINDINGS[cause.kind]
    if kind.differs or (kind.absent == "candidates" and cause.culprit_ranks):
        return f"its operation at {place} fits the others; that of {accused} does not"
    return f"it issued {place}, and so did {accused}" if came else f"it issued {place}; {accused} never did"


def _close(view: RankView, analysis: Analysis) -> Iterator[Reason]:
    """How close the rank came to being accused."""
    for finding in analysis.findings:
        if view.rank in finding.candidates:
            yield Reason("close", Evidence(_candidate(finding)))
    for divergence in analysis.divergences:
        text = _diverges(view, divergence)
        if text:
            yield Reason("close", view.evidence(text))
    if view.seen:
        yield from (Reason("close", evidence) for evidence in _dumps(view))


def _candidate(finding: Finding) -> str:
    if finding.kind == "not-frozen":
        return f"it would be accused if the job had stopped: {finding.explanation}"
    reasons = "; ".join(finding.confidence_reasons)
    return f"it is a candidate of {finding.id} {finding.kind}" + (f": {reasons}" if reasons else "")


def _diverges(view: RankView, divergence: Divergence) -> str:
    place = f"{divergence.op} #{divergence.seq} of {label_of(view.dataset, divergence.group)}"
    if view.rank in divergence.differing:
        return f"it issued another operation than most members at {place}; the replicas, or an older root, clear it"
    if view.rank in divergence.absent:
        if not view.pending.height:
            return f"it never issued {place}"
        head = view.pending.row(0, named=True)
        where = label_of(view.dataset, head["group"])
        return f"it never issued {place}: {operation_name(head)} of {where} is pending and holds it up"
    if view.seen and view.rank in divergence.unknown:
        return f"its dump does not show whether it issued {place}, so the gap is not held against it"
    return ""


def _dumps(view: RankView) -> Iterator[Evidence]:
    newest = view.dataset.ops["created_ns"].max()
    if view.written_ns is not None and isinstance(newest, int) and newest - view.written_ns > NOTABLE_LAG_NS:
        behind = duration(newest - view.written_ns)
        yield view.evidence(f"its dump was written {behind} before the newest operation of the job was issued")
    yield from filter(None, view.repeats())
