"""What the members of each collective agreed on when all was judged: a few ranks that go on are held against that.

In a job that goes on only a disagreement accuses anybody at once. So what few ranks wrote needs no look at what all the
others did: one row for each collective says what that was, and is found by its number.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import polars as pl

from rankscope.analysis.arrays import places_of, stretches_of
from rankscope.analysis.disagreements import Instances, disagreements, instances
from rankscope.analysis.facts import Facts
from rankscope.schema import Dataset

Array = npt.NDArray[np.int64]
SEQS = 1 << 40
"""Sequence numbers from here on, and those below 0, name no place: nothing is held against what others issued there."""
_COMPARED = ("key", "elements", "dtype")


@dataclass(frozen=True)
class Agreed:
    """One row for each collective, whatever the number of its members."""

    place: Array
    """Group and sequence number in one; rising."""
    told: pl.DataFrame
    """What of each collective must agree, as one of its members says; null where none does."""
    odd: Array
    """Places at which the members did not agree, and of which that was told."""

    def take(self, calls: pl.DataFrame) -> Agreed | None:
        """The same with more calls, a few ranks' of any collective; None if these do not agree with it."""
        place = _places(calls)
        calls = calls.filter(pl.Series((place >= 0) & ~np.isin(place, self.odd)))
        news = _told(calls, instances(calls))
        at = np.searchsorted(self.place, news.place)
        known = at < len(self.place)
        known[known] = self.place[at[known]] == news.place[known]
        theirs = self.told[at[known]].with_columns(
            group=pl.Series(news.place[known] // SEQS, dtype=pl.UInt32), seq=pl.Series(news.place[known] % SEQS)
        )
        own = calls.select(*_COMPARED, "group", "seq")
        both = pl.concat([own, theirs]).with_columns(state=pl.lit("completed"))
        if disagreements(both, instances(both)).height:
            return None
        place = np.concatenate([self.place, news.place[~known]])
        order = np.argsort(place, kind="stable")
        told = pl.concat([self.told, news.told.filter(pl.Series(~known))])
        return replace(self, place=place[order], told=told[order])


def agreed(facts: Facts) -> Agreed:
    """What the members of each collective of a job agree on."""
    return replace(_told(facts.calls, facts.instances), odd=_places(facts.disagreements))


def _told(calls: pl.DataFrame, found: Instances) -> Agreed:
    place = _packed(found.group, found.seq)
    there = np.flatnonzero((place >= 0) & (np.bincount(found.code, minlength=len(place)) > 0))
    there = there[np.argsort(place[there])]
    told = [_said(calls[name], found.code, len(place)).gather(there) for name in _COMPARED]
    return Agreed(place[there], pl.DataFrame(told), np.zeros(0, np.int64))


def part_of(dataset: Dataset, ranks: frozenset[int]) -> Dataset:
    """What the dumps of some ranks tell, of a dataset in which no row is without a rank."""
    rows = places_of(*stretches_of(dataset.ops["rank"], sorted(ranks)))
    mine = pl.col("rank").is_in(list(ranks))
    own = {name: getattr(dataset, name).filter(mine) for name in ("frontiers", "files", "repeats")}
    return replace(dataset, ops=dataset.ops[rows], **own)


def _said(column: pl.Series, code: Array, count: int) -> pl.Series:
    """For each of `count` collectives what a member says that says anything; else null."""
    rows = column.is_not_null().arg_true().to_numpy()
    row_of = np.zeros(count, np.int64)
    row_of[code[rows]] = rows
    said = np.zeros(count, np.bool_)
    said[code[rows]] = True
    return column.gather(pl.select(pl.when(pl.Series(said)).then(pl.Series(row_of))).to_series())


def _places(rows: pl.DataFrame) -> Array:
    return _packed(rows["group"].to_numpy().astype(np.int64), rows["seq"].to_numpy())


def _packed(group: Array, seq: Array) -> Array:
    """-1 for what names no place."""
    return np.where((seq >= 0) & (seq < SEQS), group * SEQS + seq, -1)
