"""The tables of lines worth keeping, settings, communicators and RAS."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import orjson
import polars as pl

from rankscope import schema
from rankscope.parsers.assemble.logs.grouping import Groups
from rankscope.parsers.assemble.logs.numbers import rank as sound
from rankscope.parsers.assemble.logs.numbers import short, whole
from rankscope.parsers.assemble.logs.scene import Log, Scene, Speaker
from rankscope.parsers.assemble.logs.times import moment
from rankscope.parsers.logs.event import Event
from rankscope.parsers.logs.model import Warned

_ROWS = frozenset({"fingerprint"})
"""Events that are rows of `ops`, and nothing besides."""
_ERRORS = frozenset({
    "watchdog-timeout", "watchdog-thread-terminated", "async-error", "traceback", "torchrun-failure", "child-exit",
    "srun-exit", "oom-kill", "fingerprint-mismatch", "desync", "heartbeat", "failed-collective-stack",
})  # fmt: skip
_WARNINGS = frozenset({"signal", "monitored-barrier", "job-cancelled", "pg-status", "dump-signal"})
_BY_ROLE = {"root": "error", "victim": "error", "context": "info", "noise": "info"}
_NOT_SHOWN = frozenset({"frames", "message", "settings"})


def message_table(scene: Scene, groups: Groups, more: list[dict[str, Any]]) -> pl.DataFrame:
    """The table `messages`; `more` are rows that rankscope itself has to say of a log."""
    rows = [row for log in scene.logs for row in _messages(log, scene, groups)] + more
    filled = [{**_BLANK, **row} for row in rows]
    table = pl.DataFrame(filled, schema=dict(schema.MESSAGES), infer_schema_length=None)
    return table.sort("file", "offset", maintain_order=True)


_BLANK: dict[str, Any] = {
    "time_ns": None, "resolution_ns": None, "rank": None, "host": None, "pid": None, "offset": 0, "line": 1,
    "severity": "info", "role": "", "pattern": "", "group": None, "text": "", "values": "{}", "torn": False,
}  # fmt: skip


def _messages(log: Log, scene: Scene, groups: Groups) -> Iterator[dict[str, Any]]:
    warned = {row.offset: row for row in log.content.warnings}
    noise: Counter[str] = Counter()
    first: dict[str, Event] = {}
    for event in log.content.events:
        if event.kind in _ROWS:
            continue
        if event.kind == "known-error" and event.values.get("role") == "noise":
            pattern = str(event.values.get("id"))
            noise[pattern] += 1
            first.setdefault(pattern, event)
            continue
        yield _message(log, groups, event, _speaker(log, scene, warned.get(event.offset)), {})
    for pattern, event in first.items():
        speaker = None if noise[pattern] > 1 else _speaker(log, scene, warned.get(event.offset))
        yield _message(log, groups, event, speaker, {"count": noise[pattern]})
    for row in log.content.warnings:
        yield _warning(log, scene, row)


def _message(
    log: Log, groups: Groups, event: Event, speaker: Speaker | None, more: Mapping[str, Any]
) -> dict[str, Any]:
    values = {**event.values, **more}
    role = str(values.get("role") or "")
    rank = sound(event.rank if event.rank is not None else log.source.rank)
    severity = _BY_ROLE.get(role) or (
        "error" if event.kind in _ERRORS else "warning" if event.kind in _WARNINGS else "info"
    )
    host, pid = values.get("host"), values.get("pid")
    return {
        "time_ns": moment(event.stamp, log.source.mtime_ns),
        "resolution_ns": event.stamp.resolution_ns if event.stamp else None,
        "rank": speaker.rank if rank is None and speaker is not None else rank,
        "host": speaker.host if speaker is not None else host if isinstance(host, str) else None,
        "pid": speaker.pid if speaker is not None else whole(pid),
        "file": log.place,
        "offset": event.offset,
        "line": event.line,
        "severity": severity,
        "kind": event.kind,
        "role": role,
        "pattern": str(values.get("id") or "") if event.kind == "known-error" else "",
        "group": groups.named_by(values, rank),
        "text": event.text,
        "values": orjson.dumps(values, option=orjson.OPT_NON_STR_KEYS, default=str).decode(),
        "torn": event.torn,
    }


def _speaker(log: Log, scene: Scene, row: Warned | None) -> Speaker | None:
    return scene.speakers[log.speakers[row.process]] if row is not None else None


def _warning(log: Log, scene: Scene, row: Warned) -> dict[str, Any]:
    speaker = scene.speakers[log.speakers[row.process]]
    values = {"level": row.level, "place": row.place, "trail": row.trail, "tid": row.tid}
    return {
        "time_ns": moment(row.stamp, log.source.mtime_ns),
        "resolution_ns": row.stamp.resolution_ns if row.stamp else None,
        "rank": speaker.rank,
        "host": speaker.host,
        "pid": speaker.pid,
        "file": log.place,
        "offset": row.offset,
        "line": row.line,
        "severity": "error" if row.level == "ERROR" or row.trail else "warning",
        "kind": "nccl-warning",
        "text": row.text,
        "values": orjson.dumps(values).decode(),
        "torn": row.torn,
    }


def failed(scene: Scene) -> bool:
    """Whether any line tells of a failure, so that the job is over."""
    return any(event.kind in _ERRORS for log in scene.logs for event in log.content.events)


def setting_table(scene: Scene) -> pl.DataFrame:
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
        if event.kind == "init-env":
            rank = sound(event.rank if event.rank is not None else log.source.rank)
            for name, value in event.values.get("settings") or ():
                known = "version:nccl" if name.lower() == "nccl version" else name
                yield {
                    "rank": rank, "host": None, "pid": None, "name": known, "value": value, "source": "c10d",
                    "file": log.place, "line": event.line,
                }  # fmt: skip


def comm_table(scene: Scene) -> pl.DataFrame:
    """The table `comms`."""
    versions = _versions(scene)
    rows = []
    for life in scene.lives:
        if life.twin:
            continue
        log, comm, speaker = scene.logs[life.log], life.comm, scene.speakers[life.speaker]
        written = log.source.mtime_ns
        rows.append(
            {
                "group": life.group, "rank": life.rank, "host": speaker.host, "pid": speaker.pid,
                "comm_rank": comm.rank, "size": comm.nranks, "device": comm.device, "state": comm.state,
                "identity": life.identity, "started_ns": moment(comm.started, written),
                "completed_ns": moment(comm.completed, written), "collectives": comm.collectives,
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


def ras_table(scene: Scene) -> pl.DataFrame:
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
