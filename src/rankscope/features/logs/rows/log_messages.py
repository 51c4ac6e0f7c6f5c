"""The table of relevant lines: a row for each line, with all of its events; and the stacks that processes printed."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import orjson
import polars as pl

from rankscope.assemble.gathering import PrintedProcess, PrintedStacks, PrintedThread
from rankscope.features.logs.read.bounded_rows import left_out
from rankscope.features.logs.read.c10d.thread_dumps import KIND
from rankscope.features.logs.read.log_record import Event
from rankscope.features.logs.read.model import CODES, NUMBERS, NcclWarning
from rankscope.features.logs.rows.log_groups import LogGroups
from rankscope.features.logs.rows.log_processes import (
    LogFile,
    LogProcess,
    LogScene,
    int64_or_none,
    print_time,
    valid_rank,
)
from rankscope.kinds.event_kinds import EVENTS, SEVERITIES
from rankscope.parsers.contents import StackFrame
from rankscope.parsers.line_prefixes import Stamp
from rankscope.schema.tables import MESSAGES

_BY_ROLE = {"root": "error", "victim": "error", "context": "info", "noise": "info"}


def message_table(scene: LogScene, groups: LogGroups, more: list[dict[str, Any]]) -> pl.DataFrame:
    """The table `messages`; `more` are rankscope's own remarks on logs."""
    rows = [row for number in range(len(scene.logs)) for row in _messages(number, scene, groups)] + more
    # the row with a severity: its own, or the one of its kind
    filled = [
        {**_BLANK, **{"severity": EVENTS[row["kind"]].severity, **row}, "values": _json(row.get("values", {}))}
        for row in rows
    ]
    table = pl.DataFrame(filled, schema=MESSAGES, infer_schema_length=None)
    return table.sort("file", "offset", maintain_order=True)


_BLANK: dict[str, Any] = {
    "time_ns": None, "resolution_ns": None, "rank": None, "host": None, "pid": None, "offset": 0, "line": 1,
    "role": "", "pattern": "", "group": None, "text": "", "values": "{}", "torn": False,
}  # fmt: skip


def _json(values: Mapping[str, Any] | str) -> str:
    if isinstance(values, str):
        return values
    return orjson.dumps(values, option=orjson.OPT_NON_STR_KEYS, default=str).decode()


def _messages(number: int, scene: LogScene, groups: LogGroups) -> Iterator[dict[str, Any]]:
    log = scene.logs[number]
    warned = {row.offset: row for row in log.content.warnings}
    of_line: defaultdict[int, list[dict[str, Any]]] = defaultdict(list)
    noise: defaultdict[str, list[Event]] = defaultdict(list)
    for event in log.content.events:
        if not EVENTS[event.kind].is_listed:
            continue
        if event.kind == "known-error" and event.values.get("role") == "noise":
            noise[str(event.values.get("id"))].append(event)
            continue
        row = _message(log, groups, event, _speaker(log, scene, warned.get(event.offset)))
        of_line[event.offset].append(row)
        if row["group"] is None:
            row["group"] = scene.told_groups.get((number, event.offset))
    for warning in log.content.warnings:
        of_line[warning.offset].append(_warning(log, scene, warning))
    yield from (_joined_row(rows) for rows in of_line.values())
    if any(event.kind == "traceback" for event in log.content.events):
        # the last operation of each communicator of a log: a process that issues operations survived what it printed
        content = log.content
        comm = content.codes[CODES.index("comm")]
        lines, offsets = (content.numbers[NUMBERS.index(name)] for name in ("line", "offset"))
        for at in np.unique(comm[comm >= 0]).tolist():
            operations = np.flatnonzero(comm == at)
            last = int(operations[np.argmax(offsets[operations])])
            speaker = scene.speakers[log.speakers[content.comms[at].process]]
            yield {
                "rank": speaker.rank, "host": speaker.host, "pid": speaker.pid, "file": log.place,
                "offset": int(offsets[last]), "line": int(lines[last]), "kind": "step",
                "text": "the last operation it issued",
            }  # fmt: skip
    for events in noise.values():
        alone = [event for event in events if event.offset not in of_line]
        if alone:
            row = _message(log, groups, alone[0], None)
            more = log.content.counts.get(left_out("known-error", row["pattern"]), 0)
            writers = [event.rank if event.rank is not None else log.source.rank for event in events]
            ranks = sorted({rank for rank in map(valid_rank, writers) if rank is not None})
            yield {**row, "values": {**row["values"], "count": len(alone) + more, "ranks": ranks}}


def _joined_row(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The row of a line with several events, with the values of each."""
    if len(rows) == 1:
        return rows[0]
    ordered = sorted(rows, key=lambda row: EVENTS[row["kind"]].names_last)
    # the text of a warning lacks its head with host, process and device
    texts = [row["text"] for row in ordered if row["kind"] != "nccl-warning"]
    values: dict[str, Any] = {}
    known: dict[str, Any] = {}
    for row in reversed(ordered):
        values |= row["values"]
        known |= {name: value for name, value in row.items() if value is not None and value != ""}
    if ordered[0]["kind"] == "worker-died":
        # the process before the line only tells of the one that died
        known |= {name: ordered[0][name] for name in ("rank", "host", "pid")}
    return {
        **{name: known.get(name) for name in ordered[0]},
        "role": known.get("role", ""),
        "pattern": known.get("pattern", ""),
        "severity": max((row["severity"] for row in ordered), key=SEVERITIES.index),
        "text": texts[0] if texts else ordered[0]["text"],
        "torn": any(row["torn"] for row in ordered),
        "values": {**values, "kinds": list(dict.fromkeys(row["kind"] for row in ordered))},
    }


def _message(log: LogFile, groups: LogGroups, event: Event, speaker: LogProcess | None) -> dict[str, Any]:
    values = event.values
    role = str(values.get("role") or "")
    rank = valid_rank(event.rank if event.rank is not None else log.source.rank)
    rank = groups.member(values) if rank is None else rank
    host, pid = values.get("host"), values.get("pid")
    return {
        "time_ns": print_time(event.stamp, log.source.mtime_ns),
        "resolution_ns": event.stamp.resolution_ns if event.stamp else None,
        "rank": speaker.rank if rank is None and speaker is not None else rank,
        "host": speaker.host if speaker is not None else host if isinstance(host, str) else None,
        "pid": speaker.pid if speaker is not None else int64_or_none(pid),
        "file": log.place,
        "offset": event.offset,
        "line": event.line,
        "severity": _BY_ROLE.get(role) or EVENTS[event.kind].severity,
        "kind": event.kind,
        "role": role,
        "pattern": str(values.get("id") or "") if event.kind == "known-error" else "",
        "group": groups.named_by(values, rank),
        "text": event.text,
        "values": {**values, **_clock(event.stamp)},
        "torn": event.torn,
    }


def _clock(stamp: Stamp | None) -> dict[str, bool]:
    """The property that a printed time tells of itself: that it is UTC, or that it has no year."""
    if stamp is None:
        return {}
    return {**({"utc": True} if stamp.is_utc else {}), **({} if stamp.has_year else {"yearless": True})}


def _speaker(log: LogFile, scene: LogScene, row: NcclWarning | None) -> LogProcess | None:
    return scene.speakers[log.speakers[row.process]] if row is not None else None


def _warning(log: LogFile, scene: LogScene, row: NcclWarning) -> dict[str, Any]:
    speaker = scene.speakers[log.speakers[row.process]]
    values: dict[str, Any] = {"level": row.level, "place": row.place, "trail": row.trail, "tid": row.tid}
    values |= _clock(row.stamp)
    return {
        "time_ns": print_time(row.stamp, log.source.mtime_ns),
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
        "values": values,
        "torn": row.torn,
    }


def failed_ranks(scene: LogScene) -> bool:
    """Whether any line reports a failure, so that the job is over."""
    return any(EVENTS[event.kind].severity == "error" for log in scene.logs for event in log.content.events)


_LOCAL = re.compile(r"^\[[A-Za-z_]\w{0,60}?(\d{1,6})\]: ?$")
"""Default prefix of torchrun: role and rank within the node."""


def stacks_in(scene: LogScene) -> list[PrintedStacks]:
    """The stacks of each log with any, with the ranks of its lines."""
    found = []
    for log in scene.logs:
        dumps = [event for event in log.content.events if event.kind == KIND]
        if dumps:
            # the rank of a log with a single process, if known
            ranks = {scene.speakers[at].rank for at in log.speakers}
            alone = not log.speakers and all(EVENTS[event.kind].of_stacks for event in log.content.events)
            rank = ranks.pop() if len(ranks) == 1 else None
            found.append(PrintedStacks(log.source, list(map(_printed_process, dumps)), rank, in_log=not alone))
    return found


def _printed_process(event: Event) -> PrintedProcess:
    values = event.values
    local = _LOCAL.match(f"{values.get('label') or ''}")
    threads = [
        PrintedThread(name, number, active[0] if active else None, gil, [StackFrame(*frame) for frame in frames])
        for number, name, gil, frames, *active in values["threads"]
    ]
    return PrintedProcess(
        values.get("pid"), str(values.get("command") or ""), event.rank, int(local[1]) if local else None,
        values["tool"], threads,
    )  # fmt: skip
