"""Operations of COLL and CALL lines as rows of `ops`.

The k-th collective of a communicator, counted from 0, has the sequence number k + 1: torch counts from 1. opCount is
no sequence number, and the time of a line is its host's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import polars as pl

from rankscope import schema
from rankscope.parsers.assemble.logs import names
from rankscope.parsers.assemble.logs.align import FIRST_SEQ, Numbering
from rankscope.parsers.assemble.logs.scene import Log, Scene
from rankscope.parsers.logs.model import IS_P2P, NULL

_NO_END = 1 << 62
_YEAR_NS = 366 * 86_400 * 1_000_000_000
_SECOND = 1_000_000_000


def collective_rows(
    scene: Scene, groups: list[tuple[int, ...]], numbering: Mapping[tuple[int, int], Numbering]
) -> pl.DataFrame:
    """Rows of `ops` with `line` behind them, of all communicators whose group and rank are known.

    `numbering`, by log and communicator, makes ordinals sequence numbers, where that can be told.
    """
    parts = [_of_log(scene, number, log, groups, numbering) for number, log in enumerate(scene.logs)]
    parts = [part for part in parts if part.height]
    return pl.concat(parts) if parts else empty()


def empty() -> pl.DataFrame:
    """No row."""
    return schema.empty({**schema.OPS, "line": pl.Int64})


def _of_log(
    scene: Scene, number: int, log: Log, groups: list[tuple[int, ...]], numbering: Mapping[tuple[int, int], Numbering]
) -> pl.DataFrame:
    content = log.content
    if not content.numbers.shape[1]:
        return empty()
    lives = [scene.by_place[number, at] for at in range(len(content.comms))]
    usable = np.array([not one.twin and None not in (one.group, one.rank) for one in lives], np.bool_)
    comm = content.code("comm")
    rows = np.flatnonzero(usable[comm] & (content.code("op") >= 0))
    if not rows.size:
        return empty()
    comm = comm[rows]
    frame = pl.DataFrame(
        {
            "comm": comm,
            "code": content.code("op")[rows],
            "datatype": content.code("datatype")[rows],
            "count": content.column("count")[rows],
            "root": content.column("root")[rows],
            "line": content.column("line")[rows],
            "stamp": content.column("stamp_ns")[rows],
            "ordinal": content.column("ordinal")[rows],
            "p2p": (content.code("flags")[rows] & IS_P2P) > 0,
        }
    )
    hosts = [scene.speakers[life.speaker].host for life in lives]
    table = pl.DataFrame(
        {
            "comm": np.arange(len(lives), dtype=np.int32),
            "rank": pl.Series([life.rank for life in lives], dtype=pl.Int32),
            "group": pl.Series([life.group for life in lives], dtype=pl.UInt32),
            "host": pl.Series(hosts, dtype=pl.String).cast(pl.Categorical),
            **_numbers([numbering.get((number, at)) for at in range(len(lives))]),
            "members": pl.Series([life.comm.nranks for life in lives], dtype=pl.Int64),
        }
    )
    told = frame.join(table, on="comm", how="left", maintain_order="left")
    told = _with_meaning(told, content.ops).with_columns(
        created_ns=_times(frame["stamp"]),
        seq=pl.when(~pl.col("p2p") & pl.col("ordinal").is_between("first", "until")).then(
            pl.col("ordinal") + pl.col("shift")
        ),
        p2p_seq=pl.when("p2p").then(pl.col("ordinal") + FIRST_SEQ),
        peer=_peers(told, groups),
        file=pl.lit(log.place, pl.UInt32),
        attempt=pl.lit(log.source.attempt, pl.UInt16),
        source=pl.lit("nccl-log", schema.Source),
        library=pl.lit("nccl").cast(pl.Categorical),
        is_p2p=pl.col("p2p"),
        coalesced=pl.lit("none", schema.Coalesced),
        state=pl.lit("unknown", schema.State),
    )
    return shaped(told)


def _numbers(told: list[Numbering | None]) -> dict[str, pl.Series]:
    ends = [n and (_NO_END if n.until is None else n.until) for n in told]
    return {
        "shift": pl.Series([n and n.shift for n in told], dtype=pl.Int64),
        "first": pl.Series([n and n.first for n in told], dtype=pl.Int64),
        "until": pl.Series(ends, dtype=pl.Int64),
    }


def shaped(rows: pl.DataFrame) -> pl.DataFrame:
    """All columns of `ops` and `line`; null where `rows` has none."""
    there = set(rows.columns)
    columns = {**schema.OPS, "line": pl.Int64}
    return rows.select(
        (pl.col(name) if name in there else pl.lit(None)).cast(kind).alias(name) for name, kind in columns.items()
    )


def _times(stamps: pl.Series) -> pl.Series:
    """Times with a date; none of a log whose clock shows only seconds, which orders nothing."""
    known = (stamps != NULL) & (stamps > _YEAR_NS)
    coarse = bool((stamps.filter(known) % _SECOND == 0).all())
    return pl.select(pl.when(pl.lit(known) & ~pl.lit(coarse)).then(pl.lit(stamps)).alias("created_ns")).to_series()


def _with_meaning(rows: pl.DataFrame, printed: list[str]) -> pl.DataFrame:
    """Columns op, in_sizes, out_sizes, in_dtypes and out_dtypes, worked out once for each distinct line."""
    key = ["code", "datatype", "count", "members"]
    distinct = rows.select(key).unique(maintain_order=True)
    made: dict[str, list[Any]] = {name: [] for name in ("op", "in_sizes", "out_sizes", "in_dtypes")}
    for code, datatype, count, members in distinct.iter_rows():
        name = printed[code]
        sent, received = names.sizes(name, None if count == NULL else count, members)
        values = names.op_of(name), sent, received, names.dtype(datatype)
        for column, value in zip(made, values, strict=True):
            made[column].append(value)
    table = distinct.with_columns(pl.Series(n, v, dtype=pl.String).cast(pl.Categorical) for n, v in made.items())
    table = table.with_columns(out_dtypes="in_dtypes")
    return rows.join(table, on=key, how="left", nulls_equal=True, maintain_order="left")


def _peers(rows: pl.DataFrame, groups: list[tuple[int, ...]]) -> pl.Series:
    """Global rank at the other end of a send or receive: its line says the place in the communicator."""
    wanted = rows.select("p2p", "group", "root").with_row_index("row").filter("p2p")
    peers: list[int | None] = [None] * rows.height
    for row, _, group, root in wanted.iter_rows():
        members = groups[group]
        peers[row] = members[root] if 0 <= root < len(members) else None
    return pl.Series(peers, dtype=pl.Int32)
