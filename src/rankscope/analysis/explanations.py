"""Explanations for one rank: why it is accused, or why it is not and how close it came."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import polars as pl

from rankscope.analysis.collective_calls import IS_PENDING
from rankscope.analysis.freeze import DumpPairs
from rankscope.analysis.model import Analysis, ChainStep, Divergence, Evidence, Finding, RankExplanation, Reason
from rankscope.analysis.presence import Absence, Presence
from rankscope.kinds.features import called
from rankscope.kinds.finding_kinds import FINDINGS
from rankscope.kinds.functions import function
from rankscope.kinds.input_kinds import DUMP
from rankscope.schema import Dataset, Group
from rankscope.text.wording import duration, plural, ranks_text

MOST_WITNESSES = 3
"""Most quoted records of other ranks."""
ABSENCE_RULE = (
    "others wait in a collective that it never issued, and it waits for nothing: the chain of waits ends there"
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
    if not (0 <= rank < dataset.world_size or view.seen or view.groups or view.is_named(analysis)):
        size = dataset.world_size
        known = f"the job has {plural(size, 'rank')}, 0 to {size - 1}" if size else "no rank of the job is known"
        raise NoSuchRankError(f"there is no rank {rank}: {known}")
    if dataset.from_traces:
        explained: RankExplanation = function(next(called(dataset, "explain")))(dataset, analysis, rank)
        return explained
    # beside a cause, what else is found of a rank is no accusation
    has_cause = any(f.root_cause for f in analysis.findings)
    accusing = [f for f in analysis.findings if rank in f.culprit_ranks and (f.root_cause or not has_cause)]
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
    beside = next((f for f in analysis.findings if view.rank in f.culprit_ranks), None)
    if beside is not None:
        return f"it is not the cause, but {beside.id} is about it: {beside.title}"
    # beside a proven cause, a rank that another finding mentions is in no question
    in_question = [f for f in analysis.findings if cause is None or f is cause or not cause.root_cause]
    suspecting = next((f for f in in_question if view.rank in f.candidates and not f.caused_by), None)
    if suspecting is not None:
        return f"it is in question, and nothing proves it: {suspecting.title}"
    if view.ops.is_empty() and (of_logs := _told_by_logs(view, analysis)):
        return of_logs
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
        return f", and these {'dumps' if view.has_dumps else 'logs'} do not show why"
    if cause.kind == "stuck-in-collective" and cause.group is not None and view.rank in cause.group.ranks:
        return ", as all members do"
    return f", blocked by {cause.id} {cause.kind}"


def _unseen(view: RankView, analysis: Analysis, cause: Finding | None) -> str:
    lost = "no dump of it was read" if view.dataset.unread_directories else "it left no dump"
    lost = "its dump could not be read" if view.rank in view.dataset.unread_dumps else lost
    unread = "its dump was not opened" if view.dataset.beside.directory else "--ranks left it out"
    lost = unread if view.rank in view.dataset.unopened_ranks else lost
    if not view.has_dumps:
        lost = "nothing of it was read"
    if not view.groups and view.has_files:
        return "what was read of it accuses nobody"
    if not view.groups:
        return f"{lost}, and no group lists it: it may not be part of the job"
    waiting = [rank for rank, steps in analysis.waits.items() if any(s.for_rank == view.rank for s in steps)]
    if waiting:
        return f"{lost}; {plural(len(waiting), 'rank')} may wait for it"
    holding = next((f for f in analysis.findings if view.may_hold(f)), None)
    if holding is not None:
        return f"{lost}, and it may be the one that did not come: {holding.title}"
    return f"{lost}, and " + (
        "the recorded operations explain the wait without it" if cause else "no rank is seen waiting for it"
    )


def _told_by_logs(view: RankView, analysis: Analysis) -> str:
    """A sentence of the logs on a rank without operations; "" without a line of it or a finding about it."""
    has_lines = bool((view.dataset.messages["rank"] == view.rank).any())
    holding = next((f for f in analysis.findings if view.rank in f.waiting_ranks), None)
    if holding is not None and (has_lines or (not view.seen and not view.groups)):
        return f"the logs show that it was blocked: {holding.title}"
    topic = next((f for f in analysis.findings if view.rank in f.about), None)
    if topic is not None and has_lines:
        return f"it is no failure, but it is among those of {topic.id}: {topic.title}"
    return "the logs have lines of it, and none of them accuses it" if has_lines else ""


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
    verb = ("it ends there" if steps else "it is blocked") if held else "the cause is elsewhere"
    verb = "it is in question" if view.rank in cause.candidates else verb
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
        return f"it never issued {place}: {operation_name(head)} of {where} is pending and blocks it"
    if view.seen and view.rank in divergence.unknown:
        return f"its dump does not show whether it issued {place}, so the gap is not held against it"
    return ""


def _dumps(view: RankView) -> Iterator[Evidence]:
    newest = view.dataset.ops["created_ns"].max()
    if view.written_ns is not None and isinstance(newest, int) and newest - view.written_ns > NOTABLE_LAG_NS:
        behind = duration(newest - view.written_ns)
        yield view.evidence(f"its dump was written {behind} before the newest operation of the job was issued")
    yield from filter(None, view.repeats())


# Facts about one rank: its operations, its frontiers, its dumps.


Row = dict[str, Any]
IS_ABORTED = (pl.col("state") == "completed") & (
    pl.col("completed_ns") - pl.col("created_ns") >= pl.col("timeout_ms") * 1_000_000
).fill_null(False)
"""Operations completed only by an abort, after their timeout (pytorch PR 119249)."""


@dataclass(frozen=True)
class RankView:
    """One rank of a dataset."""

    dataset: Dataset
    rank: int

    @cached_property
    def seen(self) -> bool:
        """Whether the rank left a readable dump."""
        return self.rank in self.dataset.seen_ranks

    @cached_property
    def has_dumps(self) -> bool:
        """Whether the job has dumps at all; else its operations come from logs."""
        return bool((self.dataset.files["kind"] == DUMP.name).any())

    @cached_property
    def has_files(self) -> bool:
        """Whether a stack, a compiler log or another file is of it."""
        return bool(self._files.height) or bool((self.dataset.threads["rank"] == self.rank).any())

    def is_named(self, analysis: Analysis) -> bool:
        """Whether a finding or a file names the rank, in a job whose size is not known."""
        findings = analysis.findings
        named = any(self.rank in (*f.culprit_ranks, *f.candidates, *f.waiting_ranks, *f.about) for f in findings)
        return named or self.has_files or bool((self.dataset.messages["rank"] == self.rank).any())

    def may_hold(self, finding: Finding) -> bool:
        """Whether ranks of its group wait in a finding that accuses nobody, and it is not among them."""
        members = finding.group.ranks if finding.group is not None else ()
        waits = bool(finding.waiting_ranks) and self.rank not in finding.waiting_ranks
        return waits and self.rank in members and not finding.culprit_ranks and not finding.caused_by

    @cached_property
    def path(self) -> str | None:
        """The dump of the rank."""
        used = self._files.filter("used")["path"]
        return used[0] if len(used) else None

    @cached_property
    def unread(self) -> list[tuple[str, str]]:
        """(path, problem) of its dumps that could not be read fully."""
        broken = self._files.filter(pl.col("problem").is_not_null() & (pl.col("kind") == DUMP.name))
        return list(broken.select("path", "problem").iter_rows())

    @property
    def _files(self) -> pl.DataFrame:
        return self.dataset.files.filter(pl.col("rank") == self.rank)

    @cached_property
    def written_ns(self) -> int | None:
        """The time its dump was written; None if it is unknown."""
        found = self.dataset.dumps.filter(pl.col("rank") == self.rank)["mtime_ns"].max()
        return found if isinstance(found, int) else None

    @cached_property
    def ops(self) -> pl.DataFrame:
        """Its operations in issue order, with their `row` in `Dataset.ops`."""
        ranks = self.dataset.ops["rank"]
        start, end = ranks.search_sorted(self.rank, "left"), ranks.search_sorted(self.rank, "right")
        return self.dataset.ops.slice(start, end - start).with_row_index("row", offset=start)

    @cached_property
    def pending(self) -> pl.DataFrame:
        """Its issued and unfinished operations."""
        return self.ops.filter((IS_PENDING & (pl.col("coalesced") != "inner")) | IS_ABORTED)

    @cached_property
    def is_cut_off(self) -> bool:
        """Whether its dump cannot tell if it waits: read in part, or without the end of its last operations."""
        last = self.ops["state"].tail(1).to_list()
        return self.rank in self.dataset.cut_ranks or last == ["unknown"]

    @cached_property
    def groups(self) -> tuple[Group, ...]:
        """The groups of the rank."""
        return tuple(group for group in self.dataset.group_list if self.rank in group.ranks)

    @cached_property
    def _presence(self) -> Presence:
        own = self.dataset.frontiers.filter(pl.col("rank") == self.rank)
        return Presence(replace(self.dataset, ops=self.ops.drop("row"), frontiers=own))

    def absence(self, group: int, seq: int) -> Absence:
        """The reason why it has no row for a collective."""
        return self._presence.absence(self.rank, group, seq)

    def at(self, group: int, seq: int) -> Row | None:
        """Its side of a collective; None without one."""
        rows = self.ops.filter((pl.col("group") == group) & (pl.col("seq") == seq) & ~pl.col("is_p2p"))
        return rows.row(-1, named=True) if rows.height else None

    def state(self, groups: Iterable[int]) -> list[Evidence]:
        """Its last issued and last completed operation in each of these groups."""
        return [self._state_in(group) for group in dict.fromkeys(groups)]

    def _state_in(self, group: int) -> Evidence:
        label = label_of(self.dataset, group)
        frontier = self._presence.frontiers.get((self.rank, group))
        rows = self.ops.filter(pl.col("group") == group)
        completed = frontier.completed if frontier is not None else None
        done = f"; last completed #{completed}" if completed is not None and completed > 0 else ""
        if rows.height:
            last = rows.row(-1, named=True)
            return self.evidence(
                f"rank {self.rank}, {label}: last issued {operation_name(last)}, {operation_state(last)}{done}", last
            )
        if frontier is not None and frontier.enqueued:
            return self.evidence(f"rank {self.rank}, {label}: last issued #{frontier.enqueued}{done}")
        return self.evidence(f"rank {self.rank}, {label}: no operation is known")

    def repeats(self) -> tuple[Evidence | None, Evidence | None]:
        """(two of its dumps are equal, its operations went on between two), each with the time between them."""
        spans = DumpPairs(self.dataset)
        told = ((spans.unchanged, "show the same"), (spans.moved, "show that its operations went on"))
        still, moved = (
            self.evidence(f"two dumps of it, {duration(of[self.rank][1] - of[self.rank][0])} apart, {what}")
            if self.rank in of
            else None
            for of, what in told
        )
        return still, moved

    def evidence(self, text: str, row: Row | None = None) -> Evidence:
        """Evidence on this rank that points at its dump, or at one record."""
        if row is None:
            return Evidence(text, file=self.path, rank=self.rank)
        return Evidence(text, self.path, self.rank, row["record_id"], time_ns=row["created_ns"])

    def summary(self) -> str:
        """The number of operations it issued and finished."""
        if self.ops.is_empty():
            return "its dump holds no operation"
        left = self.pending.height
        kept = plural(self.ops.height, "operation")
        return f"its dump holds {kept}, {'all of them finished' if not left else f'{left} not finished'}"


def label_of(dataset: Dataset, group: int) -> str:
    """The label of a group for people."""
    found = dataset.group_list[group]
    return found.description or found.name or "?"


def operation_name(row: Row) -> str:
    """An operation with its number, and its peer: "all_reduce #12", "send to 3"."""
    if row["is_p2p"]:
        way = "from" if row["op"] == "recv" else "to"
        return f"{row['op']}" if row["peer"] is None else f"{row['op']} {way} {row['peer']}"
    return f"{row['op']} #{row['seq']}"


def operation_state(row: Row) -> str:
    """The state of an operation in words."""
    took = None if row["completed_ns"] is None or row["created_ns"] is None else row["completed_ns"] - row["created_ns"]
    if row["state"] == "completed":
        late = took is not None and row["timeout_ms"] is not None and took >= row["timeout_ms"] * 1_000_000
        return "aborted after its timeout" if late else "completed"
    if row["retired"] and row["state"] in ("scheduled", "started") and row["library"] != "gloo":
        return "given up by its watchdog"
    return {"scheduled": "pending", "started": "started, not finished"}.get(row["state"], "its state is not known")


def group_of(dataset: Dataset, step: ChainStep) -> int | None:
    """The group that a step waits in."""
    if step.waits_in.row is not None:
        return int(dataset.ops["group"][step.waits_in.row])
    found = [g.id for g in dataset.group_list if g.name == step.waits_in.group and step.rank in g.ranks]
    return found[0] if found else None


def step_evidence(dataset: Dataset, step: ChainStep) -> Evidence:
    """A step of a chain as evidence that points at the record of the waiting rank."""
    group = group_of(dataset, step)
    label = step.waits_in.group if group is None else label_of(dataset, group)
    number = "" if step.waits_in.seq is None else f" #{step.waits_in.seq}"
    text = f"rank {step.rank} waits in {step.waits_in.op}{number} of {label} for rank {step.for_rank}"
    view, row = RankView(dataset, step.rank), step.waits_in.row
    return view.evidence(text, None if row is None else dataset.ops.row(row, named=True))


def operation_text(finding: Finding) -> str:
    """The operation of a finding: "all_reduce #11 of tp"; "it" if there is none."""
    if finding.group is None or finding.op is None:
        return "it"
    number = "" if finding.seq is None else f" #{finding.seq}"
    return f"{finding.op}{number} of {finding.group.description or finding.group.id}"
