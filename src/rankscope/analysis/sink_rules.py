"""Rules that turn the sinks of the wait-for graph into roots, one rule for each kind of sink."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import polars as pl

from rankscope.analysis.device_roots import DeviceRules
from rankscope.analysis.facts import Facts
from rankscope.analysis.graph import (
    Root,
    WaitGraph,
    WaitNode,
    find_sinks,
    reverse_edges,
    strong_components,
    waiting_nodes,
)
from rankscope.analysis.instances import Instance
from rankscope.analysis.places import host_steps
from rankscope.analysis.presence import Absence
from rankscope.analysis.reliability import Reliability
from rankscope.analysis.replicas import ReplicaCohorts
from rankscope.analysis.unmatched_p2p import LostPairs
from rankscope.kinds.finding_kinds import FINDINGS
from rankscope.text.wording import plural, ranks_text, wait_text

if TYPE_CHECKING:
    from rankscope.analysis.deadlocks import DeadlockRules

MOST_CANDIDATES = 6
"""Most operations that are compared to find the first in program order."""


@dataclass(frozen=True)
class SinkRules:
    """Turns the sinks of a graph into roots."""

    facts: Facts
    graph: WaitGraph
    reliability: Reliability
    cohorts: ReplicaCohorts
    lost: LostPairs
    judged: frozenset[WaitNode] = frozenset()
    """Nodes that are already roots: mismatches, and operations that an out-of-step rank left undone."""

    @cached_property
    def reverse(self) -> dict[WaitNode, list[WaitNode]]:
        """For each node the nodes that wait for it."""
        return reverse_edges(self.graph)

    @cached_property
    def sinks(self) -> list[tuple[WaitNode, ...]]:
        """The components that everything waits for."""
        return find_sinks(self.graph)

    def held_up(self, nodes: tuple[WaitNode, ...]) -> set[int]:
        """Ranks that wait, directly or indirectly, for one of `nodes`."""
        return {rank for node in waiting_nodes(self.reverse, nodes) for rank in self.graph.waiting(node)}

    def judge(self) -> list[Root]:
        """All roots, before mismatches, standstill and missing dumps are considered."""
        single = [members[0] for members in self.sinks if len(members) == 1]
        roots = self._hosts([n for n in single if n.kind == "host"])
        devices = DeviceRules(self.facts, self.graph, self.reliability)
        roots += devices.stopped([n for n in single if n.kind == "device"])
        lost = self.lost
        operations = [n for n in single if n.kind == "op" and n not in self.judged]
        roots += [root for n in operations if (root := lost.by_counters((n,)) or devices.joined(n)) is not None]
        roots += [self._circle(members) for members in self.sinks if len(members) > 1]
        if roots and all(root.residual for root in roots):
            roots += [self._circle(members) for members in self._circles]
        return [root for root in roots if self._matters(root)]

    def _circle(self, members: tuple[WaitNode, ...]) -> Root:
        """The root of operations that wait for each other."""
        lost, deadlocks = self.lost, self._deadlocks
        return (
            lost.by_replicas(members)
            or lost.by_counters(members)
            or deadlocks.skipped(members)
            or lost.by_neighbours(members)
            or deadlocks.strayed(members)
            or lost.by_exclusion(members)
            or deadlocks.judge(members)
        )

    @cached_property
    def _deadlocks(self) -> DeadlockRules:
        # imported only for jobs with operations that wait for each other
        from rankscope.analysis.deadlocks import DeadlockRules

        return DeadlockRules(self.facts, self.graph, self.cohorts)

    @cached_property
    def _circles(self) -> list[tuple[WaitNode, ...]]:
        """Cycles whose only way out is operations that all have joined; these may wait for the cycle, unrecorded."""
        found = [members for members in strong_components(self.graph) if len(members) > 1]
        inside = {node for members in found for node in members}
        return [m for m in found if not (self._reached(m) - set(m)) & inside]

    def _reached(self, nodes: tuple[WaitNode, ...]) -> set[WaitNode]:
        """Every node that one of these waits for, directly or indirectly."""
        seen, queue = set(nodes), list(nodes)
        while queue:
            targets = {edge.target for edge in self.graph.edges[queue.pop()]} - seen
            seen |= targets
            queue += targets
        return seen

    def _matters(self, root: Root) -> bool:
        """Whether a root holds up any other rank: a rank dumped a moment early holds up only itself."""
        if FINDINGS[root.kind].stands_alone:
            return True
        return bool(self.held_up(root.nodes) - set(root.culprits))

    def first(self, node: WaitNode) -> Instance | None:
        """The first operation in program order among those that wait for a host, by its replicas."""
        waits = self.direct(node)
        close = [i for i in waits[:MOST_CANDIDATES] if i.is_pair == waits[0].is_pair]
        if len(close) > 1:
            self.cohorts.look_up(close)
        behind = {i: sum(self.cohorts.precedes(other, i) for other in close if other is not i) for i in close}
        return min(close, key=lambda i: (behind[i], close.index(i)), default=None)

    def direct(self, node: WaitNode) -> list[Instance]:
        """The operations that wait directly for a node: collectives before pairs, oldest first."""
        found = [i for n in self.reverse.get(node, ()) if (i := self.graph.instance(n)) is not None]
        return sorted(found, key=lambda i: (i.is_pair, i.since_ns or 0, i.key))

    def _hosts(self, nodes: list[WaitNode]) -> list[Root]:
        """One root for each operation that hosts with nothing pending never issued."""
        by_focus: dict[Instance, list[WaitNode]] = {}
        for node in nodes:
            focus = self.first(node)
            if focus is not None:
                by_focus.setdefault(focus, []).append(node)
        return [self._host(focus, tuple(hosts)) for focus, hosts in by_focus.items()]

    def _host(self, focus: Instance, nodes: tuple[WaitNode, ...]) -> Root:
        idle = tuple(sorted(node.rank for node in nodes))
        if focus.is_pair:
            return self._pair(focus, nodes, idle)
        members = self.facts.groups[focus.group].ranks
        idle = tuple(r for r in members if r in idle or (WaitNode("host", r) in self._idle and r not in focus.entries))
        if 2 * len(idle) > len(members) and len(focus.waiting()) < len(idle):
            return self._few(focus, nodes, idle)
        label = f"{focus.name} of {self.facts.label(focus.group)}"
        if any(map(self.facts.is_blind, idle)):
            return self._behind(focus, nodes, idle, label)
        return Root(
            kind="missing-rank",
            culprits=idle,
            nodes=nodes,
            focus=focus,
            title=f"{ranks_text(idle)} never issued {label}",
            explanation=(
                f"{wait_text(focus.waiting())} in {label}; {ranks_text(idle)} never issued it, "
                f"and {'waits' if len(idle) == 1 else 'wait'} for nothing: the host is stuck outside of communication, "
                "or left the loop."
            ),
            notes=dict.fromkeys(idle, "has nothing pending: its host is not waiting for any operation"),
            next_steps=host_steps(
                self.facts.dataset, idle, "what is the host doing? (data loader, checkpoint, a lock, an exit)"
            ),
        )

    def _behind(self, focus: Instance, nodes: tuple[WaitNode, ...], idle: tuple[int, ...], label: str) -> Root:
        """Ranks that are behind; several may wait for each other in their pending operations.

        The same holds for one that may wait for a rank without a dump.
        """
        alone = len(idle) == 1 and not self.facts.dataset.missing_ranks
        unknown = "the backend does not record whether operations finish"
        return Root(
            kind="missing-rank",
            culprits=idle if alone else (),
            nodes=nodes,
            focus=focus,
            title=f"{ranks_text(idle)} never issued {label}",
            explanation=(
                f"{wait_text(focus.waiting())} in {label}; {ranks_text(idle)} never issued it. "
                + (
                    ("All others went further: its host is stuck, or its device is stuck in its last operation.")
                    if alone
                    else "They may wait in their last operations, for each other or for one that is stuck."
                )
            ),
            candidates=() if alone else tuple(sorted({*idle, *self.facts.dataset.missing_ranks})),
            residual=not alone,
            confidence="medium" if alone else "low",
            reasons=(unknown,),
            notes=dict.fromkeys(idle, "issued nothing after this"),
            next_steps=host_steps(self.facts.dataset, idle, "where is the host?"),
        )

    @cached_property
    def _idle(self) -> frozenset[WaitNode]:
        return frozenset(members[0] for members in self.sinks if len(members) == 1 and members[0].kind == "host")

    def _few(self, focus: Instance, nodes: tuple[WaitNode, ...], idle: tuple[int, ...]) -> Root:
        """The root if most members never came and wait for nothing: then the few that came are the odd ones."""
        few = tuple(focus.waiting())
        label = f"{focus.name} of {self.facts.label(focus.group)}"
        if self._unrecorded(focus):
            return self._undecided(focus, nodes, idle, label)
        return Root(
            kind="extra-collective",
            culprits=few,
            nodes=nodes,
            focus=focus,
            title=f"{ranks_text(few)} issued {label}, which the other {plural(len(idle), 'member')} never did",
            explanation=(
                f"Only {ranks_text(few)} issued {label}. The others wait for nothing, so this is most likely a "
                "collective on a branch that only a few ranks take, such as one inside `if rank == 0`."
            ),
            candidates=idle,
            confidence="medium",
            reasons=(f"or {ranks_text(idle)} are stuck for one common reason, such as storage",),
            next_steps=host_steps(
                self.facts.dataset, idle[:3], "one place for all means a common cause, a place past it the branch"
            ),
        )

    def _unrecorded(self, focus: Instance) -> bool:
        """Whether the recorder omits operations of this group: gloo counts sends and receives, and keeps none."""
        if focus.group not in self.facts.gloo_groups:
            return False
        own = self.facts.dataset.ops.filter((pl.col("group") == focus.group) & (pl.col("coalesced") == "none"))
        return bool(own.select((pl.col("op_id") > pl.col("seq")).any()).item())

    def _undecided(self, focus: Instance, nodes: tuple[WaitNode, ...], idle: tuple[int, ...], label: str) -> Root:
        return Root(
            kind="missing-rank",
            culprits=(),
            nodes=nodes,
            focus=focus,
            title=f"{ranks_text(idle)} never issued {label}; the dumps do not show which of them was first",
            explanation=(
                f"{wait_text(focus.waiting())} in {label}. The group also sends and receives, which gloo counts "
                f"but does not record: {ranks_text(idle)} may wait for each other there."
            ),
            candidates=idle,
            confidence="low",
            reasons=("gloo records no send and no receive",),
            next_steps=host_steps(self.facts.dataset, idle, "which send or recv does each wait in?"),
        )

    def _pair(self, focus: Instance, nodes: tuple[WaitNode, ...], idle: tuple[int, ...]) -> Root:
        _, src, dst, _k = focus.key  # type: ignore[misc]
        verb = "receive from" if dst in idle else "send to"
        other = src if dst in idle else dst
        label = self.facts.label(focus.group)
        return Root(
            kind="p2p-unmatched",
            culprits=idle,
            nodes=nodes,
            focus=focus,
            title=f"{ranks_text(idle)} never posted its {verb} rank {other} in {label}",
            explanation=(
                f"Rank {other} waits in {focus.name} of {label}; {ranks_text(idle)} never posted the "
                "other side and waits for nothing itself."
            ),
            notes=dict.fromkeys(idle, "has nothing pending: its host is not waiting for any operation"),
            next_steps=(
                *host_steps(self.facts.dataset, idle, "what is the host doing?"),
                "Count the sends and receives of the pipeline schedule on both ranks.",
            ),
        )


def absent_reason(facts: Facts, rank: int, focus: Instance) -> Absence | None:
    """The reason why a member has no row for the operation of a root; None for pairs and for members with a row."""
    if focus.is_pair or rank in focus.entries:
        return None
    return facts.presence.absence(rank, focus.group, focus.seq)
