"""Sends and receives that NCCL's lines tell of, counted at both ends: whose is missing, and never whose fault it is.

A line is printed when an operation is issued, and the last ones of a process may be lost; so this names nobody.
"""

from __future__ import annotations

import polars as pl

from rankscope.schema import Dataset

SHOWN = 3
LANE = ["group", "src", "dst"]


def uneven(dataset: Dataset) -> str:
    """A sentence on pairs of ranks of which one issued more than the other answers; "" where all agree."""
    lanes = p2p_lines(dataset).group_by(*LANE).agg(sent=pl.col("is_send").sum(), received=(~pl.col("is_send")).sum())
    told = [
        f"rank {src} issued {sent} to rank {dst}, which issued {received} to receive them"
        for _, src, dst, sent, received in lanes.filter(pl.col("sent") != pl.col("received")).sort(*LANE).iter_rows()
    ]
    more = f"; {len(told) - SHOWN} more pairs" if len(told) > SHOWN else ""
    return f" Of sends, {'; '.join(told[:SHOWN])}{more}: lines may be lost at the end." if told else ""


def p2p_lines(dataset: Dataset) -> pl.DataFrame:
    """Sends and receives of ranks whose lines are there from their first one on: group, src, dst, is_send, what."""
    ops = dataset.ops.filter(
        (pl.col("source") == "nccl-log") & pl.col("is_p2p") & pl.col("peer").is_not_null()
        & pl.col("op").cast(pl.String).is_in(["send", "recv"])
    )  # fmt: skip
    whole = ops.group_by("rank", "group").agg(first=pl.col("p2p_seq").min()).filter(pl.col("first") == 1)
    known = whole.select("group", "rank")
    told = ops.select(
        "group", "rank", pl.col("peer").cast(pl.Int32), is_send=pl.col("op").cast(pl.String) == "send",
        size=pl.col("in_sizes").cast(pl.String), type=pl.col("in_dtypes").cast(pl.String),
    ).join(known, on=["group", "rank"], how="semi", maintain_order="left")  # fmt: skip
    told = told.join(known, left_on=["group", "peer"], right_on=["group", "rank"], how="semi", maintain_order="left")
    return told.select(
        "group", "is_send", "size", "type", src=pl.when("is_send").then("rank").otherwise("peer"),
        dst=pl.when("is_send").then("peer").otherwise("rank"),
    )  # fmt: skip
