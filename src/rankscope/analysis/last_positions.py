"""Where a rank stands at the end of a dump that has forgotten most of what was before.

A dump that keeps only what is active, or a ring that wrapped, does not show what was sent and received before the last
collective. But `pg_status` counts it for each group, and the record number of that collective counts all that was
issued before it. Ranks of one stage that issued equally many collectives of every kind, the same one last, have come
to the same place of one program: what they count on groups with sends and receives must be equal, too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

import polars as pl

from rankscope.analysis.facts import Facts


class Standing(NamedTuple):
    """What a rank has issued."""

    record_id: int
    """Of the last entry, a collective."""
    place: tuple[str, str, int]
    """That collective: group, operation, sequence number."""
    collectives: tuple[tuple[str, int], ...]
    """Last sequence number issued on every group without sends and receives."""
    pairs: tuple[tuple[str, int], ...]
    """The counter of the last operation on every group with them."""

    def together(self, other: Standing) -> bool:
        """Whether both have come to the same place."""
        return (self.place, self.collectives) == (other.place, other.collectives)


def standings(facts: Facts) -> dict[int, Standing]:
    """For each rank whose last entry is a collective that waits, and whose dump has `pg_status`, where it stands."""
    paired = {g.id for g in facts.groups if g.has_p2p}
    last = facts.dataset.ops.group_by("rank", maintain_order=True).last()
    last = last.filter(
        ~pl.col("group").is_in(paired) & ~pl.col("is_p2p") & (pl.col("state") != "completed")
    ).drop_nulls(["record_id", "seq"])
    counters = _counters(facts)
    found = {}
    for rank, record, group, op, seq in last.select("rank", "record_id", "group", "op", "seq").iter_rows():
        told = counters.get(rank)
        if told:
            found[rank] = Standing(
                record, (facts.label(group), op, seq), _labelled(facts, told, set(told) - paired),
                _labelled(facts, told, set(told) & paired),
            )  # fmt: skip
    return found


class Deviation(NamedTuple):
    """Where a rank and most others that have come to the same place differ; if nowhere, their first counter."""

    group: str
    own: int
    usual: int
    votes: int
    """How many count `usual`."""
    what: str = "operations"
    """What is counted: a batch is one operation, of which every part and the end are records."""


def deviation(own: Standing, others: Iterable[Standing]) -> Deviation | None:
    """A rank held against `others`; None if they do not agree, or their record numbers do not bear it out."""
    alike = [other for other in others if own.together(other)]
    ranked = Counter((other.pairs, other.record_id) for other in alike).most_common(1)
    if not own.pairs or not ranked or 2 * ranked[0][1] <= len(alike):
        return None
    (usual, record), votes = ranked[0]
    if [group for group, _ in usual] != [group for group, _ in own.pairs]:
        return None
    pairs = zip(own.pairs, usual, strict=True)
    both = [Deviation(group, mine, theirs, votes) for (group, mine), (_, theirs) in pairs]
    differs = [one for one in both if one.own != one.usual]
    if not differs and own.record_id != record:
        collectives = sum(count for _, count in own.collectives) - 1  # records are numbered from 0
        groups = " and ".join(group for group, _ in own.pairs)
        return Deviation(groups, own.record_id - collectives, record - collectives, votes, "records")
    borne_out = all(_sign(own.record_id - record) == _sign(one.own - one.usual) for one in differs)
    return (*differs, both[0])[0] if borne_out else None


def _sign(number: int) -> int:
    return (number > 0) - (number < 0)


def _counters(facts: Facts) -> dict[int, dict[int, int]]:
    """For each rank what `pg_status` says it has issued, by group."""
    found: dict[int, dict[int, int]] = {}
    told = facts.dataset.frontiers.select("rank", "group", "status_enqueued").drop_nulls()
    for rank, group, enqueued in told.iter_rows():
        found.setdefault(rank, {})[group] = enqueued
    return found


def _labelled(facts: Facts, counters: dict[int, int], groups: set[int]) -> tuple[tuple[str, int], ...]:
    return tuple(sorted((facts.label(group), counters[group]) for group in groups))
