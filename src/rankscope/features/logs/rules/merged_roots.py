"""Root causes of dumps and of logs in one verdict: which finding explains which."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from rankscope.analysis.model import Finding
from rankscope.text.wording import ranks_text

MOST_WITNESSES = 3


@dataclass
class MergedRoots:
    """Roots and their consequences; ids are assigned at the end."""

    roots: list[Finding]
    rest: list[Finding]
    caused: list[tuple[Finding, Finding]] = field(default_factory=list)
    """(consequence, root)."""
    answered: set[str] = field(default_factory=set)
    """Stages of the policy that found something."""

    @property
    def accusing(self) -> list[Finding]:
        """Roots that name somebody."""
        return [root for root in self.roots if root.culprit_ranks or root.culprits]

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
        accused = set(finding.culprit_ranks)
        agreeing = [r for r in self.roots if accused & set(r.culprit_ranks) or _same_quarrel(finding, r)]
        if agreeing:
            root, witnesses = agreeing[0], finding.evidence[:MOST_WITNESSES]
            if of_logs and _goes_further_back(finding, root):
                older = replace(root, title=finding.title, explanation=finding.explanation, seq=finding.seq, op=None)
                self._swap(root, replace(older, evidence=(*witnesses, *root.evidence)))
                return
            joined = replace(root, evidence=(*root.evidence, *witnesses))
            self._swap(root, joined)
            if accused != set(root.culprit_ranks) and finding.kind != root.kind:
                self.follow(joined, finding)
            return
        accusing = self.accusing
        if not accusing:
            self.explain(finding, lambda root: not root.culprit_ranks and not root.culprits)
        elif not accused:
            self.follow(accusing[0], finding)
        else:
            doubt = [replace(e, text=f"names {ranks_text(sorted(accused))}: {e.text}") for e in finding.evidence[:1]]
            self._swap(accusing[0], replace(accusing[0], counter_evidence=(*accusing[0].counter_evidence, *doubt)))
            self.rest.append(replace(finding, root_cause=False, severity="warning"))

    def follow(self, root: Finding, finding: Finding) -> None:
        """Adds a consequence of a root."""
        self.caused.append((replace(finding, root_cause=False, severity="warning"), root))

    def only(self, chief: Finding, others: Callable[[Finding], bool]) -> None:
        """Makes other roots consequences of one of them."""
        self._demote([root for root in self.roots if root is not chief and others(root)], chief)

    def _demote(self, follow: Sequence[Finding], cause: Finding) -> None:
        """Makes roots and their consequences consequences of another root."""
        gone = {id(root) for root in follow}
        self.roots = [root for root in self.roots if id(root) not in gone]
        self.caused = [(what, cause if id(root) in gone else root) for what, root in self.caused]
        for root in follow:
            self.follow(cause, root)

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
    held = {rank for finding in (cause, *follow) for rank in finding.waiting_ranks}
    waiting = tuple(sorted(held - set(cause.culprit_ranks)))
    chief = follow[0]
    return replace(
        cause,
        waiting_ranks=waiting,
        blast_radius=len(waiting),
        chain=cause.chain or chief.chain,
        group=cause.group or chief.group,
        seq=cause.seq if cause.seq is not None else chief.seq,
        op=cause.op or chief.op,
        row=cause.row if cause.row is not None else chief.row,
        evidence=(*cause.evidence, *chief.evidence[:MOST_WITNESSES]),
    )


def _goes_further_back(finding: Finding, root: Finding) -> bool:
    """Whether both accuse the same ranks of the same group, and `finding` an earlier operation."""
    same = finding.kind == root.kind and set(finding.culprit_ranks) == set(root.culprit_ranks)
    if not same or finding.seq is None or root.seq is None or root.group is None:
        return False
    group = finding.group or root.group
    return group.key == root.group.key and finding.seq < root.seq


def _same_quarrel(finding: Finding, root: Finding) -> bool:
    """Whether both tell of the same disagreeing ranks without a majority."""
    of_both = set(finding.candidates) & {*root.culprit_ranks, *root.candidates}
    return finding.kind == root.kind and not finding.culprit_ranks and bool(of_both)
