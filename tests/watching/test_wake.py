"""Waking from another thread, and from a signal handler wherever the main thread is."""

from __future__ import annotations

import subprocess
import sys
import threading
from time import monotonic

from rankscope.watching.wake import Wake

STORM = """
import signal
from rankscope.watching.wake import Wake

wake = Wake()
signal.signal(signal.SIGALRM, lambda *_: wake.set())
signal.setitimer(signal.ITIMER_REAL, 0.001, 0.0005)
for _ in range(300_000):
    wake.wait(0.0)
    wake.set()
signal.setitimer(signal.ITIMER_REAL, 0)
print("awake")
"""


def test_a_handler_may_wake_whoever_is_about_to_wait() -> None:
    done = subprocess.run([sys.executable, "-c", STORM], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "awake\n"


def test_another_thread_wakes_at_once_and_only_once() -> None:
    wake, begin = Wake(), monotonic()
    threading.Timer(0.05, wake.set).start()
    wake.wait(30)
    assert monotonic() - begin < 10
    begin = monotonic()
    wake.wait(0.1)
    assert monotonic() - begin >= 0.09


def test_what_was_set_before_ends_the_next_wait() -> None:
    wake = Wake()
    wake.set()
    wake.set()
    begin = monotonic()
    wake.wait(30)
    assert monotonic() - begin < 10
