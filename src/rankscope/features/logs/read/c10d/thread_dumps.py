"""Stacks of all threads of a process: of faulthandler, pystack, py-spy and gdb, and whose they are.

    Timeout (0:30:00)!
    Thread 0x00007f8414ff96c0 (most recent call first):
      File "/ws/data.py", line 44 in read_shard

    Traceback for thread 9042 (python3.11) [Has the GIL] (most recent call last):
        (Python) File "/ws/train.py", line 14, in <module>
            main()
        (C) File "./Modules/timemodule.c", line 383, in time_sleep (/usr/lib/libpython3.11.so.1.0)

The debug server of torch 2.15 writes those of all ranks into one file, each below `=== Rank 2: http://… ===`.
Source: Python/traceback.c of CPython 3.8 to 3.14, pystack 1.7, torch/distributed/debug/_debug_handlers.py.
Lines of the program and its variables, which pystack can print, are never kept: they may hold secrets.

    PARTIAL DATA: 2/4 workers responded
      Rank 0: TimeoutError:
      Rank 2: ClientOSError: [Errno 104] Connection reset by peer

Source: format_fetch_summary in torch/distributed/debug/_frontend.py.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from rankscope.features.logs.read.log_record import TEXT_LIMIT, Event, Record, message_event
from rankscope.parsers.contents import StackFrame
from rankscope.parsers.debugger_stacks import (
    CALL_FIRST,
    DETACHED,
    FRAME_LIBRARY,
    GDB,
    NATIVE_FRAME,
    PYTHON_FRAME,
    DebuggedThread,
    debugged_thread,
    library_name,
    main_thread,
    native_frame,
)
from rankscope.schema.tables import AT_CRASH
from rankscope.text.wording import plural

LITERALS = (
    "(most recent call first):", "Traceback for thread ", "=== Rank ", "Fatal Python error: ", "dump for PID",
    *(f"Process {digit}" for digit in range(1, 10)), "PARTIAL DATA: ",
    " (LWP ",
)  # fmt: skip
KIND = "thread-dump"
MAIN = "MainThread"
THREAD_LIMIT = 1024
"""Threads kept of one process; faulthandler stops at 100."""
FRAME_LIMIT = 512
"""Frames kept of one stack, the innermost; faulthandler stops at 100."""
DUMP_LIMIT = 1 << 14
"""Frames kept of one process."""
FOREIGN_LIMIT = 8
"""Most other lines between two lines of a dump."""
_FIRST = re.compile(
    r"^(?:(?:Current thread|Thread) (0[xX][0-9a-fA-F]{1,16})(?: \[([^\[\]]{0,64})\])?|Stack) "
    r"\(most recent call first\): ?$"
)
_LAST = re.compile(r"^Traceback for thread (\d{1,10})(?: \(.{0,64}?\))? \[(.{0,100}?)\] \(most recent call last\): ?$")
_FRAME = re.compile(r"^\s{0,8}File (?:\"(.{0,4096})\"|\?\?\?), line (?:(\d{1,9})|\?\?\?) in (.{1,1000})$")
_PYSTACK = re.compile(r"^\s{0,8}\((Python|C)\) File \"(.{0,4096}?)\", line (\d{1,9}), in (.{1,1000})$")
_VERSION = re.compile(r"@@?[\w.]{1,60}$")
"""The version of a symbol of a library."""
_SECTION = re.compile(r"^=== Rank (\d{1,7}): (\S{0,1000}/handler/(?:dump_traceback|pyspy_dump)\S{0,1000}) ===$")
_ERROR = re.compile(r"^Error: (\d{3})$")
_ALARM = re.compile(r"^(?:Timeout \(\d{1,5}:\d\d:\d\d(?:\.\d{1,6})?\)!|(Fatal) Python error: )")
_ENDS = re.compile(r"^(?:Current thread's C stack trace |Extension modules: )")
_CUT_LINE = re.compile(r"^\s{0,2}\.\.\.$")
_START_FUNCTIONS = ("_bootstrap", "_bootstrap_inner")
_GIVEN_NAME = re.compile(r"Thread-\d{1,9}(?: \(.{0,100})?$")
"""A name that `threading` gives. The system keeps 15 bytes of it, and Python 3.14 prints those: `Thread-1 (_serv`."""


@dataclass
class _Thread:
    """One printed thread."""

    number: int | None
    name: str
    gil: bool | None
    outermost_first: bool
    frames: list[list[str | int]] = field(default_factory=list)
    cut: bool = False
    """Its outermost frames are missing."""

    def row(self, name: str) -> list[object]:
        """Thread id, name, whether it holds the lock, and frames innermost first."""
        frames = self.frames[::-1] if self.outermost_first else self.frames
        return [self.number, name, self.gil, frames[:FRAME_LIMIT]]

    @property
    def may_be_main(self) -> bool:
        """Whether its outermost frame does not come from `threading`, so that it may be the main thread."""
        python = self.python
        return bool(python) and not self.cut and python[-1][0] not in _START_FUNCTIONS

    @property
    def python(self) -> list[list[str | int]]:
        """The Python frames, innermost first."""
        own = [frame for frame in self.frames if frame[2]]
        return own[::-1] if self.outermost_first else own


class ThreadDump:
    """Collector of the threads of one process.

    Values: `threads`, rows [thread id, name, holds the interpreter lock, frames], frames innermost first of rows
    [function, file, line], the main thread first; `tool`, as in the table of threads; `host`, if the heading of the
    section has it.
    """

    quotes = True

    def __init__(self, record: Record) -> None:
        self._record = record
        self._threads: list[_Thread] = []
        self._blank = False
        """Whether the line before is empty."""
        self._over = self._cut = self._code = False
        self._frames = 0
        self._fatal = _is_fatal(record.text.strip())
        section = _SECTION.match(record.text.strip())
        self.named_rank = int(section[1]) if section else None
        self._host = _host(section[2]) if section else None
        if section is None and not self._fatal:
            self._head(record.text.strip())

    @property
    def patience(self) -> int:
        """Most lines between; None once another dump has begun."""
        return 0 if self._over else FOREIGN_LIMIT

    def consumes(self, record: Record) -> bool:
        """Whether a line belongs to it; reads it if so."""
        text = record.text[:TEXT_LIMIT].rstrip()
        if self._over or not text:
            self._blank = not text
            return not self._over
        bare, blank, self._blank = text.strip(), self._blank, False
        if _SECTION.match(bare) or _ALARM.match(bare) or _ENDS.match(bare):
            # a timeout below a heading belongs to that section
            self._over = bool(self._threads) or _SECTION.match(bare) is not None or _is_fatal(bare)
            return False
        if _FIRST.match(bare) or _LAST.match(bare):
            return self._another(bare, blank)
        if not self._threads and self.named_rank is not None and _ERROR.match(bare):
            # the summary above all sections gives the reason
            return True
        return self._within(text)

    def result(self) -> list[Event]:
        """The event, at its first line."""
        record = self._record
        if not self._threads:
            return []
        main = self._main()
        if any(thread.gil for thread in self._threads):
            for thread in self._threads:
                thread.gil = bool(thread.gil)
        # the newest thread is printed first
        order = sorted(range(len(self._threads)), key=lambda i: (i != main, -i))
        rows = [self._threads[i].row(MAIN if i == main else _name(self._threads[i])) for i in order]
        tool = AT_CRASH if self._fatal else "pystack" if self._threads[0].outermost_first else "faulthandler"
        process: dict[str, object] = {"tool": tool}
        if self._host is not None:
            process["host"] = self._host
        if (pid := self._pid(main)) is not None:
            process["pid"] = pid
        made = message_event(KIND, record, f"stacks of {len(rows)} threads", threads=rows, **process)
        return [made if self.named_rank is None else made._replace(rank=self.named_rank)]

    def _another(self, bare: str, blank: bool) -> bool:
        """Takes the head of a thread, unless it begins another dump.

        A dump has each thread once, and the main thread last; an empty line follows each thread but the last, unless a
        filter removed it.
        """
        number = _number(bare)
        again = number is not None and any(thread.number == number for thread in self._threads)
        if again or (self._threads and not blank and self._threads[-1].may_be_main):
            self._over = True
            return False
        self._head(bare)
        return True

    def _head(self, bare: str) -> None:
        if len(self._threads) >= THREAD_LIMIT:
            self._cut = True
        elif (first := _FIRST.match(bare)) is not None:
            self._threads.append(_Thread(_number(bare), first[2] or "", None, outermost_first=False))
        elif (last := _LAST.match(bare)) is not None:
            held = True if "Has the GIL" in last[2] else None
            self._threads.append(_Thread(int(last[1]), "", held, outermost_first=True))

    def _within(self, text: str) -> bool:
        """Takes a line of the current thread."""
        if not self._threads:
            return False
        thread = self._threads[-1]
        frame = _pystack(text) if thread.outermost_first else _frame(text)
        code, self._code = self._code, frame is not None and thread.outermost_first and bool(frame[2])
        if frame is not None:
            if self._frames < DUMP_LIMIT:
                thread.frames.append(frame)
                self._frames += 1
            return True
        if _CUT_LINE.match(text) or text.strip() == "<truncated rest of calls>":
            # before the end of the line are frames of a thread; at its beginning are more threads
            thread.cut |= text[:1] == " "
            self._cut |= text[:1] != " "
            return True
        # code, variables, and notes of faulthandler instead of frames
        return (
            code or text[:4].isspace()
            if thread.outermost_first
            else text.strip().startswith(("<", "Garbage-collecting"))
        )

    def _main(self) -> int | None:
        """The index of the main thread: the last one that `threading` did not start; None if unknown."""
        found = [i for i, t in enumerate(self._threads) if t.number is not None and (t.may_be_main or t.cut)]
        return found[-1] if found and not self._cut else None

    def _pid(self, main: int | None) -> int | None:
        """The process id: on Linux the id of the main thread, if thread ids are the system's."""
        thread = self._threads[main] if main is not None else None
        return thread.number if thread is not None and thread.outermost_first else None


_PYSPY_PROCESS = re.compile(r"^\s{0,8}Process (\d{1,10}): (.{1,4096})$")
_PYSPY_HEADING = re.compile(r"Py-?[Ss]py dump for PID (\d{1,10}):?\s*$")
_PYSPY_THREAD = re.compile(r'^Thread (0[xX][0-9a-fA-F]{1,16}|\d{1,19}) \((active|idle)(\+gil)?\)(?:: "(.{0,400})")?$')
_PYSPY_FRAME = re.compile(r"^ {1,7}(\S.{0,1000}) \(([^()]{1,1000}?)(?::(\d{1,9}))?\)$")
_PYSPY_BESIDE = re.compile(r"^(?:Python v\d|Parent Process \d| {8}|Error: )")


class PySpyDump:
    """Collector of the threads of one process that py-spy saw.

    Values as of `ThreadDump`, with whether the thread was running behind the frames; `command` is the command line.
    """

    quotes = True
    patience = FOREIGN_LIMIT

    def __init__(self, record: Record) -> None:
        self._record = record
        self._frames = 0
        self._threads: list[list[Any]] = []
        self._pid, self._command = 0, ""
        self._margin = _margin(record.text)
        heading, process = _PYSPY_HEADING.search(record.text), _PYSPY_PROCESS.match(record.text)
        self._begun = process is not None
        self.named_rank = record.rank
        if heading is not None:
            self._pid = int(heading[1])
        elif process is not None:
            self._pid, self._command = int(process[1]), process[2]

    def consumes(self, record: Record) -> bool:
        """Whether a line belongs to it; reads it if so."""
        text = record.text[:TEXT_LIMIT].removeprefix(self._margin).rstrip()
        process = _PYSPY_PROCESS.match(text)
        if process is not None:
            if self._begun:
                return False
            self._begun, self._pid, self._command = True, int(process[1]), process[2]
            self._margin += _margin(text)
            return True
        if not text or _PYSPY_BESIDE.match(text):
            return True
        if (thread := _PYSPY_THREAD.match(text)) is not None:
            if len(self._threads) < THREAD_LIMIT:
                number = int(thread[1], 16 if thread[1][:2] in ("0x", "0X") else 10)
                self._threads.append([number, thread[4] or "", thread[3] is not None, [], thread[2] == "active"])
            return True
        frame = _PYSPY_FRAME.match(text) if self._threads else None
        if frame is None:
            return False
        if self._frames < DUMP_LIMIT and len(self._threads[-1][3]) < FRAME_LIMIT:
            self._threads[-1][3].append([frame[1], frame[2], int(frame[3] or 0)])
            self._frames += 1
        return True

    def result(self) -> list[Event]:
        """The event, at its first line."""
        if not self._threads:
            return []
        process = {"tool": "py-spy", "pid": self._pid, "command": self._command, "id": self._pid}
        text = f"stacks of {len(self._threads)} threads of process {self._pid}"
        return [message_event(KIND, self._record, text, threads=self._threads, **process)]


def _margin(text: str) -> str:
    """The blanks before a line of a process, and so before all lines of its dump."""
    return text[: len(text) - len(text.lstrip(" "))]


class DebuggerDump:
    """Collector of the threads of one process that gdb or pstack saw, from the head of a thread on.

    Values as of `ThreadDump`.
    """

    quotes = True
    patience = FOREIGN_LIMIT

    def __init__(self, record: Record, head: DebuggedThread) -> None:
        self._record = record
        self._threads: list[tuple[DebuggedThread, list[StackFrame], list[StackFrame]]] = []
        self._frames = 0
        self._pid: int | None = None
        """As gdb tells it at its end."""
        self._over = False
        self.named_rank = record.rank
        self._head(head)

    def consumes(self, record: Record) -> bool:
        """Whether a line belongs to it; reads it if so."""
        text = record.text[:TEXT_LIMIT].strip()
        if self._over or not text:
            return not text and not self._over
        if (detached := DETACHED.match(text)) is not None:
            self._pid, self._over = int(detached[1]), True
            return True
        if (head := _numbered_thread(text)) is not None:
            # a thread that comes again is of another process, or of a later moment
            heads = [thread for thread, *_ in self._threads]
            self._over = any(thread.number == head.number or thread.inferior != head.inferior for thread in heads)
            return not self._over and self._head(head)
        return self._within(text)

    def _head(self, head: DebuggedThread) -> bool:
        if len(self._threads) < THREAD_LIMIT:
            self._threads.append((head, [], []))
        return True

    def _within(self, text: str) -> bool:
        """Takes a line of the last thread."""
        _, frames, python = self._threads[-1]
        if self._frames >= DUMP_LIMIT or max(len(frames), len(python)) >= FRAME_LIMIT:
            return NATIVE_FRAME.match(text) is not None
        if (native := NATIVE_FRAME.match(text)) is not None and (frame := native_frame(native[2])) is not None:
            frames.append(frame)
        elif (library := FRAME_LIBRARY.match(text)) is not None and frames and not frames[-1].file:
            frames[-1] = frames[-1]._replace(file=library_name(library[1]))
        elif (line := PYTHON_FRAME.match(text)) is not None:
            python.append(StackFrame(line[3], line[1], int(line[2])))
        else:
            return native is not None or text == CALL_FIRST
        self._frames += 1
        return True

    def result(self) -> list[Event]:
        """The event, at its first line."""
        threads = [(head, frames, python) for head, frames, python in self._threads if frames or python]
        if not threads:
            return []
        outermost = [frames[-1].function if frames else "" for _, frames, _ in threads]
        main, pid = main_thread([head for head, *_ in threads], outermost, self._pid)
        rows = [
            [head.number, MAIN if place == main else head.name, None, list(map(list, python or frames))]
            for place, (head, frames, python) in enumerate(threads)
        ]
        process: dict[str, object] = {"tool": GDB} if pid is None else {"tool": GDB, "pid": pid}
        text = f"stacks of {plural(len(rows), 'thread')} in a debugger"
        return [message_event(KIND, self._record, text, threads=rows, **process)]


def _numbered_thread(text: str) -> DebuggedThread | None:
    """The thread of gdb with the number of the system whose head a line is: other lines of a log look like others."""
    head = debugged_thread(text)
    return head if head is not None and head.tool == GDB and head.number is not None else None


def heads_other_lines(record: Record) -> bool:
    """Whether only this line of a dump has the prefix of its rank."""
    return "dump for PID" in record.text and _PYSPY_HEADING.search(record.text) is not None


def begins(record: Record) -> ThreadDump | PySpyDump | DebuggerDump | DebugSummary | None:
    """A dump, or a section of a file with many ranks, that begins with this record."""
    bare = record.text[:TEXT_LIMIT].strip()
    if (debugged := _numbered_thread(bare)) is not None:
        return DebuggerDump(record, debugged)
    if _PYSPY_PROCESS.match(bare) or heads_other_lines(record):
        return PySpyDump(record)
    if (summary := _SUMMARY.match(bare)) is not None:
        return DebugSummary(record, int(summary[2]))
    begun = _is_fatal(bare) or any(form.match(bare) for form in (_FIRST, _LAST, _SECTION))
    return ThreadDump(record) if begun else None


def _is_fatal(bare: str) -> bool:
    """Whether a process says that it ends: the stacks below come from that moment."""
    alarm = _ALARM.match(bare)
    return alarm is not None and alarm[1] is not None


def _number(bare: str) -> int | None:
    found = _FIRST.match(bare)
    if found is not None:
        return int(found[1], 16) if found[1] else None
    last = _LAST.match(bare)
    return int(last[1]) if last else None


def _frame(text: str) -> list[str | int] | None:
    found = _FRAME.match(text)
    return [found[3], found[1] or "???", int(found[2] or 0)] if found else None


def _pystack(text: str) -> list[str | int] | None:
    found = _PYSTACK.match(text)
    if found is None:
        return None
    if found[1] == "Python":
        return [found[4], found[2], int(found[3])]
    # as py-spy writes them: the library, and no line
    name, _, library = found[4].removesuffix(")").rpartition(" (")
    return [_VERSION.sub("", name.removesuffix(" (inlined)")), library.rpartition("/")[2], 0]


def _name(thread: _Thread) -> str:
    """Its own name, or one in the style of `threading`, which names a thread after its function; empty if unknown."""
    if thread.name and not _GIVEN_NAME.match(thread.name):
        return thread.name
    names = [str(frame[0]) for frame in thread.python]
    at = len(names) - 1 - names[::-1].index("_bootstrap_inner") if "_bootstrap_inner" in names else 0
    return f"Thread ({names[at - 2]})" if at >= 2 and names[at - 1] == "run" else thread.name


def _host(url: str) -> str | None:
    try:
        return urlsplit(url).hostname
    except ValueError:
        return None


NO_ANSWER = "no-answer"
RANK_LIMIT = 1 << 16
_SUMMARY = re.compile(r"^PARTIAL DATA: (\d{1,7})/(\d{1,7}) workers responded$")
_RANK = re.compile(r"^\s{1,4}Rank (\d{1,7}): ?(.{0,300})$")
_NO_HANDLER = re.compile(r"^Handler \S{1,100} not found")


class DebugSummary:
    """Collector of the ranks that did not answer: an event for each, with `reason`, and `size` of the job."""

    patience = 0
    quotes = True
    named_rank = None

    def __init__(self, record: Record, size: int) -> None:
        self._record, self._size = record, size
        self._found: list[tuple[Record, int, str]] = []

    def consumes(self, record: Record) -> bool:
        """Whether a line names a rank; reads it if so."""
        found = _RANK.match(record.text[:TEXT_LIMIT].rstrip())
        if found is None or len(self._found) >= RANK_LIMIT:
            return False
        self._found.append((record, int(found[1]), found[2].strip()))
        return True

    def result(self) -> list[Event]:
        """The events, at the lines of the ranks; none for a process that answered without support."""
        return [
            self._event(record, rank, reason)
            for record, rank, reason in self._found
            if rank < self._size and not _NO_HANDLER.match(reason)
        ]

    def _event(self, record: Record, rank: int, reason: str) -> Event:
        why = f": {reason.rstrip(': ')}" if reason else ""
        made = message_event(
            NO_ANSWER, record, f"rank {rank} did not answer the debug server{why}", reason=reason, size=self._size
        )
        return made._replace(rank=rank)
