"""Stacks as people paste them, and those of debuggers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rankscope.analysis import analyse
from rankscope.analysis.model import Analysis
from rankscope.assemble.load import load
from rankscope.features.stacks.py_spy.decode import decode_snapshot, looks_like_snapshot
from rankscope.features.stacks.py_spy.model import Snapshot

PY_SPY = """Process 88: python train.py
Python v3.11.7 (/usr/bin/python3.11)

Thread 88 (idle): "MainThread"
    read (job/data.py:33)
    train (job/train.py:12)
"""
PSTACK = """Thread 2 (Thread 0x7f98fff6c0 (LWP 468) "python"):
#0  0x00007f in epoll_wait (epfd=6, events=0x7e, maxevents=64) from /lib/libc.so.6
#1  0x00007e in gloo::transport::tcp::Loop::run() () from /ws/torch/lib/libtorch_cpu.so
Thread 1 (Thread 0x7fb75c3b80 (LWP 452) "python"):
#0  0x00007e in ccl_executor::wait(ccl_request const*) () from /opt/libccl.so.1
#1  0x00007d in login (token=0x7f "hunter2", ok=1) at /src/login.c:44
#2  0x00007e in ccl_allreduce_impl(void const*, unsigned long, std::pair<int, long> const&) ()
   from /opt/libccl.so.1
"""


def functions(snapshot: Snapshot, process: int = 0) -> list[list[str]]:
    """The functions of each thread of a process, innermost first."""
    own = [thread for thread in snapshot.threads if thread.process == process]
    return [[snapshot.frames[at].function for at in snapshot.stacks[thread.stack]] for thread in own]


def analysis_of(folder: Path, text: str, name: str = "issue.md") -> Analysis:
    """The analysis of one text."""
    (folder / name).write_text(text)
    return analyse(load([folder]))


def numbered(text: str) -> str:
    return "".join(f"   {1041 + n} {line}" for n, line in enumerate(text.splitlines(keepends=True)))


def listed(text: str) -> str:
    return "".join(f"- {line}" if line.strip() else line for line in text.splitlines(keepends=True))


@pytest.mark.parametrize("form", [numbered, listed, json.dumps, lambda text: json.dumps({"output": text})])
def test_stacks_behind_other_signs(form: object) -> None:
    assert callable(form)
    data = form(PY_SPY).encode()
    assert looks_like_snapshot(data[:512])
    snapshot = decode_snapshot(data)
    assert functions(snapshot) == [["read", "train"]] and snapshot.processes[0].pid == 88


def test_a_second_main_thread_is_another_process(tmp_path: Path) -> None:
    threads = (
        'Thread {0} (idle): "MainThread"\n    loop (job/tune.py:4)\nThread {0}9 (active)\n    all_gather (a.py:2)\n'
    )
    analysis = analysis_of(tmp_path, f"py-spy of both:\n{threads.format(42)}\n{threads.format(46)}")
    assert "process 42, process 46" in analysis.verdict and "stacks of 2 processes" in analysis.verdict


def test_prose_names_the_rank_of_a_stack(tmp_path: Path) -> None:
    text = (
        'The stack for rank 0:\n```\nThread 0x7FA6E7C01740 (idle): "MainThread"\n    get (queue.py:170)\n'
        "    __next__ (data/iterators.py:648)\n```\nand of all the other ranks:\n```\n"
        'Thread 0x7F19B8C8D740 (active): "MainThread"\n'
        "    all_reduce (torch/distributed/distributed_c10d.py:1287)\n```\n"
    )
    for before in ("", "A long story about our cluster, which has many nodes.\n" * 20):
        analysis = analysis_of(tmp_path, before + text)
        assert analysis.findings[0].candidates == (0,) and not analysis.culprits
        assert "1 process without a known rank in all_reduce" in analysis.verdict


def test_the_threads_of_gdb_and_pstack() -> None:
    data = PSTACK.encode()
    assert looks_like_snapshot(data[:512])
    snapshot = decode_snapshot(data)
    assert functions(snapshot) == [
        ["epoll_wait", "gloo::transport::tcp::Loop::run"],
        ["ccl_executor::wait", "login", "ccl_allreduce_impl"],
    ]
    assert snapshot.processes[0].pid == 452 and snapshot.processes[0].tool == "gdb"
    assert {frame.file for frame in snapshot.frames} == {"libc.so.6", "libtorch_cpu.so", "libccl.so.1", "login.c"}


def test_arguments_of_frames_are_not_kept() -> None:
    assert "hunter2" not in repr(decode_snapshot(PSTACK.encode()))


def test_a_rank_in_oneccl_waits_for_others(tmp_path: Path) -> None:
    analysis = analysis_of(tmp_path, PSTACK, "bt_rank3.md")
    assert "rank 3 is waiting for other ranks, in ccl_allreduce_impl" in analysis.verdict and not analysis.suspects


def test_the_python_frames_of_gdb_replace_those_in_c() -> None:
    text = (
        "[New LWP 2469]\n[New LWP 2512]\n"
        + "Python auto-loading is declined.\n" * 30
        + "Traceback (most recent call first):\n"
        '  <built-in method sum of module object at remote 0x7e>\n  File "/ws/job.py", line 8, in load\n    x()\n'
        '  File "/ws/job.py", line 21, in <module>\n    main()\n[Inferior 1 (process 2452) detached]\n'
    )
    assert looks_like_snapshot(text.encode()[:512])
    snapshot = decode_snapshot(text.encode())
    assert functions(snapshot) == [["load", "<module>"]] and snapshot.processes[0].pid == 2452


def test_the_frames_of_eu_stack(tmp_path: Path) -> None:
    text = "PID 2451 - process\nTID 2451:\n#0  0x00007f7379aa3f16 pthread_cond_wait@@GLIBC_2.3.2 - /lib/libc.so.6\n"
    text += "#1  0x00007f736936984b c10d::Work::wait(std::chrono::duration<long, std::ratio<1l, 1000l> >)\nTID 2500:\n"
    text += "#0  0x00007f7379aa3f16 epoll_wait\n"
    snapshot = decode_snapshot(text.encode())
    assert functions(snapshot) == [["pthread_cond_wait", "c10d::Work::wait"], ["epoll_wait"]]
    assert "waiting for other ranks, in c10d::Work::wait" in analysis_of(tmp_path, text, "rank_5.txt").verdict


def test_prose_about_a_log_is_no_stack(tmp_path: Path) -> None:
    text = "See below.\n" * 60 + "[rank1]: RuntimeError: no\n" + PSTACK
    (tmp_path / "job.log").write_text(text)
    assert load([tmp_path]).files["kind"].to_list() == ["log"]
