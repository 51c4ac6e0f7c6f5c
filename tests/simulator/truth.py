"""What is true of a simulated job, what its dumps allow to be said, and how an answer compares with it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from tests.simulator.job import Outcome
from tests.simulator.options import DumpOptions
from tests.simulator.record import Record

Score = Literal["exact", "allowed", "other-kind", "unnamed", "accused"]
"""The culprits exactly and a fitting kind; another answer that the evidence allows; the culprits, but of another kind;
not all culprits named, and nobody else; an innocent accused."""


@dataclass(frozen=True)
class Truth:
    """The fault of a job and the answers to accept."""

    fault: str
    kinds: frozenset[str]
    """Acceptable kinds of the first root cause."""
    culprits: frozenset[int]
    also: frozenset[frozenset[int]] = frozenset()
    """Other sets that may be named, where the dumps cannot decide; the empty set: may be left open."""
    also_kinds: frozenset[str] = frozenset()
    within: frozenset[frozenset[int]] = frozenset()
    """Sets that are fair to name, whole or in part, as long as the culprits are in it."""
    critical: bool = True
    """Whether a critical finding is due; if not, none is allowed."""
    beside: frozenset[int] = frozenset()
    """Ranks that are late besides, and to be named as stragglers that are no cause."""
    beside_open: bool = False
    """Whether they may be left out."""
    note: str = ""


def score(findings: Sequence[Mapping[str, Any]], truth: Truth) -> Score:
    """Compares the findings of a report with the truth."""
    if not truth.critical and any(f["severity"] == "critical" for f in findings):
        return "accused"
    if truth.critical:
        slow = _named([f for f in findings if f["kind"] == "straggler"])
        if slow - truth.beside - truth.culprits:
            return "accused"
        if truth.beside - slow and not truth.beside_open:
            return "unnamed"
    roots = _accusations(findings, truth)
    if not roots:
        return "exact" if not truth.kinds else "allowed" if frozenset() in truth.also else "unnamed"
    named, kind = _named(roots), roots[0]["kind"]
    if named == truth.culprits:
        return "exact" if kind in truth.kinds else "other-kind"
    if named in truth.also or (truth.culprits <= named and any(named <= wide for wide in truth.within)):
        return "allowed" if kind in truth.kinds | truth.also_kinds else "other-kind"
    return "accused" if named - truth.culprits else "unnamed"


def innocents(findings: Sequence[Mapping[str, Any]], truth: Truth) -> frozenset[int]:
    """Ranks that are named and that no acceptable answer names."""
    slow = _named([f for f in findings if f["kind"] == "straggler"]) - truth.beside
    return (_named(_accusations(findings, truth)) | slow) - truth.culprits.union(*truth.also, *truth.within)


def _accusations(findings: Sequence[Mapping[str, Any]], truth: Truth) -> list[Mapping[str, Any]]:
    """What says who is to blame: critical root causes; where nothing hangs, also who is called slow."""
    critical = [f for f in findings if f["severity"] == "critical" and f["root_cause"]]
    return critical if truth.critical else critical + [f for f in findings if f["kind"] == "straggler"]


def _named(findings: Sequence[Mapping[str, Any]]) -> frozenset[int]:
    return frozenset(r for f in findings for r in f["culprit_ranks"])


def _works(outcome: Outcome, rank: int) -> Iterable[Record]:
    return (r for r in outcome.records[rank] if r.role != "inner" and not (r.is_p2p or r.on_host))


def lags(outcome: Outcome, rank: int) -> bool:
    """Whether the rank's dump leaves open a collective that another rank's dump shows done."""
    dog = outcome.watchdogs[rank]
    late = (
        r for r in _works(outcome, rank) if r.done is not None and dog.looks_after(r.done, outcome.engine.now) is None
    )
    return dog.blind_from is not None and any(True for _ in late)


def never_started(outcome: Outcome, rank: int) -> bool:
    """Whether all other members started some collective that this rank issued but never started."""
    arrived: dict[tuple[str, int], set[int]] = defaultdict(set)
    for other in outcome.records:
        for record in _works(outcome, other):
            if record.arrived is not None:
                arrived[record.group, record.seq].add(other)
    groups = outcome.topology.groups
    own = (r for r in _works(outcome, rank) if r.arrived is None)
    return any(arrived[r.group, r.seq] == set(groups[r.group]) - {rank} for r in own)


def decidable(outcome: Outcome, rank: int, options: DumpOptions) -> bool:
    """Whether the dumps prove that it was this rank's device that stopped."""
    return lags(outcome, rank) or (options.timing and never_started(outcome, rank))


def drained(outcome: Outcome, rank: int) -> bool:
    """Whether nothing of this rank is pending: its host is then seen to be stuck, not to wait for its device."""
    return all(r.done is not None for r in outcome.records[rank])


def issued(outcome: Outcome, rank: int, group: str) -> int:
    """How many collectives of a group a rank issued."""
    return sum(r.group == group for r in _works(outcome, rank))
