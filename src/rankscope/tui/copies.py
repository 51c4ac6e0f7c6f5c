"""The file that gets every copy: a clipboard often does not work through tmux and SSH."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from textual.app import App

from rankscope.text.escaping import plain
from rankscope.tui.text_bars import end_of

FILE = "rankscope-copy.txt"
"""The file in the export directory that gets every copy."""


def add_to_file(folder: Path, text: str) -> Path:
    """Appends a copy to the file of copies and returns its path; nothing is overwritten."""
    path = folder / FILE
    with path.open("a", encoding="utf-8", errors="backslashreplace") as file:
        file.write(text + "\n")
    return path


def copy(app: App[Any], folder: Path, text: str, done: str, width: int) -> str:
    """Copies a text to the clipboard and to the file of copies; the message about it, of at most `width` cells."""
    app.copy_to_clipboard(text)
    try:
        return note_of_copy(done, add_to_file(folder, text), width)
    except OSError as error:
        return f"{plain(done, 40)}, but no file was written: {error.strerror or error}"


def note_of_copy(done: str, path: Path, width: int) -> str:
    """A message of at most `width` cells about a copy in a file; both its text and its path keep what tells most."""
    done = plain(done, max(width - len(_ALSO) - _LEAST_PATH, _LEAST_PATH))
    return f"{done}{_ALSO}{short_path(path, width - len(done) - len(_ALSO))}"


def short_path(path: Path, width: int) -> str:
    """A path in at most `width` cells, with its end, which names the file."""
    return end_of(plain(str(path)), max(width, _LEAST_PATH))


_ALSO = ", also to "
_LEAST_PATH = len(FILE) + 6
"""Fewest cells for a path."""
