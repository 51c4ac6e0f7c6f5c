"""A send or receive that one side never posts, inside an apparent deadlock.

The rank that left its side out goes on to its next operation and waits there for the rank that still waits for it: a
cycle, like two groups entered in opposite order. The replicas decide: if the same stage of other pipelines posted that
send or receive, it belongs to the program, and the rank without it is the culprit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import polars as pl

from rankscope.analysis.counters import P2pCount, ReplicaCounters
from rankscope.analysis.facts import Facts
from rankscope.analysis.graph import Root, WaitGraph, WaitNode
from rankscope.analysis.instances import Instance
from rankscope.analysis.replicas import ReplicaCohorts
from rankscope.analysis.ring_exchange import OddMember, find_odd
from rankscope.schema import Group
from rankscope.text.wording import plural, ranks_text, wait_text


@dataclass(frozen=True)
class LostPairs:
    """Finds the side that was left out."""

    facts: Facts
    graph: WaitGraph
    cohorts: ReplicaCohorts

    def by_replicas(self, component: tuple[WaitNode, ...]) -> Root | None:
        """The root of a cycle that a lost send or receive made; None if the replicas do not show it."""
        for instance in self._unmatched(component):
            if not instance.counted and instance.group in self.facts.hook_groups:
                continue
            with_it, without = self._votes(instance)
            if with_it > without:
                return self._root(instance, component, with_it)
        return None

    def by_counters(self, nodes: tuple[WaitNode, ...]) -> Root | None:
        """The only rank of the pipeline that issued fewer or more operations than its stage.

        For sends that cannot be counted, or if later sends took the place of the missing one: then both sides of all
        are there, and wait for each other in a cycle.
        """
        found = [i for node in nodes if (i := self.graph.instance(node)) is not None]
        shifted = len(found) > 1 and all(i.is_pair and len(i.entries) == 2 for i in found)
        pairs = [i for i in found if i.is_pair and (shifted or not i.counted)]
        for instance in sorted(pairs, key=lambda i: (i.since_ns or 0, i.key)):
            counts = self.counters.compare(self.facts.groups[instance.group].ranks)
            odd = {rank: count for rank, count in counts.items() if count.own != count.usual}
            if len(odd) == 1:
                return self._odd(*next(iter(odd.items())), instance, nodes)
        return None

    @cached_property
    def counters(self) -> ReplicaCounters:
        """Issued operations of ranks, compared with their replicas."""
        return ReplicaCounters(self.facts, self.cohorts)

    def _odd(self, rank: int, count: P2pCount, instance: Instance, nodes: tuple[WaitNode, ...]) -> Root:
        did = _deviation(count.own - count.usual)
        return self._left_out(
            rank, instance, nodes, count.votes,
            title=f"rank {rank} {did} in {count.group}",
            explanation=(
                f"When it came to {count.place}, rank {rank} had issued {count.own} {count.what} in {count.group}; "
                f"the same stage of other pipelines had issued {count.usual}. Later operations pair up wrongly, and "
                "wait."
            ),
            note=f"had issued {count.own} {count.what} in {count.group}, and its replicas {count.usual}",
        )  # fmt: skip

    def _left_out(
        self, rank: int, instance: Instance, nodes: tuple[WaitNode, ...], votes: int, *, title: str, explanation: str,
        note: str, others: str = "its replicas",
    ) -> Root:  # fmt: skip
        """The root of a rank that its replicas, or `votes` of the `others`, prove to have left the schedule."""
        root = Root(
            kind="p2p-unmatched",
            culprits=(rank,),
            nodes=nodes,
            focus=instance,
            title=title,
            explanation=explanation,
            notes={rank: note},
            next_steps=(f"Compare the stacks of rank {rank} with {others} at this point of the schedule.",),
        )
        return root if votes > 1 else root.weaken("medium", "only two replicas to compare")

    def out_of_step(self) -> list[Root]:
        """The only rank that fell out of step in a group whose members had sent and received equally."""
        roots = []
        for group in self.facts.groups:
            odd = find_odd(self.facts, group) if group.id in self._pending else None
            nodes = self._because_of(odd, group.id) if odd else ()
            if odd and nodes:
                roots.append(self._out_of_step(odd, self.graph.instances[nodes[0].key], nodes))  # type: ignore[index]
        return roots

    @cached_property
    def _pending(self) -> frozenset[int]:
        """Groups with a waiting send or receive."""
        return frozenset(i.group for i in self.graph.instances.values() if i.is_pair)

    def _because_of(self, odd: OddMember, group: int) -> tuple[WaitNode, ...]:
        """Sends and receives whose side the rank left out, or which it has in excess.

        If it has issued an equal operation since, that took the place of the missing one: the first of these waits. A
        rank that did not come to the next collective must wait in one of these, else it may be the one that does less.
        """
        own = [
            (key, instance) for key, instance in self.graph.instances.items()
            if len(key) == 4 and key[0] == group and odd.rank in key[1:3]
        ]  # fmt: skip
        surplus = odd.own > odd.usual
        alone = [key for key, i in own if len(i.entries) == 1 and (odd.rank in i.entries) == surplus]
        both = [] if surplus else [(i.since_ns or 0, key) for key, i in own if len(i.entries) == 2]
        found = sorted(alone) or [key for _, key in sorted(both)[:1]]
        held_up = {rank for key in found for rank in self.graph.instances[key].waiting() if rank != odd.rank}
        return tuple(WaitNode("op", -1, key) for key in found) if held_up.issuperset(odd.absent) else ()

    def _out_of_step(self, odd: OddMember, instance: Instance, component: tuple[WaitNode, ...]) -> Root:
        rank, label = odd.rank, self.facts.label(instance.group)
        did = _deviation(odd.own - odd.usual)
        return self._left_out(
            rank, instance, component, len(self.facts.groups[instance.group].ranks) - 1,
            title=f"rank {rank} {did} in {label}",
            explanation=(
                f"When it came to {odd.place}, rank {rank} had issued {plural(odd.own, 'operation')} in {label}, "
                f"each other member {odd.usual}; at {plural(odd.before, 'collective')} before, all had issued the "
                f"same number. {_stuck(instance)} there, and later operations wait as well."
            ),
            note=f"had issued {odd.own} operations in {label} when it came to {odd.place}, the others {odd.usual}",
            others="the other members",
        )  # fmt: skip

    def by_neighbours(self, component: tuple[WaitNode, ...]) -> Root | None:
        """Without replicas: the only rank that explains all unmatched operations in a cycle."""
        return find_common(self.facts, self._unmatched(component), component)

    def by_exclusion(self, component: tuple[WaitNode, ...]) -> Root | None:
        """Without replicas: a cycle with a single unmatched send or receive is attributed to its two ranks."""
        unmatched = self._unmatched(component)
        if len(unmatched) == 1 and self._votes(unmatched[0]) == (0, 0):
            return self._either(unmatched[0], component)
        return None

    def _unmatched(self, component: tuple[WaitNode, ...]) -> list[Instance]:
        found = [i for node in component if (i := self.graph.instance(node)) is not None]
        return [i for i in found if i.is_pair and len(i.entries) == 1]

    def _either(self, instance: Instance, component: tuple[WaitNode, ...]) -> Root:
        _, src, dst, _ = instance.key  # type: ignore[misc]
        pair, label = tuple(sorted((src, dst))), self.facts.label(instance.group)
        waiting, absent = (src, dst) if src in instance.entries else (dst, src)
        batched = len(self.graph.heads(waiting)) > 1
        eager = not instance.counted and (absent == src or batched)
        return Root(
            kind="p2p-unmatched",
            culprits=() if eager else pair,
            nodes=component,
            focus=instance,
            title=f"rank {waiting} waits in {instance.name} of {label}, which rank {absent} never matched",
            explanation=(
                f"Rank {absent} went on without its side, and now waits for rank {waiting} through other ranks. "
                f"Either rank {absent} left it out, or rank {waiting} has one too many: no replica shows which."
            ),
            candidates=pair,
            notes={absent: f"never posted its side of {instance.name}; this is its last operation"},
            confidence="low",
            reasons=("no other pipeline to compare with", *(("the other side may have finished",) if eager else ())),
            next_steps=(f"Compare the stacks of ranks {src} and {dst} with the schedule.",),
        )

    def _votes(self, instance: Instance) -> tuple[int, int]:
        """(replicas that posted the side that is absent here, replicas that did not)."""
        group_id, src, dst, k = instance.key  # type: ignore[misc]
        group = self.facts.groups[group_id]
        absent_is_send = src not in instance.entries
        ends = (group.ranks.index(src), group.ranks.index(dst))
        votes = [
            self._posted(g.id, g.ranks[ends[0]], g.ranks[ends[1]], absent_is_send, k) for g in self._alike(group_id)
        ]
        return sum(votes), len(votes) - sum(votes)

    def _alike(self, group: int) -> list[Group]:
        found = self.facts.groups[group]
        return [
            other for other in self.facts.groups
            if other.id != group and other.description == found.description and len(other.ranks) == len(found.ranks)
            and all(self.facts.presence.whole(rank) for rank in other.ranks)
        ]  # fmt: skip

    def _posted(self, group: int, src: int, dst: int, is_send: bool, k: int) -> bool:
        pairs = self.facts.pairs
        found = pairs.filter(
            (pl.col("group") == group) & (pl.col("src") == src) & (pl.col("dst") == dst)
            & (pl.col("is_send") == is_send) & (pl.col("k") == k)
        )  # fmt: skip
        return found.height > 0

    def _stranger(self, component: tuple[WaitNode, ...], rank: int) -> Instance | None:
        """A collective in which the rank waits alone, of a kind that no group like it ever ran."""
        for node in component:
            instance = self.graph.instance(node)
            if instance is None or instance.is_pair or set(instance.entries) != {rank}:
                continue
            entry, label = instance.entries[rank], self.facts.label(instance.group)
            alike = pl.col("group").is_in([g.id for g in self.facts.groups if self.facts.label(g.id) == label])
            same = (pl.col("op") == entry.op) & pl.col("elements").eq_missing(entry.elements)
            if self.facts.calls.filter(alike & same & (pl.col("row") != entry.row)).is_empty():
                return instance
        return None

    def _extra(self, instance: Instance, component: tuple[WaitNode, ...], rank: int) -> Root:
        label = f"{instance.name} of {self.facts.label(instance.group)}"
        return Root(
            kind="extra-collective",
            culprits=(rank,),
            nodes=component,
            focus=instance,
            title=f"rank {rank} issued an extra {label}, which no other rank ever did",
            explanation=(
                f"Rank {rank} waits alone in {label}; no other group of this kind ever ran one. The rest of the job "
                f"waits for the operation that rank {rank} should have issued instead."
            ),
            notes={rank: "waits in it alone"},
            next_steps=(f"Look at the stack of rank {rank}: a collective on a branch that only it takes.",),
        )

    def _root(self, instance: Instance, component: tuple[WaitNode, ...], replicas: int) -> Root:
        _, src, dst, k = instance.key  # type: ignore[misc]
        culprit, other = (src, dst) if src not in instance.entries else (dst, src)
        stranger = self._stranger(component, culprit)
        if stranger is not None:
            return self._extra(stranger, component, culprit)
        what = f"send to rank {dst}" if culprit == src else f"receive from rank {src}"
        label = self.facts.label(instance.group)
        return self._left_out(
            culprit, instance, component, replicas,
            title=f"rank {culprit} left out its {what} in {label}",
            explanation=(
                f"Rank {other} waits in {instance.name} of {label}. The same stage of other pipelines "
                f"posted both sides; rank {culprit} left its side out, went on, and now waits for rank {other}."
            ),
            note=f"never posted {what} number {k + 1}",
        )  # fmt: skip


def _deviation(surplus: int) -> str:
    many = "a send or receive" if abs(surplus) == 1 else f"{abs(surplus)} sends or receives"
    return f"left out {many}" if surplus < 0 else f"issued {many} too many"


def _stuck(instance: Instance) -> str:
    return f"{wait_text(instance.waiting())} in {instance.name}"


# Sends and receives that one rank never matched, shown by all who wait for it, without replicas.


def find_common(facts: Facts, unmatched: Sequence[Instance], component: tuple[WaitNode, ...]) -> Root | None:
    """The rank that is an end of all unmatched operations, and always the one that posted, or never."""
    posted = {rank for i in unmatched for rank in i.entries}
    absent = {rank for i in unmatched for rank in i.key[1:3] if rank not in i.entries}
    one, many = (absent, posted) if len(absent) == 1 else (posted, absent)
    if len(one) != 1 or len(many) < 2 or not all(i.counted for i in unmatched):
        return None
    rank, others = min(one), ranks_text(sorted(many))
    focus = min(unmatched, key=lambda i: (i.since_ns or 0, i.key))
    label, names = facts.label(focus.group), " and ".join(sorted(i.name for i in unmatched))
    left_out = one == absent
    if left_out:
        did = f"left out its side of {names}"
        told = f"{others.capitalize()} posted {names}; rank {rank} did not post the other sides, and went on."
    else:
        did = f"alone issued {names}"
        told = f"Rank {rank} posted {names}; {others} did not post the other sides, and went on."
    return Root(
        kind="p2p-unmatched",
        culprits=(rank,),
        nodes=component,
        focus=focus,
        title=f"rank {rank} {did} in {label}",
        explanation=f"{told} Now they wait for each other. Rank {rank} is the only one that explains all of it.",
        notes={rank: "never posted its side; this is its last operation"} if left_out else {},
        confidence="medium",
        reasons=(f"no replica to compare with: {others} may be wrong in the same way",),
        next_steps=(f"Compare the stacks of rank {rank} and {others} with the schedule.",),
    )
