"""Rows of `compilations`: from structured logs of torch.compile, and from lines of logs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import orjson
import polars as pl

from rankscope.assemble.gathering import RunChoice
from rankscope.assemble.rank_files import FileOwner, RankFile, newest_files, rank_files
from rankscope.assemble.sources import SourceFile
from rankscope.features.compile.torch_trace.model import BREAK, TorchTrace
from rankscope.kinds.event_kinds import EVENTS
from rankscope.schema.tables import COMPILATIONS, SETTINGS

SETTINGS_SOURCE = "torch-trace"
APART_NS = 60 * 10**9
"""Ranks of one run begin their first compilation closer together."""
OLDER_RUN = "of an earlier run of the job: not used"
LOGGED_KINDS = tuple(kind.name for kind in EVENTS.values() if kind.of_compiler)
LIMIT_KIND = "recompile"
_WHAT = {"again": "recompile", "limit": "limit", "break": "graph-break"}


def add_compilations(tables: dict[str, pl.DataFrame], sources: Sequence[SourceFile], run: RunChoice) -> int:
    """Adds the structured logs of the newest process of each rank to `compilations`, and their settings of caches to
    `settings`; returns the number of ranks, 0 if no file tells its rank."""
    chosen, pattern = run.attempt, run.pattern
    files = list(rank_files(sources, TorchTrace, chosen, pattern, lambda _, one: FileOwner(one.rank, "", one.pid)))
    # TORCH_TRACE gives each process a file of its own, restarts too
    used = _of_newest_run(newest_files(files, _written), files)
    rows = [row for file in used for row in _rows(file)]
    told = pl.DataFrame(rows, schema=COMPILATIONS, orient="row")
    tables["compilations"] = pl.concat([tables.get("compilations", told.clear()), told])
    settings = [row for file in used for row in _settings(file)]
    own = pl.DataFrame(settings, schema=SETTINGS)
    tables["settings"] = pl.concat([tables["settings"], own]) if "settings" in tables else own
    return max((1 + file.source.rank for file in used if file.source.rank is not None), default=0)


def _of_newest_run(
    newest: Sequence[RankFile[TorchTrace]], files: Sequence[RankFile[TorchTrace]]
) -> list[RankFile[TorchTrace]]:
    """The newest files of ranks that are of the newest run: those of ranks that only an older run had get a note.

    A later run adds its files to the directory. A file is of the older run if it begins nearer to a file that a newer
    one of the same rank replaces than to any file that replaces one, and longer before these than ranks start apart.
    """
    kept = {id(file) for file in newest}
    replaced = [file for file in files if id(file) not in kept]
    again = {file.source.rank for file in replaced}
    old, new = [_written(file)[0] for file in replaced], [_written(f)[0] for f in newest if f.source.rank in again]
    used = []
    for file in newest:
        began = _written(file)[0]
        if old and began < min(new) - APART_NS and min(abs(began - at) for at in old) < min(new) - began:
            file.source.note = OLDER_RUN
        else:
            used.append(file)
    return used


def _written(file: RankFile[TorchTrace]) -> tuple[int, str]:
    starts = [row.start_ns for row in file.content.compilations if row.start_ns is not None]
    return starts[0] if starts else file.source.mtime_ns or 0, file.source.shown


def _rows(file: RankFile[TorchTrace]) -> Iterator[tuple[Any, ...]]:
    place, source, content = file
    source.used = True
    for row in content.compilations:
        is_open = row.duration_ns is None and row.what != BREAK
        yield (
            source.rank, content.pid, row.what, row.compile_id, row.function, row.path, row.code_line, row.reason,
            row.error, row.start_ns, row.duration_ns, is_open, row.hits, row.misses, place, row.line,
        )  # fmt: skip


def _settings(file: RankFile[TorchTrace]) -> Iterator[dict[str, Any]]:
    place, source, content = file
    for name, value in content.settings.items():
        yield {
            "rank": source.rank, "host": source.host, "pid": content.pid, "name": name, "value": value,
            "source": SETTINGS_SOURCE, "file": place, "line": 1,
        }  # fmt: skip


# Lines of logs: a line that says what is compiled, and below it lines with the reason.


def add_logged_compilations(tables: dict[str, pl.DataFrame]) -> None:
    """Adds the compilations that lines of logs tell to `compilations`, without ranks that have a structured log, and
    without processes of unknown rank if one of these has."""
    messages = tables.get("messages")
    if messages is None or not messages["kind"].is_in(LOGGED_KINDS).any():
        return
    before = tables.get("compilations", COMPILATIONS.empty())
    traced = pl.col("rank").is_in(before["rank"].implode(), nulls_equal=True)
    lines = messages.filter(pl.col("kind").is_in(LOGGED_KINDS) & ~traced).sort("file", "offset")
    found = pl.DataFrame(list(_logged(lines)), schema=COMPILATIONS, infer_schema_length=None)
    tables["compilations"] = pl.concat([before, found])


def _logged(lines: pl.DataFrame) -> Iterator[dict[str, Any]]:
    """The rows of lines; a line with a reason belongs to the last row of its process and compilation."""
    rows: list[dict[str, Any]] = []
    latest: dict[tuple[Any, ...], dict[str, Any]] = {}
    placed: set[int] = set()
    """Ids of rows whose line tells the place; all rows are kept."""
    for line in lines.iter_rows(named=True):
        values = orjson.loads(line["values"])
        compile_id = str(values.get("compile_id") or "")
        key = line["file"], line["rank"], line["pid"], compile_id, line["kind"]
        told = {name: values[name] for name in ("function", "path", "code_line", "reason") if values.get(name)}
        if values.get("what") == "traced":
            traced_key = key if compile_id else (*key, told.get("function"))
            if traced_key not in latest:
                # a line above it tells why, or it is the first compilation
                again = compile_id and not compile_id.endswith("/0")
                latest[traced_key] = _row(line, "recompile" if again else "compile", compile_id) | told
                rows.append(latest[traced_key])
            continue
        if (what := _WHAT.get(str(values.get("what")))) is not None:
            latest[key] = _row(line, what, compile_id) | told
            rows.append(latest[key])
            placed.update([id(latest[key])] if "path" in told else [])
            continue
        row = latest.get(key)
        if values.get("what") == "where":
            # frames stand outermost first, and the last is the place
            if row is not None and id(row) not in placed:
                row.update(told)
            continue
        if row is None and line["kind"] == LIMIT_KIND and told.keys() & {"function", "path"}:
            # the line above it, which says that the limit is hit, was cut off
            row = latest[key] = _row(line, "limit", compile_id)
            rows.append(row)
        if row is not None:
            row.update({name: value for name, value in told.items() if not row[name]})
    return iter(rows)


def _row(line: dict[str, Any], what: str, compile_id: str) -> dict[str, Any]:
    return {
        "rank": line["rank"], "pid": line["pid"], "what": what, "compile_id": compile_id, "function": "", "path": "",
        "code_line": 0, "reason": "", "error": "", "start_ns": line["time_ns"], "duration_ns": None, "is_open": False,
        "hits": None, "misses": None, "file": line["file"], "line": line["line"],
    }  # fmt: skip
