"""Tells that something changed below some directories, where the file system says so."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence, Set
from pathlib import Path
from time import monotonic

STEP_MS = 30
"""Changes that follow each other within this time are told of at once, ..."""
DEBOUNCE_MS = 200
"""... those of so long at most."""
IDLE_MS = 250
"""So long a thread waits before it looks whether it is to end, and whether its directories are still in their place."""


class ChangeNotices:
    """Threads that wait for the kernel; what they were told of is taken with `take`. None of it has to be complete."""

    def __init__(self, wake: Callable[[], None], given: Sequence[Path] = ()) -> None:
        """What lies below `given` is told by paths that begin as these do: the kernel's are absolute."""
        self._wake = wake
        self._given = {str(path.absolute()): str(path) for path in given}
        self._lock = threading.Lock()
        self._paths: set[str] = set()
        self._begun = False
        self._lost = False
        self._stop = threading.Event()
        self._threads: list[threading.Thread] = []

    def watch(self, paths: Sequence[Path], *, recursive: bool) -> None:
        """Begins to watch directories."""
        if paths:
            absolute = [path.absolute() for path in paths]
            thread = threading.Thread(target=self._run, args=(absolute, recursive), daemon=True)
            self._threads.append(thread)
            thread.start()

    @property
    def works(self) -> bool:
        """Whether every directory is watched: one that is gone ends it, as does a kernel that is out of watches."""
        return bool(self._threads) and not self._lost and all(thread.is_alive() for thread in self._threads)

    @property
    def lost(self) -> bool:
        """Whether a directory that was watched has gone, or another one is in its place: that one is to be watched."""
        return self._lost

    def take(self) -> set[str]:
        """The paths that changed since the last time."""
        with self._lock:
            paths, self._paths = self._paths, set()
        return {_as_given(path, self._given) for path in paths}

    def has_begun(self) -> bool:
        """Whether directories are watched since the last time that was asked: what came before was not told of."""
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
            # it cannot be watched, or no more: whoever asks `works` looks by himself
            self._wake()


class _DirectoryIdentities:
    """Tells whether other directories are where some were."""

    def __init__(self, paths: Sequence[Path]) -> None:
        self._paths, self._names = paths, {str(path) for path in paths}
        self._before = [_identity(path) for path in paths]
        self._look_at = 0.0

    def are_lost(self, deleted: Set[str]) -> bool:
        """Looks from time to time, and at what is told as deleted: made anew, it may have the inode that it had."""
        if not self._names.isdisjoint(deleted):
            return True
        if monotonic() < self._look_at:
            return False
        self._look_at = monotonic() + IDLE_MS / 1000
        return [_identity(path) for path in self._paths] != self._before


def _identity(path: Path) -> tuple[int, int] | None:
    """Which directory is at a path; None if none can be seen there."""
    try:
        about = path.stat()
    except OSError:
        return None
    return about.st_dev, about.st_ino


def _as_given(path: str, given: Mapping[str, str]) -> str:
    """An absolute path as it is called from the given path that it lies below."""
    at = path
    while at and at not in given:
        at = at.rpartition("/")[0]
    return given[at] + path[len(at) :] if at else path
