"""Rows of `ops` from lines of c10d, and the states that they give to rows of NCCL's lines."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from rankscope import schema
from rankscope.assemble.logs.c10d_claims import Claim, ClaimedOperation, Claims
from rankscope.assemble.logs.log_operations import shaped_rows
from rankscope.assemble.logs.log_processes import LogScene
from rankscope.assemble.logs.seq_numbering import SeqNumbering


def add_claimed_rows(rows: pl.DataFrame, claims: Claims, lines_before: Mapping[int, int]) -> pl.DataFrame:
    """Operations of COLL lines with the states from the watchdog, and operations that only other lines name.

    `lines_before` holds the number of earlier lines of a file that continues others.
    """
    told = [
        _claimed_row(rank, group, row)
        for (rank, group), claim in claims.items()
        for row in (*claim.rows.values(), *claim.p2p.values())
    ]
    if told:
        kinds = {**schema.OPS, "line": pl.Int64}
        named = shaped_rows(pl.DataFrame(told, schema={n: kinds[n] for n in told[0]}, infer_schema_length=None))
        printed = rows.filter("is_p2p").select("rank", "group").unique()
        # COLL lines have each send and receive with its peer
        named = named.join(printed.with_columns(is_p2p=True), on=["rank", "group", "is_p2p"], how="anti")
        key = ["rank", "group", "seq"]
        if rows.height:
            states = named.select(*key, told="state", gone="retired")
            rows = rows.join(states, on=key, how="left", maintain_order="left").with_columns(
                state=pl.coalesce("told", "state"), retired=pl.coalesce("gone", "retired")
            ).drop("told", "gone")  # fmt: skip
            named = named.join(rows, on=key, how="anti", maintain_order="left")
        # an operation without a time follows the one before it in its group
        named = named.sort("rank", "group", "seq").with_columns(
            at=pl.col("created_ns").forward_fill().over("rank", "group")
        )
        rows = pl.concat([rows.with_columns(at="created_ns"), named])
    else:
        rows = rows.with_columns(at="created_ns")
    rows = _with_counters(rows, claims)
    before = pl.col("file").replace_strict(dict(lines_before), default=0, return_dtype=pl.Int64)
    return rows.sort("rank", "at", pl.col("line") + before, "seq", nulls_last=False, maintain_order=True).drop("at")


def add_absent_rows(rows: pl.DataFrame, claims: Claims, members: Sequence[tuple[int, ...]]) -> pl.DataFrame:
    """Scheduled rows for operations that a member never printed: fingerprints are compared before a collective runs.

    Only for a job that is known to have failed: in a running job, some rank is always a little ahead.
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


def _claimed_row(rank: int, group: int, row: ClaimedOperation) -> dict[str, Any]:
    return {
        "rank": rank, "group": group, "seq": None if row.is_p2p else row.seq,
        "p2p_seq": row.seq if row.is_p2p else None, "op": row.op or "unknown", "state": row.state,
        "retired": row.retired, "in_sizes": row.in_sizes, "out_sizes": row.out_sizes, "in_dtypes": row.dtypes,
        "out_dtypes": row.dtypes, "created_ns": row.created_ns, "timeout_ms": row.timeout_ms,
        "library": row.library, "file": row.file, "line": row.line, "attempt": row.attempt, "source": "c10d-log",
        "is_p2p": row.is_p2p, "coalesced": "none",
    }  # fmt: skip


def _with_counters(rows: pl.DataFrame, claims: Claims) -> pl.DataFrame:
    """Rows with states from the counters of the group: up to the last completed one, and from there to the last
    enqueued."""
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


# Frontiers from rows of logs and claims of the watchdog.

SeenRange = tuple[int | None, int | None, int | None]
"""The first and the last printed collective of a rank in a group, and the last completed of them."""


def seen_in(ops: pl.DataFrame) -> dict[tuple[int, int], SeenRange]:
    """The printed range of operations, by rank and group."""
    alone = pl.col("seq").filter(~pl.col("is_p2p"))
    kept = ops.group_by("rank", "group").agg(
        first=alone.min(), last=alone.max(), done=pl.col("seq").filter(pl.col("state") == "completed").max()
    )
    return {(rank, group): (first, last, done) for rank, group, first, last, done in kept.iter_rows()}


def claimed_frontiers(
    seen: Mapping[tuple[int, int], SeenRange], claims: Claims, counted: Mapping[tuple[int, int], int | None]
) -> pl.DataFrame:
    """A row for each rank and group in any of these tables."""
    rows: list[dict[str, Any]] = []
    for rank, group in sorted({*seen, *claims, *counted}):
        first, last, done = seen.get((rank, group), (None, None, None))
        claim = claims.get((rank, group), Claim())
        told = [n for n in (counted.get((rank, group)), claim.enqueued) if n is not None]
        whole = (first is not None and first <= 1) or claim.whole
        completed = [n for n in (claim.completed, done) if n is not None]
        rows.append(
            {
                "rank": rank, "group": group, "last_enqueued": max([*told, last or 0]) if told else None,
                "last_started": claim.started, "last_completed": max(completed, default=None),
                "status_enqueued": claim.enqueued, "status_started": None,
                "status_completed": claim.completed, "first_kept": first, "last_kept": last,
                "wrapped": not whole, "filtered": "none",
            }
        )  # fmt: skip
    return pl.DataFrame(rows, schema=dict(schema.FRONTIERS))


# Numbers of collectives that each rank printed: its progress, if no lines are missing.

BUFFERED_LINES = 64
"""Lines of operations that may be lost with the output buffer (4 KiB) of a killed process."""


def last_counted(
    scene: LogScene, numbering: Mapping[tuple[int, int], SeqNumbering]
) -> dict[tuple[int, int], int | None]:
    """The last collective by the lines of each rank on each group; None if lines may be missing."""
    reached: dict[tuple[int, int], int | None] = {}
    weak: set[tuple[int, int]] = set()
    furthest: dict[int, int] = defaultdict(int)
    for key, life in scene.by_place.items():
        if not life.stands or life.group is None or life.rank is None:
            continue
        if not any(piece.comm.collectives for piece in life.pieces):
            continue
        last = numbering[key].last if key in numbering and not life.pieces[-1].adrift else None
        reached[life.rank, life.group] = last
        furthest[life.group] = max(furthest[life.group], last or 0)
        if not all(scene.logs[piece.log].own for piece in life.pieces):
            weak.add((life.rank, life.group))
    for rank, group in weak:
        behind = furthest[group] - (reached[rank, group] or 0)
        if 0 < behind <= BUFFERED_LINES:
            reached[rank, group] = None
    return reached
