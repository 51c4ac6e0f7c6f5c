"""A send or receive that one side never posts, inside an apparent deadlock.

The rank that left its side out goes on to its next operation and waits there for the rank that still waits for it: a
cycle, like two groups entered in opposite order. The replicas decide: if the same stage of other pipelines posted that
send or receive, it belongs to the program, and the rank without it is the culprit.

The k-th operation between two ranks cannot be counted if a ring wrapped, or if a dump keeps only active entries. But
every entry carries `op_id`, which counts the operations of its group on its rank from the beginning
(ProcessGroupNCCL.cpp): ranks of one stage must have the same count when they come to the same collective, and so must
the members of a group that send and receive equally."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import polars as pl

from rankscope.analysis.facts import Facts
from rankscope.analysis.graph import Root, WaitGraph, WaitNode
from rankscope.analysis.instances import Instance
from rankscope.analysis.replicas import ReplicaCohorts
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
            rank,
            instance,
            nodes,
            count.votes,
            title=f"rank {rank} {did} in {count.group}",
            explanation=(
                f"When it came to {count.place}, rank {rank} had issued {count.own} {count.what} in {count.group}; "
                f"the same stage of other pipelines had issued {count.usual}. Later operations pair up wrongly, and "
                "wait."
            ),
            note=f"had issued {count.own} {count.what} in {count.group}, and its replicas {count.usual}",
        )

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
            (key, instance)
            for key, instance in self.graph.instances.items()
            if len(key) == 4 and key[0] == group and odd.rank in key[1:3]
        ]
        surplus = odd.own > odd.usual
        alone = [key for key, i in own if len(i.entries) == 1 and (odd.rank in i.entries) == surplus]
        both = [] if surplus else [(i.since_ns or 0, key) for key, i in own if len(i.entries) == 2]
        found = sorted(alone) or [key for _, key in sorted(both)[:1]]
        held_up = {rank for key in found for rank in self.graph.instances[key].waiting() if rank != odd.rank}
        return tuple(WaitNode("op", -1, key) for key in found) if held_up.issuperset(odd.absent) else ()

    def _out_of_step(self, odd: OddMember, instance: Instance, component: tuple[WaitNode, ...]) -> Root:
        rank, label = odd.rank, self.facts.label(instance.group)
        did = _deviation(odd.own - odd.usual)
        stuck = f"{wait_text(instance.waiting())} in {instance.name}"
        return self._left_out(
            rank,
            instance,
            component,
            len(self.facts.groups[instance.group].ranks) - 1,
            title=f"rank {rank} {did} in {label}",
            explanation=(
                f"When it came to {odd.place}, rank {rank} had issued {plural(odd.own, 'operation')} in {label}, "
                f"each other member {odd.usual}; at {plural(odd.before, 'collective')} before, all had issued the "
                f"same number. {stuck} there, and later operations wait as well."
            ),
            note=f"had issued {odd.own} operations in {label} when it came to {odd.place}, the others {odd.usual}",
            others="the other members",
        )

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
        alike = [
            other
            for other in self.facts.groups
            if other.id != group_id
            and other.description == group.description
            and len(other.ranks) == len(group.ranks)
            and all(self.facts.presence.whole(rank) for rank in other.ranks)
        ]
        votes = [self._posted(g.id, g.ranks[ends[0]], g.ranks[ends[1]], absent_is_send, k) for g in alike]
        return sum(votes), len(votes) - sum(votes)

    def _posted(self, group: int, src: int, dst: int, is_send: bool, k: int) -> bool:
        pairs = self.facts.pairs
        found = pairs.filter(
            (pl.col("group") == group)
            & (pl.col("src") == src)
            & (pl.col("dst") == dst)
            & (pl.col("is_send") == is_send)
            & (pl.col("k") == k)
        )
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
            culprit,
            instance,
            component,
            replicas,
            title=f"rank {culprit} left out its {what} in {label}",
            explanation=(
                f"Rank {other} waits in {instance.name} of {label}. The same stage of other pipelines "
                f"posted both sides; rank {culprit} left its side out, went on, and now waits for rank {other}."
            ),
            note=f"never posted {what} number {k + 1}",
        )


def _deviation(surplus: int) -> str:
    many = "a send or receive" if abs(surplus) == 1 else f"{abs(surplus)} sends or receives"
    return f"left out {many}" if surplus < 0 else f"issued {many} too many"


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


# Counts of sends and receives of a rank, compared with the same stage of other pipelines.


class P2pCount(NamedTuple):
    """Number of operations a rank had issued in a group with sends and receives when it came to a collective."""

    own: int
    usual: int
    """The number that most ranks of its stage had issued by then."""
    votes: int
    """How many ranks had issued `usual`."""
    group: str
    place: str
    """The last collective that can be compared."""
    what: str = "operations"
    """The unit that is counted: a batch is one operation, although its parts and its end are records, too."""


@dataclass(frozen=True)
class ReplicaCounters:
    """Compares the counters of ranks with those of their replicas."""

    facts: Facts
    cohorts: ReplicaCohorts

    def compare(self, ranks: Iterable[int]) -> dict[int, P2pCount]:
        """For each of `ranks` that can be compared: its count beside that of the majority of its stage."""
        return {rank: count for rank in ranks if (count := self._last(rank)) is not None}

    def _last(self, rank: int) -> P2pCount | None:
        """By `op_id`; by `pg_status` if the entries before the last collective are gone."""
        stage = self.cohorts.stage_of(rank)
        replicas = [
            r for r, other in self.cohorts.stages.items() if other == stage and r != rank and self.facts.alike(r, rank)
        ]
        count, last = self._seen(rank, replicas), self._standings
        if count is not None or rank not in last:
            return count
        return find_deviation(last[rank], (last[r] for r in replicas if r in last))

    def _seen(self, rank: int, replicas: list[int]) -> P2pCount | None:
        """Comparison by `op_id`, if the entries between the last send or receive and a collective are present."""
        own = self._table.filter(pl.col("rank") == rank)
        others = self._table.filter(pl.col("rank").is_in(replicas)).join(
            own, on=["counter", "label", "seq"], how="semi"
        )
        votes: dict[tuple[str, str, int], Counter[int]] = {}
        for *key, count in others.select("counter", "label", "seq", "count").iter_rows():
            votes.setdefault((key[0], key[1], key[2]), Counter())[count] += 1
        for counter, label, seq, op, count in (
            own.sort("row", descending=True).select("counter", "label", "seq", "op", "count").iter_rows()
        ):
            ranked = votes.get((counter, label, seq), Counter[int]()).most_common(1)
            if ranked and 2 * ranked[0][1] > votes[counter, label, seq].total():
                return P2pCount(count, *ranked[0], counter, f"{op} #{seq} of {label}")
        return None

    @cached_property
    def _standings(self) -> dict[int, RankCounts]:
        """The counts at the end of each dump."""
        return rank_counts(self.facts)

    @cached_property
    def _table(self) -> pl.DataFrame:
        """One row per collective and kind of group with sends: rank, row, label, seq, op, counter, count.

        Only if every record between the last send or receive and the collective is present.
        """
        labels = pl.DataFrame(
            {
                "group": [g.id for g in self.facts.groups],
                "label": [self.facts.label(g.id) for g in self.facts.groups],
                "paired": [g.has_p2p for g in self.facts.groups],
            },
            schema={"group": pl.UInt32, "label": pl.String, "paired": pl.Boolean},
        )
        rows = (
            self.facts.dataset.ops.select("rank", "record_id", "group", "seq", "op_id", pl.col("op").cast(pl.String))
            .with_row_index("row")
            .with_columns(run=pl.col("record_id") - pl.col("row").cast(pl.Int64))
            .join(labels, on="group", how="left", maintain_order="left")
        )
        counters = rows.filter("paired")["label"].unique().sort()
        return pl.concat([_EMPTY, *(_counted(rows, counter) for counter in counters)])


def _counted(rows: pl.DataFrame, counter: str) -> pl.DataFrame:
    count = pl.when(pl.col("paired") & (pl.col("label") == counter)).then("op_id").forward_fill().over("rank", "run")
    return (
        rows.with_columns(count=count, counter=pl.lit(counter))
        .filter(~pl.col("paired") & pl.col("count").is_not_null() & pl.col("seq").is_not_null())
        .select(_EMPTY.columns)
    )


_EMPTY = pl.DataFrame(
    schema={
        "rank": pl.Int32, "row": pl.UInt32, "label": pl.String, "seq": pl.Int64, "op": pl.String,
        "counter": pl.String, "count": pl.Int64,
    }
)  # fmt: skip


# Counts at the end of a dump that has lost most earlier records.


class RankCounts(NamedTuple):
    """Counts of the operations a rank has issued."""

    record_id: int
    """Record number of the last entry, a collective."""
    place: tuple[str, str, int]
    """The last collective: group, operation, sequence number."""
    collectives: tuple[tuple[str, int], ...]
    """Last issued sequence number of every group without sends and receives."""
    pairs: tuple[tuple[str, int], ...]
    """Counter of the last operation of every group with sends and receives."""

    def together(self, other: RankCounts) -> bool:
        """Whether both ranks have come to the same place."""
        return (self.place, self.collectives) == (other.place, other.collectives)


def rank_counts(facts: Facts) -> dict[int, RankCounts]:
    """Counts of each rank whose last entry is a waiting collective and whose dump has `pg_status`."""
    paired = {g.id for g in facts.groups if g.has_p2p}
    last = facts.dataset.ops.group_by("rank", maintain_order=True).last()
    last = last.filter(
        ~pl.col("group").is_in(paired) & ~pl.col("is_p2p") & (pl.col("state") != "completed")
    ).drop_nulls(["record_id", "seq"])
    # by rank: the issued operations of each group
    issued: dict[int, dict[int, int]] = {}
    for rank, group, enqueued in facts.dataset.frontiers.select("rank", "group", "status_enqueued").drop_nulls().rows():
        issued.setdefault(rank, {})[group] = enqueued
    counts = {}
    for rank, record, group, op, seq in last.select("rank", "record_id", "group", "op", "seq").iter_rows():
        if rank in issued:
            labelled = sorted((facts.label(group), number, group in paired) for group, number in issued[rank].items())
            collectives, pairs = (tuple((g, n) for g, n, p2p in labelled if p2p == wanted) for wanted in (False, True))
            counts[rank] = RankCounts(record, (facts.label(group), op, seq), collectives, pairs)
    return counts


def find_deviation(own: RankCounts, others: Iterable[RankCounts]) -> P2pCount | None:
    """The first count of a rank that differs from most `others` at the same place; its first one if none differs.

    None if the others disagree, or if the record numbers contradict the counts.
    """
    alike = [other for other in others if own.together(other)]
    ranked = Counter((other.pairs, other.record_id) for other in alike).most_common(1)
    if not own.pairs or not ranked or 2 * ranked[0][1] <= len(alike):
        return None
    (usual, record), votes = ranked[0]
    if [group for group, _ in usual] != [group for group, _ in own.pairs]:
        return None
    label, op, seq = own.place
    place = f"{op} #{seq} of {label}"
    pairs = zip(own.pairs, usual, strict=True)
    counts = [P2pCount(mine, theirs, votes, group, place) for (group, mine), (_, theirs) in pairs]
    differing = [count for count in counts if count.own != count.usual]
    more = own.record_id - record
    if not differing and more:
        collectives = sum(count for _, count in own.collectives) - 1  # records are numbered from 0
        groups = " and ".join(group for group, _ in own.pairs)
        return P2pCount(own.record_id - collectives, record - collectives, votes, groups, place, "records")
    borne_out = all(np.sign(more) == np.sign(count.own - count.usual) for count in differing)
    return (*differing, counts[0])[0] if borne_out else None


# Groups whose members send and receive equally: in a ring exchange every member does the same number of operations.
#
# If all members had the same count at each common collective, a member with another count at the next one has left an
# operation out, or done too much. This needs no replica, and holds after the ring of the recorder has wrapped.


FEWEST_MEMBERS = 3
"""Fewest members at a collective: of two nobody can tell the odd one."""
FEWEST_COUNTS = 3
"""Fewest different counts at which all members have agreed before a difference means anything."""


class OddMember(NamedTuple):
    """The only member of a group whose count differs from that of all others."""

    rank: int
    own: int
    usual: int
    """Operations that it, and each of the others, had issued in the group at `place`."""
    place: str
    """The first collective at which they differ."""
    before: int
    """Collectives before `place` at which all counts were equal."""
    absent: tuple[int, ...] = ()
    """Members that did not come to `place`."""


def find_odd(facts: Facts, group: Group) -> OddMember | None:
    """The member that fell out of step, if the others, at least two, agree and all had been in step before.

    A rank that waits for the left-out operation does not come to the next collective; then the members that do come are
    enough. They do not prove a surplus, because the absent one may not have done its operation yet.
    """
    if len(group.ranks) < FEWEST_MEMBERS or not all(facts.alike(rank, group.ranks[0]) for rank in group.ranks):
        return None
    marks = list(_marks(facts, group).iter_rows(named=True))
    before = next((i for i, mark in enumerate(marks) if len(set(mark["counts"])) > 1), len(marks))
    if len({mark["pairs"] for mark in marks[:before] if mark["whole"]}) < FEWEST_COUNTS:
        return None
    first = _alone(marks[before]["ranks"], marks[before]["counts"]) if before < len(marks) else None
    after = [_alone(mark["ranks"], mark["counts"]) for mark in marks[before:] if first and first[0] in mark["ranks"]]
    if first is None or {one and one[0] for one in after} != {first[0]}:
        return None
    absent = tuple(sorted(set(group.ranks) - set(marks[before]["ranks"])))
    rank, own, usual = first
    return None if absent and own > usual else OddMember(rank, own, usual, marks[before]["place"], before, absent)


def _alone(ranks: list[int], counts: list[int]) -> tuple[int, int, int] | None:
    """(rank, its count, that of all others) of the single rank that differs."""
    for rank, own in zip(ranks, counts, strict=True):
        others = {count for other, count in zip(ranks, counts, strict=True) if other != rank}
        if len(others) == 1 and own not in others:
            return rank, own, others.pop()
    return None


_MARKED = ("rank", "group", "is_p2p", "seq", "p2p_seq", "op_id", "record_id", "op", "coalesced")


def _marks(facts: Facts, group: Group) -> pl.DataFrame:
    """Collectives that every member issued, in order: place, pairs (of the first member), ranks, counts, whole.

    After the last complete one of a kind follow those that only some members of one group issued. Only if every record
    between the last operation of the group and the collective is present.
    """
    labels = pl.DataFrame(
        {"group": [g.id for g in facts.groups], "label": [facts.label(g.id) for g in facts.groups]},
        schema={"group": pl.UInt32, "label": pl.String},
    )
    own = pl.col("group") == group.id
    collective = ~pl.col("is_p2p") & pl.col("seq").is_not_null() & (pl.col("coalesced") != "inner")
    came = pl.col("ranks").list.len()
    whole_until = pl.col("seq").filter("whole").max().over("label")
    return (
        facts.dataset.ops.select(*_MARKED)
        .with_row_index("row")
        .filter(pl.col("rank").is_in(group.ranks))
        .with_columns(run=pl.col("record_id") - pl.int_range(pl.len()).over("rank"))
        .with_columns(
            count=pl.when(own).then("op_id").forward_fill().over("rank", "run"),
            pairs=pl.when(own).then("p2p_seq").forward_fill().over("rank", "run"),
        )
        .filter(collective & pl.col("count").is_not_null())
        .join(labels, on="group", how="left", maintain_order="left")
        .group_by("label", "seq", maintain_order=True)
        .agg(
            pl.col("row", "op", "pairs").first(),
            pl.col("rank").alias("ranks"),
            pl.col("count").alias("counts"),
            one=pl.col("group").n_unique() == 1,
        )
        .filter((pl.col("ranks").list.n_unique() == came) & (came >= FEWEST_MEMBERS))
        .with_columns(whole=came == len(group.ranks))
        .filter(pl.col("whole") | (pl.col("one") & (pl.col("seq") > whole_until)))
        .sort("row")
        .select(
            "pairs",
            "ranks",
            "counts",
            "whole",
            place=pl.format("{} #{} of {}", pl.col("op").cast(pl.String), "seq", "label"),
        )
    )
