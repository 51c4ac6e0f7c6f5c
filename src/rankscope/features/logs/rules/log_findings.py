"""Findings of logs and dumps, joined to one verdict."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import polars as pl

from rankscope.analysis.facts import Facts
from rankscope.analysis.freeze import Freeze
from rankscope.analysis.model import Finding
from rankscope.analysis.places import Places
from rankscope.analysis.scene import Scene
from rankscope.analysis.settings_comparison import find_settings
from rankscope.features.logs.rules.c10d_reports import find_named
from rankscope.features.logs.rules.engine_reports import find_analysed, find_experts
from rankscope.features.logs.rules.exits import JobEnds, read_ends
from rankscope.features.logs.rules.failure_order import failed_finding, find_first, late_finding, read_clocks
from rankscope.features.logs.rules.failures import Failure, find_failures, with_ranks
from rankscope.features.logs.rules.first_exit import find_ended, find_left, find_unheard
from rankscope.features.logs.rules.hardware_checks import (
    SurvivedErrors,
    UntimelyFault,
    find_diagnosed,
    find_faults,
    part_survived,
    split_timely,
    survived_finding,
)
from rankscope.features.logs.rules.initialisation import (
    PARAMETER_PATTERNS,
    find_init_hangs,
    find_parameter_counts,
    find_startup,
    find_uncounted,
)
from rankscope.features.logs.rules.known_causes import (
    ended_finding,
    harm_finding,
    harmed_finding,
    known_causes,
    signalled_finding,
    timeout_finding,
)
from rankscope.features.logs.rules.late_arrival import find_absent, find_late_arrival, find_silent
from rankscope.features.logs.rules.log_lines import LogLine, read_lines
from rankscope.features.logs.rules.nccl_errors import find_counted, find_unmatched, returned_errors, unknown_causes
from rankscope.features.logs.rules.ras_findings import find_ras
from rankscope.kinds.error_traits import GAVE_UP
from rankscope.kinds.finding_kinds import FINDINGS
from rankscope.text.wording import ranks_text

ISSUE_AHEAD_NS = 10_000_000_000
"""Operations may be issued for this long after NCCL failed in one communicator."""
NOTICE_LAG_NS = 25 * 60_000_000_000
"""NCCL may notice a failure this long after the last operation was issued; time zones are half an hour apart."""


def with_logs(findings: Sequence[Finding], scene: Scene) -> list[Finding]:
    """The findings joined with those of logs, roots first, with new ids."""
    return _LogEvidence(scene.facts, scene.places, scene.moves).joined(findings)


def stopped_by_log(freeze: Freeze, facts: Facts) -> Freeze:
    """The standstill corrected by logs, whatever the times of files.

    A job whose watchdog gave up had stopped, and so had a job that did nothing more after NCCL failed in a
    communicator.
    """
    messages = facts.dataset.messages
    late = (pl.col("kind") == "watchdog-timeout") | pl.col("values").str.contains(f'"{GAVE_UP}"', literal=True)
    if messages.is_empty() or freeze.proven:
        return freeze
    waited = messages.select(late.any()).item()
    if not waited and (freeze.stopped or not _failed_last(facts)):
        return freeze
    what = "a rank that gave up waiting" if waited else "a failure of NCCL, and no operation since"
    reason = freeze.reason if freeze.stopped else f"a log shows {what}"
    return replace(freeze, stopped=True, reason=reason, proven=waited)


def _failed_last(facts: Facts) -> bool:
    """Whether NCCL failed when the last operation was issued, or soon after; unknown if a log has no time.

    A job may recover from an error, and a log may hold an earlier run. Times of another time zone do not match.
    """
    newest = facts.dataset.ops["created_ns"].max()
    failed = facts.dataset.messages.filter(pl.col("kind") == "async-error")["time_ns"].max()
    return isinstance(newest, int) and isinstance(failed, int) and -ISSUE_AHEAD_NS <= failed - newest <= NOTICE_LAG_NS


@dataclass(frozen=True)
class _LogEvidence:
    """The findings of the logs of one job."""

    facts: Facts
    places: Places
    moves: bool

    @cached_property
    def parted(self) -> SurvivedErrors:
        return part_survived(with_ranks(read_lines(self.facts.dataset)), self.facts.dataset)

    @property
    def lines(self) -> list[LogLine]:
        return self.parted.lines

    @cached_property
    def _causes(self) -> tuple[list[Failure], list[UntimelyFault]]:
        """Failures that may be causes, and faults of hardware that came too early."""
        return split_timely(find_failures(self.lines), self.lines, self.facts.dataset)

    @cached_property
    def _parameter_counts(self) -> list[Finding]:
        return find_parameter_counts(self.lines, self.places.culprit)

    @property
    def world(self) -> int:
        return self.facts.dataset.world_size

    def joined(self, findings: Sequence[Finding]) -> list[Finding]:
        merged = MergedRoots([f for f in findings if f.root_cause], [f for f in findings if not f.root_cause])
        self._failed(merged)
        self._ended(merged)
        self._named(merged)
        if not merged.roots:
            silent = find_silent(self.lines, self.world, self.places.culprit)
            silent = silent or find_experts(self.lines) or find_absent(self.lines, self.facts.dataset)
            self._place(merged, silent or find_uncounted(self.lines))
        self._known(merged)
        merged.rest += find_diagnosed(self.lines, self.world)
        merged.rest += find_analysed(self.lines)
        merged.rest += find_counted(self.lines, self.facts.dataset)
        merged.rest += find_unmatched(self.facts.dataset)
        merged.rest += find_settings(self.facts.dataset, self.places.culprit)
        survived = survived_finding(self.parted.survived)
        merged.rest += [survived] if survived is not None else []
        return merged.numbered()

    @staticmethod
    def _place(merged: MergedRoots, silent: Finding | None) -> None:
        """Puts a rank that may be silent before other findings, although it is no root cause."""
        if silent is not None and silent.root_cause:
            merged.roots.append(silent)
        elif silent is not None:
            merged.rest.insert(0, silent)

    def _named(self, merged: MergedRoots) -> None:
        """Adds ranks that c10d, the setup of communicators and RAS name; without dumps, they lead alone."""
        dataset, place = self.facts.dataset, self.places.culprit
        waited = any(line.has(GAVE_UP) for line in self.lines)
        late = find_late_arrival(self.lines, dataset, place)
        left = find_left(self.lines, place)
        if left is not None:
            merged.support(left)
        found = [
            *([late] if late is not None else []),
            *find_named(self.lines, dataset, place),
            *find_startup(self.lines, place),
            *self._parameter_counts,
            *find_init_hangs(dataset, waited, place),
            *find_ras(dataset, waited or bool(merged.roots), place),
        ]
        for named in found:
            if named.root_cause:
                merged.support(named, dataset.from_logs)
            else:
                merged.rest.append(named)
        chief = next((root for root in merged.roots if root.culprit_ranks or root.culprits), None)
        if (
            dataset.from_logs
            and chief is not None
            and any(set(f.culprit_ranks) & set(chief.culprit_ranks) for f in found)
        ):
            merged.only(chief, lambda root: not set(root.culprit_ranks) & set(chief.culprit_ranks))

    def _failed(self, merged: MergedRoots) -> None:
        """Adds a failed rank as the cause of waits for it, for ranks without a dump, or for unknown ranks."""
        clocks = read_clocks(self.facts.dataset)
        first = find_first(self._causes[0], self.lines, self._alive(merged), clocks)
        failed = failed_finding(first, self.lines, self.places.culprit, self._guessed, self.world)
        if failed is not None:
            own, seen = set(failed.culprit_ranks), set(self.facts.dataset.seen_ranks)

            def follows(root: Finding) -> bool:
                accused = set(root.culprit_ranks)
                return not accused or bool(accused & own) or not accused & seen or not own

            merged.explain(failed, follows)
        later = late_finding(first, self.places.culprit)
        if later is not None:
            merged.rest.append(later)
        told = (*first.failures, *first.later)
        merged.rest += find_faults(self.lines, told, self._causes[1], self.places.culprit)

    def _ended(self, merged: MergedRoots) -> None:
        """Adds the rank that ended or stayed away first, if no rank failed by itself, as the cause of those that
        ended."""
        if any(FINDINGS[root.kind].ended for root in merged.roots):
            return
        own = {f.rank for f in self._causes[0] if f.rank is not None}
        scene = JobEnds(read_ends(self.lines), self.world, frozenset(own))
        found = find_ended(scene, self.facts, self.places.culprit)
        if found is None and not self.moves:
            found = find_unheard(scene, self.facts)
        harmed = {end.rank for end in scene.harmed}
        if found is not None and found.root_cause:
            told = set(found.culprit_ranks)

            def follows(root: Finding) -> bool:
                accused = set(root.culprit_ranks)
                waits = FINDINGS[root.kind].needs_stillness
                return not accused or bool(accused & told) or (waits and accused <= harmed)

            merged.explain(found, follows)
        elif found is not None and not any(root.culprit_ranks for root in merged.roots):
            merged.rest.append(found)

    def _alive(self, merged: MergedRoots) -> frozenset[int]:
        """Ranks whose own dumps show them waiting for another rank with a dump: they had not ended then."""
        dumped = set(self.facts.dataset.dumps["rank"].drop_nulls().to_list())
        proven = [r for r in merged.roots if r.culprit_ranks and dumped.issuperset(r.culprit_ranks)]
        return frozenset(rank for root in proven for rank in root.waiting_ranks if rank in dumped)

    def _known(self, merged: MergedRoots) -> None:
        """Adds causes that accuse nobody, which lead if nobody is accused; harm leads only if it is alone."""
        gone = PARAMETER_PATTERNS if self._parameter_counts else ()
        causes = known_causes([line for line in self.lines if line.pattern not in gone])
        if not merged.roots and not any(cause.severity == "critical" for cause in causes):
            causes = [*unknown_causes(self.lines), *causes]
        if causes and causes[0].severity == "critical" and not any(r.culprit_ranks or r.culprits for r in merged.roots):
            merged.explain(replace(causes.pop(0), root_cause=True), lambda _: True)
        merged.rest += [replace(cause, severity="warning") for cause in causes]
        critical = any(f.severity == "critical" for f in (*merged.roots, *merged.rest))
        left = None if critical else self._left()
        merged.rest = [left, *merged.rest] if left is not None else merged.rest
        harm = harm_finding(self.lines, self.facts.dataset)
        if harm is not None and merged.roots:
            merged.caused.append((harm, merged.roots[0]))
        elif harm is not None and left is None:
            merged.rest.append(harm)

    def _left(self) -> Finding | None:
        """Findings without a known cause: ranks that waited, were harmed, or ended."""
        waited = timeout_finding(self.lines, self.facts.dataset)
        hurt = harmed_finding(self.lines)
        critical = hurt if hurt and hurt.severity == "critical" else None
        ended = ended_finding(self.lines, moves=self.moves)
        signalled = signalled_finding(self.lines, self.facts.dataset)
        threw = ended is not None and any(line.kind == "traceback" for line in self.lines)
        more = (ended, signalled) if threw else (signalled, ended)
        return next(filter(None, (waited, critical, *more, hurt)), None) or returned_errors(self.lines)

    @property
    def _guessed(self) -> frozenset[int]:
        files = self.facts.dataset.files.filter(pl.col("rank_source").cast(pl.String) == "guess")
        return frozenset(files["file"].to_list())


# One verdict from the findings of dumps and of logs: which finding explains which.

MOST_WITNESSES = 3


@dataclass
class MergedRoots:
    """Roots and their consequences; ids are assigned at the end."""

    roots: list[Finding]
    rest: list[Finding]
    caused: list[tuple[Finding, Finding]] = field(default_factory=list)
    """(consequence, root)."""

    def explain(self, cause: Finding, by: Callable[[Finding], bool]) -> None:
        """Adds a root in front that explains the roots for which `by` holds, and takes over the ranks they hold up."""
        follow = [root for root in self.roots if by(root)]
        full = _taking_over(cause, follow)
        self._demote(follow, full)
        self.roots.insert(0, full)

    def support(self, finding: Finding, of_logs: bool = False) -> None:
        """Joins a finding of logs to the roots: as evidence if they agree, as counter-evidence if not.

        `of_logs`: the roots are from logs too; then reports of c10d on an older operation take precedence.
        """
        own = set(finding.culprit_ranks)
        agree = [r for r in self.roots if own & set(r.culprit_ranks) or _same_quarrel(finding, r)]
        if agree:
            evidence = (*agree[0].evidence, *finding.evidence[:MOST_WITNESSES])
            if of_logs and _goes_further_back(finding, agree[0]):
                told = replace(agree[0], title=finding.title, explanation=finding.explanation, seq=finding.seq, op=None)
                evidence = (*finding.evidence[:MOST_WITNESSES], *agree[0].evidence)
                self._swap(agree[0], replace(told, evidence=evidence))
                return
            joined = replace(agree[0], evidence=evidence)
            self._swap(agree[0], joined)
            if set(finding.culprit_ranks) == set(agree[0].culprit_ranks) or finding.kind == agree[0].kind:
                return
            self.caused.append((replace(finding, root_cause=False, severity="warning"), joined))
            return
        accusing = [r for r in self.roots if r.culprit_ranks or r.culprits]
        if not accusing:
            self.explain(finding, lambda root: not root.culprit_ranks and not root.culprits)
            return
        if not own:
            self.caused.append((replace(finding, root_cause=False, severity="warning"), accusing[0]))
            return
        doubt = [replace(e, text=f"names {ranks_text(sorted(own))}: {e.text}") for e in finding.evidence[:1]]
        self._swap(accusing[0], replace(accusing[0], counter_evidence=(*accusing[0].counter_evidence, *doubt)))
        self.rest.append(replace(finding, root_cause=False, severity="warning"))

    def only(self, chief: Finding, others: Callable[[Finding], bool]) -> None:
        """Makes other roots consequences of one of them."""
        self._demote([root for root in self.roots if root is not chief and others(root)], chief)

    def _demote(self, follow: Sequence[Finding], cause: Finding) -> None:
        """Makes roots and their consequences consequences of another root."""
        gone = {id(root) for root in follow}
        self.roots = [root for root in self.roots if id(root) not in gone]
        self.caused = [(what, cause if id(root) in gone else root) for what, root in self.caused]
        self.caused += [(replace(root, root_cause=False, severity="warning"), cause) for root in follow]

    def _swap(self, old: Finding, new: Finding) -> None:
        self.roots = [new if root is old else root for root in self.roots]
        self.caused = [(what, new if root is old else root) for what, root in self.caused]

    def numbered(self) -> list[Finding]:
        """All findings in order with new ids; references to old ids are updated."""
        ids = {id(root): f"f{i}" for i, root in enumerate(self.roots, 1)}
        renamed = {root.id: ids[id(root)] for root in self.roots if root.id}
        renamed |= {what.id: ids[id(root)] for what, root in self.caused if what.id}
        follow = [replace(what, caused_by=ids[id(root)]) for what, root in self.caused]
        rest = [replace(f, caused_by=renamed.get(f.caused_by, f.caused_by) if f.caused_by else None) for f in self.rest]
        return [replace(f, id=f"f{i}") for i, f in enumerate([*self.roots, *follow, *rest], 1)]


def _taking_over(cause: Finding, follow: Sequence[Finding]) -> Finding:
    """A cause with the ranks that its consequences hold up, and the places of their waits."""
    if not follow:
        return cause
    held = _held(follow) | set(cause.waiting_ranks)
    waiting = tuple(sorted(held - set(cause.culprit_ranks)))
    chief = follow[0]
    return replace(
        cause, waiting_ranks=waiting, blast_radius=len(waiting), chain=cause.chain or chief.chain,
        group=cause.group or chief.group, seq=cause.seq if cause.seq is not None else chief.seq,
        op=cause.op or chief.op, row=cause.row if cause.row is not None else chief.row,
        evidence=(*cause.evidence, *chief.evidence[:MOST_WITNESSES]),
    )  # fmt: skip


def _goes_further_back(finding: Finding, root: Finding) -> bool:
    """Whether both accuse the same ranks of the same group, and `finding` an earlier operation."""
    same = finding.kind == root.kind and set(finding.culprit_ranks) == set(root.culprit_ranks)
    if not same or finding.seq is None or root.seq is None or root.group is None:
        return False
    own = finding.group.key if finding.group is not None else root.group.key
    return own == root.group.key and finding.seq < root.seq


def _same_quarrel(finding: Finding, root: Finding) -> bool:
    """Whether both tell of the same disagreeing ranks without a majority."""
    of_both = set(finding.candidates) & {*root.culprit_ranks, *root.candidates}
    return finding.kind == root.kind and not finding.culprit_ranks and bool(of_both)


def _held(findings: Iterable[Finding]) -> set[int]:
    return {rank for finding in findings for rank in finding.waiting_ranks}
