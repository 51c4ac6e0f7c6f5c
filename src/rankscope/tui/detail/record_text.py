"""A message of a log with everything that is known of it, as lines."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import orjson

from rankscope.report.escape import plain as escaped
from rankscope.report.secrets import hide, value_of
from rankscope.schema import Frame
from rankscope.tui.detail.format import LONGEST_JSON, counted, plain
from rankscope.tui.detail.frames import place
from rankscope.tui.detail.line import BLANK, Line, Span, line, wrap
from rankscope.tui.detail.message_list import date, letter, when

_MOST = 400
"""Lines of a text, values of a record and frames of a stack that are shown."""
_LONGEST = 20_000
"""Characters of a text that are shown."""
_LABEL = 10


def record_text(row: dict[str, Any], group: str, width: int) -> list[Line]:
    """A row of `messages` with its `path`, in lines of `width` cells: where and when, the whole text, its values."""
    lines = [*_labelled(_facts(row, group), width), BLANK]
    lines += [piece for text in _text(row["text"]) for piece in wrap(line(text), width)]
    values = _values(row["values"])
    rest = {name: value for name, value in values.items() if value not in (None, "", [], {}) and name != "frames"}
    told = [(name, hide(value_of(name, _shown(value)))) for name, value in rest.items()]
    lines += [BLANK, line(Span("read from it", "head")), *_labelled(told[:_MOST], width)] if told else []
    frames = _frames(values.get("frames"))
    return [*lines, *([BLANK, line(Span("stack", "head")), *frames] if frames else [])]


def summary(row: dict[str, Any], width: int) -> list[Line]:
    """Where a message stands, and as much of its text as there is room for."""
    who = "unknown rank" if row["rank"] is None else f"rank {row['rank']}"
    torn = Span("  a part is missing", "warn") if row["torn"] else ""
    known = Span(f"  {plain(row['pattern'])}" if row["pattern"] else "", "dim")
    head = line(letter(row["role"]), Span(f" {who}", "head"), f"  {_place(row)}", known, torn)
    return [*wrap(head, width, 2), *wrap(line(plain(hide(row["text"] or ""))), width)]


def _facts(row: dict[str, Any], group: str) -> list[tuple[str, str]]:
    pid = "" if row["pid"] is None else f"process {row['pid']}"
    stamp = f"{date(row['time_ns'])} {when(row['time_ns'], row['resolution_ns'])}" if row["time_ns"] is not None else ""
    kind = [row["kind"] or "", row["role"] or "no known error", row["severity"] or ""]
    facts = [
        ("kind", ", ".join(filter(None, kind))),
        ("pattern", row["pattern"] or ""),
        ("rank", "unknown" if row["rank"] is None else str(row["rank"])),
        ("on", ", ".join(filter(None, (row["host"] or "", pid)))),
        ("time", stamp or "not told"),
        ("group", group),
        ("file", _place(row)),
        ("torn", "a part of it is missing" if row["torn"] else ""),
    ]
    return [(name, text) for name, text in facts if text]


def _place(row: dict[str, Any]) -> str:
    number = "" if row["line"] is None else f", line {row['line']}"
    return f"{plain(row['path'])}{number}"


def _labelled(rows: Iterable[tuple[str, str]], width: int) -> list[Line]:
    parts = (line(Span(f"{plain(name):<{_LABEL}} ", "dim"), plain(text)) for name, text in rows)
    return [piece for one in parts for piece in wrap(one, width, _LABEL + 1)]


def _text(text: str | None) -> list[str]:
    """The whole text, line by line, each made harmless."""
    whole = hide((text or "")[:_LONGEST]).split("\n")
    left = len(whole) - _MOST
    shown = [escaped(part) for part in whole[:_MOST]]
    return [*shown, f"({counted(left, 'line')} more)"] if left > 0 else shown


def _values(text: str | None) -> dict[str, Any]:
    try:
        found = orjson.loads((text or "{}")[:LONGEST_JSON])
    except orjson.JSONDecodeError:
        return {"values": text}
    return found if isinstance(found, dict) else {"values": found}


def _shown(value: object) -> str:
    if isinstance(value, str):
        return value
    return orjson.dumps(value).decode()


def _frames(rows: object) -> list[Line]:
    """The frames of a traceback: rows of function, file and line, innermost first."""
    if not isinstance(rows, list):
        return []
    frames = [
        Frame(str(row[0]), str(row[1]), row[2])
        for row in rows[:_MOST]
        if isinstance(row, list) and len(row) == 3 and isinstance(row[2], int)
    ]
    return [line("  ", Span(plain(frame.function), "bold"), Span(f"  {place(frame)}", "text")) for frame in frames]
