"""The report the app writes when it is asked to."""

from __future__ import annotations

from itertools import count
from pathlib import Path

from rankscope.analysis.model import Analysis
from rankscope.report.files import write_new
from rankscope.report.markdown import render_markdown
from rankscope.schema import Dataset


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
