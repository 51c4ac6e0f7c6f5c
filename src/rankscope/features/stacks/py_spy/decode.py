"""Decoder of py-spy's output in both of its forms: the bytes of a file to a Snapshot.

Source of both forms: py-spy's src/dump.rs and src/stack_trace.rs, and dumps that py-spy 0.4.3 made.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import orjson

from rankscope.features.stacks.captured_stacks import decode_captured, looks_like_captured
from rankscope.features.stacks.py_spy import stack_texts
from rankscope.features.stacks.py_spy.frame_interning import SnapshotCollector, valid_pid
from rankscope.features.stacks.py_spy.model import Snapshot
from rankscope.features.stacks.py_spy.pasted_stacks import decode_pasted, looks_like_pasted
from rankscope.features.stacks.py_spy.thread_roles import roles_of
from rankscope.parsers.contents import NotThisKindError, StackFrame
from rankscope.parsers.safe_values import safe_integer, safe_text, safe_truth

_STYLE = rb"(?:\x1b\[[0-9;]*m)*"
_TEXT = re.compile(rb"(?m)^(?:\xef\xbb\xbf)?[ \t]*Process " + _STYLE + rb"\d{1,10}" + _STYLE + rb": [^\n]*(\n?)")
_NEXT = re.compile(rb"(?m)^(?:Python v|Parent Process |Thread )")
_THREADS = re.compile(
    rb"\A(?:\xef\xbb\xbf)?\s*Thread (?:0[xX][0-9A-Fa-f]{1,16}|\d{1,19}) \((?:active|idle)(?:\+gil)?\)"
    rb"(?:: \"[^\n]*)?\r?\n {4}[^ \n][^\n]* \([^\n]*\)\r?(?:\n|\Z)"
)
"""The beginning of a file with a thread and its innermost frame, without a process."""
_LOGGED = re.compile(
    rb"(?m)^\[?\d{4}-\d\d-\d\d[ T_]\d\d:\d\d:\d\d[^\n]{20}|^\[rank\d{1,7}\]:|^[A-Z]{4,8} \d\d-\d\d \d\d:"
    rb"|^\(\w[^()\n]{0,120}\bpid=\d"
)
"""Lines of a log: dumps below them are parts of it."""
_PLAIN = re.compile(
    rb"(?m)^(?:\xef\xbb\xbf)?[ \t]*(?:\x1b\[[0-9;]*m)*Process (?:\x1b\[[0-9;]*m)*\d{1,10}"
    rb"|\A(?:\xef\xbb\xbf)?\s*Thread (?:0[xX][0-9A-Fa-f]{1,16}|\d{1,19}) \((?:active|idle)"
)
_MAINS = re.compile(rb'(?m)^[ \t]*Thread (?:0[xX][0-9A-Fa-f]{1,16}|\d{1,19}) \([a-z+]{1,32}\): "MainThread"')
_DEBUGGED = re.compile(rb"(?m)^[ \t]*#0 {1,3}0x[0-9a-f]{4,16} in ")
_TELLS_MORE = re.compile(rb"NCCL |\[rank\d|Traceback \(most recent call last|Error: |Exception|Process \d{1,10}: ")
_JSON = re.compile(rb'\[\s*\{\s*"pid":\s*\d+,\s*"thread_id":')


def looks_like_snapshot(head: bytes) -> bool:
    """Whether the first bytes can begin a dump, also behind a prompt or a few other lines."""
    if head[:1] == b"\x80":
        return False
    if looks_like_captured(head):
        return True
    if _JSON.search(head) is not None:
        return True
    begun = _TEXT.search(head)
    if begun is None and _THREADS.search(head) is not None:
        return True
    if begun is not None and _LOGGED.search(head[: begun.start()]) is not None:
        return False
    # a command line may be longer than these first bytes
    if begun is not None and (not begun[1] or len(head) >= 512 or _NEXT.search(head, begun.end()) is not None):
        return True
    return looks_like_pasted(head) and _LOGGED.search(head) is None


def holds_stacks(data: bytes) -> bool:
    """Whether a text holds stacks, and no lines of a log, which may tell more than they."""
    return looks_like_pasted(data) and _LOGGED.search(data) is None and _TELLS_MORE.search(data) is None


def decode_snapshot(data: bytes) -> Snapshot:
    """The dumps in `data`. Raises NotThisKindError."""
    if looks_like_captured(data):
        return decode_captured(data)
    first = _JSON.search(data)
    if first is not None:
        snapshot = decode_document(data, first.start())
    elif looks_like_pasted(data) and _is_plain(data) is None:
        snapshot = decode_pasted(data)
    else:
        try:
            snapshot = stack_texts.decode_texts(data)
        except NotThisKindError:
            # heads that someone shortened
            snapshot = decode_pasted(data)
    snapshot.roles = roles_of(snapshot)
    return snapshot


def _is_plain(data: bytes) -> re.Match[bytes] | None:
    """The first process or thread of a dump as py-spy prints it; None where it stands behind other signs, where only
    threads of several processes do, or beside stacks of a debugger."""
    plain = _PLAIN.search(data)
    several = len(_MAINS.findall(data)) > 1 and _TEXT.search(data) is None
    return None if several or _DEBUGGED.search(data) is not None else plain


# Dumps as JSON: a list of threads for each process; a file may have several lists, and the last may be torn.

_LIST = re.compile(r'\[\s*(?=\{\s*"pid"\s*:)')
_BETWEEN = re.compile(r"\s*,\s*(?=\{)")
_END = re.compile(r"\s*\]")
DAMAGE_LIMIT = 64
"""Most torn lists of a file; after them the read ends."""
_CUT_PROBLEM = "cut off or damaged: whole threads kept"


def decode_document(data: bytes, start: int) -> Snapshot:
    """The dumps in a file whose first list begins at `start`. A list torn in its first thread gives none."""
    collector = SnapshotCollector()
    torn = False
    for threads, whole in _thread_lists(data, start):
        torn |= not whole
        _document(threads, collector)
    return collector.result([_CUT_PROBLEM if torn else ""])


def _thread_lists(data: bytes, start: int) -> Iterator[tuple[list[Any], bool]]:
    """The lists of threads, and whether each is whole."""
    try:
        whole = orjson.loads(data[start:])
    except orjson.JSONDecodeError:
        yield from _one_by_one(data[start:].decode("utf-8", "replace"))
        return
    yield (whole if isinstance(whole, list) else []), True


def _one_by_one(data: str) -> Iterator[tuple[list[Any], bool]]:
    decoder = json.JSONDecoder()
    at = damaged = 0
    while damaged < DAMAGE_LIMIT and (opened := _LIST.search(data, at)) is not None:
        threads, at, whole = _elements(decoder, data, opened.end())
        damaged += not whole
        yield threads, whole


def _elements(decoder: json.JSONDecoder, data: str, at: int) -> tuple[list[Any], int, bool]:
    """The elements of a list from its first on, their end, and whether the list ends there."""
    threads: list[Any] = []
    while True:
        try:
            thread, at = decoder.raw_decode(data, at)
        except (ValueError, RecursionError):
            return threads, at + 1, False
        threads.append(thread)
        between = _BETWEEN.match(data, at)
        if between is None:
            return threads, at, _END.match(data, at) is not None
        at = between.end()


def _document(threads: list[Any], collector: SnapshotCollector) -> None:
    """Adds one list: threads of one process, or of several."""
    processes: dict[int, int] = {}
    # the newest thread comes first in JSON, and last in a text
    for thread in reversed(threads):
        pid = valid_pid(safe_integer(thread.get("pid"))) if isinstance(thread, dict) else None
        if pid is None or not isinstance(thread.get("frames"), list):
            continue
        if pid not in processes:
            processes[pid] = _process(pid, thread.get("process_info"), collector)
        if collector.full:
            return
        thread_id = safe_integer(thread.get("os_thread_id"))
        collector.thread(
            processes[pid],
            safe_text(thread.get("thread_name")) or "",
            safe_integer(thread.get("thread_id")) if thread_id is None else thread_id,
            (safe_truth(thread.get("active")), safe_truth(thread.get("owns_gil"))),
            _frames(thread["frames"]),
        )


def _process(pid: int, info: Any, collector: SnapshotCollector) -> int:
    own = _object(info)
    parent = _object(own.get("parent"))
    command, parent_command = safe_text(own.get("command_line")) or "", safe_text(parent.get("command_line")) or ""
    return collector.process(pid, valid_pid(safe_integer(parent.get("pid"))), command, parent_command)


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _frames(frames: list[Any]) -> Iterator[StackFrame]:
    for frame in frames:
        name = safe_text(frame.get("name")) if isinstance(frame, dict) else None
        if name is None:
            continue
        line = safe_integer(frame.get("line")) or 0
        path, short = safe_text(frame.get("filename")) or "", safe_text(frame.get("short_filename"))
        # for a library, a text has only the name
        yield StackFrame(name, path if line > 0 or not short else short, max(0, line))
