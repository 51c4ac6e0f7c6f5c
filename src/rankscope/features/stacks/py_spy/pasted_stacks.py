"""Stacks as people paste them, and those of debuggers: gdb, pstack, lldb and eu-stack, also with gdb's `py-bt`.

    The stack for rank 0:
    1041 Thread 0x7FA6E7C01740 (idle): "MainThread"
    1042     get (queue.py:170)

    Thread 1 (Thread 0x7f737a243b80 (LWP 2451) "python"):
    #0  0x00007f73 in c10d::Work::wait(...) () from /usr/lib/libtorch_cpu.so
    #1  gen_send_ex2 (closing=0, exc=0x0) at Objects/genobject.c:219

    PID 2451 - process
    TID 2451:
    #0  0x00007f7379aa3f16 pthread_cond_wait@@GLIBC_2.3.2 - /lib/libc.so.6

Lines may stand behind numbers, marks of lists and quotes, or as escaped text in one line. Arguments are never kept:
they may hold secrets.
Source: gdb 13, eu-stack of elfutils 0.188 and py-spy 0.4, run on processes of torch.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from rankscope.features.stacks.py_spy.frame_interning import (
    FRAME_LIMIT,
    PROCESS_LIMIT,
    SnapshotCollector,
    clip_text,
    valid_pid,
)
from rankscope.features.stacks.py_spy.model import MAIN, PY_SPY, Snapshot
from rankscope.parsers.contents import NotThisKindError, StackFrame
from rankscope.parsers.debugger_stacks import (
    BEGINNINGS,
    CALL_FIRST,
    DETACHED,
    FRAME_LIBRARY,
    GDB,
    INFERIOR,
    LLDB_FRAME,
    NATIVE_FRAME,
    PYTHON_FRAME,
    DebuggedThread,
    debugged_thread,
    library_name,
    lldb_frame,
    main_thread,
    native_frame,
)
from rankscope.parsers.safe_values import INT64_LIMIT, RANK_LIMIT

EU_STACK = "eu-stack"
LINE_LIMIT = 20_000
_FRONT = r"(?:[ \t]*(?:\d{1,7}[:|.)]?[ \t]|[-*+>|][ \t]))*[ \t]*"
"""Numbers of lines, marks of lists and quotes."""
_HEADS = (
    r'Thread (?:(?:0[xX][0-9A-Fa-f]{1,16}|\d{1,19}) )?\((?:active|idle)(?:\+gil)?\)(?::? \\?"|\s*$|\\n)'
    rf"|{BEGINNINGS}"
)
_BEGINS = re.compile(rf"(?m)^{_FRONT}[\"']?(?:{_HEADS})".encode())
_ESCAPED = re.compile(r"\\r?\\n|\\n")
_FRONT_OF = re.compile(_FRONT)
_PROCESS = re.compile(r"^(?:Process (\d{1,10}): (\S.*)|PID (\d{1,10}) - process.*|\[New LWP .*)$")
_PY_SPY_THREAD = re.compile(
    r'^Thread (?:(0[xX][0-9A-Fa-f]{1,16}|\d{1,19}) )?\((active|idle)(\+gil)?\)(?::? "([^"]{0,400}))?'
)
_PROMPT = re.compile(r"^(?:\((?:gdb|lldb)\)\s*)+")
_ATTACH = re.compile(r"^(?:attach|at|process attach|detach|file|core-file|target|inferior)\b")
"""Commands of a debugger after which another process may be in it."""
_ANSWER = re.compile(rf"(?:{BEGINNINGS}|{INFERIOR.pattern}|{re.escape(CALL_FIRST)})")
_SELECT = re.compile(r"^(?:thread select|thread|thr|t) \d")
"""Commands of a debugger after which it is about another thread."""
_VERSION_NOTE = re.compile(r"\s{1,8}\(Python [\d.]{1,20}\)$")
_DUMP_OF = re.compile(r"(?i)\b(?:stack|thread)s? ?(?:dumps?|traces?) (?:for|of) ")
_PY_SPY_FRAME = re.compile(r"^(\S.{0,2000}?) \(([^()]{1,1000}?)(?::(\d{1,9}))?\)$")
_TID = re.compile(r"^TID (\d{1,10}):\s*$")
_RANK = re.compile(r"(?i)\b(?:global[ _-]?)?rank[\s_:=#-]{0,3}(\d{1,6})\b")
_RANKS = re.compile(r"(?i)\branks\b")
_SAME_PROCESS = re.compile(r"(?i)\b(?:native|gdb|pstack|eu-stack|C\+\+|C (?:stack|frames|backtrace))(?!\w)")
"""Words that announce the stack in C of the process whose Python stack stands above."""
_NUMBER = re.compile(r"\b(?:0x[0-9A-Fa-f]{1,16}|[1-9]\d{0,18}|0)\b")
_MODULE = "<module>"
PROSE_LIMIT = 300


@dataclass
class _PastedThread:
    number: int | None
    name: str
    state: tuple[bool | None, bool | None]
    tool: str
    frames: list[StackFrame] = field(default_factory=list)
    index: int | None = None
    """How a debugger counts it, from 1."""
    python: list[StackFrame] = field(default_factory=list)
    """Frames of `py-bt`, which replace those in C."""


@dataclass
class _PastedProcess:
    rank: int | None = None
    pid: int | None = None
    command: str = ""
    threads: list[_PastedThread] = field(default_factory=list)
    announced: frozenset[int] | None = None
    """The numbers in a line above that calls its stack the one in C of a process; None without such a line."""

    @property
    def has_main(self) -> bool:
        return any(thread.name == MAIN for thread in self.threads)


def looks_like_pasted(head: bytes) -> bool:
    """Whether the first bytes hold a stack in one of these forms."""
    return _BEGINS.search(head) is not None or _BEGINS.search(_unescaped(head)) is not None


def _unescaped(data: bytes) -> bytes:
    """A text whose lines are escaped, as in JSON, with its lines; other texts as they are."""
    if data.count(b"\\n") < 2 or data.count(b"\\n") < data.count(b"\n"):
        return data
    return data.replace(b"\\r\\n", b"\n").replace(b"\\n", b"\n").replace(b"\\t", b"\t").replace(b'\\"', b'"')


def decode_pasted(data: bytes) -> Snapshot:
    """The stacks in a text. Raises NotThisKindError without any."""
    reader = _PasteReader()
    for line in _unescaped(data).decode("utf-8", "replace").splitlines():
        reader.take(line[:LINE_LIMIT])
    return reader.result()


class _PasteReader:
    """Reader of lines, in order; each tells of the process of those above it, or begins another."""

    def __init__(self) -> None:
        self._processes: list[_PastedProcess] = []
        self._rank: int | None = None
        self._fresh = True
        """The next thread begins a process."""
        self._announced: frozenset[int] | None = None
        self._session = False
        """Prompts of a debugger stand between the stacks: they are of one process."""
        self._selected = False
        """A thread was selected whose head is not there yet."""
        self._inferior: str | None = None

    def take(self, line: str) -> None:
        """Reads one line."""
        bare = line[_FRONT_OF.match(line).end() :].rstrip().rstrip("\\\"',").rstrip()  # type: ignore[union-attr]
        bare = bare.lstrip("\"'`")
        if (prompt := _PROMPT.match(bare)) is not None:
            command = bare[prompt.end() :]
            self._session = not _ATTACH.match(command)
            self._fresh |= not self._session
            self._selected |= _SELECT.match(command) is not None
            if not _ANSWER.match(command):
                return
            # commands from a file leave no echo: what they print stands behind the prompt
            self._session, bare = True, command
        quoted = line.strip().strip("\"',")
        if not bare or self._head(bare, line) or self._frame(bare):
            return
        if len(quoted) <= PROSE_LIMIT:
            self._prose(quoted)

    def _prose(self, text: str) -> None:
        """Takes a line around stacks: it may name the rank of the next one."""
        if (detached := DETACHED.match(text)) is not None and self._processes:
            if self._processes[-1].pid is None:
                self._processes[-1].pid = valid_pid(int(detached[1]))
            self._fresh = True
            return
        told = {int(number) for number in _RANK.findall(text)}
        if told or _RANKS.search(text):
            # of several ranks with one stack, nothing tells which printed it
            one = told.pop() if len(told) == 1 and not _RANKS.search(text) else None
            self._rank, self._fresh = one if one is None or one < RANK_LIMIT else None, True
        elif _SAME_PROCESS.search(text) and self._processes and self._processes[-1].threads:
            self._announced = frozenset(int(number, 0) for number in _NUMBER.findall(text))
            self._fresh = True
        elif _DUMP_OF.search(text):
            self._fresh = True

    def _begin(self) -> _PastedProcess:
        if self._fresh or not self._processes:
            self._processes.append(_PastedProcess(self._rank, announced=self._announced))
            self._fresh, self._rank, self._announced = False, None, None
        return self._processes[-1]

    def _begun_threads(self) -> list[_PastedThread]:
        """The threads of the process that the next line may be about."""
        return self._processes[-1].threads if self._processes and not self._fresh else []

    def _head(self, bare: str, line: str) -> bool:
        if (inferior := INFERIOR.match(bare)) is not None:
            self._fresh = True
            self._begin().pid = valid_pid(int(inferior[1] or inferior[2]))
            return True
        if (process := _PROCESS.match(bare)) is not None:
            self._fresh = True
            if process[1] or process[3]:
                begun = self._begin()
                begun.pid, begun.command = (
                    valid_pid(int(process[1] or process[3])),
                    _VERSION_NOTE.sub("", process[2] or ""),
                )
                if begun.command and (told := _RANK.search(line[: line.find("Process")])) is not None:
                    begun.rank = int(told[1])
            return True
        if (found := _PY_SPY_THREAD.match(bare)) is not None:
            number = None if found[1] is None else int(found[1], 16 if found[1][:2] in ("0x", "0X") else 10)
            state = (found[2] == "active", True if found[3] else False if found[2] == "active" else None)
            self._thread(_PastedThread(number, found[4] or "", state, PY_SPY))
        elif (head := debugged_thread(bare)) is not None:
            number = head.address if head.number is None else head.number
            self._fresh |= head.inferior is not None and self._inferior not in (None, head.inferior)
            self._inferior = head.inferior
            self._thread(_PastedThread(number, head.name, (None, None), head.tool, index=head.index))
        elif bare == CALL_FIRST:
            threads = self._begun_threads()
            if not threads or threads[-1].python:
                self._stack(threads, threads[-1].python if threads else [])
        elif (found := _TID.match(bare)) is not None:
            self._thread(_PastedThread(int(found[1]), "", (None, None), EU_STACK))
        else:
            return False
        return True

    def _stack(self, threads: list[_PastedThread], frames: list[StackFrame]) -> None:
        """Begins a stack without a head: in a session that of the last thread once more, in place of its frames."""
        if threads and self._session and not self._selected and threads[-1].tool != PY_SPY:
            frames.clear()
            return
        self._thread(_PastedThread(None, "", (None, None), GDB))

    def _thread(self, thread: _PastedThread) -> None:
        self._selected = False
        last = self._processes[-1].threads[-1:] if self._processes else []
        if last and thread.name == last[0].name == MAIN and not last[0].frames:
            # people put the heads of several processes above one stack
            thread.frames = last[0].frames
        process = self._begin()
        if self._session and process.threads and process.threads[-1].number == thread.number is not None:
            # the debugger prints the stack of a thread once more
            process.threads.pop()
        again = thread.number is not None and any(other.number == thread.number for other in process.threads)
        another_tool = any((other.tool == PY_SPY) != (thread.tool == PY_SPY) for other in process.threads)
        if again or another_tool or (thread.name == MAIN and process.has_main):
            self._fresh = True
            process = self._begin()
        process.threads.append(thread)

    def _frame(self, bare: str) -> bool:
        """Takes a frame of the last thread; a first one without a thread begins one."""
        threads = self._begun_threads()
        if (native := NATIVE_FRAME.match(bare)) is not None:
            if native[1] == "0" and (not threads or threads[-1].frames):
                self._fresh |= bool(threads) and not self._session
                self._stack(threads, threads[-1].frames if threads else [])
                threads = self._processes[-1].threads
            frame = native_frame(native[2])
            if threads and frame is not None and len(threads[-1].frames) < FRAME_LIMIT:
                threads[-1].frames.append(frame)
            return True
        if not threads:
            return False
        last = threads[-1]
        if (frame_of_lldb := LLDB_FRAME.match(bare)) is not None and len(last.frames) < FRAME_LIMIT:
            last.frames.append(lldb_frame(frame_of_lldb))
            return True
        if (library := FRAME_LIBRARY.match(bare)) is not None and last.frames and last.frames[-1].file == "":
            last.frames[-1] = last.frames[-1]._replace(file=library_name(library[1]))
            return True
        if (python := PYTHON_FRAME.match(bare)) is not None:
            last.python.append(StackFrame(clip_text(python[3]), clip_text(python[1]), int(python[2])))
            return True
        found = _PY_SPY_FRAME.match(bare) if last.tool == PY_SPY else None
        if found is not None and len(last.frames) < FRAME_LIMIT:
            last.frames.append(StackFrame(clip_text(found[1]), clip_text(found[2]), int(found[3] or 0)))
        return found is not None

    def result(self) -> Snapshot:
        """The processes with their threads. Raises NotThisKindError without a frame."""
        collector = SnapshotCollector()
        for process in _with_native(_without_positions(self._processes))[:PROCESS_LIMIT]:
            threads = [thread for thread in process.threads if thread.frames or thread.python]
            if not threads:
                continue
            mains, pid = _main_threads(process, threads)
            pid = None if pid is None else valid_pid(pid)
            place = collector.process(pid, None, process.command, "", process.rank, tool=threads[0].tool)
            for thread in threads:
                number = thread.number if thread.number is None or thread.number <= INT64_LIMIT else None
                name = MAIN if thread in mains else thread.name
                collector.thread(place, name, number, thread.state, thread.python or thread.frames)
        if not collector.snapshot.threads:
            raise NotThisKindError("no stack in it")
        return collector.result([])


def _without_positions(processes: Sequence[_PastedProcess]) -> list[_PastedProcess]:
    """The processes without a first stack that stands again below, with the number of its thread: gdb prints where it
    stops before it is asked for stacks."""
    kept: list[_PastedProcess] = []
    for process, following in pairwise([*processes, _PastedProcess()]):
        first = process.threads[0] if process.threads else None
        if first is not None and first.number is None and first.tool == GDB and first.frames:
            is_of_next = process.pid is None and following.rank is None
            later = [*process.threads, *(following.threads if is_of_next else ())]
            if any(t.number is not None and t.frames[: len(first.frames)] == first.frames for t in later):
                del process.threads[0]
                if not process.threads:
                    following.rank = process.rank
        if process.threads:
            kept.append(process)
    return kept


def _with_native(processes: Sequence[_PastedProcess]) -> list[_PastedProcess]:
    """The processes; a stack in C joins the stack in Python of the same process, which stands above it."""
    joined: list[_PastedProcess] = []
    for process in processes:
        above = joined[-1] if joined else None
        mains = [thread for thread in above.threads if thread.name == MAIN or len(above.threads) == 1] if above else []
        native = _main_threads(process, process.threads)[0] if process.threads else []
        if (
            above is not None
            and len(mains) == len(native) == 1
            and above.threads[0].tool == PY_SPY != process.threads[0].tool
            and process.rank in (None, above.rank)
            and _is_same_process(above, mains[0], process, native[0])
        ):
            mains[0].frames = [*native[0].frames, *mains[0].frames]
        else:
            joined.append(process)
    return joined


def _is_same_process(
    above: _PastedProcess, main: _PastedThread, process: _PastedProcess, native: _PastedThread
) -> bool:
    """Whether numbers agree; without any for the stack in C, whether a line announces it that has none of others."""
    ids = {number for number in (above.pid, main.number) if number is not None}
    numbers = {number for number in (process.pid, native.number) if number is not None}
    if numbers:
        return bool(ids & numbers)
    known = ids | {thread.number for thread in above.threads} | {above.rank}
    return process.announced is not None and process.announced <= known


def _main_threads(process: _PastedProcess, threads: list[_PastedThread]) -> tuple[list[_PastedThread], int | None]:
    """The threads of a process that are called its main one, and its id, None where unknown.

    Where py-spy tells no names, it is the one that runs a module.
    """
    mains = [thread for thread in threads if thread.name == MAIN]
    if threads[0].tool != PY_SPY:
        heads = [
            DebuggedThread(thread.tool, place + 1 if thread.tool == EU_STACK else thread.index, _lwp(thread))
            for place, thread in enumerate(threads)
        ]
        outermost = [thread.frames[-1].function if thread.frames else "" for thread in threads]
        place, pid = main_thread(heads, outermost, process.pid)
        return mains or [threads[place]], pid
    if not mains:
        mains = [t for t in threads if t.frames[-1:] and t.frames[-1].function == _MODULE and not t.name][:1]
    return mains, _lwp(mains[0]) if process.pid is None and len(mains) == 1 else process.pid


def _lwp(thread: _PastedThread) -> int | None:
    """The number of a thread, if it is that of the system and no address."""
    return thread.number if thread.number is not None and thread.number < 1 << 31 else None
