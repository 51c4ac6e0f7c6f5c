"""Groups that wait because of another group: said once for each kind of group, and accusing nobody."""

from __future__ import annotations

from rankscope.analysis.facts import Facts
from rankscope.analysis.model import Divergence, Finding, GroupRef
from rankscope.analysis.wording import plural, ranks_text


def find_consequences(facts: Facts, divergences: tuple[Divergence, ...], cause: str) -> list[Finding]:
    """One finding for each description of groups that hang in consequence, pointing at the root `cause`."""
    by_label: dict[str, list[Divergence]] = {}
    for divergence in divergences:
        if divergence.consequence and divergence.pending_since_ns is not None:
            by_label.setdefault(facts.label(divergence.group), []).append(divergence)
    return [_finding(facts, label, found, cause) for label, found in by_label.items()]


def _finding(facts: Facts, label: str, found: list[Divergence], cause: str) -> Finding:
    waiting = sorted({rank for d in found for rank in d.joined})
    first = found[0]
    group = facts.groups[first.group]
    return Finding(
        kind="missing-rank",
        severity="info",
        title=f"{plural(len(found), 'group')} of {label} {'waits' if len(found) == 1 else 'wait'} in consequence",
        explanation=f"{ranks_text(waiting)}: waiting there for ranks that are held up themselves.",
        caused_by=cause,
        waiting_ranks=tuple(waiting),
        blast_radius=len(waiting),
        group=GroupRef(group.name, group.description, group.ranks, key=group.id),
        seq=first.seq,
        op=first.op,
    )
