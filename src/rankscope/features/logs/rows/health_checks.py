"""Rows of `messages` from the newest health check of a debug server: ranks whose operation timed out or failed.

A healthy rank beside unhealthy ones had no pending operation that timed out: it waits for nobody. A rank without an
answer is gone, as the cause or by its own timeout: its row has no rank, so that it is not judged by that.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

import orjson
import polars as pl

from rankscope.assemble.gathering import RunChoice
from rankscope.assemble.rank_files import attempts_by_directory
from rankscope.assemble.sources import SourceFile
from rankscope.features.logs.read.health_check import SILENT, UNHEALTHY, HealthCheck, RankHealth
from rankscope.features.logs.read.log_record import shown_text
from rankscope.kinds.error_traits import GAVE_UP
from rankscope.schema.tables import MESSAGES

KIND = "health-check"
TIMED_OUT = "watchdog-timeout"
"""The known error of a rank that waited until its timeout."""
_STAMP = re.compile(r"_(\d{8}_\d{6})\.txt\b")
_SECOND_NS = 1_000_000_000


def newest_check(sources: Sequence[SourceFile], chosen: int) -> tuple[int, SourceFile] | None:
    """The newest check with an answer of a rank of the chosen attempt, and its row of `files`; None without one."""
    attempts = attempts_by_directory(sources)
    found = []
    for place, source in enumerate(sources):
        if isinstance(source.content, HealthCheck):
            source.rank = source.rank_source = source.named = None
            source.attempt = attempts.get(source.directory, max(0, chosen))
            if source.attempt == max(0, chosen) and source.content.rows:
                found.append((place, source))
    newest = max(found, key=lambda row: (_written_ns(row[1]) or 0, row[1].shown), default=None)
    if newest is not None:
        newest[1].used = True
    return newest


def add_check(tables: dict[str, pl.DataFrame], sources: Sequence[SourceFile], run: RunChoice) -> int:
    """Adds the newest check of the chosen attempt to `messages`; returns the number of asked ranks, 0 without one."""
    newest = newest_check(sources, run.attempt)
    if newest is None:
        return 0
    tables["messages"] = with_check(tables.get("messages"), *newest)
    ranks = newest[1].content.ranks if isinstance(newest[1].content, HealthCheck) else []
    return max((health.rank + 1 for health in ranks), default=0)


def with_check(messages: pl.DataFrame | None, place: int, source: SourceFile) -> pl.DataFrame:
    """`messages` with a row for each asked rank, if any is unhealthy; unchanged if all are well."""
    assert isinstance(source.content, HealthCheck)
    table = pl.DataFrame(list(_rows(source.content.ranks, place, _written_ns(source))), schema=MESSAGES)
    if messages is None or messages.is_empty():
        return table
    return pl.concat([messages, table]).sort("file", "offset", maintain_order=True)


def _rows(ranks: Sequence[RankHealth], place: int, told_ns: int | None) -> Iterator[dict[str, Any]]:
    if not any(health.state == UNHEALTHY for health in ranks):
        return
    for number, health in enumerate(ranks):
        failed = health.state == UNHEALTHY
        if health.state == UNHEALTHY:
            where = f" of {', '.join(health.backends)}" if health.backends else ""
            text = f"unhealthy: an operation{where} timed out or failed"
        elif health.state == SILENT:
            text = f"rank {health.rank} did not answer the health check: {health.why}"
        else:
            text = "healthy: no operation of its own timed out or failed"
        yield {
            "time_ns": told_ns, "resolution_ns": None if told_ns is None else _SECOND_NS,
            "rank": None if health.state == SILENT else health.rank, "host": health.host or None, "pid": None,
            "file": place, "offset": number, "line": health.line, "severity": "error" if failed else "info",
            "kind": KIND, "role": "victim" if failed else "context", "pattern": TIMED_OUT if failed else "",
            "group": None, "text": shown_text(text),
            "values": orjson.dumps(
                {"state": health.state, "backends": health.backends, "traits": [GAVE_UP] if failed else []}
            ).decode(), "torn": False,
        }  # fmt: skip


def _written_ns(source: SourceFile) -> int | None:
    """The time at which the server wrote it: from its name, in the host's time; else the time of the file."""
    stamp = _STAMP.search(source.shown)
    if stamp is not None:
        try:
            written = datetime.strptime(stamp[1], "%Y%m%d_%H%M%S").replace(tzinfo=UTC)
        except ValueError:
            return source.mtime_ns
        return int(written.timestamp()) * _SECOND_NS
    return source.mtime_ns
