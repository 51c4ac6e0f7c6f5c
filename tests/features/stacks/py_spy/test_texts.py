"""Dumps as text, with all that a shell, a terminal and C++ put into them."""

from __future__ import annotations

import pytest

from rankscope.features.stacks.py_spy import frame_interning
from rankscope.features.stacks.py_spy.decode import decode_snapshot, looks_like_snapshot
from rankscope.features.stacks.py_spy.model import SampledProcess, snapshot_from
from rankscope.parsers.contents import NotThisKindError
from tests.features.stacks.py_spy.dumps import LAUNCHER, family, process, read, stack


def test_a_process_its_threads_and_their_states() -> None:
    text = (
        "Process 3583: python -u train.py --lr 1e-4\nPython v3.11.7 (/usr/bin/python3.11)\n\n"
        'Thread 3583 (active): "MainThread"\n    forward (model.py:88)\n    <module> (train.py:10)\n'
        'Thread 3585 (idle): "odd "name" (x)"\n    clock_nanosleep (libc.so.6)\n    <lambda> (a.py:8)\n'
        'Thread 0x7FED50FFF590 (active+gil): "Thread-2 (spin)"\n    spin (a.py:6)\n'
        "Thread 3599 (idle)\n"
    )
    snapshot = read(text)
    assert snapshot.processes == [SampledProcess(3583, None, "python -u train.py --lr 1e-4", "", 0)]
    assert [tuple(t)[:5] for t in snapshot.threads] == [
        (0, "MainThread", 3583, True, False), (0, 'odd "name" (x)', 3585, False, False),
        (0, "Thread-2 (spin)", 0x7FED50FFF590, True, True), (0, "", 3599, False, False),
    ]  # fmt: skip
    assert stack(snapshot) == [("forward", "model.py", 88), ("<module>", "train.py", 10)]
    assert stack(snapshot, 1) == [("clock_nanosleep", "libc.so.6", 0), ("<lambda>", "a.py", 8)]
    assert stack(snapshot, 3) == []
    assert snapshot.problem is None
    assert snapshot_from(snapshot.header()) == snapshot


def test_whether_an_idle_thread_holds_the_lock_is_not_told_unless_another_does() -> None:
    assert read(process(state="idle")).threads[0].gil is None
    assert read(process(state="active")).threads[0].gil is False
    assert read(process(state="dreaming")).threads[0][3:5] == (None, None)


@pytest.mark.parametrize(
    ("written", "frame"),
    [
        ("<module> (my dir (copy)/a b.py:3)", ("<module>", "my dir (copy)/a b.py", 3)),
        ("f (a) b/x.py:3)", ("f", "a) b/x.py", 3)),
        ("f (a (b/x.py:3)", ("f", "a (b/x.py", 3)),
        ("wrap.<locals>.wrapper (<frozen runpy>:88)", ("wrap.<locals>.wrapper", "<frozen runpy>", 88)),
        ("Loss.__call__ (loss.pyx:12)", ("Loss.__call__", "loss.pyx", 12)),
        ("0x7fed5124524a (libc.so.6)", ("0x7fed5124524a", "libc.so.6", 0)),
        ("cudaStreamSynchronize (libcudart.so.12)", ("cudaStreamSynchronize", "libcudart.so.12", 0)),
        ("sock_accept_impl (socketmodule.c:2719)", ("sock_accept_impl", "socketmodule.c", 2719)),
        (
            "std::function<void (int)>::operator()(int) const (libtorch_cpu.so)",
            ("std::function<void (int)>::operator()(int) const", "libtorch_cpu.so", 0),
        ),
        (
            "(anonymous namespace)::wait(long) (torch/lib/libtorch_cuda.so)",
            ("(anonymous namespace)::wait(long)", "torch/lib/libtorch_cuda.so", 0),
        ),
        ("日本語 (パス/x.py:3)", ("日本語", "パス/x.py", 3)),
    ],
)
def test_frames(written: str, frame: tuple[str, str, int]) -> None:
    assert stack(read(process(frames=[written]))) == [frame]


def test_locals_are_never_kept() -> None:
    frames = [
        "login (auth.py:5)", '    Arguments:', '        password: "hunter2 (a.py:3)"', "    Locals:",
        "        token: <bytes at 0x1> (b.py:4)", "main (train.py:9)",
    ]  # fmt: skip
    snapshot = read(process(frames=frames))
    assert stack(snapshot) == [("login", "auth.py", 5), ("main", "train.py", 9)]
    assert "hunter2" not in repr(snapshot) and "token" not in repr(snapshot)


def test_the_colours_and_line_ends_of_a_terminal() -> None:
    text = (
        "\x1b]0;root@node1\x07root@node1:~# py-spy dump --pid 4923\r\n"
        "Process \x1b[33m\x1b[1m4923\x1b[0m: python a.py\r\n"
        "Python v\x1b[1m3.11.7\x1b[0m (\x1b[2m/usr/bin/python3.11\x1b[0m)\r\n\r\n"
        'Thread \x1b[33m\x1b[1m4923\x1b[0m (idle): "MainThread"\r\n'
        "    \x1b[32m<module>\x1b[0m (\x1b[36ma.py\x1b[0m:\x1b[2m10\x1b[0m)\r\nroot@node1:~# \x1b[0m"
    )
    snapshot = read(text)
    assert (snapshot.processes[0].pid, snapshot.processes[0].command) == (4923, "python a.py")
    assert stack(snapshot) == [("<module>", "a.py", 10)]
    assert snapshot.problem is None


def test_a_script_in_the_command_line_is_no_stack() -> None:
    snapshot = read(process(command='python -c x\nThread 5 (idle): "fake"\n    evil (y.py:3)\n'))
    assert [t.name for t in snapshot.threads] == ["MainThread"]
    assert len(snapshot.frames) == 2


def test_subprocesses_know_their_parents() -> None:
    snapshot = read(family(process(1, command=LAUNCHER), process(2, parent=(1, LAUNCHER)), process(3, parent=(2, "x"))))
    assert [(p.pid, p.parent_pid, p.parent_command) for p in snapshot.processes] == [
        (1, None, ""), (2, 1, LAUNCHER), (3, 2, "x"),
    ]  # fmt: skip
    assert [t.process for t in snapshot.threads] == [0, 1, 2]


def test_dumps_one_after_the_other_are_counted_from_the_last() -> None:
    sample = family(process(1), process(2, parent=(1, "x")))
    snapshot = read(sample + "\n" + process(7) + "\n" + sample + "\n" + process(1))
    assert [(p.pid, p.later) for p in snapshot.processes] == [(1, 2), (2, 2), (7, 0), (1, 1), (2, 1), (1, 0)]


def test_a_torn_dump_keeps_what_is_whole() -> None:
    text = process(frames=["f (a.py:3)", "g (b.p"]).rstrip("\n")
    snapshot = read(text)
    assert (stack(snapshot), snapshot.problem) == ([("f", "a.py", 3)], "cut off")
    assert read(process().rstrip("\n")).problem is None
    for end in range(60, len(text)):
        read(text[:end])


def test_what_py_spy_says_when_it_fails() -> None:
    head = "Process 5: python train.py\nPython v3.11.7 (/usr/bin/python3)\n\n"
    text = head + "Error: No such process (os error 3)\n\nStack backtrace:\n   0: a (b.rs:3)\n"
    snapshot = read(text)
    assert snapshot.threads == []
    assert snapshot.problem == "py-spy gave up: No such process (os error 3); no thread in it"


@pytest.mark.parametrize(
    "text",
    [
        "", "Process finished with exit code 0\n", "INFO Process 12: started\n",
        "Process 12: step 5 done\nProcess 12: step 6\n",
        "Thread 5 (idle): nothing\n", '{"version": "2.10", "entries": []}', "\x80\x02}Process 12: x",
    ],
)  # fmt: skip
def test_other_texts_are_not_taken_for_dumps(text: str) -> None:
    assert not looks_like_snapshot(text.encode())


def test_a_log_with_a_line_that_looks_like_one_is_refused() -> None:
    text = f"Process 12: {'x' * 600}\nstep 5\n".encode()
    assert looks_like_snapshot(text[:512])
    with pytest.raises(NotThisKindError):
        decode_snapshot(text)


def test_long_command_lines_and_names_are_cut() -> None:
    snapshot = read(process(command="python " + "x" * 100_000, frames=["f" * 100_000 + " (a.py:3)"]))
    assert len(snapshot.processes[0].command) == len(snapshot.frames[0].function) == 4096


def test_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    deep = read(process(frames=[f"f{i} (a.py:{i + 1})" for i in range(2000)]))
    assert len(stack(deep)) == frame_interning.FRAME_LIMIT
    assert stack(deep)[0] == ("f0", "a.py", 1)
    assert deep.problem == "only the innermost 512 frames kept of 1 stacks"
    monkeypatch.setattr(frame_interning, "THREAD_LIMIT", 3)
    full = read(process(threads=10) + process(7))
    assert (full.rows, full.problem) == (3, "only the first 3 threads kept")


def test_bytes_that_are_no_text() -> None:
    snapshot = read(process(frames=["f (a.py:3)"]).encode().replace(b"a.py", b"\xff\x1b[2J\xfe.py"))
    assert stack(snapshot) == [("f", "\ufffd\ufffd.py", 3)]


def test_control_characters_are_kept_as_data() -> None:
    text = process(frames=["f\0\x08\x9b31m[bold] (a\u202e.py:3)"])
    assert stack(read(text)) == [("f\0\x08\x9b31m[bold]", "a\u202e.py", 3)]


THREADS = (
    'Thread 5002 (idle): "asyncio"\n    select (selectors.py:4)\n{}Thread 5000 (active): "MainThread"\n    f (a.py:3)\n'
)


def test_threads_alone_are_of_one_process_which_has_the_number_of_its_main_thread() -> None:
    snapshot = read(THREADS.format(""))
    assert [(process.pid, process.command) for process in snapshot.processes] == [(5000, "")]
    assert [(thread.process, thread.name) for thread in snapshot.threads] == [(0, "asyncio"), (0, "MainThread")]


def test_a_number_of_python_is_no_process() -> None:
    assert read('Thread 0x7FED50FFF590 (active): "MainThread"\n    f (a.py:3)\n').processes[0].pid is None


def test_threads_in_the_middle_of_something_are_no_file_of_py_spy() -> None:
    assert not looks_like_snapshot(b"[rank0]:[E ProcessGroupNCCL.cpp:4] x\n" + THREADS.format("").encode())


def test_sections_of_a_debug_server_say_whose_dumps_they_are() -> None:
    head = "=== Rank {}: http://node{}:41234/handler/pyspy_dump?nonblocking=1 ===\n"
    parts = [head.format(1, 1) + process(100), head.format(2, 2) + "Error: 503\n", head.format(3, 3) + process(100)]
    snapshot = read("PARTIAL DATA: 2/3 workers responded\n  Rank 2: TimeoutError: \n\n" + "\n".join(parts))
    assert [(process.pid, process.rank) for process in snapshot.processes] == [(100, 1), (100, 3)]
    assert len(snapshot.threads) == 2
