"""Access to files that strangers left: nothing waits for a pipe, and nothing strays out of a directory by a link.

A file may be replaced by a link between a look at it and its opening. So the opened file itself is asked where it lies:
the system's name of an open descriptor has no links in it. Without /proc the path is resolved anew, which leaves a gap.
"""

from __future__ import annotations

import io
import os
import stat
from collections.abc import Set
from pathlib import Path
from typing import IO

LOOK = getattr(os, "O_PATH", os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY)
"""Opens anything without reading it, and without waiting; other systems than Linux need permission to read."""


class NotAFileError(Exception):
    """The path is no longer a regular file."""


class OutsideError(Exception):
    """The file lies outside of what was named; the message says where."""


def open_regular(path: str, within: str = "") -> IO[bytes]:
    """Opens a regular file. Never waits for a pipe or device that took its place meanwhile.

    `within` is the real path of the directory in which the file must lie; "" if it may lie anywhere. Raises
    NotAFileError, OutsideError and OSError.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise NotAFileError("not a regular file")
        if within and not lies_in(place := real_place(descriptor, path), within):
            raise OutsideError(link_out(place))
    except BaseException:
        os.close(descriptor)
        raise
    # with a given size, Python does not ask whether it is a terminal
    return os.fdopen(descriptor, "rb", io.DEFAULT_BUFFER_SIZE)


def read_small(path: Path, most: int, within: str = "") -> bytes:
    """The first `most` bytes of a regular file; errors are those of `open_regular`."""
    with open_regular(str(path), within) as stream:
        return stream.read(most)


def looked_at(path: str) -> tuple[os.stat_result, str]:
    """The facts of the file that a path leads to, through links, and its real path. Raises OSError."""
    descriptor = os.open(path, LOOK | os.O_CLOEXEC)
    try:
        return os.fstat(descriptor), real_place(descriptor, path)
    finally:
        os.close(descriptor)


def real_place(descriptor: int, path: str) -> str:
    """The path without links of what was opened at `path`."""
    try:
        return os.readlink(f"/proc/self/fd/{descriptor}")  # noqa: PTH115 - a Path takes longer, for each file
    except OSError:
        return os.path.realpath(path)


def lies_in(place: str, directory: str) -> bool:
    """Whether a real path is that of a directory, or lies below it."""
    return place == directory or place.startswith(directory.rstrip("/") + "/")


def nearest_root(place: str, roots: Set[str]) -> str | None:
    """The lowest of some directories in which a real path lies; None if it lies in none."""
    at = place
    while at not in roots:
        if at in ("/", ""):
            return None
        at = at.rpartition("/")[0] or "/"
    return at


def link_out(place: str) -> str:
    """The reason why a link to a real path is not followed."""
    # the number of this process says nothing, and the next one has another
    return f"a link out, to {place.replace(f'/proc/{os.getpid()}/', '/proc/self/')}: not followed"


def is_file(path: Path) -> bool:
    """Whether a regular file can be seen there."""
    try:
        return path.is_file()
    except OSError:
        return False


def is_directory(path: Path) -> bool:
    """Whether a directory can be seen there."""
    try:
        return path.is_dir()
    except OSError:
        return False
