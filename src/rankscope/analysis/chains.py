"""From any waiting rank, step by step, to the root it waits for."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from rankscope.analysis.facts import Facts
from rankscope.analysis.graph import Node, WaitGraph
from rankscope.analysis.instances import Instance
from rankscope.analysis.model import Step, Wait
from rankscope.analysis.root import Root

LONGEST = 64
"""Steps after which a chain is cut; a real one has fewer than ten."""


@dataclass(frozen=True)
class Chains:
    """Shortest ways through the graph from waiting ranks to one root."""

    facts: Facts
    graph: WaitGraph
    root: Root
    reverse: dict[Node, list[Node]]
    """`reverse_edges` of the graph."""

    def by_rank(self) -> dict[int, tuple[Step, ...]]:
        """For each rank that waits for the root its chain."""
        onward = self._onward()
        out = {}
        for rank in sorted(self.graph.order):
            start = next((node for _, node in self.graph.order[rank] if node in onward), None)
            if start is not None and (steps := self._walk(rank, start, onward)):
                out[rank] = steps
        return out

    def around(self) -> tuple[Step, ...]:
        """The circle of a deadlock, ending where it began."""
        ranks = self.root.cycle
        steps = []
        for rank, after in zip(ranks, (*ranks[1:], *ranks[:1]), strict=True):
            node = self._waiting_for(rank, after)
            if node is not None:
                steps.append(Step(rank, self._wait(node, rank), after))
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

    def _onward(self) -> dict[Node, tuple[Node, int] | None]:
        """For each node that waits for the root, the next node on a shortest way and the rank in between."""
        onward: dict[Node, tuple[Node, int] | None] = dict.fromkeys(self.root.nodes)
        queue = deque(self.root.nodes)
        while queue:
            node = queue.popleft()
            for before in self.reverse.get(node, ()):
                if before not in onward:
                    onward[before] = (node, min(e.via for e in self.graph.edges[before] if e.target == node))
                    queue.append(before)
        return onward

    def _walk(self, rank: int, start: Node, onward: dict[Node, tuple[Node, int] | None]) -> tuple[Step, ...]:
        steps: list[Step] = []
        node = start
        while (following := onward[node]) is not None and len(steps) < LONGEST:
            target, via = following
            instance = self.graph.instance(node)
            if instance is not None and via != rank:
                steps.append(Step(rank, self._wait(instance, rank), via))
                rank = via
            node = target
        last = self.graph.instance(node)
        accused = [r for r in self.root.culprits if r != rank]
        if last is not None and accused and not self.root.cycle and rank not in self.root.culprits:
            steps.append(Step(rank, self._wait(last, rank), accused[0]))
        return tuple(steps)

    def _wait(self, instance: Instance, rank: int) -> Wait:
        entry = instance.entries.get(rank)
        row = entry.row if entry is not None and entry.row >= 0 else None
        return Wait(self.facts.groups[instance.group].name, instance.number, instance.op, row)
