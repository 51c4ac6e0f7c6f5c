"""The members of a collective: who issued it and when, who did not and why, who issued another operation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import polars as pl

from rankscope.analysis.collective_calls import collect_calls
from rankscope.analysis.model import Analysis, Divergence
from rankscope.analysis.presence import Absence
from rankscope.schema import Group
from rankscope.tui.detail.operation_index import OpIndex, Rows

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
        found = self.table.filter(pl.col("rank") == rank).select("row", "presence")
        return found.row(0) if found.height else None


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
    return members.with_columns(lag_ns=lag, accused=pl.col("rank").is_in(list(analysis.culprits))).with_columns(
        late=(pl.col("lag_ns") > behind).fill_null(False)
    ).select(list(TABLE))  # fmt: skip


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
        names.alias("op"), pl.max_horizontal(inner.sum(), 1).cast(pl.UInt32).alias("parts"),
        pl.col("created_ns").first(), pl.col("host").first(),
    )  # fmt: skip


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
