"""Sends and receives of a schedule: the two sides of each transfer, and whether it has ended.

A recorder may not tell the end of a send, and a receive from any source does not tell the sender. Both are worked out
from what the ranks issued: a transfer of unknown end that both sides have issued has ended, unless one of them issued
it behind something that has not.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator

import numpy as np
import polars as pl

from rankscope.analysis.logical_time import p2p_pairs, whole_ranks
from rankscope.analysis.replay.replay_source import ReplaySource
from rankscope.analysis.signatures import element_count

_NEVER = 2**62
_TRANSFER = ("group", "low", "high", "k")
MOST_ROUNDS = 1_000
"""Rounds in which ends that are not told are worked out; each passes on what holds up one rank to those after it."""


def paired_transfers(source: ReplaySource, rows: pl.DataFrame) -> pl.DataFrame:
    """Sends and receives with the k-th of their pair, without those that one side alone has completed.

    `rows` are those of ops, in program order. The state stays unknown where both sides have issued it and none tells
    the end. Those of a window are kept: they are matched.
    """
    rows = _with_senders(rows)
    keyed = rows.lazy().select("rank", "group", "seq", "is_p2p", "op", "peer", "coalesced", "state")
    keys = p2p_pairs(keyed.with_row_index("at"), whole_ranks(source.dataset)).select("at", "low", "high", "k").collect()
    took = pl.col("completed_ns") - pl.col("created_ns")
    aborted = (took >= pl.col("timeout_ms") * 1_000_000).fill_null(False)
    done = (pl.col("state") == "completed") & ~aborted
    batch = pl.when(pl.col("coalesced") == "inner").then(pl.col("op_id")).otherwise(-1).fill_null(-1)
    named = rows.select(
        "row", "rank", "group", "state", pl.lit(None, pl.Int64).alias("seq"), pl.col("op").cast(pl.String),
        _carried("sizes").map_elements(element_count, pl.Int64).alias("elements"),
        _carried("dtypes").alias("dtype"), done.alias("done"), batch.alias("batch"),
    ).with_row_index("at")  # fmt: skip
    known = named.join(keys, on="at", how="inner", maintain_order="left")
    if source.is_window:
        return known.with_columns(k=pl.col("k") - pl.col("k").min().over(_TRANSFER[:3]))
    over = known.group_by(_TRANSFER).agg(
        ended=pl.col("done").any(), open=(pl.col("state") == "unknown").any(), both=pl.col("rank").n_unique() > 1
    )
    left = known.join(over, on=_TRANSFER, how="left", maintain_order="left").filter(~pl.col("ended") | pl.col("both"))
    untold = pl.when(pl.col("open") & pl.col("both")).then(pl.lit("unknown")).otherwise(pl.lit("scheduled"))
    told = pl.when("ended").then(pl.lit("completed")).otherwise(untold)
    return left.with_columns(state=told.cast(source.dataset.ops.schema["state"]))


def _carried(what: str) -> pl.Expr:
    """Sizes or types of the tensor of a send or receive: the hook notes that of a receive as its output alone."""
    own, other = (pl.col(f"{side}_{what}").cast(pl.String) for side in ("in", "out"))
    text = pl.when(own.is_in(["", "[]"]) | own.is_null()).then(other).otherwise(own)
    return pl.when(text != "[]").then(text)


# Ends that are not told.


def with_held_transfers(rows: pl.DataFrame) -> pl.DataFrame:
    """The rows of a schedule, where transfers of unknown end are pending if something before them is.

    Not if one of their ranks has completed anything behind them. `rows` are sorted by rank and row.
    """
    untold = rows.filter(pl.col("low").is_not_null() & (pl.col("state") == "unknown") & ~pl.col("pending"))
    if untold.is_empty() or not rows["pending"].any():
        return rows
    last = rows.filter(~pl.col("pending") & (pl.col("state") == "completed")).group_by("rank").agg(pl.col("row").max())
    open_ = untold.join(last, on="rank", how="left", suffix="_last").with_columns(
        passed=(pl.col("row") < pl.col("row_last")).fill_null(False).any().over(_TRANSFER)
    ).filter(~pl.col("passed"))  # fmt: skip
    first = np.full(int(rows["rank"].max() or 0) + 1, _NEVER, np.int64)  # type: ignore[arg-type]
    pending = rows.filter("pending")
    np.minimum.at(first, pending["rank"].to_numpy(), pending["row"].to_numpy())
    number = open_.select(pl.struct(_TRANSFER).rank("dense").cast(pl.Int64)).to_series().to_numpy()
    rank, row = open_["rank"].to_numpy(), open_["row"].to_numpy()
    held = np.zeros(int(number.max(initial=0)) + 1, np.bool_)
    for _ in range(MOST_ROUNDS):
        behind = row > first[rank]
        if held[number[behind]].all():
            break
        held[number[behind]] = True
        np.minimum.at(first, rank[held[number]], row[held[number]])
    found = open_.select("row").filter(pl.Series(held[number]))["row"]
    return rows.with_columns(pending=pl.col("pending") | pl.col("row").is_in(found.implode()))


# Receives from any source.


def _with_senders(rows: pl.DataFrame) -> pl.DataFrame:
    """The rows in which receives from any source name a sender, as far as the counts of sends tell one."""
    is_open = (pl.col("op") == "recv") & pl.col("peer").is_null() & pl.col("group").is_not_null()
    anyone = rows.filter(is_open)
    if anyone.is_empty():
        return rows
    receivers = anyone.select("group", "rank").unique()
    sends = rows.filter((pl.col("op") == "send") & pl.col("peer").is_not_null())
    sends = sends.join(receivers, left_on=["group", "peer"], right_on=["group", "rank"], how="semi")
    sent: defaultdict[tuple[int, int], dict[int, Counter[int]]] = defaultdict(dict)
    for group, receiver, sender, seq in sends.select("group", "peer", "rank", "seq").iter_rows():
        sent[group, receiver].setdefault(sender, Counter())[seq] += 1
    named: dict[int, int] = {}
    grouped = anyone.group_by("group", "rank", "seq", maintain_order=True).agg("row")
    for group, receiver, seq, places in grouped.iter_rows():
        counts = {sender: of[seq] for sender, of in sorted(sent[group, receiver].items())}
        named.update(zip(places, senders_by_turns(counts, len(places)), strict=False))
    sender = pl.col("row").replace_strict(named, default=None, return_dtype=pl.Int32)
    return rows.with_columns(peer=pl.when(is_open).then(sender).otherwise("peer"))


def senders_by_turns(counts: dict[int, int], receives: int) -> Iterator[int]:
    """Senders of the receives of a rank between two collectives: those that sent, by turns, then those that did not.

    These are told only if each of them lacks as many sends as make it equal to the others. `counts` are sends.
    """
    most = max(counts.values(), default=0)
    yield from (sender for turn in range(most) for sender, count in counts.items() if count > turn)
    lack = {sender: most - count for sender, count in counts.items()}
    if sum(lack.values()) == receives - sum(counts.values()):
        yield from (sender for sender, count in lack.items() for _ in range(count))
