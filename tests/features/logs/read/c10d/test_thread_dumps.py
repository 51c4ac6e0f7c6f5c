"""Stacks of all threads of a process, as faulthandler and pystack print them."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from rankscope.features.logs.read.c10d import thread_dumps
from rankscope.features.logs.read.c10d.recogniser import Recogniser
from rankscope.features.logs.read.record_reader import RecordSplitter
from rankscope.schema.tables import AT_CRASH
from tests.features.logs.read.c10d.lines import events, everything, only

BOOTSTRAP = (
    '  File "/usr/lib/python3.12/threading.py", line 1012 in run',
    '  File "/usr/lib/python3.12/threading.py", line 1075 in _bootstrap_inner',
    '  File "/usr/lib/python3.12/threading.py", line 1032 in _bootstrap',
)
MAIN = (
    "Current thread 0x00007f70b9d0a740 (most recent call first):", '  File "/ws/data.py", line 44 in read_shard',
    '  File "/ws/train.py", line 99 in <module>',
)  # fmt: skip
OTHER = ("Thread 0x00007f6f0d7fa700 (most recent call first):", '  File "/ws/pin.py", line 7 in _pin_loop', *BOOTSTRAP)
DUMP = "\n".join((*OTHER, "", *MAIN))
NAMES = {"main": ("MainThread", 0x7F70B9D0A740), "other": ("Thread (_pin_loop)", 0x7F6F0D7FA700)}
SCRIPT = """
import faulthandler, sys, threading
there, over = threading.Event(), threading.Event()
def _serve():
    there.set()
    over.wait()
def stuck_here():
    there.wait()
    faulthandler.dump_traceback(file=sys.stdout)
    over.set()
threading.Thread(target=_serve).start()
stuck_here()
"""


def threads(text: str) -> list[list[Any]]:
    """The threads of the only dump in a text."""
    found: list[list[Any]] = only(text).values["threads"]
    return found


def dumps(text: str) -> list[list[list[Any]]]:
    """The threads of each dump in a text."""
    return [event.values["threads"] for event in events(text) if event.kind == thread_dumps.KIND]


def inner(thread: list[Any]) -> tuple[str, str]:
    """Name and innermost function of a thread."""
    return thread[1], thread[3][0][0] if thread[3] else ""


def test_the_main_thread_comes_first_and_frames_innermost_first() -> None:
    main, other = threads(DUMP)
    assert main == [
        0x7F70B9D0A740, "MainThread", None, [["read_shard", "/ws/data.py", 44], ["<module>", "/ws/train.py", 99]],
    ]  # fmt: skip
    assert other[:3] == [0x7F6F0D7FA700, "Thread (_pin_loop)", None]
    assert only(DUMP).values["tool"] == "faulthandler"


@pytest.mark.parametrize(
    ("before", "tool"),
    [
        ("Timeout (0:30:00)!\n", "faulthandler"), ("", "faulthandler"),
        ("Fatal Python error: Aborted\nPython runtime state: initialized\n\n", AT_CRASH),
    ],
)  # fmt: skip
def test_what_faulthandler_says_before(before: str, tool: str) -> None:
    (found,) = dumps(before + DUMP)
    assert {event.values["tool"] for event in events(before + DUMP) if event.kind == thread_dumps.KIND} == {tool}
    assert [inner(thread) for thread in found] == [("MainThread", "read_shard"), ("Thread (_pin_loop)", "_pin_loop")]


def test_this_python_writes_so() -> None:
    text = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True).stdout
    main, *others = threads(text)
    assert inner(main) == ("MainThread", "stuck_here")
    assert main[3][-1][0] == "<module>"
    assert [thread[1] for thread in others] == ["Thread (_serve)"]


def test_names_of_python_3_14_and_its_c_stack() -> None:
    text = f"Thread 0x1f00 [loader] (most recent call first):\n  <no Python frame>\n\n{chr(10).join(MAIN)}\n\n"
    text += 'Current thread\'s C stack trace (most recent call first):\n  Binary file "/usr/bin/python3", at x [0x5]\n'
    assert [thread[:2] for thread in threads(text)] == [[0x7F70B9D0A740, "MainThread"], [0x1F00, "loader"]]


@pytest.mark.parametrize(
    ("printed", "name"),
    [("Thread-1 (_pin_", "Thread (_pin_loop)"), ("Thread-12", "Thread (_pin_loop)"), ("Thread-safe", "Thread-safe")],
)
def test_a_name_that_the_system_cut_is_the_function(printed: str, name: str) -> None:
    head = OTHER[0].replace(" (most", f" [{printed}] (most")
    assert threads("\n".join((head, *OTHER[1:], "", *MAIN)))[1][1] == name


def test_one_thread_alone_need_not_be_the_main_one() -> None:
    (thread,) = threads('Stack (most recent call first):\n  File "a.py", line 3 in f\n  File ???, line ??? in ???')
    assert thread == [None, "", None, [["f", "a.py", 3], ["???", "???", 0]]]


def test_where_faulthandler_left_out_threads_no_main_thread_is_known() -> None:
    assert {thread[1] for thread in threads(f"{DUMP}\n...")} == {"", "Thread (_pin_loop)"}


def test_a_stack_that_was_cut_may_be_the_main_one() -> None:
    deep = "\n".join(['  File "a.py", line 1 in _bootstrap'] * 3)
    text = f"{chr(10).join(OTHER)}\n\nThread 0x0000000000000abc (most recent call first):\n{deep}\n  ..."
    assert threads(text)[0][1] == "MainThread"


@pytest.mark.parametrize("between", ["", "Timeout (0:00:10)!\n"])
def test_each_dump_of_a_process_is_one(between: str) -> None:
    later = DUMP.replace("line 44 in read_shard", "line 45 in parse")
    assert [inner(found[0])[1] for found in dumps(f"{DUMP}\n{between}{later}")] == ["read_shard", "parse"]


def test_two_processes_are_two_dumps_though_no_thread_comes_twice() -> None:
    other = DUMP.replace("0x00007f", "0x00005e").replace("read_shard", "all_reduce")
    assert [inner(found[0])[1] for found in dumps(f"{DUMP}\n{other}")] == ["read_shard", "all_reduce"]


def test_a_filter_that_takes_empty_lines_away_splits_nothing() -> None:
    assert [len(found) for found in dumps("\n".join((*OTHER, *MAIN)))] == [2]


@pytest.mark.parametrize("front", ["> ", "3: ", "train-0 pytorch ", "node-1  | "])
def test_an_empty_line_with_a_prefix_is_empty(front: str) -> None:
    lines = [f"{front}{line}".encode() for line in DUMP.split("\n")]
    splitter, recogniser = RecordSplitter(), Recogniser()
    found = recogniser.feed_all([record for line in lines for record in splitter.records(line, 1, 1)])
    assert [len(event.values["threads"]) for event in (*found, *recogniser.finish())] == [2]


def test_ranks_that_print_at_the_same_time_are_told_apart_by_their_prefix() -> None:
    lines = DUMP.split("\n")
    mixed = [f"[rank{rank}]: {line}" for line in lines for rank in (2, 5)]
    found = events("\n".join(mixed))
    assert [(event.rank, len(event.values["threads"])) for event in found] == [(2, 2), (5, 2)]
    assert found[0].values["threads"] == threads(DUMP)


def test_other_lines_may_stand_between() -> None:
    lines = DUMP.split("\n")
    assert dumps("\n".join([*lines[:3], "step 5 loss 1.0", "step 6 loss 0.9", *lines[3:]])) == [threads(DUMP)]


def test_frames_are_no_messages_and_no_traceback() -> None:
    text = DUMP.replace("read_shard", "CUDA out of memory")
    assert [event.kind for event in events(text)] == [thread_dumps.KIND]


PYSTACK = """Traceback for thread 9127 (python3.11) [] (most recent call last):
    (Python) File "/usr/lib/python3.11/threading.py", line 1002, in _bootstrap
        self._bootstrap_inner()
    (Python) File "/ws/pin.py", line 3, in worker
        lock.acquire()

Traceback for thread 9042 (python3.11) [Has the GIL] (most recent call last):
    (C) File "Modules/main.c", line 734, in Py_BytesMain (/usr/lib/libpython3.11.so.1.0)
    (Python) File "/ws/train.py", line 14, in <module>
        main()
    (Python) File "/ws/train.py", line 7, in load
        time.sleep(600)
      Locals:
        secret: "hunter2"
    (C) File "../sysdeps/x.c", line 48, in clock_nanosleep@GLIBC_2.2.5 (inlined) (/usr/lib/libc.so.6)
"""


def test_pystack_tells_the_process_and_who_holds_the_gil() -> None:
    event = only(PYSTACK)
    main, other = event.values["threads"]
    assert main == [
        9042, "MainThread", True,
        [
            ["clock_nanosleep", "libc.so.6", 0], ["load", "/ws/train.py", 7], ["<module>", "/ws/train.py", 14],
            ["Py_BytesMain", "libpython3.11.so.1.0", 0],
        ],
    ]  # fmt: skip
    assert (other[:3], event.values["pid"], event.values["tool"]) == ([9127, "", False], 9042, "pystack")


def test_a_collector_may_have_taken_the_blanks_away() -> None:
    bare = "\n".join(line.strip() for line in PYSTACK.replace("lock.acquire()", "CUDA out of memory").split("\n"))
    assert dumps(bare) == [only(PYSTACK).values["threads"]]
    assert not [event for event in everything(bare) if event.kind == "known-error"]
    assert dumps("\n".join(line.strip() for line in DUMP.split("\n"))) == [threads(DUMP)]


def test_variables_are_never_kept() -> None:
    assert "hunter2" not in str(events(PYSTACK))


SECTIONS = (
    "PARTIAL DATA: 1/3 workers responded\n  Rank 0: TimeoutError: \n  Rank 2: ClientOSError: [Errno 104] reset\n\n"
    "=== Rank 0: http://node0:53927/handler/dump_traceback? ===\nError: 408\n"
    f"=== Rank 1: http://node1:34699/handler/dump_traceback? ===\n{DUMP}\n\n"
    "=== Rank 2: http://node2:1/handler/dump_traceback? ===\nError: 503"
)


def test_sections_of_a_debug_server_say_whose_stacks_they_are() -> None:
    stacks = [event for event in events(SECTIONS) if event.kind == thread_dumps.KIND]
    assert [(event.rank, event.values["host"], len(event.values["threads"])) for event in stacks] == [(1, "node1", 2)]


def test_who_did_not_answer_is_told_and_is_no_error_of_the_job() -> None:
    told = [(e.kind, e.rank, e.values["reason"]) for e in events(SECTIONS) if e.kind != thread_dumps.KIND]
    assert told == [("no-answer", 0, "TimeoutError:"), ("no-answer", 2, "ClientOSError: [Errno 104] reset")]


def test_a_process_without_such_a_handler_has_answered() -> None:
    head = "PARTIAL DATA: 0/1 workers responded\n"
    assert events(f"{head}  Rank 0: Handler pyspy_dump not found: Failed to find handler pyspy_dump") == []


def test_a_dump_has_bounds() -> None:
    frame = '  File "a.py", line 1 in f'
    head = "Thread 0x{:016x} (most recent call first):"
    many = "\n\n".join(head.format(i) for i in range(thread_dumps.THREAD_LIMIT + 9))
    assert len(threads(many)) == thread_dumps.THREAD_LIMIT
    deep = "\n".join([head.format(1), *[frame] * (thread_dumps.FRAME_LIMIT + 9)])
    assert len(threads(deep)[0][3]) == thread_dumps.FRAME_LIMIT


@pytest.mark.parametrize(
    "line",
    [
        "Thread 0x (most recent call first):", "Thread 0x12 (most recent call last):", "x Thread 0x12 (most recent",
        "=== Rank 3: http://n/handler/fr_trace_json? ===", "Traceback for thread x [] (most recent call last):",
        "Thread 0x" + "f" * 5000 + " (most recent call first):",
    ],
)  # fmt: skip
def test_what_only_looks_so_is_none(line: str) -> None:
    assert dumps(f'{line}\n  File "a.py", line 1 in f\n') == []
