"""Sends and receives that NCCL's lines tell of, counted at both ends: whose is missing, and never whose fault it is.

A line is printed when an operation is issued, and the last ones of a process may be lost; so this names nobody.
"""

from __future__ import annotations

import polars as pl

from rankscope.schema import Dataset

SHOWN = 3


def uneven(dataset: Dataset) -> str:
    """A sentence on pairs of ranks of which one issued more than the other answers; "" where all agree.

    Only ranks count whose lines are there from their first send or receive on.
    """
    ops = dataset.ops.filter((pl.col("source") == "nccl-log") & pl.col("is_p2p") & pl.col("peer").is_not_null())
    if ops.is_empty():
        return ""
    whole = ops.group_by("rank", "group").agg(first=pl.col("p2p_seq").min()).filter(pl.col("first") == 1)
    known = {(rank, group) for rank, group, _ in whole.iter_rows()}
    counted = ops.filter(pl.col("op").is_in(["send", "recv"])).group_by("group", "rank", "peer", "op").len()
    counts = {(group, rank, peer, str(op)): n for group, rank, peer, op, n in counted.iter_rows()}
    pairs = {(group, rank, peer) if op == "send" else (group, peer, rank) for group, rank, peer, op in counts}
    told = []
    for group, sender, receiver in sorted(pairs):
        sent = counts.get((group, sender, receiver, "send"), 0)
        received = counts.get((group, receiver, sender, "recv"), 0)
        if sent != received and (sender, group) in known and (receiver, group) in known:
            told.append(f"rank {sender} issued {sent} to rank {receiver}, which issued {received} to receive them")
    more = f"; {len(told) - SHOWN} more pairs" if len(told) > SHOWN else ""
    return f" Of sends, {'; '.join(told[:SHOWN])}{more}: lines may be lost at the end." if told else ""
