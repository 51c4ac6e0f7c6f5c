"""Notices of changes below some directories, if the file system sends them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence, Set
from pathlib import Path
from time import monotonic

STEP_MS = 30
"""Changes within this time of each other are reported together,"""
DEBOUNCE_MS = 200
"""but after this time at the latest."""
IDLE_MS = 250
"""Time between two checks of a thread whether it must end, and whether its directories are still in place."""


class ChangeNotices:
    """Threads that wait for events of the kernel; `take` returns the changed paths, which may be incomplete."""

    def __init__(self, wake: Callable[[], None], given: Sequence[Path] = ()) -> None:
        """Paths below `given` are reported with these prefixes, because the kernel's are absolute."""
        self._wake = wake
        self._given = {str(path.absolute()): str(path) for path in given}
        self._lock = threading.Lock()
        self._paths: set[str] = set()
        self._begun = False
        self._lost = False
        self._stop = threading.Event()
        self._threads: list[threading.Thread] = []

    def watch(self, paths: Sequence[Path], *, recursive: bool) -> None:
        """Starts to watch directories."""
        if paths:
            absolute = [path.absolute() for path in paths]
            thread = threading.Thread(target=self._run, args=(absolute, recursive), daemon=True)
            self._threads.append(thread)
            thread.start()

    @property
    def works(self) -> bool:
        """Whether all directories are watched: False after one is gone, or if the kernel is out of watches."""
        return bool(self._threads) and not self._lost and all(thread.is_alive() for thread in self._threads)

    @property
    def lost(self) -> bool:
        """Whether a watched directory is gone or replaced, so that the new one must be watched."""
        return self._lost

    def take(self) -> set[str]:
        """The paths that changed since the last call."""
        with self._lock:
            paths, self._paths = self._paths, set()
        return {_as_given(path, self._given) for path in paths}

    def has_begun(self) -> bool:
        """Whether watching has begun since the last call; earlier changes were not reported."""
        with self._lock:
            begun, self._begun = self._begun, False
        return begun

    def close(self) -> None:
        """Ends the threads."""
        self._stop.set()

    def _run(self, paths: list[Path], recursive: bool) -> None:
        import watchfiles

        try:
            places = _DirectoryIdentities(paths)
            for count, changes in enumerate(watchfiles.watch(
                *paths, watch_filter=None, debounce=DEBOUNCE_MS, step=STEP_MS, stop_event=self._stop,
                rust_timeout=IDLE_MS, yield_on_timeout=True, raise_interrupt=False, recursive=recursive,
                force_polling=False, ignore_permission_denied=True,
            )):  # fmt: skip
                with self._lock:
                    self._paths.update(path for _, path in changes)
                    self._begun |= count == 0
                deleted = {path for change, path in changes if change is watchfiles.Change.deleted}
                self._lost |= places.are_lost(deleted)
                if changes or self._begun or self._lost:
                    self._wake()
                if self._lost:
                    return
        except (OSError, RuntimeError):
            # it cannot be watched (any more): the caller of `works` looks by itself
            self._wake()


class _DirectoryIdentities:
    """Detects replaced directories."""

    def __init__(self, paths: Sequence[Path]) -> None:
        self._paths, self._names = paths, {str(path) for path in paths}
        self._before = [_identity(path) for path in paths]
        self._look_at = 0.0

    def are_lost(self, deleted: Set[str]) -> bool:
        """Whether directories are lost.

        Checks at intervals, and for reported deletions, because a new directory may get the old inode.
        """
        if not self._names.isdisjoint(deleted):
            return True
        if monotonic() < self._look_at:
            return False
        self._look_at = monotonic() + IDLE_MS / 1000
        return [_identity(path) for path in self._paths] != self._before


def _identity(path: Path) -> tuple[int, int] | None:
    """The identity of the directory at a path; None without a visible one."""
    try:
        about = path.stat()
    except OSError:
        return None
    return about.st_dev, about.st_ino


def _as_given(path: str, given: Mapping[str, str]) -> str:
    """An absolute path with the prefix of the given path above it."""
    at = path
    while at and at not in given:
        at = at.rpartition("/")[0]
    return given[at] + path[len(at) :] if at else path
