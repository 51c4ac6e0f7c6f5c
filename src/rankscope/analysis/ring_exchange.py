"""Groups whose members send and receive equally: in a ring exchange every member does the same number of operations.

Every entry carries `op_id`, which counts the operations of its group on its rank from the beginning. If all members had
the same count at each common collective, a member with another count at the next one has left an operation out, or done
too much. This needs no replica, and holds after the ring of the recorder has wrapped.
"""

from __future__ import annotations

from typing import NamedTuple

import polars as pl

from rankscope.analysis.facts import Facts
from rankscope.schema import Group

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
        facts.dataset.ops.select(*_MARKED).with_row_index("row")
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
            pl.col("row", "op", "pairs").first(), pl.col("rank").alias("ranks"), pl.col("count").alias("counts"),
            one=pl.col("group").n_unique() == 1,
        )
        .filter((pl.col("ranks").list.n_unique() == came) & (came >= FEWEST_MEMBERS))
        .with_columns(whole=came == len(group.ranks))
        .filter(pl.col("whole") | (pl.col("one") & (pl.col("seq") > whole_until)))
        .sort("row")
        .select(
            "pairs", "ranks", "counts", "whole",
            place=pl.format("{} #{} of {}", pl.col("op").cast(pl.String), "seq", "label"),
        )
    )  # fmt: skip
