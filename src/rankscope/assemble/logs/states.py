"""Rows of `ops` from lines of c10d, and the states they give to those of NCCL's lines."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from rankscope import schema
from rankscope.assemble.logs.collectives import shaped
from rankscope.assemble.logs.reports import Claims, Row


def with_claims(rows: pl.DataFrame, claims: Claims, lines_before: Mapping[int, int]) -> pl.DataFrame:
    """Operations of COLL lines with the states that the watchdog tells, and those that only other lines name.

    `lines_before` says of files that go on from others how many lines those have.
    """
    told = [
        _told(rank, group, row)
        for (rank, group), claim in claims.items()
        for row in (*claim.rows.values(), *claim.p2p.values())
    ]
    if told:
        kinds = {**schema.OPS, "line": pl.Int64}
        named = shaped(pl.DataFrame(told, schema={n: kinds[n] for n in told[0]}, infer_schema_length=None))
        printed = rows.filter("is_p2p").select("rank", "group").unique()
        # COLL lines tell each send and receive with its peer
        named = named.join(printed.with_columns(is_p2p=True), on=["rank", "group", "is_p2p"], how="anti")
        key = ["rank", "group", "seq"]
        if rows.height:
            states = named.select(*key, told="state", gone="retired")
            rows = rows.join(states, on=key, how="left", maintain_order="left").with_columns(
                state=pl.coalesce("told", "state"), retired=pl.coalesce("gone", "retired")
            ).drop("told", "gone")  # fmt: skip
            named = named.join(rows, on=key, how="anti", maintain_order="left")
        # what has no time stands behind what came before it in its group
        named = named.sort("rank", "group", "seq").with_columns(
            at=pl.col("created_ns").forward_fill().over("rank", "group")
        )
        rows = pl.concat([rows.with_columns(at="created_ns"), named])
    else:
        rows = rows.with_columns(at="created_ns")
    rows = _with_counters(rows, claims)
    before = pl.col("file").replace_strict(dict(lines_before), default=0, return_dtype=pl.Int64)
    return rows.sort("rank", "at", pl.col("line") + before, "seq", nulls_last=False, maintain_order=True).drop("at")


def with_absences(rows: pl.DataFrame, claims: Claims, members: Sequence[tuple[int, ...]]) -> pl.DataFrame:
    """Scheduled for what a member never printed: fingerprints are compared before a collective runs.

    Only to be asked of a job that is known to have failed: in one that goes on, some rank is always a little ahead.
    """
    printed: dict[int, dict[int, int]] = defaultdict(dict)
    for (rank, group), claim in claims.items():
        if claim.whole and claim.enqueued is not None:
            printed[group][rank] = claim.enqueued
    least = [
        (group, min(own.values())) for group, own in printed.items() if members[group] and set(own) == {*members[group]}
    ]
    if not least or rows.is_empty():
        return rows
    table = pl.DataFrame(least, schema={"group": pl.UInt32, "least": pl.Int64}, orient="row")
    alone = (pl.col("state") == "unknown") & (pl.col("seq") > pl.col("least"))
    return (
        rows.join(table, on="group", how="left", maintain_order="left")
        .with_columns(state=pl.when(alone).then(pl.lit("scheduled", schema.State)).otherwise("state"))
        .drop("least")
    )


def _told(rank: int, group: int, row: Row) -> dict[str, Any]:
    return {
        "rank": rank, "group": group, "seq": None if row.is_p2p else row.seq,
        "p2p_seq": row.seq if row.is_p2p else None, "op": row.op or "unknown", "state": row.state,
        "retired": row.retired, "in_sizes": row.in_sizes, "out_sizes": row.out_sizes, "in_dtypes": row.dtypes,
        "out_dtypes": row.dtypes, "created_ns": row.created_ns, "timeout_ms": row.timeout_ms,
        "library": row.library, "file": row.file, "line": row.line, "attempt": row.attempt, "source": "c10d-log",
        "is_p2p": row.is_p2p, "coalesced": "none",
    }  # fmt: skip


def _with_counters(rows: pl.DataFrame, claims: Claims) -> pl.DataFrame:
    """With states by the counters of the group: up to the last completed one, and from there to the last enqueued."""
    known = [(rank, group, c.enqueued, c.completed) for (rank, group), c in claims.items() if c.completed is not None]
    if not known or rows.is_empty():
        return rows
    table = pl.DataFrame(
        known, schema={"rank": pl.Int32, "group": pl.UInt32, "upto": pl.Int64, "done": pl.Int64}, orient="row"
    )
    open_ = (pl.col("state") == "unknown") & ~pl.col("is_p2p")
    return (
        rows.join(table, on=["rank", "group"], how="left", maintain_order="left")
        .with_columns(
            state=pl.when(open_ & (pl.col("seq") <= pl.col("done"))).then(pl.lit("completed", schema.State))
            .when(open_ & (pl.col("seq") > pl.col("done"))).then(pl.lit("scheduled", schema.State))
            .otherwise("state")
        )
        .drop("upto", "done")
    )  # fmt: skip
