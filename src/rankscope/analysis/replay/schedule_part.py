"""The part of a job that a schedule takes: around the first pending operations, the last ones, or from a given one on.

Whatever the part, what is pending belongs to it, and with it what its members have not all completed.
"""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from rankscope.analysis.replay.replay_source import ReplaySource
from rankscope.text.escaping import plain
from rankscope.text.wording import plural, ranks_text

TAIL = 2
"""Completed collectives of each group that are kept before the first pending one: who is past them shows who is not."""
LAST = 8
"""Collectives of each group that are kept of a job that moves, and transfers of each pair."""

_COLLECTIVE = pl.col("seq").is_not_null()
_NUMBER = pl.coalesce("seq", "k")
_LINE = ("group", "low", "high")


@dataclass(frozen=True)
class SchedulePart:
    """The operations that a schedule takes; without any field, those around the failure."""

    last: int = 0
    """So many of the last collectives of each group that all members agree on."""
    begin: tuple[int, int] | None = None
    """The first operation: (group, seq). What follows it on any rank is taken."""

    def rows(self, rows: pl.DataFrame, source: ReplaySource, *, stuck: bool) -> pl.DataFrame:
        """The rows of the part, of `schedule._operations`; if not `stuck`, none is pending.

        ValueError if a member does not hold the first operation.
        """
        if not stuck:
            shared = pl.col("agreed") if not source.is_window else pl.col("agreed") | ~_COLLECTIVE
            rows = rows.filter(shared.fill_null(False)).with_columns(pending=pl.lit(value=False))
        unended = rows.with_columns(unended=_unended()) if stuck else rows.with_columns(unended=pl.lit(value=False))
        if self.begin is not None:
            kept = self._from(unended, source)
        elif self.last or not stuck:
            kept = _last(self.last or LAST)
        else:
            kept = _around()
        return unended.filter(pl.col("unended") | kept).drop("unended")

    def _from(self, rows: pl.DataFrame, source: ReplaySource) -> pl.Expr:
        """Whether a row is not before the first operation; ValueError if a member does not hold that."""
        assert self.begin is not None
        group_id, seq = self.begin
        group = source.dataset.group_list[group_id]
        own = rows.filter((pl.col("group") == group_id) & _COLLECTIVE)
        there = own.filter(pl.col("seq") == seq)
        lacking = sorted(set(group.ranks) & source.told - set(there["rank"].to_list()))
        if lacking or there.is_empty():
            lacking = lacking or sorted(group.ranks)
            every = own["rank"].n_unique()
            shared = own.group_by("seq").agg(pl.len()).filter(pl.col("len") == every)["seq"].sort().to_list()
            held = f"all hold #{shared[0]} to #{shared[-1]}" if shared else "have none in common"
            noun = source.noun if len(lacking) > 1 else source.noun[:-1]
            name = plain(group.description or group.name, 40)
            members = plural(len(group.ranks), "member")
            raise ValueError(f"#{seq} of {name} is not in the {noun} of {ranks_text(lacking)}; its {members} {held}")
        # in a circle of waits members of one operation have several columns
        column = pl.when(_COLLECTIVE).then(pl.col("col").max().over("group", "seq")).otherwise("col")
        return column >= there["col"].max()


def _unended() -> pl.Expr:
    """Whether an operation is pending, or comes not before the first pending one of its group."""
    first = pl.col("seq").filter(pl.col("pending") & _COLLECTIVE).min().over("group")
    return pl.col("pending") | (pl.col("seq") >= first).fill_null(False)


def _around() -> pl.Expr:
    """Whether a row is among the few before the first pending one of its group."""
    first = pl.col("seq").filter(pl.col("pending") & _COLLECTIVE).min().over("group")
    return (pl.col("seq") >= first - TAIL).fill_null(False)


def _last(count: int) -> pl.Expr:
    """Whether a row is among the last of its group that all members have issued, or of its pair."""
    number = pl.when(pl.col("agreed") | ~_COLLECTIVE).then(_NUMBER)
    usual = pl.col("unended").not_()
    last = number.filter(usual).max().over(_LINE)
    return (usual & (number > last - count)).fill_null(False)
