"""Files under the paths of the user: regular files to read, and all others with the reason.

The walk leaves out pipes in directories: the recorder puts a trigger pipe there for each rank. It opens no file.
"""

from __future__ import annotations

import os
import stat
from collections import deque
from collections.abc import Callable, Iterator, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

SESSION_FILE = "rankscope-session.json"
"""Name of the file that makes a directory a session of rankscope, which is opened alone."""
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


def walk_paths(
    paths: Sequence[Path], within: Sequence[Path] = (), wanted: Callable[[str], bool] | None = None
) -> list[FoundPath]:
    """Everything under `paths`, sorted, each directory and file once. Raises FileNotFoundError for a missing path.

    Links that lead out of all of the directories `within`, if any are given, are not followed. Files whose shown path
    is not `wanted` are left out, and below directories not even asked for their size.
    """
    for path in paths:
        path.stat()
    roots = tuple(path.resolve() for path in within)
    walker = _DirectoryWalk(frozenset(map(str, paths)), roots, wanted or (lambda _: True))
    for path in paths:
        base = "" if len(paths) == 1 else str(path)
        walker.add(str(path), base if path.is_dir() else base or path.name)
    return sorted(walker.found, key=lambda found: found.shown)


def is_session(path: Path) -> bool:
    """Whether a path is the directory of a session."""
    return (path / SESSION_FILE).is_file()


class _Place(NamedTuple):
    path: str
    shown: str
    stat: Callable[[], os.stat_result]
    """Follows a link."""


class _DirectoryWalk:
    """A walk that visits real directories before links to them, so that each file is shown under its own path."""

    def __init__(self, given: Set[str], within: Sequence[Path], wanted: Callable[[str], bool]) -> None:
        self.given, self.within, self.wanted = given, within, wanted
        self.found: list[FoundPath] = []
        self.seen: set[tuple[int, int]] = set()
        self.links: deque[_Place] = deque()

    def add(self, path: str, shown: str) -> None:
        """Visits a path, and then the links below it."""
        self._visit(_Place(path, shown, Path(path).stat))
        while self.links:
            self._visit(self.links.popleft())

    def _visit(self, place: _Place) -> None:
        pending = [place]
        while pending:
            at, name, ask = pending.pop()
            try:
                about = ask()
            except OSError as error:
                self._refuse(at, name, "a link that leads nowhere" if Path(at).is_symlink() else _reason(error))
                continue
            if not stat.S_ISDIR(about.st_mode):
                self._file(at, name, about)
            elif self._first(about):
                pending.extend(reversed(list(self._children(at, name))))

    def _first(self, about: os.stat_result) -> bool:
        key = (about.st_dev, about.st_ino)
        fresh = key not in self.seen
        self.seen.add(key)
        return fresh

    def _children(self, path: str, shown: str) -> Iterator[_Place]:
        try:
            entries = sorted(os.scandir(path), key=lambda e: e.name)
        except OSError as error:
            self._refuse(path, shown, _reason(error))
            return
        if any(entry.name == SESSION_FILE for entry in entries):
            self._refuse(path, shown, "a session of rankscope: opened alone")
            return
        for entry in entries:
            child = _Place(entry.path, f"{shown}/{entry.name}" if shown else entry.name, entry.stat)
            if entry.is_symlink():
                if self._leads_out(entry.path):
                    self._refuse(child.path, child.shown, "a link out of the directories that may be read: not opened")
                else:
                    self.links.append(child)
            elif not entry.is_file(follow_symlinks=False) or self.wanted(child.shown):
                yield child

    def _leads_out(self, link: str) -> bool:
        target = Path(os.path.realpath(link))
        return bool(self.within) and not any(target.is_relative_to(root) for root in self.within)

    def _file(self, path: str, shown: str, about: os.stat_result) -> None:
        if stat.S_ISFIFO(about.st_mode) and path not in self.given:
            return
        special = next((reason for test, reason in _SPECIAL if test(about.st_mode)), None)
        if special is not None:
            self._refuse(path, shown, special)
        elif self.wanted(shown) and self._first(about):
            name, given = printable_text(shown), path in self.given
            self.found.append(FoundPath(path, name, about.st_size, about.st_mtime_ns, None, about.st_ino, given))

    def _refuse(self, path: str, shown: str, reason: str) -> None:
        self.found.append(FoundPath(path, printable_text(shown), problem=reason))


def printable_text(name: str) -> str:
    """A file name as text, with a replacement for bytes that are no UTF-8."""
    return os.fsencode(name).decode("utf-8", "replace")


def _reason(error: OSError) -> str:
    return f"cannot be read: {error.strerror or type(error).__name__}"
