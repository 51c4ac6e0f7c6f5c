"""Sends and receives between ranks, counted on both sides between collectives to which all of these ranks came.

A hook calls a batch of sends and receives finished when it is issued: nothing is pending where one is left out. But
each of them is recorded, and a program posts both sides of a transfer between the same two collectives. Where sides
that agreed from collective to collective differ, and have gone on to the next one, one of them left something out.
A receive from any source names no sender: there all senders to the rank are counted together.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import polars as pl

from rankscope.analysis.facts import Array, Facts

SHIFT = 40
"""A collective is its group times two to this power, plus its sequence number."""
START = -1
"""Stands for the beginning of a recording that nothing was overwritten of."""
AHEAD = 2
"""A host issues no more than so many collectives of all of these ranks before it waits for the device."""


class Side(NamedTuple):
    """The operations of one rank in a lane."""

    rank: int
    is_send: bool
    rows: Array
    """Rows of ops, in order."""


class Lane(NamedTuple):
    """All that is sent to one rank in a group by one other, or by any other where it receives from any source."""

    group: int
    dst: int
    senders: tuple[Side, ...]
    receiver: Side


class Stretch(NamedTuple):
    """The operations of a lane behind one collective."""

    anchor: int
    """The collective, as `SHIFT` says, or START."""
    sent: tuple[int, ...]
    """By each sender."""
    received: int
    sent_all: tuple[bool, ...]
    """Whether each sender went on to the next collective."""
    received_all: bool

    @property
    def missing(self) -> int:
        """How many sends are left out (more than 0) or receives (less); 0 where more may come, or all fits."""
        lack = self.received - sum(self.sent)
        certain = all(self.sent_all) if lack > 0 else self.received_all
        return lack if certain else 0


@dataclass(frozen=True)
class Shortfall:
    """A lane whose sides differ for the first time behind a collective."""

    lane: Lane
    at: Stretch
    before: tuple[Stretch, ...]
    """The stretches before it, in which both sides fit."""

    @property
    def waiting(self) -> Side:
        """The side that has one too many, and waits."""
        if self.at.missing > 0:
            return self.lane.receiver
        usual = [{stretch.sent[i] for stretch in self.before} for i in range(len(self.lane.senders))]
        odd = [side for side, own, known in zip(self.lane.senders, self.at.sent, usual, strict=True) if own not in known]
        return (odd or self.lane.senders)[0]

    def deviating(self) -> tuple[int, ...]:
        """The ranks on whose side other numbers stand than ever before; all of the lane where that tells nothing."""
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


class OpenEnd(NamedTuple):
    """Receives at the end of a lane that the sender has not come to."""

    lane: Lane
    sender: int
    number: int
    """Which of the operations of the receiver is the first of them, counted from 0."""


@dataclass(frozen=True)
class LaneCounts:
    """Counts the lanes of one job that hooks recorded."""

    facts: Facts

    def shortfalls(self) -> list[Shortfall]:
        """Every lane whose sides ceased to fit, and that nothing shows to have gone on."""
        return [found for lane in self._lanes if self._uneven(lane) and (found := self._shortfall(lane)) is not None]

    def open_ends(self) -> list[OpenEnd]:
        """Lanes at whose end the receiver waits for one sender, if the job stands still.

        A sender that went on to a collective that the receiver knows is no matter of stillness: see `shortfalls`.
        """
        return [found for lane in self._lanes if self._uneven(lane) and (found := self._open_end(lane)) is not None]

    def _open_end(self, lane: Lane) -> OpenEnd | None:
        common = self._common({lane.dst, *(side.rank for side in lane.senders)})
        received, *sent = [self._counts(side, common) for side in (lane.receiver, *lane.senders)]
        anchor = next((key for key in reversed(received) if all(key in own for own in sent)), None)
        if anchor is None:
            return None
        tails = [sum(n for n, _ in list(own.values())[list(own).index(anchor) :]) for own in (received, *sent)]
        lack, open_sides = tails[0] - sum(tails[1:]), [s for s, own in zip(lane.senders, sent, strict=True) if not own[anchor][1]]
        if lack <= 0 or len(open_sides) != 1:
            return None
        return OpenEnd(lane, open_sides[0].rank, len(lane.receiver.rows) - lack)

    def replicas(self, lane: Lane) -> list[Lane]:
        """The lanes at the same place of other groups of the same description."""
        places = self._places(lane)
        return [other for other in self._lanes if other.group != lane.group and self._places(other) == places]

    def _places(self, lane: Lane) -> tuple[str, tuple[int, ...]]:
        group = self.facts.groups[lane.group]
        return group.description, (len(group.ranks), *(group.ranks.index(r) for r in (lane.dst, *(s.rank for s in lane.senders))))

    def _shortfall(self, lane: Lane) -> Shortfall | None:
        stretches = self.stretches(lane)
        first = next((i for i, stretch in enumerate(stretches) if stretch.missing), None)
        if first is None or len(stretches) - first > 1 + AHEAD:
            return None
        if any(stretch.missing for stretch in stretches[first + 1 :]):
            return None  # sides that differ again and again are posted on either side of a collective
        found = Shortfall(lane, stretches[first], tuple(stretches[:first]))
        return None if self._went_on(found) else found

    def place(self, found: Shortfall) -> int:
        """Which of the operations of the waiting side is its last in the stretch, counted from 0."""
        following = self._following(found)
        rows = found.waiting.rows
        return max(0, (int(np.searchsorted(rows, following[0])) if len(following) else len(rows)) - 1)

    def _following(self, found: Shortfall) -> Array:
        """The rows of the collectives that end the stretch, and come after, on the waiting side."""
        rows, keys = self._anchors(found.waiting.rank, self._common(set(found.ranks)))
        return rows if found.at.anchor == START else rows[1 + int((keys == found.at.anchor).argmax()) :]

    def stretches(self, lane: Lane) -> list[Stretch]:
        """The stretches that begin at a collective to which all ranks of a lane came, in the receiver's order."""
        common = self._common({lane.dst, *(side.rank for side in lane.senders)})
        received, *sent = [self._counts(side, common) for side in (lane.receiver, *lane.senders)]
        return [
            Stretch(anchor, tuple(own[anchor][0] for own in sent), count, tuple(own[anchor][1] for own in sent), done)
            for anchor, (count, done) in received.items()
            if all(anchor in own for own in sent)
        ]

    def _counts(self, side: Side, common: Array) -> dict[int, tuple[int, bool]]:
        """For each collective in one of the `common` groups: how many operations follow it, and whether another does."""
        rows, keys = self._anchors(side.rank, common)
        counts = np.bincount(np.searchsorted(rows, side.rows), minlength=len(rows) + 1)
        names = [START, *keys.tolist()]
        told = {key: (int(n), i < len(rows)) for i, (key, n) in enumerate(zip(names, counts.tolist(), strict=True))}
        if not self.facts.presence.whole(side.rank):
            del told[START]
        return told

    def _went_on(self, found: Shortfall) -> bool:
        """Whether the side that has one too many finished a collective that it issued after the next one."""
        following = self._following(found)
        if not len(following):
            return False
        mine = self._collectives[found.waiting.rank][0]
        return bool(self._done[mine[mine > following[0]]].any())

    def _anchors(self, rank: int, common: Array) -> tuple[Array, Array]:
        """Rows and keys of the collectives that a rank issued in the `common` groups."""
        rows, groups, keys = self._collectives.get(rank, (_NONE, _NONE, _NONE))
        chosen = np.isin(groups, common)
        return rows[chosen], keys[chosen]

    def _common(self, ranks: set[int]) -> Array:
        """Groups that all of these ranks are members of."""
        sets = sorted((self._groups_of[rank] for rank in ranks), key=len)
        return np.array(sorted(sets[0].intersection(*sets[1:])), np.int64)

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
    def _collectives(self) -> dict[int, tuple[Array, Array, Array]]:
        """By rank the rows, groups and keys of its collectives."""
        known = ~pl.col("is_p2p") & pl.col("seq").is_not_null() & pl.col("group").is_not_null()
        rows = self.facts.dataset.ops.select("rank", "group", "seq", "is_p2p").with_row_index("row").filter(known)
        table = rows.select("rank", *(pl.col(name).cast(pl.Int64) for name in ("row", "group", "seq")))
        starts = np.flatnonzero(np.diff(table["rank"].to_numpy(), prepend=-1))
        row, group, seq = (table[name].to_numpy() for name in ("row", "group", "seq"))
        parts = [np.split(column, starts[1:]) for column in (row, group, (group << SHIFT) + seq)]
        return dict(zip(table["rank"].gather(starts).to_list(), zip(*parts, strict=True), strict=True))

    @cached_property
    def _lanes(self) -> list[Lane]:
        """All lanes that hooks recorded, by group and receiver."""
        return [lane for (group, dst), sides in self._sides().items() for lane in _lanes_into(group, dst, sides)]

    def _uneven(self, lane: Lane) -> bool:
        """Whether both sides do not count the same, or cannot be counted from the beginning."""
        ranks = {lane.dst, *(side.rank for side in lane.senders)}
        if not ranks <= self._hooked.get(lane.group, set()):
            return False
        whole = all(self.facts.presence.whole(rank) for rank in ranks)
        return not whole or sum(len(side.rows) for side in lane.senders) != len(lane.receiver.rows)

    @cached_property
    def _hooked(self) -> dict[int, set[int]]:
        """By group the ranks of which a hook recorded operations, or which have a dump of one."""
        dumped = self.facts.hook_ranks
        return {group.id: dumped.intersection(group.ranks) for group in self.facts.groups}

    def _sides(self) -> dict[tuple[int, int], list[tuple[int | None, Side]]]:
        """By group and receiver: the sender (None: any) and the operations of one side."""
        ops = self.facts.dataset.ops
        places = ops["is_p2p"].fill_null(value=False).arg_true()
        rows = (
            ops[places].select("rank", "group", "peer", pl.col("op").cast(pl.String))
            .with_columns(row=places.cast(pl.Int64), is_send=pl.col("op") == "send")
            .filter(pl.col("op").is_in(["send", "recv"]) & pl.col("group").is_in(list(self.facts.hook_groups)))
            .filter(~pl.col("is_send") | pl.col("peer").is_not_null())
            .with_columns(
                src=pl.when("is_send").then("rank").otherwise("peer"),
                dst=pl.when("is_send").then("peer").otherwise("rank"),
            )
        )  # fmt: skip
        out: dict[tuple[int, int], list[tuple[int | None, Side]]] = {}
        lanes = rows.group_by("group", "src", "dst", "is_send", maintain_order=True).agg("row")
        for group, src, dst, is_send, own in lanes.iter_rows():
            side = Side(src if is_send else dst, is_send, np.array(own, np.int64))
            out.setdefault((group, dst), []).append((src, side))
        return out


def _lanes_into(group: int, dst: int, sides: list[tuple[int | None, Side]]) -> list[Lane]:
    """The lanes to one rank: one for each sender, or one for all where it receives from any source."""
    senders = {src: side for src, side in sides if src is not None and side.is_send}
    posted = {src: side for src, side in sides if not side.is_send}
    if None in posted:
        rows = np.sort(np.concatenate([side.rows for side in posted.values()]))
        return [Lane(group, dst, tuple(senders.values()), Side(dst, False, rows))] if senders else []
    return [
        Lane(group, dst, (senders.get(src, Side(src, True, _NONE)),), posted.get(src, Side(dst, False, _NONE)))
        for src in sorted({*senders, *(src for src in posted if src is not None)})
    ]


_NONE = np.empty(0, np.int64)
