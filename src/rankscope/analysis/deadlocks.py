"""Deadlocks: ranks that entered operations in different orders, and the ranks whose order is the odd one."""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations

from rankscope.analysis.facts import Facts
from rankscope.analysis.graph import Root, WaitGraph, WaitNode, reverse_edges
from rankscope.analysis.instances import Instance
from rankscope.analysis.replicas import ReplicaCohorts
from rankscope.text.wording import rank_ranges, ranks_text, wait_text

FEWEST_WAITING_RANKS = 2
"""Fewest waiting ranks that outweigh one rank that never came."""


@dataclass(frozen=True)
class DeadlockRules:
    """Judges cycles of the wait-for graph."""

    facts: Facts
    graph: WaitGraph
    cohorts: ReplicaCohorts

    def judge(self, component: tuple[WaitNode, ...]) -> Root:
        """The root of a strongly connected component of more than one node."""
        if self._uncounted(component) or self._unsure(component):
            return self._among_pairs(component)
        path, ranks = self._cycle(component)
        culprits = self._alone(component) or self._minority(component)
        focus = self._focus(component)
        everybody = self._ranks(component)
        loop = " -> ".join(str(r) for r in (*ranks, ranks[0])) if ranks else rank_ranges(everybody)
        orders = {rank: self._order_text(rank, path) for rank in everybody}
        root = Root(
            kind="order-deadlock",
            culprits=culprits or everybody,
            nodes=component,
            focus=focus,
            title=_title(culprits, loop),
            explanation=self._explain(path, culprits, everybody),
            candidates=() if culprits else everybody,
            notes={rank: text for rank, text in orders.items() if text},
            cycle=ranks,
            next_steps=(
                "Make every rank enter these operations in the same order, or batch them (batch_isend_irecv).",
            ),
        )
        if culprits:
            return root.weaken("medium", "the order of the majority is assumed to be right")
        return root.weaken("low", "no majority shows which order is right")

    def strayed(self, component: tuple[WaitNode, ...]) -> Root | None:
        """The rank that is elsewhere than its peers, whatever happened to the sends and receives between them.

        It waits alone in a collective. Several members that never came to it wait in others, in which only this rank is
        missing: a third rank does not make two ranks enter collectives in opposite order. None if replicas tell whose
        order is the odd one, or if more than one rank could be the one that strayed.
        """
        found = [(node, i) for node in component if (i := self.graph.instance(node)) is not None and not i.is_pair]
        single = [(i, rank, self._calling(rank, n)) for n, i in found if len(i.entries) == 1 for rank in i.entries]
        alone = [(i, rank, calling) for i, rank, calling in single if len(calling) >= FEWEST_WAITING_RANKS]
        if len(alone) != 1 or self._minority(component) not in ((), (alone[0][1],)):
            return None
        focus, rank, calling = alone[0]
        label = f"{focus.name} of {self.facts.label(focus.group)}"
        return Root(
            kind="order-deadlock",
            culprits=(rank,),
            nodes=component,
            focus=focus,
            title=f"rank {rank} waits alone in {label}, and its peers wait for it elsewhere",
            explanation=(
                f"Only rank {rank} reached {label}. {ranks_text(calling).capitalize()} never did; they wait in "
                f"collectives where only rank {rank} is missing: it took another code path."
            ),
            notes={rank: f"waits in {label}, which no other rank issued"},
            next_steps=(
                f"Look at the stack of rank {rank}: a collective on a branch that only it takes, or one it skipped.",
            ),
        ).weaken("medium", f"one rank against {len(calling):,}: the majority is assumed to be right")

    def _calling(self, rank: int, alone: WaitNode) -> tuple[int, ...]:
        """Members that never came to the collective of a lone rank, and wait where only that rank is missing."""
        never = {edge.via for edge in self.graph.edges[alone] if edge.target.kind == "host"}
        waits = (self.graph.instance(node) for node in self._reverse.get(WaitNode("host", rank), ()))
        elsewhere = [i for i in waits if i is not None and not i.is_pair]
        lacking = [i for i in elsewhere if {*i.entries, rank} >= set(self.facts.groups[i.group].ranks)]
        return tuple(sorted(never.intersection(r for i in lacking for r in i.waiting())))

    @cached_property
    def _reverse(self) -> dict[WaitNode, list[WaitNode]]:
        return reverse_edges(self.graph)

    def _uncounted(self, component: tuple[WaitNode, ...]) -> bool:
        """Whether the cycle has only sends and receives that all met and whose counterparts are unknown."""
        found = [i for node in component if (i := self.graph.instance(node)) is not None]
        return all(i.is_pair and len(i.entries) == 2 for i in found) and any(not i.counted for i in found)

    def _unsure(self, component: tuple[WaitNode, ...]) -> bool:
        """Whether the other side may have finished an operation of the cycle while its own operation waits for its
        batch."""
        found = [i for node in component if (i := self.graph.instance(node)) is not None]
        alone = [i for i in found if i.is_pair and len(i.entries) == 1 and not i.counted]
        return any(len(self.graph.heads(rank)) > 1 for i in alone for rank in i.entries)

    def _among_pairs(self, component: tuple[WaitNode, ...]) -> Root:
        ranks, focus = self._ranks(component), self._focus(component)
        label = self.facts.label(focus.group) if focus else "?"
        return Root(
            kind="p2p-unmatched",
            culprits=(),
            nodes=component,
            focus=focus,
            title=f"{ranks_text(ranks)} wait for each other in sends and receives of {label}",
            explanation=(
                "Older operations were overwritten or left out, so sends cannot be paired with receives: two ranks "
                "may have entered them in opposite order, one may be missing, or a device does not reach them."
            ),
            candidates=ranks,
            confidence="low",
            reasons=("older sends and receives are not in the dumps",),
            next_steps=("Set TORCH_FR_BUFFER_SIZE higher, so that the recorder keeps a whole step.",),
        )

    def skipped(self, component: tuple[WaitNode, ...]) -> Root | None:
        """The rank that left a collective out and went on: the only one that is ahead of all others somewhere else."""
        ahead = [rank for rank in self._ranks(component) if self.cohorts.ahead(rank)]
        if len(ahead) != 1:
            return None
        left_out = [
            i
            for node in component
            if (i := self.graph.instance(node)) is not None
            and not i.is_pair
            and ahead[0] not in i.entries
            and ahead[0] in self.facts.groups[i.group].ranks
            and len(i.waiting()) > 1
        ]
        if not left_out:
            return None
        focus = min(left_out, key=lambda i: (i.since_ns or 0, i.key))
        place, label = self.cohorts.ahead(ahead[0]), f"{focus.name} of {self.facts.label(focus.group)}"
        return Root(
            kind="missing-rank",
            culprits=(ahead[0],),
            nodes=component,
            focus=focus,
            title=f"rank {ahead[0]} left out {label} and went on",
            explanation=(
                f"{wait_text(focus.waiting())} in {label}. Rank {ahead[0]} did not issue it, but is the only rank "
                f"that issued {place}: it skipped the collective, and now waits for the others."
            ),
            notes={ahead[0]: f"the only rank that reached {place}"},
            next_steps=(f"Compare the stack of rank {ahead[0]} with the others: which branch skips the {focus.op}?",),
        )

    def _explain(self, path: list[WaitNode], culprits: tuple[int, ...], everybody: tuple[int, ...]) -> str:
        steps = []
        for node in path:
            instance = self.graph.instance(node)
            if instance is not None:
                waiting = ranks_text(instance.waiting())
                steps.append(f"{waiting} in {instance.name} of {self.facts.label(instance.group)}")
        circle = "in a circle: " + "; ".join(steps) + "."
        text = f"The operations wait for each other {circle}"
        if culprits:
            others = [r for r in everybody if r not in culprits]
            who = ranks_text(culprits).capitalize()
            odd = f"{who} entered these operations in another order than {ranks_text(others)} and the replicas."
            return f"{odd} They wait for each other {circle}"
        if len(path) > 2:
            return text + " The dumps do not show which of them left an operation out, or came too early."
        return text + " Half of the ranks entered them in one order, half in the other."

    def _alone(self, component: tuple[WaitNode, ...]) -> tuple[int, ...]:
        """The only rank that waits alone in a collective of three or more while the rest wait for it elsewhere.

        None if another rank waits alone for one peer: that one may have left out an operation, too.
        """
        found = [i for node in component if (i := self.graph.instance(node)) is not None and not i.is_pair]
        single = [i for i in found if len(i.entries) == 1]
        alone = {i.waiting()[0] for i in single}
        many = any(len(self.facts.groups[i.group].ranks) > 2 for i in single)
        # if few have come to the other operation, these few may have come too early
        few = any(len(i.entries) > 1 and 2 * len(i.entries) < len(self.facts.groups[i.group].ranks) for i in found)
        return tuple(alone) if len(alone) == 1 and many and not few else ()

    def _ranks(self, component: tuple[WaitNode, ...]) -> tuple[int, ...]:
        """Ranks that wait in an operation of the cycle and that another rank waits for."""
        inside = set(component)
        via = {edge.via for node in component for edge in self.graph.edges[node] if edge.target in inside}
        return tuple(sorted(via))

    def _focus(self, component: tuple[WaitNode, ...]) -> Instance | None:
        found = [i for node in component if (i := self.graph.instance(node)) is not None]
        return min(found, key=lambda i: (i.since_ns or 0, i.key), default=None)

    def _cycle(self, component: tuple[WaitNode, ...]) -> tuple[list[WaitNode], tuple[int, ...]]:
        """A shortest cycle through the first operation: its nodes, and the ranks that pass on the wait."""
        inside = set(component)
        start = (
            next(node for node in component if node.kind == "op")
            if any(n.kind == "op" for n in component)
            else component[0]
        )
        back: dict[WaitNode, tuple[WaitNode, int]] = {}
        queue = deque([start])
        while queue:
            node = queue.popleft()
            for edge in self.graph.edges[node]:
                if edge.target == start:
                    nodes, ranks = [node], [edge.via]
                    while nodes[-1] != start:
                        previous, rank = back[nodes[-1]]
                        nodes.append(previous)
                        ranks.append(rank)
                    nodes.reverse()
                    ranks.reverse()
                    return nodes, tuple(dict.fromkeys(ranks))
                if edge.target in inside and edge.target not in back:
                    back[edge.target] = (node, edge.via)
                    queue.append(edge.target)
        return [start], ()

    def _order_text(self, rank: int, path: list[WaitNode]) -> str:
        own = [(e.position, i) for n in path if (i := self.graph.instance(n)) and (e := i.entries.get(rank))]
        names = [f"{i.name} of {self.facts.label(i.group)}" for _, i in sorted(own, key=lambda item: item[0])]
        return "entered " + ", then ".join(names) if names else ""

    def _minority(self, component: tuple[WaitNode, ...]) -> tuple[int, ...]:
        """Ranks that entered two steps of the cycle in another order than most ranks of their stage."""
        found = [i for node in component if (i := self.graph.instance(node)) is not None and not i.is_pair]
        odd: set[int] = set()
        involved = {r for i in found for r in self.facts.groups[i.group].ranks}
        for a, b in combinations(sorted(found, key=lambda i: i.key), 2):
            odd.update(self._odd(a, b) & involved)
        return tuple(sorted(odd))

    def _odd(self, a: Instance, b: Instance) -> set[int]:
        """Ranks whose order of the steps `a` and `b` is in the strict minority."""
        votes = self.cohorts.orders(a, b)
        counts = Counter(votes.values())
        if len(counts) < 2 or counts[True] == counts[False]:
            return set()
        minority = counts[True] < counts[False]
        return {rank for rank, first in votes.items() if first is minority}


def _title(culprits: tuple[int, ...], loop: str) -> str:
    if not culprits:
        return f"deadlock: ranks wait for each other in a circle, {loop}"
    their = "its" if len(culprits) == 1 else "their"
    return f"{ranks_text(culprits)} entered {their} operations in another order: deadlock, {loop}"
