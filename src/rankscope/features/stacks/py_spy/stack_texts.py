"""Dumps as text.

    Process 3938: python -u train.py
    Python v3.11.7 (/usr/bin/python3.11)
    Parent Process 3909: python -m torch.distributed.run train.py

    Thread 3938 (active+gil): "MainThread"
        forward (model.py:88)
        epoll_wait (libc.so.6)

The line of the process may be missing, where only the threads were copied along. The debug server of torch writes the
dumps of all ranks into one file, each below `=== Rank 2: http://… ===`.
Locals stand eight spaces in, below their frame: they are never kept, for they may hold secrets.
"""

from __future__ import annotations

import io
import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence

from rankscope.features.stacks.py_spy.frame_interning import (
    FRAME_LIMIT,
    THREAD_LIMIT,
    SnapshotCollector,
    clip_text,
    valid_pid,
)
from rankscope.features.stacks.py_spy.model import MAIN, Snapshot
from rankscope.parsers.contents import NotThisKindError, StackFrame
from rankscope.parsers.safe_values import INT64_LIMIT

_STYLE = re.compile(r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\x07\x1b\n]*(?:\x07|\x1b\\))")
_SECTION = re.compile(r"^=== Rank (\d{1,7}): \S{0,1000}/handler/pyspy_dump\S{0,1000} ===[ \t]*$", re.MULTILINE)
_BARE = re.compile(r'^Thread (?:0[xX][0-9A-Fa-f]{1,16}|\d{1,19}) \([a-z+]{1,32}\)(?:: ".*)?$', re.MULTILINE)
_PROCESS = re.compile(r"^[ \t]*Process (\d{1,10}): ", re.MULTILINE)
_PYTHON = re.compile(r"^Python v\d\S* ?\(.*\)[ \t]*$", re.MULTILINE)
_DUMP_START = re.compile(r"^(?:Python v\d|Thread (?:0x|\d))", re.MULTILINE)
_PARENT = re.compile(r"^Parent Process (\d{1,10}): (.*)$", re.MULTILINE)
_THREAD = re.compile(r'^Thread (0[xX][0-9A-Fa-f]{1,16}|\d{1,19}) \(([a-z+]{1,32})\)(?:: "(.*))?$')
_FRAME = re.compile(r"^(?: {1,7}|\t ?)(?=[^ \t])(.+)$")
_LOCAL_LINE = re.compile(r"^(?: {8}|\t[ \t]{2})")
_LINE = re.compile(r":(\d{1,18})$")
_ONE_WORD = re.compile(r"^[^\s()]+(?= \()")
_STATES: dict[str, tuple[bool | None, bool | None]] = {
    # for an idle thread, the text lacks the state of the lock
    "active+gil": (True, True), "active": (True, False), "idle": (False, None), "idle+gil": (False, True),
}  # fmt: skip
_HEAD_START = re.compile(r"^(?:Thread (?:0x|\d)|Python v\d|Process \d)")


def decode_texts(data: bytes) -> Snapshot:
    """The dumps in a text. Raises NotThisKindError without any."""
    text = _STYLE.sub("", data.decode("utf-8", "replace")) if b"\x1b" in data else data.decode("utf-8", "replace")
    text = text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
    sections = [(match.start(), int(match[1])) for match in _SECTION.finditer(text)]
    starts = [match.start() for match in _PROCESS.finditer(text)]
    if starts and _DUMP_START.search(text, starts[0]) is None:
        starts = []
    collector, errors = SnapshotCollector(), [""]
    if not starts:
        errors.append(_without_process(text, collector))
    cuts = sorted({*starts, *(start for start, _ in sections), len(text)})
    for start in starts:
        if collector.full:
            break
        own = text[start : cuts[bisect_right(cuts, start)]]
        errors.append(_block(own, collector, _rank_at(sections, start)))
    torn = "cut off" if not text.endswith("\n") and _is_torn(text[text.rfind("\n") + 1 :]) else ""
    return collector.result([torn, next(filter(None, errors), "")])


def _without_process(text: str, collector: SnapshotCollector) -> str:
    """Adds threads of one unnamed process; returns the error at the end of py-spy's output, if any.

    The main thread has the id of the process. Raises NotThisKindError.
    """
    threads = list(_BARE.finditer(text))
    if not threads:
        raise NotThisKindError("not a dump of py-spy")
    heads = [found for thread in threads if (found := _THREAD.match(thread[0])) is not None]
    mains = [found for found in heads if (found[3] or "").startswith(MAIN)]
    pid = valid_pid(_id(mains[0][1])) if len(mains) == 1 and mains[0][1].isdecimal() else None
    return _threads(io.StringIO(text[threads[0].start() :]), collector.process(pid, None, "", ""), collector)


def _rank_at(sections: Sequence[tuple[int, int]], at: int) -> int | None:
    """The rank of the section that holds a process."""
    place = bisect_right(sections, (at, -1)) - 1
    return sections[place][1] if place >= 0 else None


def _block(text: str, collector: SnapshotCollector, rank: int | None = None) -> str:
    """Adds one process; returns the error at the end of py-spy's output, if any."""
    start = _PROCESS.match(text)
    if start is None or _DUMP_START.search(text) is None:
        return ""
    # the command line of a script given with -c has all lines of the script
    python = _PYTHON.search(text)
    ends = python.start() if python else text.find("\n") if "\n" in text else len(text)
    body = text[python.end() if python else ends :].lstrip("\n")
    parent = _PARENT.match(body)
    if parent is not None:
        # it may have many lines too
        body = body[parent.end() :]
    parent_pid = valid_pid(int(parent[1])) if parent else None
    command = text[start.end() : ends].rstrip("\n")
    index = collector.process(int(start[1]), parent_pid, command, parent[2] if parent else "", rank)
    return _threads(io.StringIO(body), index, collector)


def _threads(lines: Iterator[str], process: int, collector: SnapshotCollector) -> str:
    found: list[tuple[re.Match[str], list[StackFrame]]] = []
    frames: list[StackFrame] = []
    error = ""
    known = collector.lines
    for raw in lines:
        if raw[:1] in " \t":
            if len(frames) > FRAME_LIMIT:
                continue
            frame = known[raw] if raw in known else known.setdefault(raw, _written(raw))
            if frame is not None:
                frames.append(frame)
        elif thread := _THREAD.match(raw):
            frames = []
            found.append((thread, frames))
            if len(found) > THREAD_LIMIT:
                break
        elif raw.startswith("Error: "):
            error = error or f"py-spy gave up: {clip_text(raw[7:].rstrip())[:200]}"
            frames = []
    held = any(thread[2].endswith("+gil") for thread, _ in found)
    for thread, stack in found:
        active, gil = _STATES.get(thread[2], (None, None))
        state = active, False if held and gil is None else gil
        collector.thread(process, (thread[3] or "").removesuffix('"'), _id(thread[1]), state, stack)
    return error


def _id(text: str) -> int | None:
    value = int(text, 16 if text[:2] in ("0x", "0X") else 10)
    return value if value <= INT64_LIMIT else None


def _written(line: str) -> StackFrame | None:
    """The frame in an indented line; None for a local variable or a torn line."""
    frame = None if _LOCAL_LINE.match(line) else _FRAME.match(line)
    return _frame(frame[1]) if frame else None


def _frame(text: str) -> StackFrame | None:
    """A frame as "forward (model.py:88)", or a native one as "epoll_wait (libc.so.6)"; None for neither."""
    text = text.rstrip()
    if not text.endswith(")"):
        return None
    opening = _opening(text)
    if opening <= 0:
        return None
    place = text[opening + 2 : -1]
    line = _LINE.search(place)
    file = place[: line.start()] if line else place
    return StackFrame(clip_text(text[:opening]), clip_text(file), int(line[1]) if line else 0)


def _opening(text: str) -> int:
    """The place of " (" before the file of a frame. Names in C++ and paths may hold parentheses and spaces."""
    word = _ONE_WORD.match(text)
    if word is not None and word[0].count("<") == word[0].count(">"):
        return word.end()
    depth = 0
    for at in range(len(text) - 1, 0, -1):
        depth += (text[at] == ")") - (text[at] == "(")
        if depth == 0:
            return at - 1 if text[at - 1] == " " else text.rfind(" (")
    return text.rfind(" (")


def _is_torn(last: str) -> bool:
    """Whether a last line without line end is incomplete."""
    if frame := _FRAME.match(last):
        return not _LOCAL_LINE.match(last) and _frame(frame[1]) is None
    return bool(_HEAD_START.match(last)) and not last.endswith('"') and not _THREAD.match(last)
