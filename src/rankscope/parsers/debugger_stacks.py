"""Lines of debuggers: heads of threads and frames, as gdb, pstack, lldb and eu-stack print them.

    Thread 1 (Thread 0x7f737a243b80 (LWP 2451) "python"):
    #0  0x00007f73 in c10d::Work::wait(...) () from /usr/lib/libtorch_cpu.so
    #1  gen_send_ex2 (closing=0, exc=0x0) at Objects/genobject.c:219

    * thread #16, name = 'python', stop reason = signal SIGSTOP
      frame #3: 0x00007fb090db1068 libtorch_cuda.so`c10d::ProcessGroupNCCL::abort() + 664

Arguments are never kept: they may hold secrets.
Source: gdb 13 and eu-stack of elfutils 0.188, run on processes of torch; published stacks of lldb.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from rankscope.parsers.contents import StackFrame
from rankscope.parsers.safe_values import TEXT_LIMIT
from rankscope.text.secrets import clip

GDB, LLDB = "gdb", "lldb"
BEGINNINGS = (
    r"\*? ?thread #\d{1,6}, (?:name|tid|queue|stop)"
    r"|Thread (?:\d{1,4}\.)?\d{1,6} \((?:Thread 0x[0-9a-f]{1,16}|LWP \d|process \d)"
    r"|\[New LWP \d|\[Thread debugging using libthread_db|GNU gdb \("
    r"|#0 {1,3}(?:0x[0-9a-f]{4,16} |[\w:~<]{1,200} \()|TID \d{1,10}:\s*$"
)
"""Beginnings of lines with which a text of a debugger may begin."""
_THREADS = (
    (GDB, re.compile(
        r"^(?:\[Switching to )?[Tt]hread (?:(?P<inferior>\d{1,4})\.)?(?P<index>\d{1,6}) \((?:Thread 0x[0-9a-f]{1,16} )?"
        r"\(?(?:LWP|process) (?P<number>\d{1,10})\)?(?: \"(?P<name>[^\"]{0,100})\")?\)"
    )),
    (LLDB, re.compile(
        r"^\*? ?thread #(?P<index>\d{1,6})(?:, tid = (?P<number>\d{1,10}))?(?:, name = '(?P<name>[^']{0,100})')?"
    )),
)  # fmt: skip
_UNNUMBERED = re.compile(r"^Thread (?P<index>\d{1,6}) \(Thread (?P<address>0x[0-9a-f]{1,16})\b")
"""An old head of gdb, without the number of the system."""
LLDB_FRAME = re.compile(
    r"^\*? ?frame #\d{1,4}: 0x[0-9a-fA-F]{1,16} (?P<library>[^`\s]{1,200})`"
    r"(?P<name>\S.*?)(?: \+ \d{1,12})?(?: at \S+)?$"
)
NATIVE_FRAME = re.compile(r"^#(\d{1,4}) {1,3}(?:0x[0-9a-fA-F]{1,16} (?:in )?)?(\S.*)$")
FRAME_LIBRARY = re.compile(r"^from (\S{1,1000})$")
PYTHON_FRAME = re.compile(r'^File "(.{0,4096}?)", line (\d{1,9}), in (\S{1,400})$')
INFERIOR = re.compile(
    r"^(?:\[Switching to inferior \d{1,4} \[process (\d{1,10})\]"
    r"|Attaching to (?:program: .{1,1000}, )?process (\d{1,10})$)"
)
"""Line behind which gdb is in another process."""
DETACHED = re.compile(r"^\[Inferior \d{1,4} \(process (\d{1,10})\) (?:detached|killed)\]$")
CALL_FIRST = "Traceback (most recent call first):"
"""Line above the frames of gdb's `py-bt`."""
_OUTERMOST = frozenset(
    ["_start", "main", "__libc_start_main", "__libc_start_main_impl", "__libc_start_call_main", "Py_BytesMain"]
)
"""Functions in which the main thread of a process begins, and no other one."""
_VERSION = re.compile(r"@@?[\w.]{1,60}$")


@dataclass(frozen=True)
class DebuggedThread:
    """A thread of a process in a debugger."""

    tool: str
    index: int | None = None
    """How the debugger counts it: from 1, with which gdb ends."""
    number: int | None = None
    """That of the system. On Linux the main thread has that of the process."""
    address: int | None = None
    """Where its data are, if that is all that the debugger tells."""
    name: str = ""
    inferior: str | None = None
    """Which process it is of, where gdb has several."""


def debugged_thread(text: str) -> DebuggedThread | None:
    """The thread whose head a line is; None for another line."""
    for tool, pattern in _THREADS:
        if (head := pattern.match(text)) is not None:
            number = None if head["number"] is None else int(head["number"])
            inferior = head.groupdict().get("inferior")
            return DebuggedThread(tool, int(head["index"]), number, name=head["name"] or "", inferior=inferior)
    head = _UNNUMBERED.match(text)
    return None if head is None else DebuggedThread(GDB, int(head["index"]), address=int(head["address"], 16))


def main_thread(
    threads: Sequence[DebuggedThread], outermost: Sequence[str], pid: int | None = None
) -> tuple[int, int | None]:
    """The place of the main thread of a process among its threads, and the id of the process, None where unknown.

    `outermost`: function of the outermost native frame of each, "" without one; `pid`: the id, if it is known. The main
    thread has this number, begins in `main`, or has the lowest number: in a core dump the first thread is the one that
    crashed. Without numbers it is the first that the debugger counts. Without that one threads may be missing, and no
    number is the id of the process.
    """
    numbers = [thread.number for thread in threads]
    if pid is not None and pid in numbers:
        return numbers.index(pid), pid
    begun = [place for place, function in enumerate(outermost) if function in _OUTERMOST]
    first = next((place for place, thread in enumerate(threads) if thread.index == 1), None)
    known = [number for number in numbers if number is not None]
    if len(begun) == 1:
        (place,) = begun
    elif len(known) == len(threads):
        place = numbers.index(min(known))
    else:
        place = len(threads) - 1 if first is None else first
    return place, pid if pid is not None or (first is None and len(begun) != 1) else numbers[place]


def native_frame(text: str) -> StackFrame | None:
    """A frame of gdb or eu-stack without its arguments; a library as its file."""
    if " - " in text and not text.endswith(")"):
        name, _, library = text.rpartition(" - ")
        return StackFrame(clip(_name(name), TEXT_LIMIT), library_name(library), 0)
    name, rest = _split(text)
    place = re.search(r" (?:from|at) (\S{1,1000}?)(?::\d{1,9})?$", rest)
    return StackFrame(clip(name, TEXT_LIMIT), library_name(place[1]) if place is not None else "", 0) if name else None


def lldb_frame(found: re.Match[str]) -> StackFrame:
    """A frame of lldb without its arguments."""
    name = _name(found["name"].removeprefix("void "))
    return StackFrame(clip(name, TEXT_LIMIT), library_name(found["library"]), 0)


def _split(text: str) -> tuple[str, str]:
    """Function of a frame, and what follows it: a blank stands before arguments, which names in C++ hold too."""
    depth = 0
    for at, sign in enumerate(text):
        if sign == " " and depth == 0 and text[at + 1 : at + 2] == "(":
            return _name(text[:at]), text[at:]
        depth += (sign in "(<") - (sign in ")>" and text[at - 1 : at] != "-")
    return _name(text), ""


def _name(text: str) -> str:
    """ "c10d::Work::wait" of a name with the types of its arguments."""
    name = _VERSION.sub("", text.strip())
    head = re.match(r"[^\s(<]{1,400}(?:<[^()]{0,400}>[^\s(<]{0,200})?", name)
    return head[0] if head is not None else name.partition("(")[0]


def library_name(path: str) -> str:
    """The name of a library or a source, without its folder."""
    return clip(path.rpartition("/")[2], TEXT_LIMIT)
