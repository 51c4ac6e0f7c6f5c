"""Writing of files without loss of existing ones."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import IO


def write_new(path: Path, content: bytes) -> None:
    """Writes a new file; raises FileExistsError if it exists."""
    with path.open("xb") as out:
        out.write(content)


@contextmanager
def new_file(path: Path) -> Iterator[IO[bytes]]:
    """A new file, which is removed if its writing fails. Raises FileExistsError if it exists."""
    with path.open("xb") as out:
        try:
            yield out
        except BaseException:
            path.unlink(missing_ok=True)
            raise


def write_next(directory: Path, stem: str, content: bytes, ending: str = ".md") -> Path:
    """Writes a file `stem.md`, or the next free `stem-2.md`, and returns its path."""
    for number in count(1):
        path = directory / (f"{stem}{ending}" if number == 1 else f"{stem}-{number}{ending}")
        try:
            write_new(path, content)
        except FileExistsError:
            continue
        return path
    raise AssertionError("unreachable")


def overwrite(path: Path, content: bytes) -> None:
    """Replaces the file atomically: readers see the old or the new content, complete."""
    with replaced_file(path) as out:
        out.write(content)


@contextmanager
def replaced_file(path: Path) -> Iterator[IO[bytes]]:
    """A file that takes its name when all of it is on the disk, and leaves nothing behind if that fails."""
    unfinished = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        with unfinished.open("xb") as out:
            yield out
            out.flush()
            os.fsync(out.fileno())
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)
