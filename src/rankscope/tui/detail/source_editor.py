"""The source of a frame on this machine, and the command that opens it in the user's editor."""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rankscope.schema import Frame

PathMap = Sequence[tuple[str, str]]
"""Pairs of a path prefix in the job and its path here."""
_FALLBACKS = ("vi", "nano", "less")
_GOTO = ("code", "codium", "cursor")
"""Editors that want `-g FILE:LINE`."""
_COLON = ("subl", "hx", "helix", "zed")
"""Editors that want `FILE:LINE`."""


@dataclass(frozen=True)
class Source:
    """A frame's file and its place on this machine."""

    path: str
    """Path in the dump."""
    local: Path
    """Path after the path map."""
    line: int

    @property
    def exists(self) -> bool:
        """Whether it is a regular file here."""
        try:
            return self.local.is_file()
        except (OSError, ValueError):
            return False

    @property
    def missing(self) -> str:
        """The message for a file that is not here."""
        mapped = f"mapped to {self.local}" if str(self.local) != self.path else "see --path-map"
        return f"not here: {self.path}:{self.line} ({mapped})"


def locate(frame: Frame, path_map: PathMap = ()) -> Source:
    """The file of a frame on this machine; of several prefixes that fit, the longest counts."""
    for prefix, target in sorted(path_map, key=lambda pair: -len(pair[0])):
        bare = prefix.rstrip("/")
        if frame.file == bare or frame.file.startswith(bare + "/"):
            return Source(frame.file, Path(target + frame.file[len(bare) :]), frame.line)
    return Source(frame.file, Path(frame.file), frame.line)


def editor_command(source: Source, environ: Mapping[str, str] = os.environ) -> list[str]:
    """The command that opens the source at its line; ValueError tells the problem."""
    chosen = environ.get("VISUAL") or environ.get("EDITOR") or next(filter(shutil.which, _FALLBACKS), "")
    words = shlex.split(chosen)
    if not words:
        raise ValueError("no editor: set EDITOR")
    # Absolute, so that no file name can pass for an option.
    path, line = str(source.local.absolute()), max(source.line, 1)
    name = Path(words[0]).name
    if name in _GOTO:
        return [*words, "-g", f"{path}:{line}"]
    return [*words, f"{path}:{line}"] if name in _COLON else [*words, f"+{line}", path]
