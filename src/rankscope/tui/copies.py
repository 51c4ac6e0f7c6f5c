"""The file that gets every copy: a clipboard often does not work through tmux and SSH."""

from __future__ import annotations

from pathlib import Path

FILE = "rankscope-copy.txt"
"""The file in the export directory that gets every copy."""


def add_to_file(folder: Path, text: str) -> Path:
    """Appends a copy to the file of copies and returns its path; nothing is overwritten."""
    path = folder / FILE
    with path.open("a", encoding="utf-8", errors="backslashreplace") as file:
        file.write(text + "\n")
    return path
