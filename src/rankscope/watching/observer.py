"""When to look at the files: as soon as the kernel tells of a change, and again and again where it does not."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from rankscope.watching.census import AwayError, FileCensus, FileChanges
from rankscope.watching.change_notices import ChangeNotices
from rankscope.watching.clock import CLOCK, Clock

POLL_S = 2.0
"""Seconds between two looks where nothing is told."""
SAFETY_S = 10.0
"""And where something is: no event is sure to come."""
SOONER = 0.8
"""Of the time that is told so much passes between two looks, so that what they find is shown within it."""
AWAY_S = 0.75
"""And while nothing can be seen: what is swapped for something else is away for a moment."""


@dataclass(frozen=True)
class FileSighting:
    """What a look has shown. Times are those of the monotonic clock, in seconds."""

    changes: tuple[FileChanges, ...]
    next_at: float
    """When to look again though nothing is told."""
    polled_s: float | None
    """Seconds between two looks where nobody tells of changes; None where somebody does."""
    why_polled: str
    """Why there are no notices."""
    away: str | None
    """Why nothing can be seen at the moment."""
    full: bool
    """A file system that can be written to has no room."""


class FileObserver:
    """Looks at the files below some paths; `told` is called in another thread when there is something to be seen."""

    def __init__(
        self, paths: Sequence[Path], poll_s: float | None, told: Callable[[], None], clock: Clock = CLOCK
    ) -> None:
        self._paths, self._poll_s, self._told, self._clock = list(paths), poll_s, told, clock
        self._begun = False
        self._census = FileCensus(paths, clock)
        self._notice: ChangeNotices | None = None
        self._wanted = True
        self._why_polled = ""
        self._away: str | None = None

    def _begin(self) -> None:
        """Asks to be told of changes, unless that is no use."""
        kinds = [file_system(path) for path in self._paths]
        silent = next((kind for kind in kinds if is_silent(kind)), None)
        if self._poll_s is not None or silent is not None:
            self._why_polled = "as asked" if silent is None else f"{silent} tells of no changes"
            return
        self._why_polled = ""
        self._notice = ChangeNotices(self._told, self._paths)
        self._notice.watch([path for path in self._paths if path.is_dir()], recursive=True)
        self._notice.watch(list({path.parent for path in self._paths if not path.is_dir()}), recursive=False)

    def close(self) -> None:
        """Asks for no more notices."""
        if self._notice is not None:
            self._notice.close()

    def look(self) -> FileSighting:
        """What has changed, as far as it is time to look. May take for ever."""
        if not self._begun:
            self._begun = True
            self._begin()
        changes = self._changes()
        polls = self._notice is None or not self._notice.works
        polled_s = self._every_s if polls and self._away is None else None
        why = self._why_polled or "the kernel watches no more directories"
        full = self._away is None and _is_full(self._paths)
        return FileSighting(tuple(changes), self._next_at, polled_s, why if polled_s else "", self._away, full)

    def _changes(self) -> list[FileChanges]:
        now, found = self._clock.now(), []
        told = self._notice.take() if self._notice is not None else set()
        if self._notice is not None:
            # while it is away it is looked for from time to time
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
        # the threads end with their directory, and watch what links led to when they began; where they cannot start
        # again, looking has to do
        anew = self._census.has_new_links() or back
        if self._notice is not None and (anew or not self._notice.works):
            self._notice.close()
            self._begin()
        return [changes]

    @property
    def _next_at(self) -> float:
        """When to look at everything."""
        soon = 0.0 if self._wanted else self._census.scanned_at + SOONER * self._every_s
        return max(soon, self._census.may_scan_at)

    @property
    def _every_s(self) -> float:
        """Seconds between two looks at everything."""
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


# On which file systems nobody is told of a file that another machine writes: there one has to look again and again.

MOUNTINFO = Path("/proc/self/mountinfo")
_SILENT = frozenset([
    "nfs", "nfs4", "lustre", "gpfs", "mmfs", "beegfs", "beegfs_nodev", "pvfs2", "orangefs", "ceph", "cifs", "smb3",
    "smbfs", "9p", "virtiofs", "afs", "glusterfs", "panfs", "wekafs", "dfs", "ocfs2", "gfs2", "vboxsf", "prl_fs",
    "drvfs", "overlay", "aufs", "unionfs",
])  # fmt: skip
_ESCAPE = re.compile(r"\\([0-7]{3})")


def file_system(path: Path, mountinfo: str | None = None) -> str:
    """The type of the file system a path lies on, as the kernel calls it; "" where that is not told."""
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
        # of two mounts on one point the later one is seen
        if _lies_below(real, point) and len(point) >= len(best):
            best, kind = point, rest.split(" ")[0]
    return kind


def _lies_below(path: str, point: str) -> bool:
    return path == point or path.startswith(point.rstrip("/") + "/")


def is_silent(kind: str) -> bool:
    """Whether writes of other machines, or below what is shown, raise no event."""
    return kind in _SILENT or kind.startswith("fuse")


# Looking at files in a thread of its own: a file system that does not answer holds up whoever asks it, for hours.

PATIENCE_S = 5.0
"""After so long without an answer it is said that there is none."""
_T = TypeVar("_T")


class PeriodicCall(Generic[_T]):
    """Calls something again and again, once at a time; `done` is called in its thread when an answer is there."""

    def __init__(self, call: Callable[[], _T], done: Callable[[], None], clock: Clock = CLOCK) -> None:
        self._call, self._done, self._clock = call, done, clock
        self._wanted = threading.Semaphore(0)
        self._thread: threading.Thread | None = None
        self._asked_at: float | None = None
        self._answer: list[_T] = []
        self._error: BaseException | None = None

    @property
    def is_asking(self) -> bool:
        """Whether an answer is due."""
        return self._asked_at is not None

    @property
    def hangs(self) -> bool:
        """Whether the answer is due for longer than any that comes."""
        return self._asked_at is not None and self._clock.now() - self._asked_at >= PATIENCE_S

    def ask(self) -> None:
        """Asks, unless an answer is due already."""
        if self._asked_at is None:
            self._asked_at = self._clock.now()
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, daemon=True)
                self._thread.start()
            self._wanted.release()

    def take(self) -> list[_T]:
        """The answer, if one is there: a list of one. Raises what asking has raised."""
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
