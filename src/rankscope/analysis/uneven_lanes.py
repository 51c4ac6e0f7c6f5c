"""Roots of lanes with uneven sides: ranks that left out a send or receive of which a hook shows nothing else."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from rankscope.analysis.facts import Facts
from rankscope.analysis.graph import Root, WaitNode
from rankscope.analysis.instances import Instance, InstanceMember
from rankscope.analysis.lane_counts import RECORDING_START, SEQ_BITS, LaneCounts, LaneShortfall, LaneSide, P2pLane
from rankscope.text.wording import plural, ranks_text

FEWEST_SECTIONS = 2
"""Fewest earlier sections of a lane with traffic that show the right count."""
_COUNT_NOTE = "The ends of batches of sends and receives are not recorded, so only their counts are compared."


@dataclass(frozen=True)
class LaneDeviation:
    """An uneven lane and its accused ranks: all of its ranks if nothing tells them apart."""

    shortfall: LaneShortfall
    ranks: tuple[int, ...]
    replicas: int
    """Number of lanes at the same place of other pipelines that agree."""
    instance: Instance
    """The operation that waits for its other side."""


class UnmatchedLanes(NamedTuple):
    """Sends and receives without their other side, and the roots that they show."""

    roots: list[Root]
    instances: list[Instance]


def find_uneven_lanes(facts: Facts, *, still: bool) -> UnmatchedLanes:
    """One root for each rank, or pair of ranks, that explains uneven lanes.

    In a job that stands `still` receivers also wait for senders that have not come yet, which accuses nobody.
    """
    if not facts.hook_groups:
        return UnmatchedLanes([], [])
    judge = UnevenLanes(facts)
    ends = judge.waits() if still else []
    return UnmatchedLanes(judge.roots(), [*ends, *(deviation.instance for deviation in judge.deviations)])


@dataclass(frozen=True)
class UnevenLanes:
    """Judges the lanes of one job."""

    facts: Facts

    @cached_property
    def counts(self) -> LaneCounts:
        """The counted lanes."""
        return LaneCounts(self.facts)

    @cached_property
    def deviations(self) -> list[LaneDeviation]:
        """The uneven lanes."""
        return [self._judged(shortfall) for shortfall in self.counts.shortfalls()]

    def roots(self) -> list[Root]:
        """The roots, those that accuse one rank first."""
        by_rank: dict[tuple[int, ...], list[LaneDeviation]] = {}
        for deviation in sorted(self.deviations, key=lambda d: len(d.ranks)):
            ranks = next(
                (known for known in by_rank if len(known) == 1 and known[0] in deviation.ranks), deviation.ranks
            )
            by_rank.setdefault(ranks, []).append(deviation)
        return [self._root(ranks, found) for ranks, found in _united(by_rank).items()]

    def _judged(self, shortfall: LaneShortfall) -> LaneDeviation:
        """The accused ranks by the replicas of the lane, else by the earlier counts of its sides."""
        votes = Counter(self._replica_counts(shortfall))
        ranked = votes.most_common(1)
        if ranked and 2 * ranked[0][1] > votes.total():
            (sent, received), count = ranked[0]
            odd = [
                s.rank
                for s, n, usual in zip(shortfall.lane.senders, shortfall.at.sent, sent, strict=True)
                if n != usual
            ]
            odd += [shortfall.lane.dst] if shortfall.at.received != received else []
            if len(odd) == 1:
                return LaneDeviation(shortfall, tuple(odd), count, self._instance(shortfall, odd))
        ranks = shortfall.deviating()
        return LaneDeviation(shortfall, ranks, 0, self._instance(shortfall, ranks))

    def waits(self) -> list[Instance]:
        """Receives at the end of a lane that their sender has not reached."""
        ends = self.counts.open_ends()
        return [self._waiting(end.lane, end.lane.receiver, end.sender, end.number) for end in ends]

    def _instance(self, shortfall: LaneShortfall, accused: Sequence[int]) -> Instance:
        lane, side = shortfall.lane, shortfall.waiting
        src = side.rank if side.is_send else next((r for r in accused if r != lane.dst), lane.senders[0].rank)
        return self._waiting(lane, side, src, self.counts.place(shortfall))

    def _waiting(self, lane: P2pLane, side: LaneSide, src: int, number: int) -> Instance:
        """The operation of one side as one that waits for the other."""
        row = int(side.rows[number])
        counted = len(lane.senders) == 1 and self.facts.presence.whole(side.rank)
        op, created = "send" if side.is_send else "recv", self.facts.dataset.ops["created_ns"][row]
        entry = InstanceMember(row, row, op, "unknown", True, None, None, created)
        return Instance((lane.group, src, lane.dst, number), {side.rank: entry}, counted)

    def _replica_counts(self, shortfall: LaneShortfall) -> list[tuple[tuple[int, ...], int]]:
        """Counts of lanes at the same place of other groups in the same section, if both sides fit there."""
        place = len(shortfall.before)
        counted = [self.counts.stretches(lane) for lane in self.counts.replicas(shortfall.lane)]
        same = [stretches[place] for stretches in counted if len(stretches) > place]
        return [(s.sent, s.received) for s in same if sum(s.sent) == s.received]

    def _root(self, ranks: tuple[int, ...], deviations: Sequence[LaneDeviation]) -> Root:
        first = min(deviations, key=lambda d: (d.shortfall.waiting.rows[-1], d.shortfall.lane.dst))
        label = self.facts.label(first.shortfall.lane.group)
        did = _did(ranks, first.shortfall)
        return Root(
            kind="p2p-unmatched",
            culprits=ranks,
            nodes=tuple(WaitNode("op", -1, d.instance.key) for d in deviations),
            focus=first.instance,
            title=f"{ranks_text(ranks)} {did} in {label}",
            explanation=self._explain(first.shortfall),
            candidates=() if len(ranks) == 1 else ranks,
            notes=dict.fromkeys(ranks, did) if len(ranks) == 1 else {},
            needs_stillness=not first.shortfall.before,
            next_steps=(f"Compare the stacks of {ranks_text(first.shortfall.ranks)} with the schedule.",),
            **_sureness(ranks, deviations),
        )

    def _explain(self, shortfall: LaneShortfall) -> str:
        at, lane = shortfall.at, shortfall.lane
        sent = f"{ranks_text([s.rank for s in lane.senders])} sent {_times(sum(at.sent))} to rank {lane.dst}"
        before = sum(1 for stretch in shortfall.before if stretch.received)
        alike = f"; the {plural(before, 'time')} before, both sides agreed" if before else ""
        received = f"which received {_times(at.received)}"
        return f"After {self._anchor(at.anchor)}, {sent}, {received}{alike}. {_COUNT_NOTE}"

    def _anchor(self, anchor: int) -> str:
        if anchor == RECORDING_START:
            return "the beginning"
        group, seq = anchor >> SEQ_BITS, anchor & ((1 << SEQ_BITS) - 1)
        return f"#{seq} of {self.facts.label(group)}"


def _united(by_rank: dict[tuple[int, ...], list[LaneDeviation]]) -> dict[tuple[int, ...], list[LaneDeviation]]:
    """Undecided pairs with exactly one common rank, assigned to that rank."""
    pairs = {ranks: found for ranks, found in by_rank.items() if len(ranks) > 1}
    common = set.intersection(*map(set, pairs)) if len(pairs) > 1 else set()
    if len(common) != 1:
        return by_rank
    single: dict[tuple[int, ...], list[LaneDeviation]] = {r: found for r, found in by_rank.items() if len(r) == 1}
    return {**single, tuple(common): [deviation for found in pairs.values() for deviation in found]}


def _sureness(ranks: tuple[int, ...], deviations: Sequence[LaneDeviation]) -> dict[str, Any]:
    if len(ranks) > 1:
        return {"confidence": "low", "reasons": ("the counts do not show which side is right",)}
    known = max(sum(1 for s in d.shortfall.before if s.received) for d in deviations)
    if known >= FEWEST_SECTIONS or max(d.replicas for d in deviations) >= FEWEST_SECTIONS:
        return {"confidence": "high"}
    return {"confidence": "medium", "reasons": ("there are few earlier operations to compare with",)}


def _did(ranks: tuple[int, ...], shortfall: LaneShortfall) -> str:
    lane, missing = shortfall.lane, shortfall.at.missing
    alone = len(lane.senders) == 1
    if len(ranks) > 1:
        return f"do not agree on their sends and receives to rank {lane.dst}"
    count, is_sender = abs(missing), ranks[0] != lane.dst
    source = f"from rank {lane.senders[0].rank}" if alone else "from any source"
    what = plural(count, "send" if is_sender else "receive") if count > 1 else "a send" if is_sender else "a receive"
    where = f"to rank {lane.dst}" if is_sender else source
    return f"left out {what} {where}" if is_sender == (missing > 0) else f"issued {what} {where} too many"


def _times(count: int) -> str:
    return {0: "nothing", 1: "once"}.get(count, f"{count} times")
