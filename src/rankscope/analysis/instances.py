"""Operations that some rank has not finished, with the side of every member."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np
import polars as pl

from rankscope.analysis.collective_calls import IS_PENDING
from rankscope.analysis.facts import Facts
from rankscope.analysis.presence import UNKNOWN_SEQ

CallKey = tuple[int, int]
"""(group, seq)."""
PairKey = tuple[int, int, int, int]
"""(group, sender, receiver, k)."""
WATCHDOG_NS = 100_000_000
"""Times from a watchdog that are closer than this do not tell the order."""
EVICTED_ROW = -1
"""Row and position of a pending operation whose entry the ring has overwritten."""


class InstanceMember(NamedTuple):
    """One member's side of an instance."""

    row: int
    position: int
    """Place in the program order of the rank; equal within one batch of sends and receives."""
    op: str
    state: str
    pending: bool
    """The rank issued it and has not finished it."""
    elements: int | None
    dtype: str | None
    created_ns: int | None


@dataclass(eq=False)
class Instance:
    """One collective, or one pair of send and receive, that some rank has not finished."""

    key: CallKey | PairKey
    entries: dict[int, InstanceMember] = field(default_factory=dict)
    """By rank; for a pair at most the sender's and the receiver's."""
    counted: bool = True
    """Whether k of a pair counts from the first operation; else from the first unfinished one."""

    @property
    def group(self) -> int:
        """Its process group."""
        return self.key[0]

    @property
    def is_pair(self) -> bool:
        """Whether it is a pair of send and receive."""
        return len(self.key) == 4

    @property
    def seq(self) -> int:
        """Sequence number; for a pair k."""
        return self.key[3] if len(self.key) == 4 else self.key[1]

    @property
    def number(self) -> int | None:
        """The number for people: the sequence number, or the k-th between two ranks, from 1; None if it is unknown."""
        if not self.is_pair:
            return self.seq
        return self.seq + 1 if self.counted else None

    @property
    def name(self) -> str:
        """The operation with its number, and the two ends of a pair."""
        number = "" if self.number is None else f" #{self.number}"
        return f"{self.op} {self.key[1]}->{self.key[2]}{number}" if len(self.key) == 4 else f"{self.op}{number}"

    # queried once for each member of each group, so cached after all entries are there

    @cached_property
    def since_ns(self) -> int | None:
        """The first issue time on a rank that still waits in it."""
        times = [e.created_ns for e in self.entries.values() if e.pending and e.created_ns]
        return min(times, default=None)

    def waiting(self) -> list[int]:
        """Ranks that issued it and have not finished it, sorted; the same list every time."""
        return self._waiting

    @cached_property
    def _waiting(self) -> list[int]:
        return sorted(r for r, e in self.entries.items() if e.pending)

    @property
    def is_known(self) -> bool:
        """Whether any rank kept its entry."""
        return any(e.op for e in self.entries.values())

    @cached_property
    def op(self) -> str:
        """The name that most members use, "collective" if no entry is left; asked for once all are there."""
        names = [e.op for e in self.entries.values() if e.op]
        return max(sorted(set(names)), key=names.count, default="collective")


def pending_calls(facts: Facts) -> dict[CallKey, Instance]:
    """Collectives that some rank has issued and not finished."""
    open_keys = facts.pending.select("group", "seq").unique()
    rows = facts.calls_at(open_keys).select(
        "group", "seq", "rank", "row", "op", "state", IS_PENDING.alias("pending"), "elements", "dtype", "created_ns"
    )
    out: dict[CallKey, Instance] = {}
    positions = _told_together(facts.dataset.ops)
    for group, seq, rank, row, op, state, pending, elements, dtype, created in rows.iter_rows():
        entry = InstanceMember(row, positions.get(row, row), op, state, pending, elements, dtype, created)
        out.setdefault((group, seq), Instance((group, seq))).entries[rank] = entry
    for rank, key in _evicted(facts):
        out.setdefault(key, Instance(key)).entries.setdefault(
            rank, InstanceMember(EVICTED_ROW, EVICTED_ROW, "", "scheduled", True, None, None, None)
        )
    return out


def _told_together(ops: pl.DataFrame) -> dict[int, int]:
    """One position for the operations of a rank that are known only from its watchdog, if times do not order them.

    The watchdog prints in the order in which it looks at its groups, and tells durations in milliseconds.
    """
    timed_out = (pl.col("source") == "c10d-log") & pl.col("timeout_ms").is_not_null()
    said = ops.select("source", "timeout_ms", "rank", "created_ns").with_row_index("row").filter(timed_out)
    apart = (pl.col("created_ns").diff() >= WATCHDOG_NS) | (pl.col("rank") != pl.col("rank").shift())
    placed = said.with_columns(batch=apart.fill_null(value=False).cum_sum())
    return dict(placed.select("row", pl.col("row").min().over("batch").alias("first")).iter_rows())


def _evicted(facts: Facts) -> list[tuple[int, CallKey]]:
    """Pending operations that the ring has overwritten: enqueued, not completed, older than the oldest kept entry."""
    fronts = facts.presence.frontiers.columns
    lost = fronts.wrapped & np.isin(fronts.group, list(facts.counts_alone)) & (fronts.enqueued != UNKNOWN_SEQ)
    keys = zip(fronts.rank[lost].tolist(), fronts.group[lost].tolist(), strict=True)
    following = np.array([facts.completed.get(key, -UNKNOWN_SEQ) for key in keys], np.int64) + 1
    first, last = fronts.first_kept[lost], fronts.enqueued[lost]
    gone = np.flatnonzero((following <= last) & ((first == UNKNOWN_SEQ) | (following < first)))
    rank, group = fronts.rank[lost][gone].tolist(), fronts.group[lost][gone].tolist()
    return [(r, (g, seq)) for r, g, seq in zip(rank, group, following[gone].tolist(), strict=True)]


def pending_pairs(facts: Facts) -> dict[PairKey, Instance]:
    """Sends and receives that some rank has posted and not finished."""
    key = ["group", "src", "dst", "k"]
    open_keys = facts.pairs.filter(IS_PENDING).select(key).unique()
    rows = facts.pairs.join(open_keys, on=key, how="semi").select(
        *key, "counted", "rank", "row", "batch", "op", "state", IS_PENDING.alias("pending"), "elements", "created_ns"
    )
    out: dict[PairKey, Instance] = {}
    for group, src, dst, k, counted, rank, row, batch, op, state, pending, elements, created in rows.iter_rows():
        instance = out.setdefault((group, src, dst, k), Instance((group, src, dst, k), counted=counted))
        instance.entries[rank] = InstanceMember(row, batch, op, state, pending, elements, None, created)
    return out


def calls_at(facts: Facts, keys: pl.DataFrame) -> dict[CallKey, Instance]:
    """The collectives with the given `group` and `seq`, finished or not."""
    rows = facts.calls_at(keys).select(
        "group", "seq", "rank", "row", pl.col("key").cast(pl.String).fill_null(""), "state",
        IS_PENDING.alias("pending"), "elements", "dtype", "created_ns",
    )  # fmt: skip
    out: dict[CallKey, Instance] = {}
    for group, seq, rank, row, *told in rows.iter_rows():
        out.setdefault((group, seq), Instance((group, seq))).entries[rank] = InstanceMember(row, row, *told)
    return out
