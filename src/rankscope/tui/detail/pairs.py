"""Sends and receives under the cursor, each with its other side."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np
import polars as pl

from rankscope.analysis.facts import collect_pairs
from rankscope.analysis.model import Analysis
from rankscope.analysis.presence import Absence
from rankscope.tui.detail.operation_index import OpIndex, Row, Rows, one
from rankscope.tui.detail.peers import Peers, absent_rows, finish, issued_rows, state_label

_JOIN = ["group", "src", "dst", "k"]


def pair(index: OpIndex, analysis: Analysis, row: int) -> Peers:
    """Both sides of the point-to-point operation at `row`; if it closes a batch, of all operations of the batch."""
    own = index.row(row)
    if own["group"] is None:
        alone = finish(_members(index, one(row)), analysis)
        return Peers(None, own["p2p_seq"], own["op"] or "?", alone)
    batch = _batch(index, own)
    rows, counterparts, lost = _match(index, own["group"], batch)
    members = _members(index, np.concatenate([rows, counterparts]).astype(np.uint32))
    reasons = {peer: _reason(index, analysis, own, peer) for peer in lost if peer is not None}
    table = finish(pl.concat([members, absent_rows(reasons)]), analysis)
    return Peers(index.group(own["group"]), own["p2p_seq"], own["op"] or "?", table)


def waiting_for(index: OpIndex, rank: int, group: int, seq: int | None) -> int | None:
    """The row of the oldest send or receive in a group that waits for `rank`; None if there is none."""
    ops = index.dataset.ops
    wanted = (ops["peer"] == rank) & (ops["group"] == group) & ops["is_p2p"] & (ops["state"] != "completed")
    rows = (wanted if seq is None else wanted & (ops["seq"] == seq)).arg_true()
    return int(rows[0]) if len(rows) else None


def _batch(index: OpIndex, own: Row) -> Rows:
    """The operations that this one launched: itself, or the batch that it closes."""
    if own["coalesced"] != "closer":
        return np.array([own["row"]], dtype=np.uint32)
    issued = index.rank_frame(own["rank"]).filter(
        (pl.col("group") == own["group"]) & pl.col("is_p2p") & (pl.col("p2p_seq") == own["p2p_seq"])
        & (pl.col("coalesced") == "inner")
    )  # fmt: skip
    return issued["row"].to_numpy() if issued.height else np.array([own["row"]], dtype=np.uint32)


def _match(index: OpIndex, group: int, batch: Rows) -> tuple[Rows, Rows, list[int | None]]:
    """(the rows, the rows of their other sides, the peers without one)."""
    mine = index.frame(batch)
    ranks = {*mine["rank"].to_list(), *mine["peer"].drop_nulls().to_list()}
    positions = _of_ranks(index, group, ranks)
    table = collect_pairs(replace(index.dataset, ops=index.dataset.ops[positions]), index.presence)
    table = table.with_columns(pl.Series("at", positions[table["row"].to_numpy()], dtype=pl.UInt32))
    chosen = table.filter(pl.col("at").is_in(batch.tolist()))
    other = table.with_columns(is_send=~pl.col("is_send")).select(*_JOIN, "is_send", pl.col("at").alias("other"))
    found = chosen.join(other, on=[*_JOIN, "is_send"], how="left", maintain_order="left")
    without = found.filter(pl.col("other").is_null())["peer"].unique(maintain_order=True).to_list()
    return batch, found["other"].drop_nulls().to_numpy(), without


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


def _reason(index: OpIndex, analysis: Analysis, own: Row, peer: int) -> str:
    """The reason why the other side is not there, as far as it is known."""
    if peer not in index.presence.seen:
        return Absence.NO_DUMP
    accused = any(
        f.kind == "p2p-unmatched" and peer in f.culprit_ranks and f.group and f.group.key == own["group"]
        for f in analysis.findings
    )
    waits = own["state"] in ("scheduled", "started")
    return Absence.NEVER_ISSUED if waits and (accused or index.presence.whole(peer)) else Absence.UNKNOWN
