"""One verdict of what the dumps say and what the logs say: which finding explains which."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

from rankscope.analysis.model import Finding
from rankscope.analysis.wording import ranks_text

WITNESSES = 3


@dataclass
class Merged:
    """Roots, and what follows from them; ids are given out at the end."""

    roots: list[Finding]
    rest: list[Finding]
    caused: list[tuple[Finding, Finding]] = field(default_factory=list)
    """(what follows, its root)."""

    def explain(self, cause: Finding, by: Callable[[Finding], bool]) -> None:
        """Puts a root in front that explains those for which `by` holds, and takes over whom they hold up."""
        follow = [root for root in self.roots if by(root)]
        full = _taking_over(cause, follow)
        self._demote(follow, full)
        self.roots.insert(0, full)

    def support(self, finding: Finding, of_logs: bool = False) -> None:
        """Joins a finding from the logs to the roots: as evidence where they agree, against them where they do not.

        `of_logs`: the roots are of logs too; what c10d itself says of an older operation is believed instead.
        """
        own = set(finding.culprit_ranks)
        agree = [r for r in self.roots if own & set(r.culprit_ranks) or _same_quarrel(finding, r)]
        if agree:
            evidence = (*agree[0].evidence, *finding.evidence[:WITNESSES])
            if of_logs and _goes_further_back(finding, agree[0]):
                told = replace(agree[0], title=finding.title, explanation=finding.explanation, seq=finding.seq, op=None)
                evidence = (*finding.evidence[:WITNESSES], *agree[0].evidence)
                self._swap(agree[0], replace(told, evidence=evidence))
                return
            self._swap(agree[0], replace(agree[0], evidence=evidence))
            if set(finding.culprit_ranks) == set(agree[0].culprit_ranks) or finding.kind == agree[0].kind:
                return
            self.caused.append((replace(finding, root_cause=False, severity="warning"), self._now(agree[0])))
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
        """Makes other roots follow from one of them."""
        self._demote([root for root in self.roots if root is not chief and others(root)], chief)

    def _demote(self, follow: Sequence[Finding], cause: Finding) -> None:
        """Makes roots, and what followed from them, follow from another."""
        gone = {id(root) for root in follow}
        self.roots = [root for root in self.roots if id(root) not in gone]
        self.caused = [(what, cause if id(root) in gone else root) for what, root in self.caused]
        self.caused += [(replace(root, root_cause=False, severity="warning"), cause) for root in follow]

    def _swap(self, old: Finding, new: Finding) -> None:
        self.roots = [new if root is old else root for root in self.roots]
        self.caused = [(what, new if root is old else root) for what, root in self.caused]

    def _now(self, old: Finding) -> Finding:
        return next((root for root in self.roots if root.title == old.title), self.roots[0])

    def numbered(self) -> list[Finding]:
        """All of it in order, with new ids; old ones that were referred to are followed."""
        ids = {id(root): f"f{i}" for i, root in enumerate(self.roots, 1)}
        renamed = {root.id: ids[id(root)] for root in self.roots if root.id}
        renamed |= {what.id: ids[id(root)] for what, root in self.caused if what.id}
        follow = [replace(what, caused_by=ids[id(root)]) for what, root in self.caused]
        rest = [replace(f, caused_by=renamed.get(f.caused_by, f.caused_by) if f.caused_by else None) for f in self.rest]
        return [replace(f, id=f"f{i}") for i, f in enumerate([*self.roots, *follow, *rest], 1)]


def _taking_over(cause: Finding, follow: Sequence[Finding]) -> Finding:
    """A cause with the ranks that its consequences hold up, and where they wait."""
    if not follow:
        return cause
    held = _held(follow) | set(cause.waiting_ranks)
    waiting = tuple(sorted(held - set(cause.culprit_ranks)))
    chief = follow[0]
    return replace(
        cause, waiting_ranks=waiting, blast_radius=len(waiting), chain=cause.chain or chief.chain,
        group=cause.group or chief.group, seq=cause.seq if cause.seq is not None else chief.seq,
        op=cause.op or chief.op, row=cause.row if cause.row is not None else chief.row,
        evidence=(*cause.evidence, *chief.evidence[:WITNESSES]),
    )  # fmt: skip


def _goes_further_back(finding: Finding, root: Finding) -> bool:
    """Whether both accuse the same ranks of the same group, and one of an earlier operation."""
    same = finding.kind == root.kind and set(finding.culprit_ranks) == set(root.culprit_ranks)
    if not same or finding.seq is None or root.seq is None or root.group is None:
        return False
    own = finding.group.key if finding.group is not None else root.group.key
    return own == root.group.key and finding.seq < root.seq


def _same_quarrel(finding: Finding, root: Finding) -> bool:
    """Whether both tell of the same ranks that disagree, without a majority."""
    of_both = set(finding.candidates) & {*root.culprit_ranks, *root.candidates}
    return finding.kind == root.kind and not finding.culprit_ranks and bool(of_both)


def _held(findings: Iterable[Finding]) -> set[int]:
    return {rank for finding in findings for rank in finding.waiting_ranks}
