"""Jobs that an agent asks about: only below some directories, each analysed once while its files do not change."""

from __future__ import annotations

import hashlib
import os
import stat
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from rankscope.analysis.model import Analysis
from rankscope.commands.source import JobSource, LoadStep
from rankscope.parsers.file_access import looked_at
from rankscope.parsers.files.directory_walk import is_session, printable_text, walk_paths
from rankscope.report.redact import Redaction
from rankscope.schema import Dataset

MOST_KEPT = 4
"""Most jobs that are kept; the one that nobody asked about for longest goes."""
MOST_ENTRIES = 500
"""Most entries of all directories that are listed."""


class PathError(ValueError):
    """A path that may not be read, or does not exist; the message is for the user."""


@dataclass(frozen=True)
class KeptJob:
    """A job, and the state of its files when it was read."""

    dataset: Dataset
    analysis: Analysis
    stamp: str


class KeptJobs:
    """The jobs below some directories. Used by one thread at a time."""

    def __init__(self, directories: Sequence[Path], redaction: Redaction | None) -> None:
        self.directories = tuple(map(_real, directories))
        self.redaction = redaction
        self._called: dict[str, str] = {}
        """The names of entries by those that are shown in their place."""
        self._kept: OrderedDict[Path, KeptJob] = OrderedDict()

    def job(self, path: str) -> KeptJob:
        """The job at a path, absolute or below one of the directories; read again if any of its files has changed.

        Raises PathError.
        """
        found = self._resolved(path)
        stamp = self._stamp(found, path)
        kept = self._kept.pop(found, None)
        if kept is None or kept.stamp != stamp:
            kept = KeptJob(*self._read(found, path), stamp)
        self._kept[found] = kept
        while len(self._kept) > MOST_KEPT:
            self._kept.popitem(last=False)
        return kept

    def entries(self) -> Iterator[dict[str, Any]]:
        """Path, size (null of a directory) and modification time in seconds of everything directly in the directories.

        Raises PathError.
        """
        for root in self.directories:
            try:
                paths = sorted(root.iterdir())
            except OSError as error:
                raise PathError(f"{error.filename}: {error.strerror}") from error
            for path in paths:
                try:
                    about, place = looked_at(str(path))
                except OSError:
                    continue  # an entry that cannot be looked at is no job
                if self._is_within(Path(place)):
                    name = self._shown(str(path) if len(self.directories) > 1 else path.name)
                    size = None if stat.S_ISDIR(about.st_mode) else about.st_size
                    yield {"path": printable_text(name), "size": size, "modified": round(about.st_mtime)}

    def _shown(self, name: str) -> str:
        """The name of an entry as it may be shown; a job is asked about by either."""
        shown = self.redaction.title(name) if self.redaction else name
        self._called[shown] = name
        return shown

    def _resolved(self, path: str) -> Path:
        """The real path of a job. Raises PathError for one outside of the directories, whether it exists or not."""
        path = self._called.get(path, path)
        if "\0" in path:
            raise PathError("not a path: it holds a null character")
        places = [_real(root / path) for root in self.directories]
        inside = [place for place in places if self._is_within(place)]
        if not inside:
            raise PathError(f"{path}: not below the directories that this server may read")
        try:
            return next(place for place in inside if place.exists())
        except StopIteration:
            raise PathError(f"{path}: No such file or directory") from None
        except OSError as error:
            raise PathError(f"{path}: {error.strerror}") from error

    def _is_within(self, place: Path) -> bool:
        return any(place.is_relative_to(root) for root in self.directories)

    def _stamp(self, found: Path, called: str) -> str:
        """A hash over names, sizes, times and inodes of all files. Raises PathError."""
        try:
            # a walk does not enter sessions, and they are opened by the names of their files
            own = sorted(found.iterdir()) if is_session(found) else [found]
            files = walk_paths(own, within=self.directories)
        except OSError as error:
            raise PathError(f"{called}: {error.strerror}") from error
        about = [(file.path, file.size, file.mtime_ns, file.inode, file.problem) for file in files]
        return hashlib.blake2s(repr(about).encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()

    def _read(self, found: Path, called: str) -> tuple[Dataset, Analysis]:
        source = JobSource(
            (str(found),), called=(called,), within=self.directories, no_cache=True, redaction=self.redaction
        )
        try:
            return source.load(_ignore)
        except click.ClickException as error:
            raise PathError(error.format_message()) from error


def _real(path: Path) -> Path:
    """The path without links; one that leads into a circle stays as it is, and does not exist."""
    return Path(os.path.realpath(path))


def _ignore(_step: LoadStep) -> None:
    """Takes progress that nobody sees."""
