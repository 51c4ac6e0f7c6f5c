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

_NEVER = 2**62
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
    context: int = 0
    """Logical columns of completed operations that are kept before what is pending."""
    around: tuple[int, ...] = ()
    """A collective, as (group, seq), that is kept with all after it in its group."""

    def rows(self, rows: pl.DataFrame, source: ReplaySource, *, stuck: bool) -> pl.DataFrame:
        """The rows of the part, of `schedule.ReplayOperations`; if not `stuck`, none of them is pending.

        ValueError if a member does not hold the first operation.
        """
        asked = self.last or self.begin
        if stuck and not asked and self.around and not rows["pending"].any():
            group, seq = self.around
            at = pl.col("col").filter((pl.col("group") == group) & (pl.col("seq") == seq))
            return rows.filter(pl.col("col").is_between(at.min() - TAIL - self.context, at.max() + TAIL))
        stuck = stuck and bool(rows["pending"].any())
        if not stuck:
            shared = pl.col("agreed") | (~_COLLECTIVE if source.is_window else False)
            rows = rows.filter(shared).with_columns(pending=pl.lit(value=False))
        rows = _with_order(rows)
        if self.begin is not None:
            kept = pl.col("early") & self._from(rows, source)
        elif asked or not stuck:
            kept = _last(self.last or LAST, pairs=source.is_window)
        else:
            kept = self._around()
        return rows.filter(pl.col("unended") | kept).drop("unended", "early")

    def _around(self) -> pl.Expr:
        """Whether a row is among the few before the first pending one of its group, or in the columns before any."""
        first = pl.col("seq").filter(pl.col("pending") & _COLLECTIVE).min().over("group")
        kept = (pl.col("seq") >= first - TAIL).fill_null(False)
        if self.around:
            group, seq = self.around
            kept |= ((pl.col("group") == group) & (pl.col("seq") >= seq - TAIL)).fill_null(False)
        if not self.context:
            return kept
        return kept | (pl.col("early") & (pl.col("col") >= pl.col("col").filter("pending").min() - self.context))

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


def _with_order(rows: pl.DataFrame) -> pl.DataFrame:
    """The rows with `unended`: pending, or not before the first pending one of the group; and with `early`.

    `early`: all its ranks issued it before they came to something that is pending.
    """
    first = pl.col("seq").filter(pl.col("pending") & _COLLECTIVE).min().over("group")
    unended = pl.col("pending") | (pl.col("seq") >= first).fill_null(False)
    held = pl.col("row").filter("pending").min().over("rank").fill_null(_NEVER)
    # not in one expression: polars would look for the first pending one within each operation
    rows = rows.with_columns(unended=unended, early=pl.col("row") < held)
    key = ["group", "seq", "low", "high", "k"]
    late = rows.filter(~pl.col("early")).select(key).unique().with_columns(late=True)
    marked = rows.join(late, on=key, how="left", nulls_equal=True, maintain_order="left")
    return marked.with_columns(early=pl.col("late").is_null()).drop("late")


def _last(count: int, *, pairs: bool) -> pl.Expr:
    """Whether a row is among the last of its group that all members have issued, or with `pairs` of its pair."""
    usual = pl.col("early") & ~pl.col("unended") & (pl.col("agreed") | (~_COLLECTIVE if pairs else False))
    last = _NUMBER.filter(usual).max().over(_LINE)
    return (usual & (last - count < _NUMBER)).fill_null(False)
