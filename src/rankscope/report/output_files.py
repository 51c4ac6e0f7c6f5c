"""Writing of files without loss of existing ones."""

from __future__ import annotations

import os
import tempfile
from itertools import count
from pathlib import Path


def write_new(path: Path, content: bytes) -> None:
    """Writes a new file; raises FileExistsError if it exists."""
    with path.open("xb") as out:
        out.write(content)


def write_next(directory: Path, stem: str, content: bytes) -> Path:
    """Writes a Markdown file `stem.md`, or the next free `stem-2.md`, and returns its path."""
    for number in count(1):
        path = directory / (f"{stem}.md" if number == 1 else f"{stem}-{number}.md")
        try:
            write_new(path, content)
        except FileExistsError:
            continue
        return path
    raise AssertionError("unreachable")


def overwrite(path: Path, content: bytes) -> None:
    """Replaces the file atomically: readers see the old or the new content, complete."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    temporary = Path(name)
    try:
        with os.fdopen(handle, "wb") as out:
            out.write(content)
        umask = os.umask(0)
        os.umask(umask)
        temporary.chmod(0o666 & ~umask)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
