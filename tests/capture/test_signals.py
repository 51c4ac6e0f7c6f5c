"""Signals served by a thread, and left alone where somebody else handles them."""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

LONGEST_S = 600.0


def run(code: str) -> subprocess.CompletedProcess[str]:
    """A script in a process of its own: signals belong to processes."""
    head = "import os, signal, sys, threading, time\nfrom rankscope.capture.signals import Signals, is_free, die_of\n"
    text = head + textwrap.dedent(code)
    return subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=LONGEST_S, check=False)


def test_a_thread_serves_a_signal_while_the_main_thread_never_comes_back_to_python() -> None:
    done = run("""
        import ctypes
        served = threading.Event()
        Signals([signal.SIGUSR2], lambda number: served.set()).start()
        def poke():
            # to this thread, so that nothing interrupts the main one
            signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGUSR2])
            signal.pthread_kill(threading.get_ident(), signal.SIGUSR2)
            os._exit(0 if served.wait(300) else 1)
        threading.Thread(target=poke).start()
        mutex = ctypes.create_string_buffer(64)
        libc = ctypes.CDLL(None)
        libc.pthread_mutex_lock(mutex)
        libc.pthread_mutex_lock(mutex)
    """)
    assert (done.returncode, done.stderr) == (0, "")


def test_who_had_the_wakeup_descriptor_before_still_gets_the_bytes() -> None:
    done = run("""
        import socket
        ours, theirs = socket.socketpair()
        theirs.setblocking(False)
        signal.set_wakeup_fd(theirs.fileno())
        Signals([signal.SIGUSR2], lambda number: None).start()
        os.kill(os.getpid(), signal.SIGUSR2)
        ours.settimeout(300)
        print(ours.recv(1)[0] == signal.SIGUSR2)
    """)
    assert done.stdout == "True\n"


def test_where_another_takes_the_descriptor_later_the_handler_tells() -> None:
    done = run("""
        import socket
        served = threading.Event()
        Signals([signal.SIGUSR2], lambda number: served.set()).start()
        _, theirs = socket.socketpair()
        theirs.setblocking(False)
        signal.set_wakeup_fd(theirs.fileno(), warn_on_full_buffer=False)
        os.kill(os.getpid(), signal.SIGUSR2)
        print(served.wait(300))
    """)
    assert done.stdout == "True\n"


def test_a_forked_child_dies_of_a_signal_and_does_not_tell_its_parent() -> None:
    done = run("""
        served = []
        Signals([signal.SIGTERM], served.append).start()
        child = os.fork()
        if not child:
            time.sleep(600)
        os.kill(child, signal.SIGTERM)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGTERM, served)
    """)
    assert done.stdout == "True []\n"


def test_a_process_dies_of_the_signal_as_it_would_have() -> None:
    done = run("""
        Signals([signal.SIGTERM], die_of).start()
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(600)
    """)
    assert done.returncode == -signal.SIGTERM


@pytest.mark.parametrize(
    "taken", ["signal.signal(signal.SIGUSR2, print)", "import faulthandler; faulthandler.register(signal.SIGUSR2)",
              "signal.signal(signal.SIGUSR2, signal.SIG_IGN)"],
)  # fmt: skip
def test_a_signal_that_is_handled_is_not_free(taken: str) -> None:
    assert run(f"print(is_free(signal.SIGUSR2))\n{taken}\nprint(is_free(signal.SIGUSR2))").stdout == "True\nFalse\n"


def test_everything_is_given_back(tmp_path: Path) -> None:
    done = run("""
        one = Signals([signal.SIGUSR2], print)
        one.restore()
        print(signal.getsignal(signal.SIGUSR2) is signal.SIG_DFL, signal.set_wakeup_fd(-1))
    """)
    assert done.stdout == "True -1\n"
