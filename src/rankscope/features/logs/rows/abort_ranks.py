"""Ranks of processes that print, without their rank, which exception of C++ ends them.

The C++ runtime knows no rank, and the process is gone. But a launcher sees who ends by SIGABRT, and where each process
notes how it ends, one that aborts cannot. The rank is given only if no other process fits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import orjson
import polars as pl

from rankscope.assemble.sources import SourceFile
from rankscope.kinds.error_traits import GAVE_UP
from rankscope.kinds.event_kinds import EVENTS
from rankscope.parsers.sidecar import Sidecar
from rankscope.text.wording import ranks_text

ABORT = "abort"
PROCESS_END = "process-end"
ABORT_LINES = 10
"""Most lines from the head of an exception to its message."""
SIGABRT = 6
_EXITS = [name for name, kind in EVENTS.items() if kind.exit_of]
_SRUN_SIGNALS = {
    "Killed": 9, "Terminated": 15, "Segmentation fault": 11, "Aborted": 6, "Bus error": 7, "Illegal instruction": 4,
}  # fmt: skip
"""Signal numbers by the words of srun."""
_WATCHDOGS = [name for name, kind in EVENTS.items() if kind.by_watchdog or kind.gave_up]
_LEADING = 100
"""Characters of a message that are compared; the rest may be cut."""

Row = dict[str, Any]


class _AbortOwner(NamedTuple):
    """The process that printed an exception, and what shows it."""

    rank: int | None
    host: str | None
    pid: int | None
    text: str
    proof: Row
    doubt: str = ""


def exit_code(values: Mapping[str, Any]) -> int | None:
    """The exit code in the values of a launcher's line, negative for a signal, also by the words of srun."""
    how, code = str(values.get("how") or ""), values.get("exitcode")
    number = next((number for words, number in _SRUN_SIGNALS.items() if how.startswith(words)), 0)
    return -number if number else code if isinstance(code, int) else None


def signal_number(code: object) -> int:
    """The signal that ended a process with this exit code; 0 without one."""
    if not isinstance(code, int):
        return 0
    return -code if code < 0 else code - 128 if code > 128 else 0


def says_message(text: str, message: str) -> bool:
    """Whether a line holds the message of an exception of C++; either may be cut."""
    text = text.strip().removeprefix("what():").strip()[:_LEADING]
    return bool(text and message) and (message.startswith(text) or text.startswith(message[:_LEADING]))


def add_abort_ranks(tables: dict[str, pl.DataFrame], sources: Sequence[SourceFile], world: int) -> None:
    """Gives lines of such exceptions the rank and process id of their process, where only one fits.

    `values` then has `joined`: text, file and line of what led to it. `world` is the number of ranks, 0 if unknown.
    """
    messages = tables["messages"]
    if not ((messages["kind"] == ABORT) & messages["rank"].is_null() & messages["pid"].is_null()).any():
        return
    near = pl.col("kind").is_in([ABORT, PROCESS_END, "known-error", *_EXITS, *_WATCHDOGS])
    rows = [{**row, "values": orjson.loads(row["values"])} for row in messages.filter(near).iter_rows(named=True)]
    nameless = [row for row in rows if row["kind"] == ABORT and row["rank"] is None and row["pid"] is None]
    sizes = [source.content.world_size or 0 for source in sources if isinstance(source.content, Sidecar)]
    for abort, owner in zip(nameless, _owners(nameless, rows, max([world, *sizes])), strict=False):
        for row in (abort, *(line for line in rows if _of_abort(line, abort))):
            joined = {"text": owner.text, "file": sources[owner.proof["file"]].shown, "line": owner.proof["line"]}
            row |= {"rank": owner.rank, "host": row["host"] or owner.host, "pid": owner.pid}
            row["values"] |= {"joined": joined} | ({"doubt": owner.doubt} if owner.doubt else {})
    named = [{**row, "values": orjson.dumps(row["values"]).decode()} for row in rows]
    made = pl.DataFrame(named, schema=messages.schema, infer_schema_length=None)
    rest = messages.filter(~near)
    tables["messages"] = pl.concat([rest, made]).sort("file", "offset", maintain_order=True)


def _of_abort(line: Row, abort: Row) -> bool:
    near = line["file"] == abort["file"] and 0 <= line["line"] - abort["line"] <= ABORT_LINES
    message = str(abort["values"].get("message") or "")
    return near and line["kind"] not in (ABORT, *_EXITS, PROCESS_END) and says_message(line["text"], message)


def _owners(nameless: Sequence[Row], rows: Sequence[Row], world: int) -> list[_AbortOwner]:
    """The processes of exceptions, in their order; none if it is not clear which they are."""
    gave_up = (row for row in rows if row["kind"] in _WATCHDOGS or GAVE_UP in (row["values"].get("traits") or ()))
    waited = {row["rank"] for row in gave_up}
    exits: dict[object, Row] = {}
    for row in rows:
        number = signal_number(exit_code(row["values"])) if row["kind"] in _EXITS else 0
        process = row["rank"] if row["rank"] is not None else row["pid"] and f"process {row['pid']}"
        if number == SIGABRT and process is not None and (row["rank"] is None or row["rank"] not in waited):
            exits.setdefault(process, row)
    # a launcher may print one end twice, with its rank and without
    ranked = {row["pid"] if row["pid"] is not None else row["values"].get("pid") for row in exits.values()
              if row["rank"] is not None}  # fmt: skip
    ended = [row for row in exits.values() if row["rank"] is not None or row["pid"] not in ranked]
    first = [row for row in ended if row["values"].get("first")]
    if len(ended) > len(nameless) == len(first) == 1:
        ended = first
    causes = {line["pattern"] for abort in nameless for line in rows if _of_abort(line, abort)}
    if len(ended) == len(nameless) and (len(ended) == 1 or len(causes) == 1):
        doubt = "" if len(ended) == 1 else "several processes aborted like this: which line is whose is not known"
        return [_of_exit(row, doubt) for row in ended]
    return _only_silent(rows, world) if not ended and len(nameless) == 1 else []


def _of_exit(row: Row, doubt: str) -> _AbortOwner:
    name = f"rank {row['rank']}" if row["rank"] is not None else f"process {row['pid']}"
    pid = row["pid"] if row["pid"] is not None else row["values"].get("pid")
    return _AbortOwner(row["rank"], row["host"], pid, f"the launcher saw {name} end by SIGABRT", row, doubt)


def _only_silent(rows: Sequence[Row], world: int) -> list[_AbortOwner]:
    """The only rank that did not note how it ended, as a process that aborts cannot."""
    noted = {row["rank"]: row for row in rows if row["kind"] == PROCESS_END and row["rank"] is not None}
    silent = set(range(world)) - noted.keys()
    if not noted or len(silent) != 1:
        return []
    rank = silent.pop()
    text = f"{ranks_text(sorted(noted))} noted how they ended, and rank {rank} did not"
    return [_AbortOwner(rank, None, None, text, next(iter(noted.values())))]
