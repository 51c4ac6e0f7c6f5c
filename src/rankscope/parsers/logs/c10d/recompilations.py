"""Compilations of torch.compile, as TORCH_LOGS=recompiles,graph_breaks prints them, and the limit of all.

    torch/_dynamo/guards.py:2590] [0/1] [__recompiles] Recompiling function f in net.py:3
    torch/_dynamo/guards.py:2590] [0/1] [__recompiles]     triggered by the following guard failure(s):
    torch/_dynamo/guards.py:2590] [0/1] [__recompiles]     - 0/0: tensor 'x' size mismatch at index 0. expected 4, ...
    torch/_dynamo/symbolic_convert.py:611] [1/0] [__graph_breaks] Graph break in user code at net.py:8
    torch/_dynamo/symbolic_convert.py:611] [1/0] [__graph_breaks] Graph Break Reason: Data dependent operator
    torch/_dynamo/convert_frame.py:906] [0/8] torch._dynamo hit config.recompile_limit (8)

Source: torch/_dynamo/guards.py, convert_frame.py and symbolic_convert.py from 2.1 to 2.13. Before 2.3 a logger stands
in place of the tag (`torch._dynamo.guards.__recompiles: [DEBUG]`); up to 2.4 guards lack the id before the colon.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from rankscope.parsers.logs.c10d.event_builder import message_event, shown_text
from rankscope.parsers.logs.log_record import Event, Record

LITERALS = (
    "__recompiles", "__graph_breaks", "torch._dynamo hit config.", " last reason: ", "   function: '",
)  # fmt: skip
KIND = "recompile"
BREAK_KIND = "graph-break"
_ID = re.compile(r"(?:^|\s)\[(\d{1,7}/\d{1,7})(?:_\d{1,5})?\]")
"""Number of the frame and of its compilation, with the number of a restart."""
_TAG = r"(?:\[__{0}\]|\.__{0}: \[DEBUG\])"
_RECOMPILES = _TAG.format("recompiles(?:_verbose)?")
_AGAIN = re.compile(_RECOMPILES + r" Recompiling function (\S{1,200}) in (\S.{0,400}?):(\d{1,9})\s*$")
_GUARD = re.compile(_RECOMPILES + r"\s{1,8}- (?:(\d{1,7}/\d{1,7}): )?(\S.{0,300})")
_LIMIT = re.compile(r"torch\._dynamo hit config\.(?:accumulated_)?(?:recompile_limit|cache_size_limit) \((\d{1,9})\)")
_AT_LIMIT = re.compile(
    r"torch/_dynamo/\S{1,80}\] \[\S{1,20}\] +(?:function: '(?P<name>[^']{1,200})' "
    r"\((?P<path>[^()]{1,400}):(?P<line>\d{1,9})\)|last reason: (?:\d{1,7}/\d{1,7}: )?(?P<reason>\S.{0,300}))"
)
"""Lines below that of the limit."""
_BREAK = re.compile(
    _TAG.format("graph_breaks")
    + r" Graph break(?:(?: \([^()]{1,100}\))? in user code at (?P<path>\S.{0,400}?):(?P<line>\d{1,9})\s*$"
    r"|: (?P<reason>\S.{0,300}))"
)
_BREAK_REASON = re.compile(_TAG.format("graph_breaks") + r" (?:Graph Break )?Reason: (\S.{0,300})")


def events(record: Record) -> Iterator[Event]:
    """The event of a line. Values: `what`, "again", "limit", "break" or "reason", the last for a line that explains
    the one above; `compile_id`, `function`, `path`, `code_line`, `reason` and `limit`, where the line has them."""
    text = record.text
    values = _values(text)
    if not values:
        return
    found = _ID.search(text)
    kind = BREAK_KIND if "__graph_breaks" in text else KIND
    yield message_event(kind, record, **values, compile_id=found[1] if found else "")


def _values(text: str) -> dict[str, Any]:
    if (again := _AGAIN.search(text)) is not None:
        return {"what": "again", **_place(again[1], again[2], again[3])}
    if (guard := _GUARD.search(text)) is not None:
        return {"what": "reason", "reason": shown_text(guard[2]), "against": guard[1] or ""}
    if (limit := _LIMIT.search(text)) is not None:
        return {"what": "limit", "limit": int(limit[1])}
    if (told := _AT_LIMIT.search(text)) is not None:
        if told["name"]:
            return {"what": "reason", **_place(told["name"], told["path"], told["line"])}
        return {"what": "reason", "reason": shown_text(told["reason"])}
    return _break_values(text)


def _break_values(text: str) -> dict[str, Any]:
    if (broken := _BREAK.search(text)) is not None:
        if broken["path"]:
            return {"what": "break", **_place("", broken["path"], broken["line"])}
        return {"what": "break", "reason": shown_text(broken["reason"])}
    why = _BREAK_REASON.search(text)
    return {"what": "reason", "reason": shown_text(why[1])} if why is not None else {}


def _place(function: str, path: str, line: str) -> dict[str, Any]:
    return {"function": shown_text(function), "path": shown_text(path), "code_line": int(line)}
