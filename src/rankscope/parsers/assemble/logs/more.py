"""Operations that logs print after all of them were worked out: as rows behind those that are there.

Whose they are, on which group and from which number on, was settled then. It stays until all is worked out again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

import polars as pl

from rankscope import schema
from rankscope.parsers.assemble.logs.collectives import collective_rows
from rankscope.parsers.assemble.logs.counted import counted
from rankscope.parsers.assemble.logs.frontier_rows import Seen, frontier_table, seen_in
from rankscope.parsers.assemble.logs.log_processes import Life, Log, Scene
from rankscope.parsers.assemble.logs.prints.more import End, more_prints
from rankscope.parsers.assemble.logs.reports import Claims
from rankscope.parsers.assemble.logs.seq_numbering import Numbering
from rankscope.parsers.assemble.logs.states import with_claims
from rankscope.parsers.logs.model import IS_P2P, LogContent

_PLACE = ["rank", "group"]
Key = tuple[int, int]
"""Rank and group."""


@dataclass(frozen=True)
class Known:
    """How lines of logs became operations when all were worked out."""

    scene: Scene
    members: list[tuple[int, ...]]
    numbering: Mapping[Key, Numbering]
    """By log and communicator."""
    dated: frozenset[int]
    """Numbers of logs whose times order anything."""
    skipped: pl.DataFrame
    """Ranks and groups whose operations are only compared, for dumps have them."""
    unfit: frozenset[int]
    """Groups whose numbers in logs join nothing."""
    claims: Claims
    """What lines of c10d say."""
    seen: Mapping[Key, Seen]
    newest: pl.DataFrame
    """By rank, when its last operation was printed, where that is known."""
    timed: bool
    """Times of logs are used."""
    dumped: pl.DataFrame
    """Frontiers that dumps tell."""
    prints: Mapping[int, End]
    """By rank where its fingerprints have ended."""


class More(NamedTuple):
    """Operations and frontiers, with the columns of `ops` and of `frontiers`: of the latter all that logs tell."""

    ops: pl.DataFrame
    frontiers: pl.DataFrame


def newest_of(rows: pl.DataFrame) -> pl.DataFrame:
    """Columns rank, newest: when the last of its operations was printed."""
    return rows.group_by("rank").agg(newest=pl.col("created_ns").max())


def more_rows(known: Known, told: Mapping[int, LogContent]) -> More | None:
    """What logs print more, by their rows of `files`; None if it cannot be put behind what is there."""
    own = [log.place for log in known.scene.logs if log.content is log.source.log]
    if not set(told) <= set(own):
        return None
    logs = {number: log._replace(content=told[log.place]) for number, log in enumerate(known.scene.logs)
            if log.place in told}  # fmt: skip
    scene = replace(known.scene, logs=[logs.get(number, log) for number, log in enumerate(known.scene.logs)])
    rows = collective_rows(scene, known.members, known.numbering, known.dated, logs)
    rows = rows.filter(~pl.col("group").is_in(list(known.unfit)))
    rows = rows.join(known.skipped, on=_PLACE, how="anti", maintain_order="left")
    if not known.timed:
        rows = rows.with_columns(created_ns=pl.lit(None, pl.Int64))
    claims = None if _are_claimed(rows, known.claims) else _claims(known, logs)
    if claims is None:
        return None
    rows = with_claims(rows, claims, known.scene.lines_before)
    if not _follow(rows, known.newest):
        return None
    return More(rows.select(*schema.OPS), _frontiers(known, logs, rows, claims))


def _claims(known: Known, logs: Mapping[int, Log]) -> Claims | None:
    """What lines of c10d say by now, with rows of what they say more alone; None if it is of no known group."""
    printed = more_prints(logs, known.prints)
    if printed is None:
        return None
    skipped = set(known.skipped.iter_rows())
    claims = {key: replace(claim, rows={}, p2p={}) for key, claim in known.claims.items()}
    for key, rows in printed.items():
        own, last = claims.get(key), known.seen.get(key, (None, None, None))[1]
        if own is None and key in skipped:
            continue
        # another line has told of the operation
        if own is None or (last is not None and rows[0].seq <= last):
            return None
        enqueued = None if own.enqueued is None else rows[-1].seq
        claims[key] = replace(own, enqueued=enqueued, rows={row.seq: row for row in rows})
    return claims


def _are_claimed(rows: pl.DataFrame, claims: Claims) -> bool:
    """Whether other lines tell of any of these operations by themselves: the two would have to become one."""
    named = [key for key in rows.select(_PLACE).unique().iter_rows() if key in claims and claims[key].rows]
    if not named:
        return False
    own = pl.DataFrame(named, schema={"rank": pl.Int32, "group": pl.UInt32}, orient="row")
    mine = rows.join(own, on=_PLACE, how="semi").select(*_PLACE, "seq").iter_rows()
    return any(seq in claims[rank, group].rows for rank, group, seq in mine)


def _follow(rows: pl.DataFrame, newest: pl.DataFrame) -> bool:
    """Whether nothing here was printed before what is there of its rank."""
    first = rows.group_by("rank").agg(first=pl.col("created_ns").min(), unknown=pl.col("created_ns").null_count())
    both = first.join(newest, on="rank", how="inner")
    later = (pl.col("first") >= pl.col("newest")) & (pl.col("unknown") == 0)
    return bool(both.select((pl.col("newest").is_null() | later.fill_null(value=False)).all()).item())


def _frontiers(known: Known, logs: Mapping[int, Log], rows: pl.DataFrame, claims: Claims) -> pl.DataFrame:
    """All frontiers, as they are with these rows."""
    seen = dict(known.seen)
    for key, (first, last, done) in seen_in(rows).items():
        was = seen.get(key, (None, None, None))
        seen[key] = (was[0] if was[0] is not None else first, _most(was[1], last), _most(was[2], done))
    skipped, scene = set(known.skipped.iter_rows()), known.scene
    reached = counted(scene, _gone_on(known, logs))
    kept = {key: n for key, n in reached.items() if key not in skipped and key[1] not in known.unfit}
    return pl.concat([known.dumped, frontier_table(seen, claims, kept)]).sort(_PLACE)


def _gone_on(known: Known, logs: Mapping[int, Log]) -> dict[Key, Numbering]:
    """The numbering with the last collectives as they are now."""
    numbering, scene = dict(known.numbering), known.scene
    for number, log in logs.items():
        content = log.content
        if not content.numbers.shape[1]:
            continue
        alone = (content.code("flags") & IS_P2P) == 0
        own = pl.DataFrame({"comm": content.code("comm")[alone], "ordinal": content.column("ordinal")[alone]})
        ends = own.group_by("comm").agg(pl.col("ordinal").max())
        for at, ordinal in ends.iter_rows():
            told = numbering.get((number, at))
            if told is None or told.last is None:
                continue
            now = ordinal + scene.by_place[number, at].before[0] + told.shift
            for piece in _life_of(scene, scene.by_place[number, at]).pieces:
                if (piece.log, piece.at) in numbering:
                    numbering[piece.log, piece.at] = told._replace(last=max(now, told.last))
    return numbering


def _life_of(scene: Scene, piece: Life) -> Life:
    if not piece.goes_on:
        return piece
    return next((life for life in scene.lives if piece in life.rest), piece)


def _most(one: int | None, other: int | None) -> int | None:
    return max((n for n in (one, other) if n is not None), default=None)
