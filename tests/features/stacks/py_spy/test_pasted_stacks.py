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


def test_a_process_may_begin_with_the_python_frames_of_gdb() -> None:
    text = "rank 0\nProcess 12: python t.py\nTraceback (most recent call first):\n"
    snapshot = decode_snapshot(f'{text}  File "a.py", line 3, in f\n{NATIVE}'.encode())
    (process,) = snapshot.processes
    assert (process.rank, process.pid, process.command) == (0, 12, "python t.py") and functions(snapshot) == [["f"]]


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


def test_heads_of_several_processes_above_one_stack_share_it() -> None:
    text = PY_SPY.partition("\n\n")[2]
    heads = "".join(f'Thread {number} (active): "MainThread"\n' for number in (510, 511, 512))
    snapshot = decode_snapshot((heads + text.partition("\n")[2] + "\n1 in:\n\n" + text).encode())
    assert [process.pid for process in snapshot.processes] == [510, 511, 512, 88]
    assert [functions(snapshot, at) for at in range(4)] == [[["read", "train"]]] * 4


NATIVE = """#0  0x00007f in clock_gettime () from /lib64/libcuda.so.1
#1  0x00007e in cudaStreamSynchronize () from /lib64/libcudart.so.12
"""


@pytest.mark.parametrize("between", ["And native:\n", 'Thread 1 (Thread 0x7fb75c3b80 (LWP 88) "python"):\n'])
def test_the_stack_in_c_of_the_same_process_joins_the_one_in_python(between: str, tmp_path: Path) -> None:
    text = PY_SPY.partition("\n\n")[2] + "\n" + between + NATIVE
    snapshot = decode_snapshot(text.encode())
    assert functions(snapshot) == [["clock_gettime", "cudaStreamSynchronize", "read", "train"]]
    title = analysis_of(tmp_path, text).findings[0].title
    assert "1 process" in title and "process 88 waiting for the device, in cudaStreamSynchronize, from read" in title


@pytest.mark.parametrize("between", ["", "Rank 3 in gdb:\n", 'Thread 1 (Thread 0x7fb75c3b80 (LWP 99) "python"):\n'])
def test_the_stack_in_c_of_another_process_does_not(between: str) -> None:
    snapshot = decode_snapshot((PY_SPY.partition("\n\n")[2] + "\n" + between + NATIVE).encode())
    assert len(snapshot.processes) == 2 and functions(snapshot, 0) == [["read", "train"]]


ABORT = """Thread 58 (Thread 0x15535d20d700 (LWP 1823817)):
#0  0x000015551cd02434 in ?? () from /lib64/libcuda.so.1
#10 0x000015551e63c2e8 in cudaStreamSynchronize () from /opt/libcudart.so.11.0
#14 0x00001554fb45beef in ncclCommAbort (comm=0x5555bf9ec710) at init.cc:1508
"""


@pytest.mark.parametrize(
    ("text", "name"),
    [
        (ABORT, "the process of issue.md"),
        (f"{ABORT}\nThread 1 (Thread 0x15555518b740 (LWP 1811075))\n#0  0x0000 in ?? () from /lib64/libcuda.so.1\n",
         "process 1811075"),
    ],
)  # fmt: skip
def test_a_process_that_aborts_its_communicator(text: str, name: str, tmp_path: Path) -> None:
    title = analysis_of(tmp_path, text).findings[0].title
    assert f"{name} taking its communicator down, in ncclCommAbort" in title


CORE = """Core was generated by `python train.py'.
Program terminated with signal SIGABRT, Aborted.
[Current thread is 1 (Thread 0x7f737a243b80 (LWP 2460))]
Thread 2 (Thread 0x7f737a243b81 (LWP 2451)):
#0  0x00007f737a in poll () from /lib/libc.so
#1  0x00007f737a in THPModule_run () from /lib/libtorch_python.so
Thread 1 (Thread 0x7f737a243b80 (LWP 2460)):
#0  0x00007f737a in raise () from /lib/libc.so
#1  0x00007f737a in c10d::ProcessGroupNCCL::ncclCommWatchdog() () from /lib/libtorch_cuda.so
"""


@pytest.mark.parametrize(
    ("text", "main"),
    [
        (CORE, 2451),
        # numbers began anew after the process was started
        (
            CORE.replace("THPModule_run", "start_thread").replace("ncclCommWatchdog()", "x() () from x.so\n#2  main"),
            2460,
        ),
        (CORE.replace("Thread 1 (", "Thread 3 (").replace("THPModule_run", "main"), 2451),
    ],
)
def test_the_main_thread_of_a_core_dump_is_not_the_one_that_crashed(text: str, main: int, tmp_path: Path) -> None:
    snapshot = decode_snapshot(text.encode())
    assert [process.pid for process in snapshot.processes] == [main]
    assert [thread.thread_id for thread in snapshot.threads if thread.name == "MainThread"] == [main]
    (tmp_path / "job.log").write_text(f"[rank0]: step 118 loss 2.31\nRuntimeError: no\n{text}[rank0]: step 9\n")
    threads = load([tmp_path]).threads
    assert threads.filter("is_main")["thread_id"].to_list() == [main] and set(threads["pid"]) == {main}


def test_stacks_of_lldb(tmp_path: Path) -> None:
    text = """* thread #16, name = 'python', stop reason = signal SIGSTOP
    frame #0: 0x00007fb0b7f0792d libc.so.6`syscall + 29
    frame #1: 0x00007fb090db0b85 libtorch_cuda.so`c10d::ProcessGroupNCCL::waitForFuture(std::future<bool>&) + 725
    frame #2: 0x00007fb090db1068 libtorch_cuda.so`c10d::ProcessGroupNCCL::abort() + 664
    frame #3: 0x00007fb090db1068 libtorch_python.so`login(token="hunter2") at login.cc:21:18
"""
    snapshot = decode_snapshot(text.encode())
    assert functions(snapshot) == [
        ["syscall", "c10d::ProcessGroupNCCL::waitForFuture", "c10d::ProcessGroupNCCL::abort", "login"]
    ]
    assert (
        "taking its communicator down, in c10d::ProcessGroupNCCL::abort"
        in analysis_of(tmp_path, text).findings[0].title
    )


def test_one_session_of_a_debugger_is_about_one_process() -> None:
    session = f"""(gdb) bt
{NATIVE}(gdb) thr 2
[Switching to thread 2 (Thread 0x75786a7ff640 (LWP 51477))]
#0  0x0007 in read () from /usr/lib/libc.so.6
(gdb) bt
#0  0x0007 in read () from /usr/lib/libc.so.6
#1  0x0007 in ucs_vfs_fuse_wait () from /usr/lib/libucs.so
"""
    snapshot = decode_snapshot(session.encode())
    assert len(snapshot.processes) == 1 and snapshot.processes[0].pid is None
    assert functions(snapshot) == [["clock_gettime", "cudaStreamSynchronize"], ["read", "ucs_vfs_fuse_wait"]]
    again = decode_snapshot(f"(gdb) attach 12\n{NATIVE}(gdb) attach 13\n{NATIVE}".encode())
    assert len(again.processes) == 2


def test_a_debugger_with_several_processes() -> None:
    def read(text: str) -> list[tuple[int | None, int]]:
        """The id of each process, and the number of its threads."""
        snapshot = decode_snapshot(text.encode())
        return [(process.pid, len(functions(snapshot, at))) for at, process in enumerate(snapshot.processes)]

    session = f"(gdb) inferior 2\n{{}}(gdb) bt\n{NATIVE}(gdb) inferior 1\n{{}}(gdb) bt\n{NATIVE}"
    assert read(session.format("", "")) == [(None, 1), (None, 1)]
    line = "[Switching to inferior {} [process {}] (python)]\n"
    thread = "[Switching to thread {0}.1 (Thread 0x7f{0} (LWP {1}))]\n" + NATIVE.partition("\n")[0] + "\n"
    assert read(session.format(line.format(2, 402), line.format(1, 401))) == [(402, 1), (401, 1)]
    both = [line.format(*ids) + thread.format(*ids) for ids in ((2, 402), (1, 401))]
    assert read(session.format(*both)) == [(402, 1), (401, 1)]
    heads = ["2.2 (Thread 0x7f4 (LWP 409))", "2.1 (Thread 0x7f3 (LWP 402))", "1.1 (Thread 0x7f2 (LWP 401))"]
    assert read("".join(f"Thread {head}:\n{NATIVE}" for head in heads)) == [(402, 2), (401, 1)]


def test_a_stack_that_is_printed_once_more_is_of_the_same_thread() -> None:
    other = NATIVE.replace("clock_gettime", "read")
    session = f"(gdb) attach 99\n(gdb) bt\n{NATIVE}(gdb) bt\n{other}"
    assert functions(decode_snapshot(session.encode())) == [["read", "cudaStreamSynchronize"]]
    selected = f"(gdb) bt\n{NATIVE}(gdb) thread 2\n(gdb) bt\n{other}"
    assert len(functions(decode_snapshot(selected.encode()))) == 2
    py_bt = 'Traceback (most recent call first):\n  File "a.py", line {}, in f\n'
    session += f"(gdb) py-bt\n{py_bt.format(3)}(gdb) py-bt\n{py_bt.format(4)}"
    snapshot = decode_snapshot(session.encode())
    assert functions(snapshot) == [["f"]] and [frame.line for frame in snapshot.frames] == [4]


@pytest.mark.parametrize(
    ("line", "joins"),
    [
        ("the native stack:", True),
        ("the native stack of 88:", True),
        ("a native stack from another host, process 77:", False),
    ],
)
def test_a_stack_in_c_joins_none_of_another_number(line: str, joins: bool) -> None:
    snapshot = decode_snapshot(f"{PY_SPY.partition(chr(10) * 2)[2]}{line}\n{NATIVE}".encode())
    assert len(snapshot.processes) == (1 if joins else 2)


def test_the_frame_in_which_gdb_stops_is_no_process() -> None:
    position = "#0  0x00007f737a in raise () from /lib/libc.so\n[Current thread is 1 (Thread 0x7f (LWP 2460))]\n"
    for between in ("", 'See the section in the GDB manual, or "(gdb)Auto-loading".\n'):
        text = CORE.replace("[Current", f"{position}{between}[Current")
        snapshot = decode_snapshot(f"rank 3\n[New LWP 2460]\n{text}".encode())
        assert [(process.rank, process.pid) for process in snapshot.processes] == [(3, 2451)]
        assert len(functions(snapshot)) == 2
    alone = decode_snapshot(f"[New LWP 2460]\n{position}".encode())
    assert functions(alone) == [["raise"]]


def test_commands_of_a_file_leave_no_echo() -> None:
    text = f"(gdb) (gdb) Attaching to process 401\nSee GDB.\n{NATIVE}(gdb) {NATIVE}(gdb) [New inferior 2]\n(gdb) "
    text += f"Attaching to program: /usr/bin/python3, process 402\n{NATIVE}(gdb) {NATIVE}(gdb) \n"
    text += f"Thread 2.1 (Thread 0x7f (LWP 402)):\n{NATIVE}Thread 1.1 (Thread 0x7e (LWP 401)):\n{NATIVE}"
    text += "[Inferior 1 (process 401) detached]\n"
    snapshot = decode_snapshot(text.encode())
    assert {(process.pid, len(functions(snapshot, at))) for at, process in enumerate(snapshot.processes)} == {
        (401, 1),
        (402, 1),
    }


def test_old_dumps_without_names_and_heads_that_were_shortened(tmp_path: Path) -> None:
    one = "Stack dump for user {0} 0.1 ray_worker\nThread 0x7F4AA36D970{0} (active)\n\t flush (profiling.py:97)\n"
    one += "Thread 0x7F4AACDE770{0} (active)\n\t get_task (worker.py:9)\n\t <module> (w.py:1)\n\n"
    text = one.format(7) + one.format(8)
    title = analysis_of(tmp_path, text, "old.txt").findings[0].title
    assert "2 processes" in title and "running, at get_task" in title
    short = (
        'Process 861: VLLM::Worker_TP0_EP0   (Python 3.12.3)\nThread (idle) "MainThread"\n    poll (zmq/poll.py:1)\n'
    )
    process = decode_snapshot(short.encode()).processes[0]
    assert (process.pid, process.command) == (861, "VLLM::Worker_TP0_EP0")


def test_a_debugger_within_the_log_of_a_job(tmp_path: Path) -> None:
    log = f"""[rank0]: step 118 loss 2.31
watchdog: no progress for 300 s, attaching gdb to 4021
[New LWP 4040]
Thread 2 (Thread 0x7f2a3c7fe700 (LWP 4040) "python"):
#0  0x00007f2b0d6496a7 in poll () from /lib64/libc.so.6
Thread 1 (Thread 0x7f2b0e2f4740 (LWP 4021) "python"):
#0  0x0007 in login (token=0x7f "hunter2") at /src/login.c:44
{NATIVE.replace("#0", "#1").replace("#1  0x00007e", "#2  0x00007e")}[Inferior 1 (process 4021) detached]
[rank0]: step 119 loss 2.30
"""
    (tmp_path / "job.log").write_text(log)
    dataset = load([tmp_path])
    assert "process 4021 waiting for the device, in cudaStreamSynchronize" in analyse(dataset).findings[0].title
    assert not any("hunter2" in frame.function for row in dataset.threads["stack_id"] for frame in dataset.stack(row))
