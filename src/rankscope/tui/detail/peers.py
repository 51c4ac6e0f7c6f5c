"""The members of a collective, or both sides of sends and receives: who issued it and when, who did not and why;
equal members in one fold."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import polars as pl

from rankscope.analysis.collective_calls import collect_calls
from rankscope.analysis.facts import collect_pairs
from rankscope.analysis.model import Analysis, Divergence
from rankscope.analysis.presence import Absence
from rankscope.schema import Group
from rankscope.tui.detail.operation_index import OpIndex, Row, Rows, one

LATE_NS = 10_000_000
"""A member may be called late if it joins this many ns after the median of its peers, ..."""
LATE_TIMES = 5
"""... and if its delay after the first member is this many times the median delay."""

ISSUED = "issued"
"""The presence of a member that has a row; the others have the word of an Absence."""
PARTLY = "read in part"
"""Presence of a member without a row in a dump that was read only in part."""
NOT_YET = "not yet issued"
"""Presence of a member without a row in a job that still moves."""
TABLE: dict[str, pl.DataType | type[pl.DataType]] = {
    "rank": pl.Int32,
    "row": pl.UInt32,  # null where the member has none
    "presence": pl.String,
    "state": pl.String,  # "" where the member has no row
    "op": pl.String,
    "parts": pl.UInt32,  # operations coalesced into one
    "sizes": pl.String,  # JSON, of the input, or of the output where there is no input
    "dtypes": pl.String,
    "created_ns": pl.Int64,
    "lag_ns": pl.Int64,  # behind the first member
    "completed_ns": pl.Int64,
    "stack_id": pl.UInt32,
    "host": pl.String,
    "accused": pl.Boolean,  # a root cause names the rank
    "differs": pl.Boolean,  # issued an operation that does not fit the operation of most members
    "late": pl.Boolean,
}
"""Columns of a table of members, one row each."""


@dataclass(frozen=True)
class Peers:
    """A collective, or the two sides of point-to-point operations, over all its members."""

    group: Group | None
    seq: int | None
    op: str
    """The operation of most members."""
    table: pl.DataFrame
    """One row per member; columns as in TABLE."""

    @cached_property
    def first_ns(self) -> int | None:
        """Time when the first member issued it."""
        first = self.table["created_ns"].min()
        return first if isinstance(first, int) else None

    @cached_property
    def waited_for(self) -> bool:
        """Whether a member is still in it."""
        return bool(self.table["state"].is_in(UNFINISHED).any())

    def of_rank(self, rank: int) -> tuple[int | None, str] | None:
        """Row and presence of a member; None if the rank is no member."""
        member = self.table.filter(pl.col("rank") == rank).select("row", "presence")
        return member.row(0) if member.height else None


def state_label() -> pl.Expr:
    """The state of an operation in a word.

    A completion after the timeout comes from an abort (pytorch PR 119249). An operation that left the watchdog's list
    without completion has timed out. A hook retires operations of unknown end at once: they stay unknown.
    """
    state = pl.col("state").cast(pl.String)
    took = pl.col("completed_ns") - pl.col("created_ns")
    late = (took >= pl.col("timeout_ms") * 1_000_000).fill_null(False)
    return (
        pl.when((state == "completed") & late).then(pl.lit("aborted"))
        .when(state == "completed").then(pl.lit("done"))
        .when(pl.col("retired").fill_null(False) & state.is_in(["scheduled", "started"])).then(pl.lit("timed out"))
        .when(state == "scheduled").then(pl.lit("pending"))
        .otherwise(state.fill_null("unknown"))
    )  # fmt: skip


UNFINISHED = ("pending", "started", "timed out", "aborted")
"""States of an operation that did not complete its work."""


def collective(index: OpIndex, analysis: Analysis, group: int, seq: int) -> Peers:
    """The members of one collective."""
    rows = index.instance(group, seq)
    members = _merged(index.frame(rows))
    divergence = next((d for d in analysis.divergences if d.group == group and d.seq == seq), None)
    odd = divergence.differing if divergence is not None else _minority(index, rows)
    issued = issued_rows(members, pl.col("rank").is_in(list(odd)))
    absent = _absent(index, analysis, divergence, (group, seq), issued)
    common = _plurality(members["op"])
    return Peers(index.group(group), seq, str(common or "?"), finish(pl.concat([issued, absent]), analysis))


def _absent(
    index: OpIndex, analysis: Analysis, divergence: Divergence | None, key: tuple[int, int], issued: pl.DataFrame
) -> pl.DataFrame:
    """Members without a row, each with the reason.

    If peers finished a collective, every member took part: a dump without it is older, or lacks rows.
    """
    have = issued["rank"].to_list()
    waited_for = issued["state"].is_in(UNFINISHED).any() or issued.is_empty()
    unproven = set(divergence.unknown if divergence else ())
    reasons: dict[int, str] = {}
    for rank, why in index.presence.absences(*key, frozenset(have)).items():
        never = why is Absence.NEVER_ISSUED
        reasons[rank] = Absence.UNKNOWN if never and (not waited_for or rank in unproven) else why
        if reasons[rank] == Absence.UNKNOWN and rank in index.dataset.cut_ranks:
            reasons[rank] = PARTLY
    if analysis.status in ("healthy", "progressing"):
        reasons = {rank: NOT_YET if why == Absence.NEVER_ISSUED else why for rank, why in reasons.items()}
    return absent_rows(reasons)


def absent_rows(reasons: Mapping[int, str]) -> pl.DataFrame:
    """Members that have no row, by rank, with the reason as their presence."""
    names = {"rank": list(reasons), "presence": [str(why) for why in reasons.values()]}
    return _cast(pl.DataFrame(names, schema={"rank": pl.Int32, "presence": pl.String})).with_columns(
        state=pl.lit(""), differs=pl.lit(False)
    )


def finish(members: pl.DataFrame, analysis: Analysis) -> pl.DataFrame:
    """Members with facts from comparing them: lags, late members, accused members."""
    lag = pl.col("created_ns") - pl.col("created_ns").min()
    behind = pl.max_horizontal(pl.lit(LATE_NS) + pl.col("lag_ns").median(), pl.col("lag_ns").median() * LATE_TIMES)
    return (
        members.with_columns(lag_ns=lag, accused=pl.col("rank").is_in(list(analysis.culprits)))
        .with_columns(late=(pl.col("lag_ns") > behind).fill_null(False))
        .select(list(TABLE))
    )


def _merged(rows: pl.DataFrame) -> pl.DataFrame:
    """One row per rank: the closer of coalesced operations, with the names and the first sizes of what it closed."""
    rows = rows.with_columns(state_label().alias("state"))
    if (rows["coalesced"] == "none").all():
        return rows.unique("rank", keep="last", maintain_order=True).with_columns(parts=pl.lit(1, pl.UInt32))
    inner = pl.col("coalesced") == "inner"
    carries = inner | (pl.len() == (~inner).sum())
    closes = ~inner | (pl.len() == inner.sum())
    names = pl.col("op").filter(carries).unique(maintain_order=True).str.join("+")
    carried = ("in_sizes", "out_sizes", "in_dtypes", "out_dtypes", "stack_id")
    return rows.group_by("rank", maintain_order=True).agg(
        *(pl.col(name).filter(closes).last() for name in ("row", "completed_ns", "state")),
        *(pl.col(name).filter(carries).first() for name in carried),
        names.alias("op"),
        pl.max_horizontal(inner.sum(), 1).cast(pl.UInt32).alias("parts"),
        pl.col("created_ns").first(),
        pl.col("host").first(),
    )


def _minority(index: OpIndex, rows: Rows) -> list[int]:
    """Members with an operation that does not fit the operation of most members."""
    calls = collect_calls(replace(index.dataset, ops=index.dataset.ops[rows]))
    common = {name: _plurality(calls[name]) for name in ("key", "elements", "dtype")}
    odd = [pl.col(name).ne(pl.lit(value)).fill_null(False) for name, value in common.items() if value is not None]
    return calls.filter(pl.any_horizontal(odd))["rank"].to_list() if odd else []


def issued_rows(rows: pl.DataFrame, differs: pl.Expr) -> pl.DataFrame:
    """Members with a row, with the sizes of their input, or of the output if there is no input."""
    empty = pl.col("in_sizes").is_null() | pl.col("in_sizes").is_in(["", "[]"])
    shown = [pl.when(empty).then(f"out_{n}").otherwise(f"in_{n}").alias(n) for n in ("sizes", "dtypes")]
    return _cast(rows.with_columns(*shown, differs=differs, presence=pl.lit(ISSUED)))


def _plurality(values: pl.Series) -> object:
    """The most frequent value that is not null, the smallest of several; None without any."""
    known = values.drop_nulls()
    return None if known.is_empty() else known.mode().sort()[0]


def _cast(rows: pl.DataFrame) -> pl.DataFrame:
    """The rows with all columns of TABLE; missing values are null."""
    missing = [pl.lit(None).alias(name) for name in TABLE if name not in rows.columns]
    return rows.with_columns(missing).select(pl.col(name).cast(kind) for name, kind in TABLE.items())


_JOIN = ["group", "src", "dst", "k"]


def pair(index: OpIndex, analysis: Analysis, row: int) -> Peers:
    """Both sides of the point-to-point operation at `row`; if it closes a batch, of all operations of the batch."""
    operation = index.row(row)
    if operation["group"] is None:
        alone = finish(_members(index, one(row)), analysis)
        return Peers(None, operation["p2p_seq"], operation["op"] or "?", alone)
    batch = _batch(index, operation)
    rows, counterparts, lost = _match(index, operation["group"], batch)
    members = _members(index, np.concatenate([rows, counterparts]).astype(np.uint32))
    reasons = {peer: _reason(index, analysis, operation, peer) for peer in lost if peer is not None}
    table = finish(pl.concat([members, absent_rows(reasons)]), analysis)
    return Peers(index.group(operation["group"]), operation["p2p_seq"], operation["op"] or "?", table)


def waiting_for(index: OpIndex, rank: int, group: int, seq: int | None) -> int | None:
    """The row of the oldest send or receive in a group that waits for `rank`; None if there is none."""
    ops = index.dataset.ops
    wanted = (ops["peer"] == rank) & (ops["group"] == group) & ops["is_p2p"] & (ops["state"] != "completed")
    rows = (wanted if seq is None else wanted & (ops["seq"] == seq)).arg_true()
    return int(rows[0]) if len(rows) else None


def _batch(index: OpIndex, operation: Row) -> Rows:
    """The operations that this one launched: itself, or the batch that it closes."""
    if operation["coalesced"] != "closer":
        return np.array([operation["row"]], dtype=np.uint32)
    issued = index.rank_frame(operation["rank"]).filter(
        (pl.col("group") == operation["group"])
        & pl.col("is_p2p")
        & (pl.col("p2p_seq") == operation["p2p_seq"])
        & (pl.col("coalesced") == "inner")
    )
    return issued["row"].to_numpy() if issued.height else np.array([operation["row"]], dtype=np.uint32)


def _match(index: OpIndex, group: int, batch: Rows) -> tuple[Rows, Rows, list[int | None]]:
    """(the rows, the rows of their other sides, the peers without one)."""
    mine = index.frame(batch)
    ranks = {*mine["rank"].to_list(), *mine["peer"].drop_nulls().to_list()}
    positions = _of_ranks(index, group, ranks)
    table = collect_pairs(replace(index.dataset, ops=index.dataset.ops[positions]), index.presence)
    table = table.with_columns(pl.Series("at", positions[table["row"].to_numpy()], dtype=pl.UInt32))
    chosen = table.filter(pl.col("at").is_in(batch.tolist()))
    other = table.with_columns(is_send=~pl.col("is_send")).select(*_JOIN, "is_send", pl.col("at").alias("other"))
    matched = chosen.join(other, on=[*_JOIN, "is_send"], how="left", maintain_order="left")
    without = matched.filter(pl.col("other").is_null())["peer"].unique(maintain_order=True).to_list()
    return batch, matched["other"].drop_nulls().to_numpy(), without


def _of_ranks(index: OpIndex, group: int, ranks: Iterable[int]) -> Rows:
    """Positions of the point-to-point operations of some ranks in a group."""
    parts = [np.zeros(0, np.uint32)]
    for rank in sorted(ranks):
        span = index.of_rank(rank)
        part = index.dataset.ops.slice(span.start, len(span))
        hits = ((part["group"] == group) & part["is_p2p"]).arg_true().to_numpy()
        parts.append((hits + span.start).astype(np.uint32))
    return np.concatenate(parts)


def _members(index: OpIndex, rows: Rows) -> pl.DataFrame:
    frame = index.frame(rows)
    way = pl.when(pl.col("op") == "recv").then(pl.lit(" from ")).otherwise(pl.lit(" to "))
    named = pl.when(pl.col("peer").is_null()).then("op").otherwise(pl.col("op") + way + pl.col("peer").cast(pl.String))
    shown = frame.with_columns(state_label().alias("state"), op=named, parts=pl.lit(1, pl.UInt32))
    return issued_rows(shown, pl.lit(False))


def _reason(index: OpIndex, analysis: Analysis, operation: Row, peer: int) -> str:
    """The reason why the other side is not there, as far as it is known."""
    if peer not in index.presence.seen:
        return Absence.NO_DUMP
    accused = any(
        f.kind == "p2p-unmatched" and peer in f.culprit_ranks and f.group and f.group.key == operation["group"]
        for f in analysis.findings
    )
    waits = operation["state"] in ("scheduled", "started")
    return Absence.NEVER_ISSUED if waits and (accused or index.presence.whole(peer)) else Absence.UNKNOWN


_ALIKE = ["order", "accused", "presence", "state", "differs", "late", "op", "parts", "sizes", "dtypes"]


@dataclass(frozen=True)
class Fold:
    """Members with equal facts; one member is a fold of one rank."""

    ranks: tuple[int, ...]
    presence: str
    state: str
    op: str
    parts: int
    sizes: str | None
    dtypes: str | None
    accused: bool
    differs: bool
    late: bool
    lag_ns: tuple[int, int] | None
    """Delay of the first and of the last of them after the first member, in ns; None if no time is known."""
    row: int | None
    """The row of the first rank, in ops."""
    stack_id: int | None
    """The stack of the first rank."""
    host: str | None
    """The host of all of them; None if there are several or it is not known."""

    @property
    def issued(self) -> bool:
        """Whether they have a row."""
        return self.presence == ISSUED

    @property
    def mark(self) -> str:
        """One character: `!` proven absent, `*` other operation, `?` unknown, `+` late, `~` in it; "" is done."""
        if self.presence == Absence.NEVER_ISSUED:
            return "!"
        if not self.issued:
            return "?"
        return "*" if self.differs else "+" if self.late else "~" if self.state in UNFINISHED else ""


def fold(peers: Peers, alone: Collection[int] = ()) -> list[Fold]:
    """Equal members in one fold each, except the ranks in `alone`; the odd first, then the fewest."""
    by_itself = pl.when(pl.col("rank").is_in(list(alone))).then("rank")
    groups = (
        _ordered(peers.table)
        .with_columns(by_itself=by_itself)
        .sort("rank", maintain_order=True)
        .group_by(*_ALIKE, "by_itself", maintain_order=True)
        .agg(
            pl.col("rank"),
            pl.len().alias("size"),
            pl.col("lag_ns").min().alias("least"),
            pl.col("lag_ns").max().alias("most"),
            pl.col("row").first(),
            pl.col("stack_id").first(),
            pl.when(pl.col("host").n_unique() == 1).then(pl.col("host").first()).alias("host"),
        )
        .with_columns(pl.col("size").sum().over(_ALIKE), first=pl.col("rank").list.min().min().over(_ALIKE))
        .sort("order", "size", "first", pl.col("rank").list.first(), maintain_order=True)
    )
    return [_fold(row) for row in groups.iter_rows(named=True)]


def members(peers: Peers, ranks: Collection[int]) -> list[Fold]:
    """These members one by one, in the same order."""
    part = Peers(peers.group, peers.seq, peers.op, peers.table.filter(pl.col("rank").is_in(list(ranks))))
    return fold(part, alone=ranks)


def _ordered(table: pl.DataFrame) -> pl.DataFrame:
    presence = pl.col("presence")
    order = (
        pl.when(pl.col("accused")).then(0)
        .when(presence == Absence.NEVER_ISSUED).then(1)
        .when(pl.col("differs")).then(2)
        .when(presence == Absence.NO_DUMP).then(3)
        .when(presence == NOT_YET).then(4)
        .when(presence != ISSUED).then(5)
        .when(pl.col("late")).then(6)
        .when(pl.col("state").is_in(UNFINISHED)).then(7)
        .otherwise(8)
    )  # fmt: skip
    return table.with_columns(order=order)


def _fold(row: dict[str, Any]) -> Fold:
    least, most = row["least"], row["most"]
    alike = ("presence", "state", "sizes", "dtypes", "accused", "differs", "late", "row", "stack_id", "host")
    return Fold(
        ranks=tuple(row["rank"]),
        op=row["op"] or "",
        parts=row["parts"] or 1,
        lag_ns=None if least is None else (least, most),
        **{name: row[name] for name in alike},
    )
