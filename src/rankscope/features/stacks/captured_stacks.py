"""Decoder of the stacks that `rankscope.capture` takes inside of a rank: the bytes of a file to a Snapshot.

    {"rankscope_stacks": 1, "rank": 2, "pid": 4711, "reason": "standstill", "still_s": 61.2, "calls": "sleep", ...}
    Thread 0x00007fdf5f085b80 (most recent call first):
      File "/ws/train.py", line 11 in load
      File "/ws/train.py", line 52 in <module>
    --

The form is that of docs/capture.md. Below its first line stands what Python's faulthandler prints of that moment, and
behind `--` what it has printed itself, at a crash or while a call in C held the lock of the interpreter.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

import orjson

from rankscope.features.stacks.py_spy.frame_interning import SnapshotCollector, clip_text, valid_pid
from rankscope.features.stacks.py_spy.model import MAIN, ProcessRole, Snapshot
from rankscope.parsers.contents import NotThisKindError, StackFrame
from rankscope.parsers.safe_values import RANK_LIMIT, safe_integer, safe_text, safe_truth
from rankscope.schema.tables import AT_CRASH, AT_STANDSTILL

VERSION = 1
TOOL = "faulthandler"
KERNEL, BUILT_IN = "(kernel)", "(C)"
"""Files of the frames of system calls, and of functions in C, which faulthandler does not print."""
_BEGIN = re.compile(rb'\s*\{\s*"rankscope_stacks"\s*:')
_END = "\n--\n"
_FATAL = re.compile(r"^Fatal Python error: ", re.MULTILINE)
_THREAD = re.compile(r"^(Current thread|Thread) 0[xX]([0-9a-fA-F]{1,16})(?: \[([^\[\]]{0,64})\])? \(most recent call")
_FRAME = re.compile(r"^ {1,8}File (?:\"(.{0,4096})\"|\?\?\?), line (?:(\d{1,9})|\?\?\?) in (.{1,1000})$")
_STARTS = ("_bootstrap", "_bootstrap_inner")
_OF_CAPTURE = re.compile(r"[/\\]capture[/\\](?:stall_clock|sampler|end_writer|signals|agent)\.py$")

_PrintedThread = tuple[int, list[StackFrame]]
"""The number of a thread, and its frames, innermost first."""


def looks_like_captured(head: bytes) -> bool:
    """Whether a file with these first bytes holds stacks of the capture."""
    return _BEGIN.match(head) is not None


def decode_captured(data: bytes) -> Snapshot:
    """The stacks in `data`, none for a rank that has left none. Raises NotThisKindError for a file without a rank."""
    first, _, rest = data.partition(b"\n")
    try:
        told = orjson.loads(first)
    except orjson.JSONDecodeError as error:
        raise NotThisKindError(f"stacks of the capture whose first line is damaged: {error.msg}") from error
    rank = safe_integer(told.get("rank"))
    if rank is None or not 0 <= rank < RANK_LIMIT:
        raise NotThisKindError("stacks of the capture without a rank")
    text = rest.decode("utf-8", "replace")
    taken, more = text.split(_END, 1) if _END in text else (text, "") if "reason" in told else ("", text)
    moments = [(told, *moment) for moment in _moments(taken)] + [(None, *moment) for moment in _moments(more)]
    collector = SnapshotCollector()
    pid = valid_pid(safe_integer(told.get("pid")))
    for facts, fatal, threads in moments or [(None, False, [])]:
        tool = AT_CRASH if fatal else AT_STANDSTILL if facts is None or _stood_still(facts) else TOOL
        time_ns = None if facts is None else safe_integer(facts.get("time_ns"))
        process = collector.process(pid, None, "", "", rank=rank, tool=tool, taken_ns=time_ns)
        _add_threads(collector, process, threads, facts, holds=facts is None and not fatal)
    version = safe_integer(told.get("rankscope_stacks"))
    newer = f"its format {version} is newer than {VERSION}" if version is not None and version > VERSION else ""
    snapshot = collector.result([newer])
    if not moments:
        snapshot.problem = newer or None
    snapshot.captured = True
    snapshot.roles = [ProcessRole(i, None) for i in range(len(snapshot.processes))]
    return snapshot


def _stood_still(told: dict[str, Any]) -> bool:
    """Whether the rank had made no progress for as long as makes a standstill."""
    still, after = told.get("still_s"), told.get("stall_after")
    return isinstance(still, int | float) and isinstance(after, int | float) and 0 < after <= still


def _moments(text: str) -> Iterator[tuple[bool, list[_PrintedThread]]]:
    """The threads of each moment, as printed, and whether the process crashed then."""
    fatal, seen, threads = False, set[int](), list[_PrintedThread]()
    for line in text.splitlines():
        found = _THREAD.match(line)
        crash = _FATAL.match(line) is not None
        if crash or (found is not None and int(found[2], 16) in seen):
            if threads:
                yield fatal, threads
            fatal, seen, threads = crash, set(), []
        if found is not None:
            number = int(found[2], 16)
            seen.add(number)
            threads.append((number, []))
        elif (frame := _FRAME.match(line)) is not None and threads:
            threads[-1][1].append(StackFrame(clip_text(frame[3]), clip_text(frame[1] or "???"), int(frame[2] or 0)))
    if threads:
        yield fatal, threads


def _add_threads(
    collector: SnapshotCollector,
    process: int,
    printed: Sequence[_PrintedThread],
    told: dict[str, Any] | None,
    holds: bool,
) -> None:
    """Adds the threads of the job; `told` is of the main thread, `holds`: one of them holds the interpreter's lock."""
    threads = [(number, frames) for number, frames in printed if not _is_of_capture(frames)]
    for place, (number, frames) in enumerate(threads):
        # faulthandler prints the newest thread first
        is_main = place == len(threads) - 1 and bool(frames) and frames[-1].function not in _STARTS
        held = True if holds and len(threads) == 1 else None
        runs = safe_truth(told.get("runs")) if told is not None and is_main else held
        stack = [*_unprinted(told if is_main else None), *frames]
        collector.thread(process, MAIN if is_main else "", number, (runs, held), stack)


def _is_of_capture(frames: Sequence[StackFrame]) -> bool:
    return bool(frames) and frames[-1].function in _STARTS and any(_OF_CAPTURE.search(frame.file) for frame in frames)


def _unprinted(told: dict[str, Any] | None) -> Iterator[StackFrame]:
    """The innermost frames that faulthandler does not print: a system call, else a function in C."""
    for key, file in (("system_call", KERNEL), ("calls", BUILT_IN)) if told is not None else ():
        name = safe_text(told.get(key)) if told is not None else None
        if name:
            yield StackFrame(clip_text(name), file, 0)
