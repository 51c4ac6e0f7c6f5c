"""Stacks of all threads of this process: functions, files and lines, no values. docs/capture.md describes the form."""

from __future__ import annotations

import contextlib
import dis
import faulthandler
import json
import os
import platform
import re
import stat
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

VERSION = 1
MOST_BYTES = 1 << 20
"""Bytes of stacks that are kept, the last ones: the main thread comes last."""
RUNS_SHARE = 0.05
"""Share of its time on a processor from which on a thread runs, and does not wait; on a busy machine it gets little."""
END = b"--\n"
"""The end of the stacks in a file, behind which faulthandler writes itself."""
THREAD_PREFIX = "rankscope-"
"""The beginning of the names of the capture's own threads."""
_HEAD = re.compile(rb"(?:Current thread|Thread) (0x[0-9a-f]+) ")
_MAIN = threading.main_thread
_SLEEPS = ("nanosleep", "clock_nanosleep")
_ON_FILES = ("read", "write", "pread64", "pwrite64", "readv", "writev", "fsync", "fdatasync")
_SYSTEM_CALLS = {
    "x86_64": {0: "read", 1: "write", 17: "pread64", 18: "pwrite64", 19: "readv", 20: "writev", 35: "nanosleep",
               74: "fsync", 75: "fdatasync", 230: "clock_nanosleep"},
    "aarch64": {63: "read", 64: "write", 67: "pread64", 68: "pwrite64", 65: "readv", 66: "writev", 101: "nanosleep",
                82: "fsync", 83: "fdatasync", 115: "clock_nanosleep"},
}  # fmt: skip
"""Numbers of Linux' system calls in which a thread surely waits for no other rank, by machine."""


class StillMoment(NamedTuple):
    """The progress of a rank at a moment."""

    stall_after: float
    """Seconds without progress that make a standstill; 0 without a clock."""
    still_s: float | None
    """Seconds since the last sign of progress; None without a clock."""
    runs: bool | None
    """Whether the main thread runs on a processor; None if that is not told."""


class ThreadStacks(NamedTuple):
    """The stacks at one moment."""

    time_ns: int
    text: bytes
    """All threads as faulthandler prints them, the main thread last."""
    facts: dict[str, Any]
    """Facts beside the stacks: `reason`, `calls` and `system_call` of the main thread, and a `StillMoment`."""


def take_stacks(reason: str, moment: StillMoment) -> ThreadStacks:
    """The stacks now.

    Holds the interpreter's lock for about a millisecond, and waits for no disk: the text goes to memory first.
    """
    time_ns = time.time_ns()
    text = b"\n\n".join(block for block in _all_threads().split(b"\n\n") if not _is_of_capture(block))
    facts = {"reason": reason, **moment._asdict(), "calls": _called(), "system_call": _system_call()}
    return ThreadStacks(time_ns, text[-MOST_BYTES:], facts)


def stacks_file(process: Mapping[str, Any], stacks: ThreadStacks | None = None) -> bytes:
    """The file of these stacks: a line of JSON with the facts of the `process`, and the text.

    faulthandler writes behind the line that ends it, also without stacks.
    """
    head = {"rankscope_stacks": VERSION, **process}
    if stacks is None:
        return json.dumps(head).encode() + b"\n"
    return json.dumps({**head, "time_ns": stacks.time_ns, **stacks.facts}).encode() + b"\n" + stacks.text + END


def _all_threads() -> bytes:
    with contextlib.ExitStack() as stack:
        if hasattr(os, "memfd_create"):
            descriptor = os.memfd_create("rankscope-stacks")
            stack.callback(os.close, descriptor)
        else:
            descriptor = stack.enter_context(tempfile.TemporaryFile()).fileno()
        faulthandler.dump_traceback(descriptor, all_threads=True)
        os.lseek(descriptor, 0, os.SEEK_SET)
        with os.fdopen(os.dup(descriptor), "rb") as file:
            return file.read()


def _is_of_capture(block: bytes) -> bool:
    """Whether a thread, as faulthandler prints it, is one of the capture."""
    idents = {thread.ident for thread in threading.enumerate() if thread.name.startswith(THREAD_PREFIX)}
    head = _HEAD.match(block)
    return head is not None and int(head[1], 16) in idents


def _called() -> str | None:
    """The name of the function that the innermost frame of the main thread calls: one in C has no frame of its own."""
    frame = sys._current_frames().get(_MAIN().ident or 0)
    if frame is None or sys.version_info < (3, 11):
        return None
    name: str | None = None
    loads: list[tuple[tuple[int | None, int | None] | None, str]] = []
    for instruction in dis.get_instructions(frame.f_code):
        place = instruction.positions
        begin = None if place is None else (place.lineno, place.col_offset)
        if instruction.offset >= frame.f_lasti:
            # the function of a call begins where the call does; its last load is the attribute
            name = (
                next((load for at, load in reversed(loads) if at == begin), None)
                if "CALL" in instruction.opname
                else None
            )
            break
        if instruction.opname.startswith("LOAD_") and isinstance(instruction.argval, str):
            loads.append((begin, instruction.argval))
    return name


def _system_call() -> str | None:
    """The system call in which the main thread waits, if it surely waits there for no other rank."""
    thread = _MAIN().native_id
    known = _SYSTEM_CALLS.get(platform.machine(), {})
    try:
        number, *values = Path(f"/proc/self/task/{thread}/syscall").read_text().split()
        name = known.get(int(number)) if number.isdigit() else None
        if name in _ON_FILES and not stat.S_ISREG(os.fstat(int(values[0], 16)).st_mode):
            # of a socket or a pipe somebody else holds the other end
            return None
    except (OSError, ValueError, IndexError):
        return None
    return name


def main_thread_seconds() -> float | None:
    """Seconds for which the main thread has run on a processor; None where that is not told."""
    ident = _MAIN().ident
    try:
        return None if ident is None else time.clock_gettime(time.pthread_getcpuclockid(ident))
    except (AttributeError, OSError):
        return None
