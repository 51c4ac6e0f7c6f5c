"""Roots of lanes with uneven sides: ranks that left out a send or receive of which a hook shows nothing else.

A hook calls a batch of sends and receives finished when it is issued, so nothing is pending if one is left out. But
each of them is recorded, and a program posts both sides of a transfer between the same two collectives. If the sides
agreed from collective to collective, then differ, and have gone on to the next collective, one of them left an
operation out. A receive from any source names no sender, so all senders to that rank are counted together."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from rankscope.analysis.arrays import Ints
from rankscope.analysis.facts import Facts
from rankscope.analysis.graph import Root, WaitNode
from rankscope.analysis.instances import Instance, InstanceMember
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


# Sends and receives of a lane, counted on both sides between collectives that all of its ranks issued.


SEQ_BITS = 40
"""The key of a collective is its group times 2 to this power, plus its sequence number."""
RECORDING_START = -1
"""Key of the beginning of a recording from which nothing was overwritten."""
MOST_QUEUED = 8
"""Most collectives of all ranks of a lane that a host issues before it waits for the device."""


class SideSection(NamedTuple):
    """The operations of one side after one collective."""

    number: int
    end: int | None
    """The next collective of all ranks of the lane; None if the side has not come to one."""


class LaneSection(NamedTuple):
    """The operations of a lane after one collective."""

    anchor: int
    """The key of the collective (see `SEQ_BITS`), or RECORDING_START."""
    sent: tuple[int, ...]
    """The number of sends of each sender."""
    received: int
    sent_until: tuple[int | None, ...]
    """The next collective that each sender reached; None if it is still before that."""
    received_until: int | None

    @property
    def missing(self) -> int:
        """The number of left-out sends (positive) or receives (negative).

        0 if both sides fit, if more may come, or if the ranks went on to different collectives, because then the number
        of operations in between tells nothing.
        """
        lack = self.received - sum(self.sent)
        due = self.sent_until if lack > 0 else (self.received_until,)
        ends = {*self.sent_until, self.received_until} - {None}
        return lack if None not in due and len(ends) == 1 else 0


@dataclass(frozen=True)
class LaneShortfall:
    """A lane whose sides differ for the first time after a collective."""

    lane: P2pLane
    at: LaneSection
    before: tuple[LaneSection, ...]
    """The sections before it, in which both sides fit."""

    @property
    def waiting(self) -> LaneSide:
        """The side that has one operation too many, and waits."""
        if self.at.missing > 0:
            return self.lane.receiver
        usual = [{stretch.sent[i] for stretch in self.before} for i in range(len(self.lane.senders))]
        odd = [
            side for side, own, known in zip(self.lane.senders, self.at.sent, usual, strict=True) if own not in known
        ]
        return (odd or self.lane.senders)[0]

    def deviating(self) -> tuple[int, ...]:
        """The ranks of the side whose numbers differ from all earlier ones; all ranks of the lane if that tells
        nothing."""
        usual = [stretch for stretch in self.before if stretch.received]
        if not usual:
            return self.ranks
        odd = [
            side.rank for i, side in enumerate(self.lane.senders) if self.at.sent[i] not in {s.sent[i] for s in usual}
        ]
        if self.at.received not in {stretch.received for stretch in usual}:
            odd.append(self.lane.dst)
        return tuple(sorted(odd)) if len(odd) == 1 else self.ranks

    @property
    def ranks(self) -> tuple[int, ...]:
        """All ranks of the lane."""
        return tuple(sorted({*(side.rank for side in self.lane.senders), self.lane.dst}))


class OpenLaneEnd(NamedTuple):
    """Receives at the end of a lane that the sender has not reached."""

    lane: P2pLane
    sender: int
    number: int
    """The index of the first of them among the operations of the receiver."""


@dataclass(frozen=True)
class LaneCounts:
    """Counts the lanes of one job."""

    facts: Facts

    def shortfalls(self) -> list[LaneShortfall]:
        """Every lane whose sides stopped fitting and that is not seen to have gone on."""
        return [found for lane in self._lanes if self._uneven(lane) and (found := self._shortfall(lane)) is not None]

    def open_ends(self) -> list[OpenLaneEnd]:
        """Lanes at whose end the receiver waits for one sender, if the job stands still."""
        return [found for lane in self._lanes if self._uneven(lane) and (found := self._open_end(lane)) is not None]

    def _open_end(self, lane: P2pLane) -> OpenLaneEnd | None:
        received, *sent = self._all_counts(lane)
        anchor = next((key for key in reversed(received) if all(key in own for own in sent)), None)
        if anchor is None:
            return None
        lack = self._tail_lack(lane, anchor)
        due = self._due(lane, anchor) if len(sent) > 1 else [lane.senders[0].rank]
        return OpenLaneEnd(lane, due[0], len(lane.receiver.rows) - lack) if lack > 0 and len(due) == 1 else None

    def _due(self, lane: P2pLane, anchor: int) -> list[int]:
        """The senders that sent less after a collective than in the last section with traffic before it."""
        before = [s for s in self.stretches(lane) if s.received and s.anchor != anchor]
        usual = before[-1].sent if before else [1] * len(lane.senders)
        counts = self._all_counts(lane)[1:]
        return [s.rank for s, own, n in zip(lane.senders, counts, usual, strict=True) if own[anchor].number < n]

    def _tail_lack(self, lane: P2pLane, anchor: int) -> int:
        """The surplus of the receiver over all senders from a collective to the end."""
        tails = [
            sum(part.number for part in list(own.values())[list(own).index(anchor) :]) for own in self._all_counts(lane)
        ]
        return tails[0] - sum(tails[1:])

    def _all_counts(self, lane: P2pLane) -> list[dict[int, SideSection]]:
        """The counts of the receiver, and of each sender, by collective."""
        if id(lane) not in self._counted:
            places = self._places_of(lane)
            self._counted[id(lane)] = [self._counts(side, places) for side in (lane.receiver, *lane.senders)]
        return self._counted[id(lane)]

    @cached_property
    def _counted(self) -> dict[int, list[dict[int, SideSection]]]:
        """Counts by identity of the lane; all lanes are kept."""
        return {}

    def _places_of(self, lane: P2pLane) -> Ints:
        """Groups of all ranks of a lane at whose collectives both sides have always had equal counts.

        A group does not qualify if a collective of it comes after a send on one rank and before its receive on the
        other.
        """
        # groups that all of these ranks are members of
        ranks = {lane.dst, *(side.rank for side in lane.senders)}
        sets = sorted((self._groups_of[rank] for rank in ranks), key=len)
        common = np.array(sorted(sets[0].intersection(*sets[1:])), np.int64)
        return np.array([group for group in common.tolist() if self._in_step(lane, group)], np.int64)

    def _in_step(self, lane: P2pLane, group: int) -> bool:
        sides = (lane.receiver, *lane.senders)
        passed = [self._passed(side, group) for side in sides]
        both = sorted(set(passed[0]).intersection(*passed[1:]))
        ahead = np.array([passed[0][key] - sum(own[key] for own in passed[1:]) for key in both], np.int64)
        early = ahead[: max(1, len(ahead) // 2)] if len(ahead) > 1 else ahead[:0]
        whole = all(self.facts.presence.whole(side.rank) for side in sides)
        return bool((early == (0 if whole else early[0])).all()) if len(early) else True

    def _passed(self, side: LaneSide, group: int) -> dict[int, int]:
        """The number of operations of a side before each collective of a group."""
        rows, keys = self._anchors(side.rank, np.array([group]))
        return dict(zip(keys.tolist(), np.searchsorted(side.rows, rows).tolist(), strict=True))

    def replicas(self, lane: P2pLane) -> list[P2pLane]:
        """The lanes at the same place in other groups of the same description."""
        places = self._places(lane)
        return [other for other in self._lanes if other.group != lane.group and self._places(other) == places]

    def _places(self, lane: P2pLane) -> tuple[str, tuple[int, ...]]:
        group = self.facts.groups[lane.group]
        return group.description, (
            len(group.ranks),
            *(group.ranks.index(r) for r in (lane.dst, *(s.rank for s in lane.senders))),
        )

    def _shortfall(self, lane: P2pLane) -> LaneShortfall | None:
        stretches = self.stretches(lane)
        first = next((i for i, stretch in enumerate(stretches) if stretch.missing), None)
        if first is None or len(stretches) - first > 1 + MOST_QUEUED:
            return None
        if self._tail_lack(lane, stretches[first].anchor) == 0:
            return None  # the two sides were posted before and after a collective, which is then no common place
        if any(stretch.missing for stretch in stretches[first + 1 :]):
            return None
        found = LaneShortfall(lane, stretches[first], tuple(stretches[:first]))
        return None if self._went_on(found) else found

    def place(self, found: LaneShortfall) -> int:
        """The index, from 0, of the operation of the waiting side that has no other side.

        The k-th send meets the k-th receive: later operations take the place of a missing one, and the last ones wait.
        """
        return max(0, len(found.waiting.rows) - abs(self._tail_lack(found.lane, found.at.anchor)))

    def stretches(self, lane: P2pLane) -> list[LaneSection]:
        """The sections of a lane, one from each collective that all its ranks issued, in the receiver's order."""
        received, *sent = self._all_counts(lane)
        return [
            LaneSection(
                anchor,
                tuple(own[anchor].number for own in sent),
                part.number,
                tuple(own[anchor].end for own in sent),
                part.end,
            )
            for anchor, part in received.items()
            if all(anchor in own for own in sent)
        ]

    def _counts(self, side: LaneSide, common: Ints) -> dict[int, SideSection]:
        """For each collective in one of the `common` groups: the operations of one side that follow it."""
        rows, keys = self._anchors(side.rank, common)
        counts = np.bincount(np.searchsorted(rows, side.rows), minlength=len(rows) + 1).tolist()
        names = [RECORDING_START, *keys.tolist()]
        told = {key: SideSection(*part) for key, *part in zip(names, counts, [*names[1:], None], strict=True)}
        if not self.facts.presence.whole(side.rank):
            del told[RECORDING_START]
        return told

    def _went_on(self, found: LaneShortfall) -> bool:
        """Whether the side with one operation too many finished a collective that it issued after the next one."""
        side = found.waiting
        anchors, _ = self._anchors(side.rank, self._places_of(found.lane))
        following = anchors[anchors > side.rows[self.place(found)]]
        if not len(following):
            return False
        rows, groups, _ = self._collectives[side.rank]
        # gloo runs beside the device and waits for nothing there
        later = rows[(rows > following[0]) & ~np.isin(groups, list(self.facts.gloo_groups))]
        return bool(self._done[later].any())

    def _anchors(self, rank: int, common: Ints) -> tuple[Ints, Ints]:
        """Rows and keys of the collectives that a rank issued in the `common` groups."""
        rows, groups, keys = self._collectives.get(rank, (_NO_ROWS, _NO_ROWS, _NO_ROWS))
        # for two or three groups several times faster than isin()
        chosen = np.zeros(len(groups), np.bool_)
        for group in common.tolist():
            chosen |= groups == group
        return rows[chosen], keys[chosen]

    @cached_property
    def _groups_of(self) -> dict[int, set[int]]:
        out: defaultdict[int, set[int]] = defaultdict(set)
        for group in self.facts.groups:
            for rank in group.ranks:
                out[rank].add(group.id)
        return out

    @cached_property
    def _done(self) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        return (self.facts.dataset.ops["state"] == "completed").to_numpy()

    @cached_property
    def _collectives(self) -> dict[int, tuple[Ints, Ints, Ints]]:
        """By rank: rows, groups and keys of its collectives."""
        known = ~pl.col("is_p2p") & pl.col("seq").is_not_null() & pl.col("group").is_not_null()
        ops = self.facts.dataset.ops
        rows = ops.select("rank", "group", "seq", "is_p2p").with_row_index("row").filter(known)
        if self.facts.dataset.parts.has_gaps:
            # sends and receives before the last gap are not all there
            after_gap = (pl.col("record_id").diff() == 1).fill_null(value=False).reverse().cum_min().reverse()
            rows = rows.filter(ops.select(after_gap.over("rank")).to_series().gather(rows["row"]))
        table = rows.select("rank", *(pl.col(name).cast(pl.Int64) for name in ("row", "group", "seq")))
        starts = np.flatnonzero(np.diff(table["rank"].to_numpy(), prepend=-1))
        row, group, seq = (table[name].to_numpy() for name in ("row", "group", "seq"))
        parts = [np.split(column, starts[1:]) for column in (row, group, (group << SEQ_BITS) + seq)]
        return dict(zip(table["rank"].gather(starts).to_list(), zip(*parts, strict=True), strict=True))

    @cached_property
    def _lanes(self) -> list[P2pLane]:
        """All lanes, by group and receiver."""
        return lanes_of(self.facts.dataset.ops)

    def _uneven(self, lane: P2pLane) -> bool:
        """Whether the counts of both sides differ, or cannot be counted from the beginning."""
        ranks = {lane.dst, *(side.rank for side in lane.senders)}
        if not ranks <= self.facts.presence.seen:
            return False
        whole = all(self.facts.presence.whole(rank) for rank in ranks)
        return not whole or sum(len(side.rows) for side in lane.senders) != len(lane.receiver.rows)


_NO_ROWS = np.empty(0, np.int64)


# Lanes: the transfers to one rank in a group from one other rank, or from any other.


class LaneSide(NamedTuple):
    """The operations of one rank in a lane."""

    rank: int
    is_send: bool
    rows: Ints
    """Rows of ops, in order."""


class P2pLane(NamedTuple):
    """All transfers to one rank in a group from one other rank, or from any other if it receives from any source."""

    group: int
    dst: int
    senders: tuple[LaneSide, ...]
    receiver: LaneSide


def lanes_of(ops: pl.DataFrame) -> list[P2pLane]:
    """All lanes of the sends and receives in `ops`, by group and receiver."""
    return [lane for (group, dst), sides in _sides(ops).items() for lane in _lanes_into(group, dst, sides)]


def _sides(ops: pl.DataFrame) -> dict[tuple[int, int], list[tuple[int | None, LaneSide]]]:
    """By group and receiver: the sender (None: any) and the operations of one side."""
    places = ops["is_p2p"].fill_null(value=False).arg_true()
    rows = (
        ops[places]
        .select("rank", "group", "peer", pl.col("op").cast(pl.String))
        .with_columns(row=places.cast(pl.Int64), is_send=pl.col("op") == "send")
        .filter(pl.col("op").is_in(["send", "recv"]))
        .filter(~pl.col("is_send") | pl.col("peer").is_not_null())
        .with_columns(
            src=pl.when("is_send").then("rank").otherwise("peer"),
            dst=pl.when("is_send").then("peer").otherwise("rank"),
        )
    )
    out: dict[tuple[int, int], list[tuple[int | None, LaneSide]]] = {}
    lanes = rows.group_by("group", "src", "dst", "is_send", maintain_order=True).agg("row")
    for group, src, dst, is_send, own in lanes.iter_rows():
        side = LaneSide(src if is_send else dst, is_send, np.array(own, np.int64))
        out.setdefault((group, dst), []).append((src, side))
    return out


def _lanes_into(group: int, dst: int, sides: list[tuple[int | None, LaneSide]]) -> list[P2pLane]:
    """The lanes to one rank: one for each sender, or a single one if it receives from any source."""
    senders = {src: side for src, side in sides if src is not None and side.is_send}
    posted = {src: side for src, side in sides if not side.is_send}
    if None in posted:
        rows = np.sort(np.concatenate([side.rows for side in posted.values()]))
        return [P2pLane(group, dst, tuple(senders.values()), LaneSide(dst, False, rows))] if senders else []
    return [
        P2pLane(
            group,
            dst,
            (senders.get(src, LaneSide(src, True, _NO_ROWS)),),
            posted.get(src, LaneSide(dst, False, _NO_ROWS)),
        )
        for src in sorted({*senders, *(src for src in posted if src is not None)})
    ]
