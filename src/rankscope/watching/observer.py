"""Timing of looks at the files: on notices of the kernel, and at intervals where there are none."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Generic, TypeVar

from rankscope.parsers.file_access import is_directory
from rankscope.watching.census import AwayError, FileCensus, FileChanges
from rankscope.watching.clock import CLOCK, Clock

POLL_S = 2.0
"""Seconds between two looks without notices,"""
SAFETY_S = 10.0
"""and with notices, because no event is guaranteed."""
POLL_FACTOR = 0.8
"""Factor on the announced interval between looks, so that changes are shown within it."""
AWAY_S = 0.75
"""Seconds between two looks while nothing can be seen, because a replaced directory is away for a moment."""


@dataclass(frozen=True)
class FileSighting:
    """Result of a look. Times are monotonic, in seconds."""

    changes: tuple[FileChanges, ...]
    next_at: float
    """Time of the next look without notices."""
    polled_s: float | None
    """Seconds between two looks if there are no notices; None if there are."""
    why_polled: str
    """Reason why there are no notices."""
    away: str | None
    """Reason why nothing can be seen at the moment."""
    full: bool
    """Whether a writable file system is full."""


class FileObserver:
    """Looks at the files below some paths; calls `told` in another thread when there is something to see."""

    def __init__(
        self,
        paths: Sequence[Path],
        poll_s: float | None,
        told: Callable[[], None],
        clock: Clock = CLOCK,
        *,
        follow_links: bool = False,
    ) -> None:
        self._paths, self._poll_s, self._told, self._clock = list(paths), poll_s, told, clock
        self._begun = False
        self._census = FileCensus(paths, clock, follow_links=follow_links)
        self._notice: ChangeNotices | None = None
        self._wanted = True
        self._why_polled = ""
        self._away: str | None = None

    def _begin(self) -> None:
        """Starts notices, unless they are useless here, or would watch what links that are not followed lead to."""
        kinds = [file_system(path) for path in self._paths]
        silent = next((kind for kind in kinds if is_silent(kind)), None)
        self._notice, self._why_polled = None, ""
        if silent is not None:
            self._why_polled = f"{silent} reports no changes"
        elif self._poll_s is not None:
            self._why_polled = "as asked"
        elif self._census.leads_out:
            self._why_polled = "a link leads out of it"
        if self._why_polled:
            return
        self._notice = ChangeNotices(self._told, self._paths)
        self._notice.watch([path for path in self._paths if is_directory(path)], recursive=True)
        self._notice.watch(list({path.parent for path in self._paths if not is_directory(path)}), recursive=False)

    def close(self) -> None:
        """Stops notices."""
        if self._notice is not None:
            self._notice.close()

    def look(self) -> FileSighting:
        """The changes since the last look, as far as a look is due. May block forever."""
        changes = self._changes()
        if not self._begun:
            # only a scan tells whether links lead out
            self._begun = True
            self._begin()
        polls = self._notice is None or not self._notice.works
        polled_s = self._every_s if polls and self._away is None else None
        why = self._why_polled or "the kernel watches no more directories"
        full = self._away is None and _is_full(self._paths)
        return FileSighting(tuple(changes), self._next_at, polled_s, why if polled_s else "", self._away, full)

    def _changes(self) -> list[FileChanges]:
        now, found = self._clock.now(), []
        told = self._notice.take() if self._notice is not None else set()
        if self._notice is not None:
            # an absent directory is searched at intervals
            self._wanted |= self._notice.has_begun() or (self._notice.lost and self._away is None)
        if told:
            changes, everything = self._census.look(told)
            self._wanted |= everything
            found.append(changes)
        if now >= self._next_at:
            found += self._scan()
        return [changes for changes in found if changes]

    def _scan(self) -> list[FileChanges]:
        self._wanted = False
        try:
            changes = self._census.scan()
        except AwayError as error:
            self._away = str(error)
            return []
        back, self._away = self._away is not None, None
        # Threads end with their directory, and watch the targets that links had at their start. If they cannot be
        # restarted, polling takes over.
        anew = self._census.has_new_links() or back or self._census.leads_out
        if self._notice is not None and (anew or not self._notice.works):
            self._notice.close()
            self._begin()
        return [changes]

    @property
    def _next_at(self) -> float:
        """The time of the next scan."""
        soon = 0.0 if self._wanted else self._census.scanned_at + POLL_FACTOR * self._every_s
        return max(soon, self._census.may_scan_at)

    @property
    def _every_s(self) -> float:
        """Seconds between two scans."""
        if self._away is not None:
            return AWAY_S
        polls = self._notice is None or not self._notice.works
        return (self._poll_s or POLL_S) if polls else SAFETY_S


def _is_full(paths: Sequence[Path]) -> bool:
    for path in paths:
        try:
            about = os.statvfs(path)
        except OSError:
            continue
        if about.f_blocks and not about.f_bavail and not about.f_flag & os.ST_RDONLY:
            return True
    return False


# File systems that send no notice of a file written by another machine, and need polling.

MOUNTINFO = Path("/proc/self/mountinfo")
_SILENT_FILE_SYSTEMS = frozenset([
    "nfs", "nfs4", "lustre", "gpfs", "mmfs", "beegfs", "beegfs_nodev", "pvfs2", "orangefs", "ceph", "cifs", "smb3",
    "smbfs", "9p", "virtiofs", "afs", "glusterfs", "panfs", "wekafs", "dfs", "ocfs2", "gfs2", "vboxsf", "prl_fs",
    "drvfs", "overlay", "aufs", "unionfs",
])  # fmt: skip
_ESCAPE = re.compile(r"\\([0-7]{3})")


def file_system(path: Path, mountinfo: str | None = None) -> str:
    """The type of the file system of a path, in the kernel's words; "" if unknown."""
    try:
        text = MOUNTINFO.read_text(errors="surrogateescape") if mountinfo is None else mountinfo
    except OSError:
        return ""
    real = os.path.realpath(path)
    best, kind = "", ""
    for line in text.splitlines():
        fields, _, rest = line.partition(" - ")
        parts = fields.split(" ")
        if len(parts) < 5 or not rest:
            continue
        point = _ESCAPE.sub(lambda match: chr(int(match[1], 8)), parts[4])
        # of two mounts at one point the later one is visible
        if _lies_below(real, point) and len(point) >= len(best):
            best, kind = point, rest.split(" ")[0]
    return kind


def _lies_below(path: str, point: str) -> bool:
    return path == point or path.startswith(point.rstrip("/") + "/")


def is_silent(kind: str) -> bool:
    """Whether writes of other machines, or in a lower layer, raise no event."""
    return kind in _SILENT_FILE_SYSTEMS or kind.startswith("fuse")


# Calls in a separate thread, because a file system that does not answer may block for hours.

PATIENCE_S = 5.0
"""Seconds without an answer after which the user is told."""
_T = TypeVar("_T")


class PeriodicCall(Generic[_T]):
    """Runs a function repeatedly, one call at a time; calls `done` in its thread at each result."""

    def __init__(self, call: Callable[[], _T], done: Callable[[], None], clock: Clock = CLOCK) -> None:
        self._call, self._done, self._clock = call, done, clock
        self._wanted = threading.Semaphore(0)
        self._thread: threading.Thread | None = None
        self._asked_at: float | None = None
        self._answer: list[_T] = []
        self._error: BaseException | None = None

    @property
    def is_asking(self) -> bool:
        """Whether a call is running."""
        return self._asked_at is not None

    @property
    def hangs(self) -> bool:
        """Whether the call has been running for longer than PATIENCE_S."""
        return self._asked_at is not None and self._clock.now() - self._asked_at >= PATIENCE_S

    def ask(self) -> None:
        """Starts a call, unless one is running."""
        if self._asked_at is None:
            self._asked_at = self._clock.now()
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, daemon=True)
                self._thread.start()
            self._wanted.release()

    def take(self) -> list[_T]:
        """The result as a list of one, if there is one. Raises the error of the call."""
        if self._error is not None:
            raise self._error
        answer, self._answer = self._answer, []
        if answer:
            self._asked_at = None
        return answer

    def _run(self) -> None:
        while self._wanted.acquire():
            try:
                self._answer = [self._call()]
            except BaseException as error:  # noqa: BLE001 - raised where it is taken
                self._error = error
            self._done()


# Notices of changes below some directories, if the file system sends them.

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
