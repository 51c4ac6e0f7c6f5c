"""Writes files without losing what is there."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


def write_new(path: Path, content: bytes) -> None:
    """Writes a file that must not be there yet; raises FileExistsError if it is."""
    with path.open("xb") as out:
        out.write(content)


def overwrite(path: Path, content: bytes) -> None:
    """Puts `content` in the place of the file in one step: readers see the old one or the new one, whole."""
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
