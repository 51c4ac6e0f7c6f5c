"""Logs into the tables of one attempt."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import polars as pl

from rankscope import schema
from rankscope.parsers.assemble.logs import records, whose
from rankscope.parsers.assemble.logs.collectives import FIRST_SEQ, collective_rows, shaped
from rankscope.parsers.assemble.logs.frontier_rows import frontier_rows
from rankscope.parsers.assemble.logs.grouping import Groups, place_communicators
from rankscope.parsers.assemble.logs.identity import identify
from rankscope.parsers.assemble.logs.reports import Claims, Row, highest_rank, read_reports
from rankscope.parsers.assemble.logs.scene import Scene, build
from rankscope.parsers.assemble.sources import Source

Tables = dict[str, pl.DataFrame]


def read_scene(sources: Sequence[tuple[int, Source]], world: int, pattern: re.Pattern[str] | None) -> Scene:
    """Who wrote the logs of one attempt, given with their rows of `files`; `world` is the job's size if it is known."""
    scene = build(sources)
    identify(scene)
    whose.settle(scene, world, highest_rank(scene), pattern)
    return scene


def bring(tables: Tables, scene: Scene) -> Tables:
    """`tables` of the dumps with what logs tell; what a rank with a dump of a group logged of it is left out."""
    groups = Groups(tables["groups"])
    claims = read_reports(scene, groups)
    groups.settle(scene)
    unplaced = place_communicators(scene, groups, _named(scene))
    dumped = set(tables["frontiers"].select("rank", "group").iter_rows())
    rows = collective_rows(scene, groups.members, lambda log, at: _shift(scene, log, at))
    rows = _without(rows, dumped)
    kept: Claims = {key: claim for key, claim in claims.items() if key not in dumped}
    counted = {key: n for key, n in _counted(scene).items() if key not in dumped}
    rows = _with_claims(rows, kept)
    frontiers = frontier_rows(rows, kept, counted)
    ops = pl.concat([tables["ops"], rows.drop("line").select(tables["ops"].columns)])
    for log in scene.logs:
        log.source.used = log.source.tells
    return {
        **tables,
        "ops": ops.sort("rank", maintain_order=True) if tables["ops"].height and rows.height else ops,
        "groups": groups.frame(),
        "frontiers": pl.concat([tables["frontiers"], frontiers]).sort("rank", "group"),
        "messages": records.message_table(scene, groups, _remarks(scene, unplaced)),
        "settings": records.setting_table(scene),
        "comms": records.comm_table(scene),
        "ras": records.ras_table(scene),
    }


def _named(scene: Scene) -> dict[str, tuple[str, str]]:
    """Name and description of the process group of communicators, where c10d says which pointer is whose."""
    by_pointer: dict[str, list[Any]] = defaultdict(list)
    for life in scene.lives:
        if life.identity and not life.twin:
            by_pointer[life.comm.pointer].append(life)
    found: dict[str, set[tuple[str, str]]] = defaultdict(set)
    for log in scene.logs:
        for event in log.content.events:
            if event.kind != "pg-created":
                continue
            values = event.values
            fitting = {
                life.identity for life in by_pointer.get(values["comm"], ())
                if life.comm.rank in (None, values["pg_rank"]) and event.rank in (None, life.rank)
            }  # fmt: skip
            name = values["pg_guid"] or (str(values["pg_id"]) if values["pg_id"] is not None else "")
            if len(fitting) == 1 and name:
                found[fitting.pop()].add((name, values["pg_desc"] or ""))
    return {identity: next(iter(names)) for identity, names in found.items() if len(names) == 1}


def _shift(scene: Scene, log: int, at: int) -> int | None:
    """What makes an ordinal a sequence number; None where the beginning is missing, or a line in the middle may be."""
    life = scene.by_place[log, at]
    return FIRST_SEQ if _whole(scene, log, at) else None if not life.comm.init else FIRST_SEQ


def _whole(scene: Scene, log: int, at: int) -> bool:
    life = scene.by_place[log, at]
    process = scene.logs[log].content.processes[life.comm.process]
    return life.comm.init and process.torn_at is None


def _without(rows: pl.DataFrame, dumped: set[tuple[int, int]]) -> pl.DataFrame:
    if not dumped or rows.is_empty():
        return rows
    known = pl.DataFrame(sorted(dumped), schema={"rank": pl.Int32, "group": pl.UInt32}, orient="row")
    return rows.join(known, on=["rank", "group"], how="anti", maintain_order="left")


def _counted(scene: Scene) -> dict[tuple[int, int], int | None]:
    """The last collective by the lines of each rank on each group; None where lines may be missing."""
    counted: dict[tuple[int, int], int | None] = {}
    for life in scene.lives:
        if life.twin or life.group is None or life.rank is None or not life.comm.collectives:
            continue
        number = life.comm.collectives if _whole(scene, life.log, life.at) else None
        counted[life.rank, life.group] = number
    return counted


def _with_claims(rows: pl.DataFrame, claims: Claims) -> pl.DataFrame:
    """Operations of COLL lines with the states that the watchdog tells, and those that only other lines name."""
    told = [_told(rank, group, row) for (rank, group), claim in claims.items() for row in claim.rows.values()]
    if told:
        kinds = {**schema.OPS, "line": pl.Int64}
        named = shaped(pl.DataFrame(told, schema={n: kinds[n] for n in told[0]}, infer_schema_length=None))
        key = ["rank", "group", "seq"]
        if rows.height:
            states = named.select(*key, told="state", gone="retired")
            rows = rows.join(states, on=key, how="left", maintain_order="left").with_columns(
                state=pl.coalesce("told", "state"), retired=pl.coalesce("gone", "retired")
            ).drop("told", "gone")  # fmt: skip
            named = named.join(rows, on=key, how="anti", maintain_order="left")
        rows = pl.concat([rows, named])
    rows = _with_counters(rows, claims)
    return rows.sort("rank", "created_ns", "line", "seq", nulls_last=False, maintain_order=True)


def _told(rank: int, group: int, row: Row) -> dict[str, Any]:
    return {
        "rank": rank, "group": group, "seq": row.seq, "op": row.op or "unknown", "state": row.state,
        "retired": row.retired, "in_sizes": row.in_sizes, "out_sizes": row.out_sizes, "in_dtypes": row.dtypes,
        "out_dtypes": row.dtypes, "created_ns": row.created_ns, "timeout_ms": row.timeout_ms,
        "library": row.library, "file": row.file, "line": row.line, "attempt": row.attempt, "source": "c10d-log",
        "is_p2p": False, "coalesced": "none",
    }  # fmt: skip


def _with_counters(rows: pl.DataFrame, claims: Claims) -> pl.DataFrame:
    """States by the counters of the group: up to the last completed one, and from there to the last enqueued one."""
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


def _remarks(scene: Scene, unplaced: list[str]) -> list[dict[str, Any]]:
    """What had to be left out, for each log."""
    remarks: list[dict[str, Any]] = []
    for number, log in enumerate(scene.logs):
        lives = [life for life in scene.lives if life.log == number and not life.twin]
        lost = [life for life in lives if life.comm.collectives + life.comm.p2p and None in (life.group, life.rank)]
        if lost:
            count = sum(life.comm.collectives + life.comm.p2p for life in lost)
            remarks.append(
                {
                    "file": log.place, "severity": "warning", "kind": "log-unplaced",
                    "text": f"{count} operations are left out: whose rank or group they are cannot be told",
                }
            )  # fmt: skip
    del unplaced
    return remarks
