"""The tables of settings, communicators and RAS."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import orjson
import polars as pl

from rankscope import schema
from rankscope.assemble.logs.log_processes import Log, Scene
from rankscope.assemble.logs.numbers import moment, short, whole
from rankscope.assemble.logs.numbers import rank as sound
from rankscope.kinds.event_kinds import EVENTS


def tables(scene: Scene) -> dict[str, pl.DataFrame]:
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
    for number, log in enumerate(scene.logs):
        for setting in log.content.settings:
            if setting.name == "version":
                versions[log.speakers[setting.process] if setting.process >= 0 else -1 - number] = setting.value
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
        yield {
            "comm": told.comm, "group": groups.get(_hash(told.comm)), "rank": short(told.rank), "host": told.host,
            "pid": whole(told.pid), "device": None, "size": short(told.nranks), "present": None, "missing": None,
            "status": "", "counts": orjson.dumps({told.op: told.last_seq}).decode(), "source": "inspector",
            "file": log.place, "line": 1, "text": f"{told.rows} rows of {told.op}, slowest {told.slowest_us:.0f} us",
        }  # fmt: skip


def _hash(text: str) -> str:
    inner = text[text.find("(") + 1 : -1] if text.endswith(")") else text
    return inner.lower().removeprefix("0x").lstrip("0")
