"""Sessions of earlier reads in the user's cache: the same files are not read twice.

An entry is the session of tables of one read. Its name is a digest of everything that the result depends on: the
version, the options, and path, size, modification time and inode of each file.
"""

from __future__ import annotations

import hashlib
import logging
import os
import shutil
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import rankscope
from rankscope.parsers.files.directory_walk import SESSION_FILE

if TYPE_CHECKING:
    from rankscope.assemble.load import LoadOptions
    from rankscope.parsers.files.directory_walk import FoundPath
    from rankscope.schema import Dataset

OFF = "RANKSCOPE_NO_CACHE"
"""Environment variable that turns the cache off."""
MOST_BYTES = 1 << 30
"""Bytes of all entries; the least recently used ones go first. An entry may take a quarter of them."""
YOUNG_NS = 2_000_000_000
"""Age below which a file may change again without another modification time."""
_LOG = logging.getLogger("rankscope")


def cache_entry(
    found: Sequence[FoundPath], options: LoadOptions, now_ns: int, environment: Mapping[str, str]
) -> CacheEntry | None:
    """The place of these files in the user's cache. `now_ns` is the time of this read.

    None if the cache is turned off, if a file may still change unseen, or if this program runs from its sources, which
    change under the same version.
    """
    if environment.get(OFF) or _runs_from_sources():
        return None
    if any(path.mtime_ns is not None and path.mtime_ns > now_ns - YOUNG_NS for path in found):
        return None
    import platformdirs

    directory = platformdirs.user_cache_path("rankscope") / "sessions"
    return CacheEntry(directory / entry_name(found, options), options)


def _runs_from_sources() -> bool:
    return (Path(rankscope.__file__).parents[2] / "pyproject.toml").is_file()


def entry_name(found: Sequence[FoundPath], options: LoadOptions) -> str:
    """A name for these files, read with these options by this version."""
    errors = options.errors and options.errors.read_bytes()
    asked = replace(options, jobs=None, called=(), detail="all", errors=None, wanted="")
    digest = hashlib.sha256(repr((rankscope.__version__, str(Path.cwd()), asked, errors)).encode())
    for path in found:
        digest.update(
            repr((path.path, path.shown, path.size, path.mtime_ns, path.inode, path.problem, path.given)).encode()
        )
    return digest.hexdigest()


@dataclass(frozen=True)
class CacheEntry:
    """The session of one read, whether it is there or not."""

    path: Path
    options: LoadOptions
    most_bytes: int = MOST_BYTES
    """Bytes of all entries of this cache."""

    def dataset(self) -> Dataset | None:
        """The dataset of an earlier read; None if there is none, or it cannot be read."""
        from rankscope.sessions.manifest import read_manifest
        from rankscope.sessions.parquet_tables import SessionError
        from rankscope.sessions.session_files import read_dataset

        try:
            os.utime(self.path / SESSION_FILE)
            return read_dataset(self.path, read_manifest(self.path))
        except (SessionError, OSError) as error:
            _LOG.debug("not in the cache: %s", error)
            return None

    def keep_later(self, dataset: Dataset) -> None:
        """Writes the dataset beside everything else; the program ends only when that is done."""
        threading.Thread(target=self.keep, args=(dataset,), name="cache").start()

    def keep(self, dataset: Dataset) -> None:
        """Writes the dataset, and removes entries that are too much. A full disk is no error of the user's."""
        from rankscope.sessions.opening import asked_of
        from rankscope.sessions.session_files import write_session

        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_session(dataset, self.path, asked_of(self.options))
            if _bytes_of(self.path) > self.most_bytes // 4:
                shutil.rmtree(self.path)
            left = self.most_bytes
            for entry in sorted(self.path.parent.iterdir(), key=_last_use_ns, reverse=True):
                left -= _bytes_of(entry)
                if left < 0:
                    shutil.rmtree(entry, ignore_errors=True)
        except OSError as error:
            _LOG.debug("not kept in the cache: %s", error)


def _last_use_ns(entry: Path) -> int:
    try:
        return (entry / SESSION_FILE).stat().st_mtime_ns
    except OSError:
        return 0


def _bytes_of(entry: Path) -> int:
    return sum(path.stat().st_size for path in entry.iterdir()) if entry.is_dir() else 0
