"""Logs into the tables of one attempt."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import orjson
import polars as pl

from rankscope import schema
from rankscope.assemble.logs import log_messages, log_remarks, process_ranks
from rankscope.assemble.logs.c10d_claims import Claim, Claims, highest_rank, read_reports
from rankscope.assemble.logs.claimed_operations import counted, frontier_table, seen_in, with_absences, with_claims
from rankscope.assemble.logs.comm_groups import evidence, housed_rows
from rankscope.assemble.logs.comm_lifetimes import Recall
from rankscope.assemble.logs.fingerprints.fingerprint_groups import place
from rankscope.assemble.logs.log_groups import Groups
from rankscope.assemble.logs.log_processes import Log, Scene
from rankscope.assemble.logs.log_remarks import Agreement, compare
from rankscope.assemble.logs.log_values import moment, short, whole
from rankscope.assemble.logs.log_values import rank as sound
from rankscope.assemble.logs.process_ranks import identify
from rankscope.assemble.logs.scene_builder import build
from rankscope.assemble.logs.seq_numbering import Numbering, number
from rankscope.assemble.sources import Source
from rankscope.kinds.event_kinds import EVENTS
from rankscope.text.wording import duration, plural

Tables = dict[str, pl.DataFrame]


def read_scene(
    sources: Sequence[tuple[int, Source]], world: int, pattern: re.Pattern[str] | None, run: int, recall: Recall | None
) -> Scene:
    """Who wrote the logs of one attempt, given with their rows of `files`; `world` is the job's size if it is known.

    Of a log in which several runs of the job follow each other the one of that number is read, -1 for the last.
    `recall` is what was known of communicators when these logs were read before.
    """
    scene = build(sources, run)
    process_ranks.settle_labels(scene, world)
    if recall is not None:
        recall.remind(scene)
    identify(scene)
    if recall is not None:
        recall.take(scene)
    process_ranks.settle(scene, world, highest_rank(scene), pattern)
    return scene


def bring(tables: Tables, scene: Scene) -> Tables:
    """`tables` of the dumps with what logs tell. Of a rank's group with a dump, rows of logs are only compared."""
    groups = Groups(tables["groups"], scene.sized)
    claims: Claims = defaultdict(Claim, read_reports(scene, groups))
    place(scene, groups, claims)
    groups.settle(scene)
    numbering = number(scene)
    rows = housed_rows(scene, groups, _named(scene), numbering, evidence(tables["ops"], claims))
    dumped = set(tables["frontiers"].select("rank", "group").iter_rows())
    agreement = compare(rows, tables["ops"])
    # relative numbers join no dump
    unfit = frozenset(agreement.unfit | (_relative(scene, numbering) & {group for _, group in dumped}))
    rows = _without(rows, dumped).filter(~pl.col("group").is_in(list(unfit)))
    kept = _kept(claims, dumped, groups.with_p2p())
    reached = {k: n for k, n in counted(scene, numbering).items() if k not in dumped and k[1] not in unfit}
    rows = with_claims(rows, kept, scene.lines_before)
    if log_messages.failed(scene):
        rows = with_absences(rows, kept, groups.members)
    if tables["ops"].height:
        # a log's times are local, a dump's are not
        rows = rows.with_columns(created_ns=pl.lit(None, pl.Int64))
    frontiers = frontier_table(seen_in(rows), kept, reached)
    ops = pl.concat([tables["ops"], rows.drop("line").select(tables["ops"].columns)])
    for log in scene.logs:
        log.source.used = log.source.tells
    remarks = _remarks(scene, numbering, agreement, unfit)
    made = {
        "ops": ops.sort("rank", maintain_order=True) if tables["ops"].height and rows.height else ops,
        "groups": groups.frame(),
        "frontiers": pl.concat([tables["frontiers"], frontiers]).sort("rank", "group"),
        "messages": log_messages.message_table(scene, groups, remarks),
    }
    return {**tables, **made, **record_tables(scene)}


def _kept(claims: Claims, dumped: Collection[tuple[int, int]], mixed: Collection[int]) -> Claims:
    """What is said of ranks and groups without dumps; of groups with sends and receives without counters."""
    return {
        key: claim.without_counters() if key[1] in mixed else claim
        for key, claim in claims.items()
        if key not in dumped
    }


def _remarks(
    scene: Scene, numbering: Mapping[tuple[int, int], Numbering], agreement: Agreement, unfit: frozenset[int]
) -> list[dict[str, Any]]:
    """What is to be said of the logs themselves, as rows of `messages`."""
    return [
        *log_remarks.unplaced(scene), *log_remarks.differing(agreement),
        *log_remarks.unnumbered(scene, numbering, unfit),
        *log_remarks.miscounted(scene, numbering), *log_remarks.fingerprints(scene), *log_remarks.cut_short(scene),
        *log_remarks.runs(scene), *log_remarks.only_started(scene),
    ]  # fmt: skip


def _relative(scene: Scene, numbering: Mapping[tuple[int, int], Numbering]) -> set[int]:
    lives = (scene.by_place[key] for key, n in numbering.items() if n.relative)
    return {life.group for life in lives if life.group is not None}


def _named(scene: Scene) -> dict[str, tuple[str, str]]:
    """Name and description of the process group of communicators, where c10d says which pointer is whose."""
    by_pointer: dict[str, list[Any]] = defaultdict(list)
    for life in scene.lives:
        if life.identity and life.stands:
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


def _without(rows: pl.DataFrame, dumped: set[tuple[int, int]]) -> pl.DataFrame:
    if not dumped or rows.is_empty():
        return rows
    return rows.join(_keys(dumped), on=["rank", "group"], how="anti", maintain_order="left")


def _keys(dumped: set[tuple[int, int]]) -> pl.DataFrame:
    return pl.DataFrame(sorted(dumped), schema={"rank": pl.Int32, "group": pl.UInt32}, orient="row")


# The tables of settings, communicators and RAS.


def record_tables(scene: Scene) -> dict[str, pl.DataFrame]:
    """The tables that only records of NCCL fill."""
    return {"settings": _setting_table(scene), "comms": _comm_table(scene), "ras": _ras_table(scene)}


def _setting_table(scene: Scene) -> pl.DataFrame:
    """The table `settings`, each value of a process once."""
    rows: dict[tuple[Any, ...], dict[str, Any]] = {}
    for log in scene.logs:
        for row in _settings(log, scene):
            rows.setdefault((row["rank"], row["host"], row["pid"], row["name"], row["value"]), row)
    return pl.DataFrame(list(rows.values()), schema=dict(schema.SETTINGS), infer_schema_length=None)


def _settings(log: Log, scene: Scene) -> Iterator[dict[str, Any]]:
    for setting in log.content.settings:
        speaker = scene.speakers[log.speakers[setting.process]] if setting.process >= 0 else None
        yield {
            "rank": speaker.rank if speaker else log.source.rank, "host": speaker.host if speaker else None,
            "pid": speaker.pid if speaker else None,
            "name": "version:nccl" if setting.name == "version" else setting.name, "value": setting.value,
            "source": "nccl", "file": log.place, "line": setting.line,
        }  # fmt: skip
    for event in log.content.events:
        if EVENTS[event.kind].settings_source:
            rank = sound(event.rank if event.rank is not None else log.source.rank)
            for name, value in event.values.get("settings") or ():
                known = "version:nccl" if name.lower() == "nccl version" else name
                yield {
                    "rank": rank, "host": log.source.host, "pid": None, "name": known, "value": value,
                    "source": EVENTS[event.kind].settings_source,
                    "file": log.place, "line": event.line,
                }  # fmt: skip


def _comm_table(scene: Scene) -> pl.DataFrame:
    """The table `comms`."""
    versions = _versions(scene)
    rows = []
    for life in scene.lives:
        if not life.stands:
            continue
        log, comm, speaker = scene.logs[life.log], life.comm, scene.speakers[life.speaker]
        written = log.source.mtime_ns
        rows.append(
            {
                "group": life.group, "rank": life.rank, "host": speaker.host, "pid": speaker.pid,
                "comm_rank": comm.rank, "size": comm.nranks, "device": comm.device, "state": comm.state,
                "identity": life.identity, "started_ns": moment(comm.started, written),
                "completed_ns": moment(comm.completed, written),
                "collectives": sum(piece.comm.collectives for piece in life.pieces),
                "version": versions.get(life.speaker) or versions.get(-1 - life.log), "file": log.place,
                "line": comm.line,
            }
        )  # fmt: skip
    return pl.DataFrame(rows, schema=dict(schema.COMMS), infer_schema_length=None)


def _versions(scene: Scene) -> dict[int, str]:
    """NCCL's version by speaker; by -1 - log where the line does not say whose it is."""
    versions: dict[int, str] = {}
    for at, log in enumerate(scene.logs):
        for setting in log.content.settings:
            if setting.name == "version":
                versions[log.speakers[setting.process] if setting.process >= 0 else -1 - at] = setting.value
    return versions


def _ras_table(scene: Scene) -> pl.DataFrame:
    """The table `ras`. From NCCL 2.29 on its hash is the commId of the logs."""
    groups = {_hash(identity): lives[0].group for identity, lives in scene.identities().items()}
    rows = [row for log in scene.logs for row in _ras(log, groups)]
    return pl.DataFrame(rows, schema=dict(schema.RAS), infer_schema_length=None)


def _ras(log: Log, groups: Mapping[str, int | None]) -> Iterator[dict[str, Any]]:
    for row in log.content.ras:
        yield {
            "comm": row.comm, "group": groups.get(_hash(row.comm)), "rank": short(row.rank), "host": row.host,
            "pid": whole(row.pid), "device": short(row.device), "size": short(row.size),
            "present": short(row.present), "missing": short(row.missing),
            "status": row.status, "counts": orjson.dumps(row.counts).decode(), "source": "ras", "file": log.place,
            "line": row.line, "text": row.text,
        }  # fmt: skip
    for told in log.content.inspected:
        slowest = duration(round(told.slowest_us * 1000))
        yield {
            "comm": told.comm, "group": groups.get(_hash(told.comm)), "rank": short(told.rank), "host": told.host,
            "pid": whole(told.pid), "device": None, "size": short(told.nranks), "present": None, "missing": None,
            "status": "", "counts": orjson.dumps({told.op: told.last_seq}).decode(), "source": "inspector",
            "file": log.place, "line": 1, "text": f"{plural(told.rows, 'row')} of {told.op}, slowest {slowest}",
        }  # fmt: skip


def _hash(text: str) -> str:
    inner = text[text.find("(") + 1 : -1] if text.endswith(")") else text
    return inner.lower().removeprefix("0x").lstrip("0")
