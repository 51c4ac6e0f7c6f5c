"""Writes reports to files without losing what is there."""

from __future__ import annotations

import os
import tempfile
from itertools import count
from pathlib import Path

from rankscope.analysis.model import Analysis
from rankscope.report.markdown import render_markdown
from rankscope.schema import Dataset


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


def export_markdown(dataset: Dataset, analysis: Analysis, directory: Path) -> Path:
    """Writes the Markdown report as `findings.md`, or the next free `findings-2.md`, and says where it is."""
    content = render_markdown(dataset, analysis).encode("utf-8", "backslashreplace")
    for number in count(1):
        path = directory / ("findings.md" if number == 1 else f"findings-{number}.md")
        try:
            write_new(path, content)
        except FileExistsError:
            continue
        return path
    raise AssertionError("unreachable")
