"""File into which Python's faulthandler writes the stacks of all threads without the interpreter's lock.

That is at a crash (SIGSEGV, SIGABRT, SIGBUS, SIGFPE, SIGILL), and once no thread of the capture got the lock for long,
because a call in C holds it. A timer of the kernel tells the latter: it sends a signal of its own to the thread that
winds it again and again. `faulthandler.dump_traceback_later` stays free for the trainer; it would also hang forked
children at their exit, and hold the lock of the interpreter while a slow disk takes its text.

While the lock is held no thread runs Python, so that their stacks can be read without it. Only a process that was
stopped for that long (SIGSTOP) may be looked at while it goes on.

The descriptor that faulthandler knows stays the same, and leads nowhere until the rank has a file.
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import os
import signal
import threading
from pathlib import Path

from .signals import is_free

_MOST_TRIED = 8
"""Most signals that are tried for a free one, from the highest that a program may use."""
_MONOTONIC, _TO_THREAD = 1, 4
"""CLOCK_MONOTONIC and SIGEV_THREAD_ID of Linux."""


class _Event(ctypes.Structure):
    """sigevent of Linux: 64 bytes."""

    _fields_ = (("value", ctypes.c_void_p), ("number", ctypes.c_int), ("notify", ctypes.c_int),
                ("thread", ctypes.c_int), ("rest", ctypes.c_byte * 44))  # fmt: skip


class _Times(ctypes.Structure):
    """itimerspec: how often, and when first."""

    _fields_ = tuple((name, ctypes.c_long) for name in ("every_s", "every_ns", "first_s", "first_ns"))


class FaultFile:
    """The file of this process, which has one for all of its captures; a forked child writes nothing there."""

    def __init__(self) -> None:
        self.problem: str | None = None
        """Why crashes leave no stacks here; None if they do."""
        self._nowhere = os.open(os.devnull, os.O_WRONLY)
        self._descriptor = os.dup(self._nowhere)
        self._path: Path | None = None
        self._size = 0
        """Bytes that stood in the file before."""
        self._has_stacks = False
        self._signal: int | None = None
        self._library: ctypes.CDLL | None = None
        self._timer = ctypes.c_void_p()
        if faulthandler.is_enabled():
            self.problem = "no stacks at a crash here: faulthandler is on already, and writes them to its own place"
        else:
            faulthandler.enable(self._descriptor, all_threads=True)
        os.register_at_fork(after_in_child=self.leave)

    def follow(self, path: Path, has_stacks: bool) -> None:
        """Writes behind what stands in `path` from now on, which `has_stacks` or none. Raises OSError."""
        self.leave()
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND)
        try:
            self._size = os.fstat(descriptor).st_size
            os.dup2(descriptor, self._descriptor, inheritable=False)
        finally:
            os.close(descriptor)
        self._path, self._has_stacks = path, has_stacks

    def leave(self) -> None:
        """Writes nowhere from now on."""
        os.dup2(self._nowhere, self._descriptor, inheritable=False)
        self._path = None

    @property
    def holds_stacks(self) -> bool:
        """Whether the file holds any. Raises OSError."""
        written = self._path is not None and os.fstat(self._descriptor).st_size > self._size
        return self._path is not None and (self._has_stacks or written)

    def close(self) -> None:
        """Removes a file without stacks, and writes nowhere from now on. Raises OSError."""
        path, empty = self._path, not self.holds_stacks
        self.leave()
        if path is not None and empty:
            path.unlink(missing_ok=True)

    def attach(self) -> bool:
        """Makes the timer of this thread; returns whether there is one, which takes Linux and a free signal."""
        number = self._signal or _free_signal()
        library = None if number is None else _with_timers()
        if number is None or library is None:
            return False
        if self._signal is None:
            # what is left once the interpreter ends and faulthandler with it: the signal would kill by default
            library.signal(number, signal.SIG_IGN)
            faulthandler.register(number, self._descriptor, all_threads=True)
            self._signal = number
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {number})
        event = _Event(None, number, _TO_THREAD, threading.get_native_id())
        timer = ctypes.c_void_p()
        if library.timer_create(_MONOTONIC, ctypes.byref(event), ctypes.byref(timer)):
            return False
        self._timer, self._library = timer, library
        return True

    def detach(self) -> None:
        """Removes the timer, in the thread that has attached it."""
        library, self._library = self._library, None
        if library is not None:
            library.timer_delete(self._timer)

    def wind(self, seconds: float) -> None:
        """Sets the timer, in the thread that has attached it."""
        if self._library is not None:
            whole = int(seconds)
            times = _Times(0, 0, whole, int((seconds - whole) * 1e9))
            self._library.timer_settime(self._timer, 0, ctypes.byref(times), None)


_only: list[FaultFile] = []


def fault_file() -> FaultFile:
    """The file of this process. A forked child has that of its parent, which leads nowhere there."""
    if not _only:
        _only.append(FaultFile())
    return _only[0]


def _free_signal() -> int | None:
    """The highest real-time signal that nobody handles; None without one."""
    last = getattr(signal, "SIGRTMAX", None)
    if last is None:
        return None
    return next((number for number in range(last, last - _MOST_TRIED, -1) if is_free(number)), None)


def _with_timers() -> ctypes.CDLL | None:
    """The library with the timers of the kernel: the C library, or librt of glibc before 2.34; None without one."""
    for name in (None, "librt.so.1"):
        with contextlib.suppress(OSError):
            library = ctypes.CDLL(name)
            if hasattr(library, "timer_create"):
                return library
    return None
