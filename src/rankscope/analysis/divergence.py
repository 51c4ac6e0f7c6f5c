"""The first place in every group at which its members diverge."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import polars as pl

from rankscope.analysis.facts import Facts
from rankscope.analysis.graph import Root, WaitEdge, WaitGraph, WaitNode
from rankscope.analysis.instances import CallKey, Instance, calls_at
from rankscope.analysis.model import Divergence, Finding, GroupRef
from rankscope.analysis.presence import Absence
from rankscope.analysis.reliability import Reliability
from rankscope.analysis.replicas import signature
from rankscope.analysis.signatures import ROOTED_OPS
from rankscope.text.wording import plural, ranks_text


def find_divergences(
    facts: Facts, graph: WaitGraph, reliability: Reliability, roots: list[Root]
) -> tuple[Divergence, ...]:
    """One row for each group whose members did not end together, sorted by the time it began."""
    first: dict[int, Instance] = {}
    for instance in [*graph.instances.values(), *_disagreeing(facts)]:
        known = first.get(instance.group)
        if not instance.is_pair and (known is None or instance.seq < known.seq):
            first[instance.group] = instance
    causes = {root.focus.group for root in roots if root.focus}
    causes |= {node.key[0] for root in roots for node in root.nodes if node.key is not None}
    found = [_divergence(facts, reliability, first[group], group not in causes) for group in sorted(first)]
    return tuple(sorted(found, key=lambda d: (d.pending_since_ns or 0, d.group)))


def _disagreeing(facts: Facts) -> list[Instance]:
    rows = facts.disagreements.filter(~pl.col("settled")).unique("group", keep="first", maintain_order=True)
    return list(calls_at(facts, rows).values())


def _divergence(facts: Facts, reliability: Reliability, instance: Instance, consequence: bool) -> Divergence:
    absences = facts.presence.absences(instance.group, instance.seq, instance.entries)
    outdated = {r for r in absences if reliability.is_outdated(r, instance.since_ns)}
    absent = {r for r, why in absences.items() if why is Absence.NEVER_ISSUED} - outdated
    past = {r for r, why in absences.items() if why in (Absence.FILTERED, Absence.OVERWRITTEN)}
    votes = {rank: signature(e) for rank, e in instance.entries.items() if e.op}
    common = max(sorted(set(votes.values()), key=str), key=list(votes.values()).count, default=None)
    return Divergence(
        group=instance.group,
        seq=instance.seq,
        op=instance.op,
        joined=tuple(sorted({*instance.entries, *past})),
        absent=tuple(sorted(absent)),
        unknown=tuple(sorted(set(absences) - absent - past)),
        differing=tuple(sorted(r for r, v in votes.items() if common is not None and not v.fits(common))),
        consequence=consequence,
        pending_since_ns=instance.since_ns,
    )


# Findings for groups that wait because of another group: one for each kind of group, without culprits.


def find_consequences(facts: Facts, divergences: tuple[Divergence, ...], cause: str) -> list[Finding]:
    """One finding for each description of groups that hang as a consequence of the root `cause`."""
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
        title=f"{plural(len(found), 'group')} of {label} {'is' if len(found) == 1 else 'are'} blocked by this",
        explanation=f"{ranks_text(waiting)}: waiting there for ranks that are held up themselves.",
        caused_by=cause,
        waiting_ranks=tuple(waiting),
        blast_radius=len(waiting),
        group=GroupRef(group.name, group.description, group.ranks, key=group.id),
        seq=first.seq,
        op=first.op,
    )


# Failed operations of gloo.


def follow_failures(facts: Facts, graph: WaitGraph, certain: Sequence[Root]) -> None:
    """Adds edges from hosts that stopped after a failed operation to the cause of the failure, if others wait for it
    too."""
    idle = {node.rank: node for node, edges in graph.edges.items() if node.kind == "host" and not edges}
    if not idle or not facts.gloo_groups:
        return
    wrong = {node.key: node for root in certain for node in root.nodes if node.key is not None}
    for rank, key, op in _last(facts, idle):
        if key in wrong:
            graph.edges.setdefault(wrong[key], [])
            graph.edges[idle[rank]] = [WaitEdge(wrong[key], rank)]
        elif op not in ROOTED_OPS and not _went_on(facts, key):
            graph.edges[idle[rank]] = [WaitEdge(node, rank) for node in _never_came(facts, graph, key)]


def _last(facts: Facts, ranks: dict[int, WaitNode]) -> Iterator[tuple[int, CallKey, str]]:
    """(rank, collective, operation) of ranks whose last issued operation is a collective of gloo."""
    last = facts.dataset.ops.filter(pl.col("rank").is_in(list(ranks))).group_by("rank", maintain_order=True).last()
    found = last.filter(
        pl.col("group").is_in(list(facts.gloo_groups)) & ~pl.col("is_p2p") & pl.col("seq").is_not_null()
    )
    for rank, group, seq, op in found.select("rank", "group", "seq", "op").iter_rows():
        yield rank, (group, seq), op


def _went_on(facts: Facts, key: CallKey) -> bool:
    """Whether any member issued a later collective in the group, or a device collective: then the operation
    succeeded."""
    group, seq = key
    fronts = (facts.presence.frontiers.get((rank, group)) for rank in facts.groups[group].ranks)
    if any(f is not None and f.enqueued is not None and f.enqueued > seq for f in fronts):
        return True
    rows = facts.dataset.ops.select("rank", "group", "seq").filter(pl.col("rank").is_in(facts.groups[group].ranks))
    own = (pl.col("group") == group) & (pl.col("seq") == seq)
    behind = own.cum_max().over("rank").fill_null(value=False) & ~pl.col("group").is_in(list(facts.gloo_groups))
    return bool(rows.select(behind.any()).item())


def _never_came(facts: Facts, graph: WaitGraph, key: CallKey) -> Iterator[WaitNode]:
    group, seq = key
    for rank in facts.groups[group].ranks:
        absence = facts.presence.absence(rank, group, seq)
        kind = {Absence.NEVER_ISSUED: "host", Absence.NO_DUMP: "no-dump"}.get(absence)
        if kind and WaitNode(kind, rank) in graph.edges:
            yield WaitNode(kind, rank)
