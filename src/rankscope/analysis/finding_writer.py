"""Converts roots to findings: evidence, wait chain, waiting ranks, place of the culprit."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import polars as pl

from rankscope.analysis.counter_evidence import JobCounterEvidence
from rankscope.analysis.facts import Facts
from rankscope.analysis.graph import Root, WaitEdge, WaitGraph, WaitNode
from rankscope.analysis.instances import Instance, calls_at
from rankscope.analysis.model import ChainStep, Divergence, Evidence, Finding, GroupRef, Severity, Wait
from rankscope.analysis.places import Places
from rankscope.analysis.presence import Absence
from rankscope.analysis.reliability import Reliability
from rankscope.analysis.replicas import signature
from rankscope.analysis.sink_rules import SinkRules, absent_reason
from rankscope.kinds.finding_kinds import FINDINGS
from rankscope.schema import Frame
from rankscope.text.wording import plural, wait_text

MOST_WITNESSES = 3
"""Most waiting ranks whose records are quoted as evidence."""
MOST_CULPRITS = 8
"""Most culprits whose records are quoted."""
LONGEST_SHOWN_CHAIN = 6
"""Longest chain shown with a finding."""


@dataclass(frozen=True)
class FindingWriter:
    """Converts roots to findings."""

    judge: SinkRules
    places: Places

    @property
    def facts(self) -> Facts:
        """The facts of the dumps."""
        return self.judge.facts

    @cached_property
    def _paths(self) -> dict[int, str]:
        return dict(self.facts.dataset.files.select("file", "path").iter_rows())

    @cached_property
    def _doubter(self) -> JobCounterEvidence:
        return JobCounterEvidence(self.judge)

    def write(self, root: Root, severity: Severity = "critical") -> Finding:
        """The finding of one root."""
        waiting = sorted(self.judge.held_up(root.nodes) - set(root.culprits))
        if root.kind == "stuck-in-collective" and root.focus:
            waiting = sorted({*waiting, *root.focus.waiting()})
        peer, never_posted = None, False
        if root.focus is not None and len(root.focus.key) == 4 and len(root.culprits) == 1:
            _, src, dst, _ = root.focus.key
            peer = dst if root.culprits[0] == src else src
            never_posted = root.culprits[0] not in root.focus.entries
        found = Finding(
            kind=root.kind,
            severity=severity,
            title=root.title,
            explanation=root.explanation,
            root_cause=True,
            culprit_ranks=tuple(sorted(root.culprits)),
            culprits=tuple(map(self.places.culprit, sorted(root.culprits))),
            candidates=root.candidates,
            waiting_ranks=tuple(waiting),
            blast_radius=len(waiting),
            confidence=root.confidence,
            confidence_reasons=root.reasons,
            chain=self._chain(root),
            group=self.group(root.focus.group) if root.focus else None,
            seq=root.focus.number if root.focus else None,
            op=root.focus.op if root.focus and root.focus.is_known else None,
            peer=peer,
            never_posted=never_posted,
            stack=self._stack(root),
            evidence=tuple(self._evidence(root)),
            counter_evidence=self._doubter.against(root),
            next_steps=root.next_steps,
            row=self._shown(root),
        )
        shared = self.places.shared([found])
        return replace(found, explanation=f"{found.explanation} {shared.sentence}") if shared else found

    def chains(self, root: Root) -> dict[int, tuple[ChainStep, ...]]:
        """The wait chain of each rank that waits for a root."""
        if id(root) not in self._chains:
            chains = WaitChains(self.judge, root).by_rank()
            self._chains[id(root)] = root, chains
        return self._chains[id(root)][1]

    @cached_property
    def _chains(self) -> dict[int, tuple[Root, dict[int, tuple[ChainStep, ...]]]]:
        """Chains by identity of the root; the root is kept, so its identity stays unique."""
        return {}

    def group(self, group: int) -> GroupRef:
        """The group in the form that findings refer to."""
        found = self.facts.groups[group]
        return GroupRef(found.name, found.description, found.ranks, key=found.id)

    def _chain(self, root: Root) -> tuple[ChainStep, ...]:
        if root.cycle:
            return WaitChains(self.judge, root).around()
        found = [steps for steps in self.chains(root).values() if len(steps) <= LONGEST_SHOWN_CHAIN]
        return max(found, key=len, default=())

    def _stack(self, root: Root) -> tuple[Frame, ...]:
        row = next((row for rank in root.culprits if (row := self._row(root, rank)) is not None), None)
        if row is None and root.focus is not None:
            row = next((e.row for _, e in sorted(root.focus.entries.items()) if e.row >= 0), None)
        ops = self.facts.dataset.ops
        return self.facts.dataset.stack(ops["stack_id"][row]) if row is not None else ()

    def _shown(self, root: Root) -> int | None:
        """The operation as the culprit issued it, else as a waiting rank issued it."""
        entries = root.focus.entries if root.focus else {}
        rows = [entries[r].row for r in (*root.culprits, *sorted(entries)) if r in entries]
        return next((row for row in rows if row >= 0), None)

    def _row(self, root: Root, rank: int) -> int | None:
        """The best record of a culprit: its side of the operation, else its last operation."""
        entry = root.focus.entries.get(rank) if root.focus else None
        return entry.row if entry is not None and entry.row >= 0 else self._last_row(rank)

    def _last_row(self, rank: int) -> int | None:
        found = self._last_rows.get(rank)
        return int(found) if found is not None else None

    @cached_property
    def _last_rows(self) -> dict[int, int]:
        ops, first = self.facts.dataset.ops, self.facts.first_rows
        last = np.append(first[1:], ops.height) - 1 if len(first) else first
        return dict(zip(ops["rank"].gather(last).to_list(), last.tolist(), strict=True))

    def _evidence(self, root: Root) -> list[Evidence]:
        out = [self._accused(root, rank) for rank in sorted(root.culprits)[:MOST_CULPRITS]]
        if root.focus is not None:
            others = [r for r in sorted(root.focus.entries) if r not in root.culprits]
            out.extend(
                self._record(root.focus.entries[rank].row, rank, self._witness(root, root.focus, rank))
                for rank in others[:MOST_WITNESSES]
            )
        return out

    def _accused(self, root: Root, rank: int) -> Evidence:
        reason = absent_reason(self.facts, rank, root.focus) if root.focus else None
        text = root.notes.get(rank, "")
        joined = root.focus is not None and rank in root.focus.entries
        row = self._row(root, rank)
        absent = FINDINGS[root.kind].absent != "nobody"
        if reason is not None and row is not None and not joined and absent:
            text = f"{text}; its last operation is {self._name(row)}" if text else f"last issued {self._name(row)}"
        return self._record(row, rank, text or "issued it")

    def _name(self, row: int) -> str:
        op, group, seq, is_p2p, p2p = self.facts.dataset.ops.select("op", "group", "seq", "is_p2p", "p2p_seq").row(row)
        return f"{op} {'p2p #' if is_p2p else '#'}{p2p if is_p2p else seq} of {self.facts.label(group)}"

    def _witness(self, root: Root, focus: Instance, rank: int) -> str:
        note = root.notes.get(rank)
        if note:
            return note
        verb = "waits in" if focus.entries[rank].pending else "finished"
        return f"{verb} {focus.name} of {self.facts.label(focus.group)}"

    def _record(self, row: int | None, rank: int, text: str) -> Evidence:
        if row is None or row < 0:
            return Evidence(text, rank=rank)
        file, record, created = self.facts.dataset.ops.select("file", "record_id", "created_ns").row(row)
        return Evidence(text, file=self._paths.get(file), rank=rank, record_id=record, time_ns=created)


# Chains from each waiting rank to the root it waits for.

LONGEST_CHAIN = 64
"""Most steps of a chain before it is cut; a real chain has fewer than ten."""


@dataclass(frozen=True)
class WaitChains:
    """Shortest paths through the graph from waiting ranks to one root."""

    judge: SinkRules
    root: Root

    @property
    def graph(self) -> WaitGraph:
        """The graph that they lead through."""
        return self.judge.graph

    def by_rank(self) -> dict[int, tuple[ChainStep, ...]]:
        """The chain of each rank that waits for the root."""
        onward = self._onward()
        out = {}
        for rank in sorted(self.graph.order):
            start = next((node for _, node in self.graph.order[rank] if node in onward), None)
            if start is not None and (steps := self._walk(rank, start, onward)):
                out[rank] = steps
        return out

    def around(self) -> tuple[ChainStep, ...]:
        """The cycle of a deadlock; it ends where it began."""
        ranks = self.root.cycle
        steps = []
        for rank, after in zip(ranks, (*ranks[1:], *ranks[:1]), strict=True):
            node = self._waiting_for(rank, after)
            if node is not None:
                steps.append(ChainStep(rank, self._wait(node, rank), after))
        return tuple(steps)

    def _waiting_for(self, rank: int, other: int) -> Instance | None:
        inside = set(self.root.nodes)
        for node in self.root.nodes:
            instance = self.graph.instance(node)
            if instance is None or rank not in instance.waiting():
                continue
            if any(edge.via == other and edge.target in inside for edge in self.graph.edges[node]):
                return instance
        return None

    def _onward(self) -> dict[WaitNode, tuple[WaitNode, int] | None]:
        """For each node that waits for the root: the next node on a shortest path, and the rank in between."""
        onward: dict[WaitNode, tuple[WaitNode, int] | None] = dict.fromkeys(self.root.nodes)
        queue = deque(self.root.nodes)
        while queue:
            node = queue.popleft()
            for before in self.judge.reverse.get(node, ()):
                if before not in onward:
                    onward[before] = (node, min(e.via for e in self.graph.edges[before] if e.target == node))
                    queue.append(before)
        return onward

    def _walk(
        self, rank: int, start: WaitNode, onward: dict[WaitNode, tuple[WaitNode, int] | None]
    ) -> tuple[ChainStep, ...]:
        steps: list[ChainStep] = []
        node = start
        while (following := onward[node]) is not None and len(steps) < LONGEST_CHAIN:
            target, via = following
            instance = self.graph.instance(node)
            if instance is not None and via != rank:
                steps.append(ChainStep(rank, self._wait(instance, rank), via))
                rank = via
            node = target
        if len(self.root.nodes) > 1:
            return (*steps, *self._within(rank, node))
        last = self.graph.instance(node)
        accused = [r for r in self.root.culprits if r != rank]
        if last is not None and accused and rank not in self.root.culprits:
            steps.append(ChainStep(rank, self._wait(last, rank), accused[0]))
        return tuple(steps)

    def _within(self, rank: int, node: WaitNode) -> Iterator[ChainStep]:
        """The steps inside a circle, from one of its nodes to a culprit, or to a rank that was there before."""
        seen = {rank}
        while (instance := self.graph.instance(node)) is not None and rank in instance.waiting():
            edge = next((edge for edge in self._ways_on(node) if edge.via != rank), None)
            if edge is None:
                return
            yield ChainStep(rank, self._wait(instance, rank), edge.via)
            rank, node = edge.via, self._operation(edge.target)
            if rank in seen or rank in self.root.culprits:
                return
            seen.add(rank)

    @cached_property
    def _inside(self) -> frozenset[WaitNode]:
        return frozenset(self.root.nodes)

    @cached_property
    def _ways(self) -> dict[WaitNode, list[WaitEdge]]:
        return {}

    def _ways_on(self, node: WaitNode) -> list[WaitEdge]:
        """Two edges that stay inside the circle, over different ranks: those of culprits and of the cycle first."""
        if node not in self._ways:
            by_rank = {edge.via: edge for edge in self.graph.edges[node] if edge.target in self._inside}
            order = sorted(by_rank, key=lambda r: (r not in self.root.culprits, r not in self.root.cycle, r))
            self._ways[node] = [by_rank[rank] for rank in order[:2]]
        return self._ways[node]

    def _operation(self, node: WaitNode) -> WaitNode:
        """The operation that holds a host of the circle; an operation itself."""
        held = (edge.target for edge in self.graph.edges[node] if edge.target in self._inside)
        return node if node.kind == "op" else next(held, node)

    def _wait(self, instance: Instance, rank: int) -> Wait:
        entry = instance.entries.get(rank)
        row = entry.row if entry is not None and entry.row >= 0 else None
        return Wait(self.judge.facts.groups[instance.group].name, instance.number, instance.op, row)


# The first place in every group at which its members diverge, and findings about groups that wait because of another.


def find_divergences(rules: SinkRules, roots: list[Root]) -> tuple[Divergence, ...]:
    """One row for each group whose members did not end together, sorted by the time it began."""
    first: dict[int, Instance] = {}
    facts, graph = rules.facts, rules.graph
    rows = facts.disagreements.filter(~pl.col("settled")).unique("group", keep="first", maintain_order=True)
    # calls that only their sites tell apart may all be finished
    odd = {r.focus.key: r for r in roots if r.focus and not r.settled and not r.needs_stillness and not r.focus.is_pair}
    places = [root.focus for root in odd.values() if root.focus]
    for instance in [*graph.instances.values(), *calls_at(facts, rows).values(), *places]:
        known = first.get(instance.group)
        if not instance.is_pair and (known is None or instance.seq < known.seq):
            first[instance.group] = instance
    causes = {root.focus.group for root in roots if root.focus}
    causes |= {node.key[0] for root in roots for node in root.nodes if node.key is not None}
    found = [_divergence(facts, rules.reliability, first[group], group not in causes) for group in sorted(first)]
    return tuple(sorted(found, key=lambda d: (d.pending_since_ns or 0, d.group)))


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


def find_consequences(facts: Facts, divergences: tuple[Divergence, ...], cause: str) -> list[Finding]:
    """One finding, without culprits, for each description of groups that hang as a consequence of the root `cause`."""
    by_label: dict[str, list[Divergence]] = {}
    for divergence in divergences:
        if divergence.consequence and divergence.pending_since_ns is not None:
            by_label.setdefault(facts.label(divergence.group), []).append(divergence)
    findings = []
    for label, blocked in by_label.items():
        waiting = tuple(sorted({rank for divergence in blocked for rank in divergence.joined}))
        group = facts.groups[blocked[0].group]
        groups = f"{plural(len(blocked), 'group')} of {label} {'is' if len(blocked) == 1 else 'are'}"
        findings.append(
            Finding(
                kind="missing-rank",
                severity="info",
                title=f"{groups} blocked by this",
                explanation=f"{wait_text(waiting)} there for ranks that are blocked too.",
                caused_by=cause,
                waiting_ranks=waiting,
                blast_radius=len(waiting),
                group=GroupRef(group.name, group.description, group.ranks, key=group.id),
                seq=blocked[0].seq,
                op=blocked[0].op,
            )
        )
    return findings
