"""Rows of `compilations`: from structured logs of torch.compile, and from lines of logs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import orjson
import polars as pl

from rankscope import schema
from rankscope.assemble import file_names
from rankscope.assemble.sources import SourceFile
from rankscope.kinds.event_kinds import EVENTS
from rankscope.parsers.torch_trace.model import BREAK, TorchTrace

SETTINGS_SOURCE = "torch-trace"
LOGGED_KINDS = tuple(kind.name for kind in EVENTS.values() if kind.of_compiler)
_WHAT = {"again": "recompile", "limit": "limit", "break": "graph-break"}
_OLDER = "of an earlier process of the rank: not used"


def add_compilations(
    tables: dict[str, pl.DataFrame], sources: Sequence[SourceFile], chosen: int, pattern: re.Pattern[str] | None
) -> int:
    """Adds the structured logs of the newest process of each rank to `compilations`, and their settings of caches to
    `settings`; returns the number of ranks, 0 if no file tells its rank."""
    used = list(_newest(_of_attempt(sources, max(0, chosen), pattern)))
    rows = [row for place, source in used for row in _rows(place, source)]
    told = pl.DataFrame(rows, schema=dict(schema.COMPILATIONS), orient="row")
    tables["compilations"] = pl.concat([tables.get("compilations", told.clear()), told])
    settings = [row for place, source in used for row in _settings(place, source)]
    own = pl.DataFrame(settings, schema=dict(schema.SETTINGS))
    tables["settings"] = pl.concat([tables["settings"], own]) if "settings" in tables else own
    return max((1 + source.rank for _, source in used if source.rank is not None), default=0)


def _content(source: SourceFile) -> TorchTrace:
    assert isinstance(source.content, TorchTrace)
    return source.content


def _of_attempt(
    sources: Sequence[SourceFile], chosen: int, pattern: re.Pattern[str] | None
) -> Iterator[tuple[int, SourceFile]]:
    """The structured logs of the attempt, and their rows of `files`; settles their ranks."""
    attempts = {s.directory: s.attempt for s in sources if s.attempt is not None}
    for place, source in enumerate(sources):
        if not isinstance(source.content, TorchTrace):
            continue
        option = file_names.rank_by(pattern, source.shown) if pattern is not None else None
        source.rank, source.rank_source = source.content.rank, "content"
        if option is not None:
            source.rank, source.rank_source = option, "option"
        elif source.rank is None and file_names.says_rank(source.shown):
            source.rank, source.rank_source = file_names.rank_of(source.shown), "name"
        source.rank_source = None if source.rank is None else source.rank_source
        source.writer = "", source.content.pid
        source.attempt = attempts.get(source.directory, chosen)
        if source.attempt == chosen:
            yield place, source


def _newest(files: Iterable[tuple[int, SourceFile]]) -> Iterator[tuple[int, SourceFile]]:
    """The files, of each rank only the last: TORCH_TRACE gives each process a file of its own, restarts too."""
    known = list(files)
    last = {source.rank: max(_written(s) for _, s in known if s.rank == source.rank) for _, source in known}
    for place, source in known:
        if source.rank is not None and _written(source) != last[source.rank]:
            source.note = _OLDER
            continue
        source.used = True
        yield place, source


def _written(source: SourceFile) -> tuple[int, str]:
    starts = [row.start_ns for row in _content(source).compilations if row.start_ns is not None]
    return starts[0] if starts else source.mtime_ns or 0, source.shown


def _rows(place: int, source: SourceFile) -> Iterator[tuple[Any, ...]]:
    content = _content(source)
    for row in content.compilations:
        is_open = row.duration_ns is None and row.what != BREAK
        yield (
            source.rank, content.pid, row.what, row.compile_id, row.function, row.path, row.code_line, row.reason,
            row.start_ns, row.duration_ns, is_open, row.hits, row.misses, place, row.line,
        )  # fmt: skip


def _settings(place: int, source: SourceFile) -> Iterator[dict[str, Any]]:
    content = _content(source)
    for name, value in content.settings.items():
        yield {
            "rank": source.rank, "host": source.host, "pid": content.pid, "name": name, "value": value,
            "source": SETTINGS_SOURCE, "file": place, "line": 1,
        }  # fmt: skip


# Lines of logs: a line that says what is compiled, and below it lines with the reason.


def add_logged_compilations(tables: dict[str, pl.DataFrame]) -> None:
    """Adds the compilations that lines of logs tell to `compilations`, without ranks that have a structured log."""
    messages = tables.get("messages")
    if messages is None or not messages["kind"].is_in(LOGGED_KINDS).any():
        return
    before = tables.get("compilations", schema.empty(schema.COMPILATIONS))
    own = pl.col("kind").is_in(LOGGED_KINDS) & ~pl.col("rank").is_in(before["rank"].drop_nulls().implode())
    lines = messages.filter(own.fill_null(value=True) & pl.col("kind").is_in(LOGGED_KINDS)).sort("file", "offset")
    found = pl.DataFrame(list(_logged(lines)), schema=dict(schema.COMPILATIONS), infer_schema_length=None)
    tables["compilations"] = pl.concat([before, found])


def _logged(lines: pl.DataFrame) -> Iterator[dict[str, Any]]:
    """The rows of lines; a line with a reason belongs to the last row of its process and compilation."""
    rows: list[dict[str, Any]] = []
    latest: dict[tuple[Any, ...], dict[str, Any]] = {}
    for line in lines.iter_rows(named=True):
        values = orjson.loads(line["values"])
        compile_id = str(values.get("compile_id") or "")
        key = line["file"], line["rank"], line["pid"], compile_id, line["kind"]
        told = {name: values[name] for name in ("function", "path", "code_line", "reason") if values.get(name)}
        if (what := _WHAT.get(str(values.get("what")))) is not None:
            latest[key] = {
                "rank": line["rank"], "pid": line["pid"], "what": what, "compile_id": compile_id, "function": "",
                "path": "", "code_line": 0, "reason": "", "start_ns": line["time_ns"], "duration_ns": None,
                "is_open": False, "hits": None, "misses": None, "file": line["file"], "line": line["line"], **told,
            }  # fmt: skip
            rows.append(latest[key])
        elif (row := latest.get(key)) is not None:
            row.update({name: value for name, value in told.items() if not row[name]})
    return iter(rows)
