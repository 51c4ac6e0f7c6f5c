"""The wait-for graph: the causes of each unfinished operation's wait, and the sinks that everything waits for.

Nodes are unfinished operations, hosts, devices and missing dumps. An edge a -> b via rank r says: a cannot finish
because of r, and b holds up r. Operations need all their members, so the graph has only AND-edges, and the strongly
connected components without outgoing edges are the roots (after MUST, Hilbrich et al.).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import polars as pl

from rankscope.analysis.facts import Facts
from rankscope.analysis.instances import CallKey, Instance, PairKey, pending_calls, pending_pairs
from rankscope.analysis.model import Confidence
from rankscope.analysis.presence import Absence
from rankscope.analysis.reliability import Reliability
from rankscope.analysis.signatures import ROOTED_OPS, wire_name


class WaitNode(NamedTuple):
    """A node: `kind` is op, host, device, no-dump or unknown; `rank` is -1 for an operation."""

    kind: str
    rank: int
    key: CallKey | PairKey | None = None


class WaitEdge(NamedTuple):
    """`target` holds up the source, through rank `via`."""

    target: WaitNode
    via: int


@dataclass
class WaitGraph:
    """Unfinished operations and what they wait for."""

    instances: dict[CallKey | PairKey, Instance] = field(default_factory=dict)
    edges: dict[WaitNode, list[WaitEdge]] = field(default_factory=dict)
    order: dict[int, list[tuple[int, WaitNode]]] = field(default_factory=dict)
    """For each rank its unfinished operations as (position, node), in the order in which it issued them."""

    @property
    def hang_since_ns(self) -> int | None:
        """When the first operation that never completed was issued; None if none is known to be unfinished."""
        return min((i.since_ns for i in self.instances.values() if i.since_ns), default=None)

    def heads(self, rank: int) -> list[WaitNode]:
        """The first unfinished operations of a rank: several if they were launched as a batch."""
        own = self.order.get(rank, [])
        return [node for position, node in own if position == own[0][0]]

    def instance(self, node: WaitNode) -> Instance | None:
        """The operation of a node; None for hosts and the like, and for finished operations."""
        return self.instances.get(node.key) if node.key is not None else None

    def waiting(self, node: WaitNode) -> list[int]:
        """Ranks that wait in the operation of a node."""
        found = self.instance(node)
        return found.waiting() if found else []


def build_graph(facts: Facts, reliability: Reliability, unmatched: Sequence[Instance] = ()) -> WaitGraph:
    """The wait-for graph of all unfinished operations and of the `unmatched` sends and receives.

    The latter are not pending in the dumps of a hook, although one of their sides was never posted.
    """
    graph = WaitGraph()
    for instance in (*unmatched, *pending_calls(facts).values(), *pending_pairs(facts).values()):
        graph.instances[instance.key] = instance
    for key, instance in graph.instances.items():
        # gloo retires operations late: an operation that most members have finished holds up nobody
        retired = instance.group in facts.gloo_groups and _mostly_finished(instance)
        for rank, entry in instance.entries.items():
            if entry.pending and not retired:
                graph.order.setdefault(rank, []).append((entry.position, WaitNode("op", -1, key)))
    for own in graph.order.values():
        own.sort(key=lambda item: (item[0], item[1].key or ()))
    builder = _GraphBuilder(facts, reliability, graph)
    for key in sorted(graph.instances, key=lambda k: (len(k), k)):
        builder.add_operation(WaitNode("op", -1, key))
    return graph


@dataclass
class _GraphBuilder:
    facts: Facts
    reliability: Reliability
    graph: WaitGraph

    def add_operation(self, node: WaitNode) -> None:
        """Adds the edges of an operation, one for each member that holds it up."""
        instance = self.graph.instances[node.key]  # type: ignore[index]
        edges: list[WaitEdge] = []
        for rank in self._members(instance):
            entry = instance.entries.get(rank)
            if entry is None:
                target = self._absent(instance, rank)
            elif entry.pending:
                target = self._held(node, rank, entry.position)
                edges.extend(WaitEdge(other, rank) for other in self._batch(instance, rank, entry.position))
            else:
                target = None
            if target is not None:
                edges.append(WaitEdge(target, rank))
        if instance.group in self.facts.open_groups:
            edges.append(WaitEdge(self._leaf("unknown", -1), -1))
        self.graph.edges[node] = edges

    def _members(self, instance: Instance) -> tuple[int, ...]:
        if len(instance.key) == 4:
            return (instance.key[1], instance.key[2])
        return self.facts.groups[instance.group].ranks

    def _held(self, node: WaitNode, rank: int, position: int) -> WaitNode | None:
        """The node that keeps a rank from running an issued operation: its device, or an older operation."""
        if rank in self.reliability.dead_devices:
            return self._leaf("device", rank)
        # without any timing: gloo had not retired it yet
        older = next(iter(self.graph.order.get(rank, ())), None)
        return older[1] if older is not None and older[0] < position and older[1] != node else None

    def _batch(self, instance: Instance, rank: int, position: int) -> list[WaitNode]:
        """The operations of its batch that a send or receive waits for on one of its ranks.

        All operations of a batch finish together, with the last one. An operation whose other side is finished waits
        for all of the batch, met or not; an operation that has met its other side waits for those that have not.
        """
        if not instance.is_pair or len(instance.entries) < 2:
            return []
        own = self.graph.order[rank]
        if own[0][0] != position:
            return []
        stage = _progress(instance)
        together = [node for place, node in own if place == position]
        return [node for node in together if _progress(self.graph.instances[node.key]) < stage]  # type: ignore[index]

    def _absent(self, instance: Instance, rank: int) -> WaitNode | None:
        """The node that keeps a rank from issuing an operation; None if the rank finished it long ago."""
        presence = self.facts.presence
        if not presence.told(rank, instance.group):
            kind = "unknown" if rank in self.facts.dataset.unopened_ranks else "no-dump"
            return None if _mostly_finished(instance) else self._leaf(kind, rank)
        if instance.is_pair and not presence.dumped(rank):
            return self._leaf("unknown", rank)
        if not instance.is_pair:
            absence = presence.absence(rank, instance.group, instance.seq)
            if absence in (Absence.OVERWRITTEN, Absence.FILTERED):
                return None
            if absence is Absence.UNKNOWN:
                return self._leaf("unknown", rank)
        # the part of the dump that could not be read may hold the operation that the rank waits in, or its send
        lost = presence.cut(rank) and (instance.is_pair or rank not in self.graph.order)
        if lost or self.reliability.is_outdated(rank, instance.since_ns):
            return self._leaf("unknown", rank)
        # the host of a rank: presumably blocked on its first pending operation, or stuck if nothing is pending
        node = WaitNode("host", rank)
        if node not in self.graph.edges:
            self.graph.edges[node] = [WaitEdge(head, rank) for head in self.graph.heads(rank)]
        return node

    def _leaf(self, kind: str, rank: int) -> WaitNode:
        node = WaitNode(kind, rank)
        self.graph.edges.setdefault(node, [])
        return node


def _mostly_finished(instance: Instance) -> bool:
    """Whether most members have finished a collective that needs all: then the others have issued it, too."""
    done = sum(1 for entry in instance.entries.values() if not entry.pending)
    return not instance.is_pair and 2 * done > len(instance.entries) and wire_name(instance.op) not in ROOTED_OPS


def _progress(instance: Instance) -> int:
    """State of a send and its receive: 0 one side is not posted, 1 both are, 2 one side is finished."""
    return len(instance.entries) - 1 if len(instance.waiting()) == len(instance.entries) else 2


def stop_at(graph: WaitGraph, certain: Sequence[Root]) -> None:
    """Makes each of these roots a sink of the graph, so that no other root explains it."""
    for node in (node for root in certain for node in root.nodes):
        if node in graph.edges:
            graph.edges[node] = []


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


def strong_components(graph: WaitGraph) -> list[tuple[WaitNode, ...]]:
    """Strongly connected components in reverse topological order: sinks first (Tarjan 1972, without recursion)."""
    state = _Tarjan()
    for node in graph.edges:
        if node not in state.index:
            state.visit(graph, node)
    return state.found


@dataclass
class _Tarjan:
    index: dict[WaitNode, int] = field(default_factory=dict)
    low: dict[WaitNode, int] = field(default_factory=dict)
    stack: list[WaitNode] = field(default_factory=list)
    on_stack: set[WaitNode] = field(default_factory=set)
    found: list[tuple[WaitNode, ...]] = field(default_factory=list)

    def visit(self, graph: WaitGraph, root: WaitNode) -> None:
        work = [(root, iter(graph.edges[root]))]
        self._enter(root)
        while work:
            node, edges = work[-1]
            for edge in edges:
                if edge.target not in self.index:
                    self._enter(edge.target)
                    work.append((edge.target, iter(graph.edges[edge.target])))
                    break
                if edge.target in self.on_stack:
                    self.low[node] = min(self.low[node], self.index[edge.target])
            else:
                work.pop()
                if self.low[node] == self.index[node]:
                    members = []
                    while True:
                        top = self.stack.pop()
                        self.on_stack.discard(top)
                        members.append(top)
                        if top == node:
                            break
                    self.found.append(
                        tuple(sorted(members, key=lambda n: (n.kind, n.rank, len(n.key or ()), n.key or ())))
                    )
                if work:
                    self.low[work[-1][0]] = min(self.low[work[-1][0]], self.low[node])

    def _enter(self, node: WaitNode) -> None:
        self.index[node] = self.low[node] = len(self.index)
        self.stack.append(node)
        self.on_stack.add(node)


def find_sinks(graph: WaitGraph) -> list[tuple[WaitNode, ...]]:
    """Components that wait for nothing outside themselves: the roots, in a fixed order."""
    out = []
    for members in strong_components(graph):
        inside = set(members)
        if all(edge.target in inside for node in members for edge in graph.edges[node]):
            out.append(members)
    return sorted(out)


def reverse_edges(graph: WaitGraph) -> dict[WaitNode, list[WaitNode]]:
    """For each node the nodes that wait for it."""
    out: dict[WaitNode, list[WaitNode]] = {}
    for node, edges in graph.edges.items():
        for edge in edges:
            out.setdefault(edge.target, []).append(node)
    return out


def waiting_nodes(reverse: dict[WaitNode, list[WaitNode]], roots: tuple[WaitNode, ...]) -> set[WaitNode]:
    """Every node that waits for one of `roots`, themselves included."""
    seen = set(roots)
    queue = deque(roots)
    while queue:
        for node in reverse.get(queue.popleft(), ()):
            if node not in seen:
                seen.add(node)
                queue.append(node)
    return seen


# Roots as the rules state them, before they become findings.


@dataclass(frozen=True)
class Root:
    """One root cause: who, at which operation, and how sure."""

    kind: str
    culprits: tuple[int, ...]
    nodes: tuple[WaitNode, ...]
    """Nodes of the graph that stand for it; empty if it is not part of the graph."""
    focus: Instance | None
    """The operation to show."""
    title: str
    explanation: str
    candidates: tuple[int, ...] = ()
    confidence: Confidence = "high"
    reasons: tuple[str, ...] = ()
    notes: dict[int, str] = field(default_factory=dict)
    """Evidence on single ranks, by rank."""
    cycle: tuple[int, ...] = ()
    """Ranks of a deadlock in the order in which they wait for each other."""
    needs_stillness: bool = True
    """Whether it proves nothing about a job that still moves."""
    residual: bool = False
    """Whether it is told only if nothing else accuses anybody: a hook does not record everything that may hold it
    up."""
    settled: bool = False
    """Whether the group went on afterwards: results are wrong, and nobody waits."""
    next_steps: tuple[str, ...] = ()

    @property
    def since_ns(self) -> int:
        """When it began, for sorting; 0 if unknown."""
        times = [e.created_ns for e in self.focus.entries.values() if e.created_ns] if self.focus else []
        return min(times, default=0)

    def weaken(self, confidence: Confidence, *reasons: str) -> Root:
        """A copy of the root with at most this `confidence`."""
        order = ("high", "medium", "low")
        lower = max(self.confidence, confidence, key=order.index)
        return replace(self, confidence=lower, reasons=(*self.reasons, *reasons))
