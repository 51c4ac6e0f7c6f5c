"""Lanes: what is sent to one rank in a group by one other, or by any other where it receives from any source."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import polars as pl

from rankscope.analysis.facts import Array


class Side(NamedTuple):
    """The operations of one rank in a lane."""

    rank: int
    is_send: bool
    rows: Array
    """Rows of ops, in order."""


class Lane(NamedTuple):
    """All that is sent to one rank in a group by one other, or by any other where it receives from any source."""

    group: int
    dst: int
    senders: tuple[Side, ...]
    receiver: Side


def lanes_of(ops: pl.DataFrame) -> list[Lane]:
    """All lanes of the sends and receives in `ops`, by group and receiver."""
    return [lane for (group, dst), sides in _sides(ops).items() for lane in _lanes_into(group, dst, sides)]


def _sides(ops: pl.DataFrame) -> dict[tuple[int, int], list[tuple[int | None, Side]]]:
    """By group and receiver: the sender (None: any) and the operations of one side."""
    places = ops["is_p2p"].fill_null(value=False).arg_true()
    rows = (
        ops[places].select("rank", "group", "peer", pl.col("op").cast(pl.String))
        .with_columns(row=places.cast(pl.Int64), is_send=pl.col("op") == "send")
        .filter(pl.col("op").is_in(["send", "recv"]))
        .filter(~pl.col("is_send") | pl.col("peer").is_not_null())
        .with_columns(
            src=pl.when("is_send").then("rank").otherwise("peer"),
            dst=pl.when("is_send").then("peer").otherwise("rank"),
        )
    )  # fmt: skip
    out: dict[tuple[int, int], list[tuple[int | None, Side]]] = {}
    lanes = rows.group_by("group", "src", "dst", "is_send", maintain_order=True).agg("row")
    for group, src, dst, is_send, own in lanes.iter_rows():
        side = Side(src if is_send else dst, is_send, np.array(own, np.int64))
        out.setdefault((group, dst), []).append((src, side))
    return out


def _lanes_into(group: int, dst: int, sides: list[tuple[int | None, Side]]) -> list[Lane]:
    """The lanes to one rank: one for each sender, or one for all where it receives from any source."""
    senders = {src: side for src, side in sides if src is not None and side.is_send}
    posted = {src: side for src, side in sides if not side.is_send}
    if None in posted:
        rows = np.sort(np.concatenate([side.rows for side in posted.values()]))
        return [Lane(group, dst, tuple(senders.values()), Side(dst, False, rows))] if senders else []
    return [
        Lane(group, dst, (senders.get(src, Side(src, True, _NONE)),), posted.get(src, Side(dst, False, _NONE)))
        for src in sorted({*senders, *(src for src in posted if src is not None)})
    ]


_NONE = np.empty(0, np.int64)
