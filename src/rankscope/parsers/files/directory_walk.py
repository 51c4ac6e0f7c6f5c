"""Files under the paths of the user: regular files to read, and all others with the reason.

The walk leaves out pipes in directories: the recorder puts a trigger pipe there for each rank. It opens no file. What
cannot be looked at costs its own row. Links are followed only to what lies in the given directories, unless asked for.
"""

from __future__ import annotations

import errno
import os
import stat
from collections import deque
from collections.abc import Callable, Iterator, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from rankscope.kinds.input_kinds import (
    DIRECTORY_LINK_OUT,
    FILE_LINK_OUT,
    NOT_A_FILE,
    UNREAD_DIRECTORY,
    UNREADABLE,
    InputKind,
)
from rankscope.parsers.file_access import is_file, link_out, looked_at, nearest_root

SESSION_FILE = "rankscope-session.json"
"""Name of the file that makes a directory a session of rankscope, which is opened alone."""
_NOWHERE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)
"""Errors of links without a target."""
_SPECIAL = (
    (stat.S_ISFIFO, "a pipe: not opened"),
    (stat.S_ISSOCK, "a socket: not opened"),
    (stat.S_ISCHR, "a device: not opened"),
    (stat.S_ISBLK, "a device: not opened"),
)


@dataclass(frozen=True)
class FoundPath:
    """A path under the given ones."""

    path: str
    """The path to open."""
    shown: str
    """The path below the given ones, as text that any output can encode."""
    size: int = 0
    mtime_ns: int | None = None
    problem: str | None = None
    """The reason why the file is not read; None for a regular file."""
    inode: int = 0
    given: bool = False
    """The user named this file, not only a directory above it."""
    kind: str = ""
    """The kind of a path with a problem; empty for a regular file."""
    within: str = ""
    """The real path of the directory in which the file must lie when it is opened; empty if it may lie anywhere."""


def walk_paths(
    paths: Sequence[Path],
    wanted: Callable[[str], bool] | None = None,
    *,
    within: Sequence[Path] = (),
    follow_links: bool = False,
) -> list[FoundPath]:
    """Everything under `paths`, sorted, each directory and file once. Raises FileNotFoundError for a missing path, and
    OSError for one that cannot be looked at.

    A path that is itself a link is followed. Links below are followed to what lies in one of the directories `within`,
    by default in one of `paths`; with `follow_links` they may lead anywhere. Files whose shown path is not `wanted` are
    left out, and below directories not even asked for their size.
    """
    looks = [looked_at(str(path)) for path in paths]
    roots = {looked_at(str(path))[1] for path in within}
    roots |= {place for about, place in looks if not within and stat.S_ISDIR(about.st_mode)}
    walker = _DirectoryWalk(frozenset(map(str, paths)), None if follow_links else roots, wanted or (lambda _: True))
    for path, (about, place) in zip(paths, looks, strict=True):
        shown = "" if len(paths) == 1 else str(path)
        walker.add(str(path), shown if stat.S_ISDIR(about.st_mode) else shown or path.name, about, place)
    walker.follow()
    return sorted(walker.found, key=lambda found: found.shown)


def is_session(path: Path) -> bool:
    """Whether a path is the directory of a session."""
    return is_file(path / SESSION_FILE)


class _Place(NamedTuple):
    path: str
    shown: str
    within: str
    about: os.stat_result


class _DirectoryWalk:
    """A walk that visits real directories before links to them, so that each file is shown under its own path."""

    def __init__(self, given: Set[str], roots: Set[str] | None, wanted: Callable[[str], bool]) -> None:
        self.given, self.roots, self.wanted = given, roots, wanted
        self.found: list[FoundPath] = []
        self.seen: set[tuple[int, int]] = set()
        self.links: deque[tuple[str, str]] = deque()
        """Paths of links, and how they are shown."""

    def add(self, path: str, shown: str, about: os.stat_result, place: str) -> None:
        """Visits a given path; links below it wait."""
        within = "" if self.roots is None else nearest_root(place, self.roots) or ""
        self._visit(_Place(path, shown, within, about))

    def follow(self) -> None:
        """Visits the links below all given paths."""
        while self.links:
            path, shown = self.links.popleft()
            try:
                about, place = looked_at(path)
            except OSError as error:
                nowhere = error.errno in _NOWHERE
                reason = "a link that leads nowhere" if nowhere else _reason(error)
                self._refuse(path, shown, reason, NOT_A_FILE if nowhere else UNREADABLE)
                continue
            is_directory = stat.S_ISDIR(about.st_mode)
            root = "" if self.roots is None else nearest_root(place, self.roots)
            if root is None and (is_directory or stat.S_ISREG(about.st_mode)):
                self._refuse(path, shown, link_out(place), DIRECTORY_LINK_OUT if is_directory else FILE_LINK_OUT)
            else:
                self._visit(_Place(path, shown, root or "", about))

    def _visit(self, place: _Place) -> None:
        pending = [place]
        while pending:
            at = pending.pop()
            if not stat.S_ISDIR(at.about.st_mode):
                self._file(at)
            elif self._first(at.about):
                pending.extend(reversed(list(self._children(at))))

    def _first(self, about: os.stat_result) -> bool:
        key = (about.st_dev, about.st_ino)
        fresh = key not in self.seen
        self.seen.add(key)
        return fresh

    def _children(self, place: _Place) -> Iterator[_Place]:
        try:
            entries = sorted(os.scandir(place.path), key=lambda e: e.name)
        except OSError as error:
            self._refuse(place.path, place.shown or place.path, _reason(error), UNREAD_DIRECTORY)
            return
        if any(entry.name == SESSION_FILE for entry in entries):
            self._refuse(place.path, place.shown or place.path, "a session of rankscope: opened alone", NOT_A_FILE)
            return
        for entry in entries:
            shown = f"{place.shown}/{entry.name}" if place.shown else entry.name
            kind = UNREADABLE
            try:
                if entry.is_dir(follow_symlinks=False):
                    kind = UNREAD_DIRECTORY
                if entry.is_symlink():
                    self.links.append((entry.path, shown))
                elif not entry.is_file(follow_symlinks=False) or self.wanted(shown):
                    yield _Place(entry.path, shown, place.within, entry.stat(follow_symlinks=False))
            except OSError as error:
                self._refuse(entry.path, shown, _reason(error), kind)

    def _file(self, place: _Place) -> None:
        about = place.about
        if stat.S_ISFIFO(about.st_mode) and place.path not in self.given:
            return
        special = next((reason for test, reason in _SPECIAL if test(about.st_mode)), None)
        if special is not None:
            self._refuse(place.path, place.shown, special, NOT_A_FILE)
        elif self.wanted(place.shown) and self._first(about):
            self.found.append(
                FoundPath(
                    place.path,
                    printable_text(place.shown),
                    about.st_size,
                    about.st_mtime_ns,
                    None,
                    about.st_ino,
                    place.path in self.given,
                    within=place.within,
                )
            )

    def _refuse(self, path: str, shown: str, reason: str, kind: InputKind) -> None:
        self.found.append(FoundPath(path, printable_text(shown), problem=printable_text(reason), kind=kind.name))


def printable_text(name: str) -> str:
    """A file name as text, with a replacement for bytes that are no UTF-8."""
    return os.fsencode(name).decode("utf-8", "replace")


def _reason(error: OSError) -> str:
    return f"cannot be read: {error.strerror or type(error).__name__}"
