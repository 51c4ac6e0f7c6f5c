"""Census of files and their changes since the last look, by size, time and inode. Opens no file."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass, replace
from pathlib import Path

from rankscope.assemble.file_names import is_part
from rankscope.kinds.input_kinds import DIRECTORY_LINK_OUT
from rankscope.parsers.file_access import NotAFileError, is_directory, read_small
from rankscope.parsers.files.directory_walk import FoundPath, walk_paths
from rankscope.watching.clock import CLOCK, Clock

SCAN_SHARE = 0.1
"""Largest share of time for scans of everything."""
NOTE_LENGTH = 500
PART_AGE_S = 10.0
"""A temporary file of the capture older than this never replaces a dump, because its process is gone."""
LONGEST_PAUSE_S = 60.0
"""Longest time between two scans, however slow the file system is."""


@dataclass(frozen=True)
class FileChanges:
    """Changes that one look has found."""

    changed: tuple[FoundPath, ...] = ()
    """New files, and changed ones."""
    gone: tuple[str, ...] = ()
    """Paths that no longer exist."""
    moved: tuple[tuple[str, FoundPath], ...] = ()
    """Unchanged files under another path: the old path and the new file."""

    def __bool__(self) -> bool:
        return bool(self.changed or self.gone or self.moved)


class AwayError(Exception):
    """Raised for a followed directory that cannot be seen; the message says why. It may come back."""


def away_note(path: Path) -> Path:
    """The file in which a process that copies files into a directory says why no new ones come."""
    # "." and ".." have no name yet, and "/" has none at all
    whole = path.absolute() if path.name and path.name != ".." else path.resolve()
    return whole.parent / f".{whole.name}.rankscope-away"


class FileCensus:
    """The files below some paths."""

    def __init__(self, paths: Sequence[Path], clock: Clock = CLOCK, *, follow_links: bool = False) -> None:
        self.paths, self._clock, self._follow_links = list(paths), clock, follow_links
        self.known: dict[str, FoundPath] = {}
        self._gone: dict[str, FoundPath] = {}
        """Files reported as gone since the last scan."""
        self._directories: set[str] = set()
        """Directories with any known file."""
        self._links: set[str] = set()
        """New links to directories."""
        self.scanned_at = -1e9
        """Monotonic time of the last scan."""
        self._took: tuple[float, float] = (0.0, 0.0)
        """Seconds that the last two scans took."""
        self._devices: list[int] | None = None

    def scan(self) -> FileChanges:
        """Scans everything. Raises AwayError."""
        begin = self._clock.now()
        try:
            self._check_roots()
            walked, now_ns = walk_paths(self.paths, follow_links=self._follow_links), self._clock.unix_ns()
            found = {one.path: one for one in walked if not _is_written(one, now_ns)}
        except OSError as error:
            raise AwayError(f"{error.filename or self.paths[0]}: {error.strerror or type(error).__name__}") from error
        finally:
            self.scanned_at = self._clock.now()
            self._took = (self._took[1], self.scanned_at - begin)
        before, gone = self.known, self._gone
        self.known, self._gone, self._directories = found, {}, _above(found)
        changed = [one for path, one in found.items() if before.get(path) != one]
        before = {**gone, **before}
        return _moved(changed, {path for path in before if path not in found}, before)

    def has_new_links(self) -> bool:
        """Whether new links that are followed lead to directories outside of the paths, since the last call."""
        links, self._links = self._links, set()
        roots = {os.path.realpath(path) for path in self.paths} if links else set()
        return any(roots.isdisjoint([real, *_above([real])]) for real in map(os.path.realpath, links))

    @property
    def may_scan_at(self) -> float:
        """The earliest time of the next scan, to limit the load on the file system.

        A single slow scan only shows that the file system did not answer for a while.
        """
        return self.scanned_at + min(min(self._took) / SCAN_SHARE, LONGEST_PAUSE_S)

    def look(self, paths: Iterable[str]) -> tuple[FileChanges, bool]:
        """Looks at a few paths; returns whether a scan is needed, because something is new or gone."""
        changed: list[FoundPath] = []
        missing, strange, everything = [], set(), False
        for path in paths:
            known = self.known.get(path) or self._gone.get(path)
            if known is None and is_part(path):
                continue
            try:
                about = Path(path).stat()
            except (FileNotFoundError, NotADirectoryError):
                missing.append(path)
            except OSError:
                everything |= path in self.known
            else:
                if known is not None and known.problem is None and stat.S_ISREG(about.st_mode):
                    changed += self._again(known, about)
                elif known is not None or not stat.S_ISFIFO(about.st_mode):
                    everything = True
                    strange.add(about.st_ino)
                    self._note_link(path, about)
        gone, more = self._miss(missing, strange)
        return FileChanges(tuple(changed), gone), everything or more

    def _again(self, known: FoundPath, about: os.stat_result) -> list[FoundPath]:
        """Records a file as it is now, unless it is unchanged."""
        now = replace(known, size=about.st_size, mtime_ns=about.st_mtime_ns, inode=about.st_ino)
        if self.known.get(now.path) == now:
            return []
        self.known[now.path] = now
        self._gone.pop(now.path, None)
        return [now]

    def _note_link(self, path: str, about: os.stat_result) -> None:
        if self._follow_links and stat.S_ISDIR(about.st_mode) and os.path.islink(path):  # noqa: PTH114 - no error
            self._links.add(path)

    @property
    def leads_out(self) -> bool:
        """Whether a link to a directory outside of the paths is left alone."""
        return any(one.kind == DIRECTORY_LINK_OUT.name for one in self.known.values())

    def _miss(self, paths: Iterable[str], strange: Set[int]) -> tuple[tuple[str, ...], bool]:
        """Handles missing paths: which were files, and whether anything was known there.

        A file that may be one of the new inodes under another path is reported with it, by the next scan.
        """
        known = [path for path in paths if path in self.known]
        gone = [path for path in known if self.known[path].problem is None and self.known[path].inode not in strange]
        self._gone.update((path, self.known.pop(path)) for path in gone)
        return tuple(gone), bool(known) or not self._directories.isdisjoint(paths)

    def _check_roots(self) -> None:
        """Treats an empty directory on another device than before as a lost mount."""
        for path in self.paths:
            with contextlib.suppress(FileNotFoundError, NotAFileError):
                raise AwayError(read_small(away_note(path), NOTE_LENGTH).decode("utf-8", "replace"))
        devices = [path.stat().st_dev for path in self.paths]
        if self._devices is not None and devices != self._devices:
            for path, before, now in zip(self.paths, self._devices, devices, strict=True):
                if before != now and is_directory(path) and not any(path.iterdir()):
                    raise AwayError(f"{path}: the file system was unmounted")
        self._devices = devices


def _is_written(found: FoundPath, now_ns: int) -> bool:
    """Whether it is a temporary file that the capture is about to rename to a dump; old ones are of a dead process."""
    return is_part(found.path) and now_ns - (found.mtime_ns or 0) < PART_AGE_S * 1e9


def _above(paths: Iterable[str]) -> set[str]:
    """The parent directories of some paths."""
    above: set[str] = set()
    for path in paths:
        while (path := path.rpartition("/")[0]) and path not in above:
            above.add(path)
    return above


def _moved(changed: list[FoundPath], gone: set[str], before: dict[str, FoundPath]) -> FileChanges:
    """Finds files that were only renamed, such as a rotated log, or a finished dump."""
    left = gone | {one.path for one in changed if one.path in before}
    by_inode = {before[path].inode: before[path] for path in left if before[path].inode}
    moved = {}
    for one in changed:
        old = by_inode.get(one.inode)
        if old is not None and old.path != one.path and (old.size, old.mtime_ns) == (one.size, one.mtime_ns):
            moved[one.path] = (old.path, one)
    return FileChanges(
        tuple(one for one in changed if one.path not in moved),
        tuple(gone - {old for old, _ in moved.values()}),
        tuple(moved.values()),
    )
