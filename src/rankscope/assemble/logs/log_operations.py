"""Rows of `ops` from COLL and CALL lines.

The k-th collective of a communicator, counted from 0, has the sequence number k + 1, because torch counts from 1.
opCount is no sequence number, and the time of a line is its host's.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl

from rankscope import schema
from rankscope.assemble.logs import log_values
from rankscope.assemble.logs.log_processes import CommLife, LogScene
from rankscope.assemble.logs.seq_numbering import FIRST_SEQ, SeqNumbering
from rankscope.parsers.logs.model import IS_P2P, LogContent
from rankscope.parsers.matrices import NULL, Numbers

_NO_END = 1 << 62
_YEAR_NS = 366 * 86_400 * 1_000_000_000
_SECOND = 1_000_000_000


def collective_rows(
    scene: LogScene,
    groups: list[tuple[int, ...]],
    numbering: Mapping[tuple[int, int], SeqNumbering],
    dated: Collection[int] | None = None,
    only: Collection[int] | None = None,
) -> pl.DataFrame:
    """Rows of `ops` with `line` behind them, for all communicators with known group and rank.

    `numbering`, by log and communicator, maps ordinals to sequence numbers, if known. `dated` are the numbers of logs
    whose times order lines, if known from more lines than these, and `only` those with any operation, if not all logs
    are needed.
    """
    ops: dict[str, int] = {}
    dated = dated_logs(scene) if dated is None else dated
    numbers = range(len(scene.logs)) if only is None else sorted(only)
    parts = [_log_columns(scene, number, ops, dated=number in dated) for number in numbers]
    if not any(part["life"].size for part in parts):
        return empty_rows()
    columns = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    frame = pl.DataFrame(columns)
    lives = _life_table(scene, numbering)
    told = frame.with_columns(lives[name].gather(frame["life"]) for name in lives.columns)
    told = _with_meaning(told, list(ops))
    placed = pl.col("ordinal").is_between("first", "until")
    return shaped_rows(
        told.with_columns(
            created_ns=pl.when(pl.col("stamp") != NULL).then("stamp"),
            seq=pl.when(~pl.col("p2p") & placed).then(pl.col("ordinal") + pl.col("shift")),
            p2p_seq=pl.when("p2p").then(pl.col("ordinal") + FIRST_SEQ),
            peer=_peers(told, groups),
            source=pl.lit("nccl-log", schema.Source),
            library=pl.lit("nccl").cast(pl.Categorical),
            is_p2p=pl.col("p2p"),
            coalesced=pl.lit("none", schema.Coalesced),
            state=pl.lit("unknown", schema.State),
        )
    )


def empty_rows() -> pl.DataFrame:
    """The table without rows."""
    return schema.empty({**schema.OPS, "line": pl.Int64})


def _log_columns(scene: LogScene, number: int, ops: dict[str, int], *, dated: bool) -> dict[str, np.ndarray[Any, Any]]:
    """Columns of the usable operations of a log; `life` is an index into the scene's lives, `code` into `ops`."""
    content = scene.logs[number].content
    at = [scene.by_place[number, i] for i in range(len(content.comms))]
    rows = _usable_rows(at, content)
    index = np.array([one.index for one in at] or [0], np.int64)
    before = np.array([one.before for one in at] or [(0, 0)], np.int64)
    codes = np.array([ops.setdefault(op, len(ops)) for op in content.ops] or [0], np.int64)
    comm, code = content.code("comm"), content.code("op")
    p2p = (content.code("flags")[rows] & IS_P2P) > 0
    return {
        "life": index[comm[rows]],
        "code": codes[code[rows]],
        "datatype": content.code("datatype")[rows].astype(np.int64),
        "count": content.column("count")[rows],
        "root": content.column("root")[rows],
        "line": content.column("line")[rows],
        "stamp": _times(content.column("stamp_ns")[rows]) if dated else np.full(len(rows), NULL),
        "ordinal": content.column("ordinal")[rows] + before[comm[rows], p2p.astype(np.int64)],
        "p2p": p2p,
    }


def _usable_rows(lives: Sequence[CommLife], content: LogContent) -> Numbers:
    """The operations of known ranks and groups; of sends and receives only countable ones."""
    comm, p2p = content.code("comm"), (content.code("flags") & IS_P2P) > 0
    known = np.array([not one.twin and None not in (one.group, one.rank) for one in lives] or [False], np.bool_)
    adrift = np.array([one.adrift for one in lives] or [False], np.bool_)
    return np.flatnonzero(known[comm] & ~(adrift[comm] & p2p) & (content.code("op") >= 0))


def _life_table(scene: LogScene, numbering: Mapping[tuple[int, int], SeqNumbering]) -> pl.DataFrame:
    """The common values of all operations of a life, by its index."""
    lives = scene.lives
    logs = [scene.logs[life.log] for life in lives]
    return pl.DataFrame(
        {
            "rank": pl.Series([life.rank for life in lives], dtype=pl.Int32),
            "group": pl.Series([life.group for life in lives], dtype=pl.UInt32),
            "host": pl.Series([scene.speakers[life.speaker].host for life in lives], dtype=pl.String).cast(
                pl.Categorical
            ),
            "members": pl.Series([life.comm.nranks for life in lives], dtype=pl.Int64),
            "file": pl.Series([log.place for log in logs], dtype=pl.UInt32),
            "attempt": pl.Series([log.source.attempt for log in logs], dtype=pl.UInt16),
            **_numbers([numbering.get((life.log, life.at)) for life in lives]),
        }
    )


def _numbers(told: list[SeqNumbering | None]) -> dict[str, pl.Series]:
    ends = [n and (_NO_END if n.until is None else n.until) for n in told]
    return {
        "shift": pl.Series([n and n.shift for n in told], dtype=pl.Int64),
        "first": pl.Series([n and n.first for n in told], dtype=pl.Int64),
        "until": pl.Series(ends, dtype=pl.Int64),
    }


def shaped_rows(rows: pl.DataFrame) -> pl.DataFrame:
    """The rows with all columns of `ops` and `line`; null where `rows` lacks one."""
    there = set(rows.columns)
    columns = {**schema.OPS, "line": pl.Int64}
    return rows.select(
        (pl.col(name) if name in there else pl.lit(None)).cast(kind).alias(name) for name, kind in columns.items()
    )


def dated_logs(scene: LogScene) -> frozenset[int]:
    """Numbers of logs whose times have a date and a finer resolution than seconds, and so order lines."""
    stamps = {number: _times(log.content.column("stamp_ns")) for number, log in enumerate(scene.logs)}
    return frozenset(number for number, own in stamps.items() if (own[own != NULL] % _SECOND).any())


def _times(stamps: Numbers) -> Numbers:
    """Times with a date."""
    return np.where((stamps != NULL) & (stamps > _YEAR_NS), stamps, NULL)


def _with_meaning(rows: pl.DataFrame, printed: list[str]) -> pl.DataFrame:
    """Columns op, in_sizes, out_sizes, in_dtypes and out_dtypes, computed once for each distinct line."""
    key = ["code", "datatype", "count", "members"]
    distinct = rows.select(key).unique(maintain_order=True)
    made: dict[str, list[Any]] = {name: [] for name in ("op", "in_sizes", "out_sizes", "in_dtypes")}
    for code, datatype, count, members in distinct.iter_rows():
        name = printed[code]
        sent, received = log_values.shape_texts(name, None if count == NULL else count, members)
        values = log_values.nccl_op(name), sent, received, log_values.dtype_text(datatype)
        for column, value in zip(made, values, strict=True):
            made[column].append(value)
    table = distinct.with_columns(pl.Series(n, v, dtype=pl.String).cast(pl.Categorical) for n, v in made.items())
    table = table.with_columns(out_dtypes="in_dtypes")
    return rows.join(table, on=key, how="left", nulls_equal=True, maintain_order="left")


def _peers(rows: pl.DataFrame, groups: list[tuple[int, ...]]) -> pl.Series:
    """Global rank of the peer of a send or receive: its line has the place in the communicator."""
    key = ["group", "root"]
    wanted = rows.filter("p2p").select(key).unique()
    peers = [groups[group][root] if 0 <= root < len(groups[group]) else None for group, root in wanted.iter_rows()]
    table = wanted.with_columns(p2p=pl.lit(value=True), peer=pl.Series(peers, dtype=pl.Int32))
    return rows.select(*key, "p2p").join(table, on=[*key, "p2p"], how="left", maintain_order="left")["peer"]
