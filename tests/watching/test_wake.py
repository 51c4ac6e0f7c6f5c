"""Waking from another thread, and from a signal handler wherever the main thread is."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from queue import SimpleQueue

from rankscope.watching.clock import WakeSignal
from tests.watching.hand_clock import PATIENCE_S

LONGEST_S = 10 * PATIENCE_S
"""Who waits so long has not come back before the test gives up."""
STORM = """
import signal
from rankscope.watching.clock import WakeSignal

wake = WakeSignal()
signal.signal(signal.SIGALRM, lambda *_: wake.set())
signal.setitimer(signal.ITIMER_REAL, 0.001, 0.0005)
for _ in range(300_000):
    wake.wait(0.0)
    wake.set()
signal.setitimer(signal.ITIMER_REAL, 0)
print("awake")
"""


def test_a_handler_may_wake_whoever_is_about_to_wait() -> None:
    done = subprocess.run([sys.executable, "-c", STORM], capture_output=True, text=True, timeout=PATIENCE_S, check=True)
    assert done.stdout == "awake\n"


def waiting(wake: WakeSignal) -> Iterator[None]:
    """Each time another thread comes back from its wait."""
    back: SimpleQueue[None] = SimpleQueue()

    def run() -> None:
        while True:
            wake.wait(LONGEST_S)
            back.put(None)

    threading.Thread(target=run, daemon=True).start()
    while True:
        yield back.get(timeout=PATIENCE_S)


def test_another_thread_wakes_and_what_was_set_before_ends_the_next_wait() -> None:
    wake = WakeSignal()
    wake.set()
    wake.set()
    woken = waiting(wake)
    next(woken)
    wake.set()
    next(woken)


def test_it_wakes_once_however_often_it_was_set() -> None:
    wake = WakeSignal()
    wake.set()
    wake.set()
    wake.wait(0.0)
    assert wake._calls.empty()
    wake.wait(0.001)  # comes back of itself
