"""`rankscope diff A B`: whether two runs agree, where they first part, and whether times differ."""

from __future__ import annotations

import getpass
import os
from dataclasses import replace
from typing import TYPE_CHECKING

import click

from rankscope.commands.output import ProgressLine, refuse_existing, write_report
from rankscope.commands.report import Format, format_of
from rankscope.commands.source import JobSource

if TYPE_CHECKING:
    from rankscope.analysis.comparison.model import ComparedRun, RunComparison


def run(
    sources: tuple[JobSource, JobSource], *, form: Format | None, output: str | None, force: bool, redact: bool,
    ascii_only: bool,
) -> int:  # fmt: skip
    """Writes the comparison; 1 if the runs differ."""
    for source in sources:
        source.check()
    refuse_existing(output, force)
    narrator = ProgressLine()
    try:
        a, b = (_loaded(source, narrator) for source in sources)
    finally:
        narrator.close()
    from rankscope.analysis.comparison.run_comparison import NothingComparableError, compare_runs

    try:
        found = compare_runs(a, b)
    except NothingComparableError as error:
        raise click.ClickException(str(error)) from error
    if redact:
        found = _redacted(found, a, b)
    write_report(render_comparison(found, form or format_of(output), ascii_only), output, force)
    return int(not found.is_same)


def _loaded(source: JobSource, narrator: ProgressLine) -> ComparedRun:
    """A run with its analysis."""
    from rankscope.analysis.comparison.model import ComparedRun

    dataset, analysis = source.load(narrator)
    return ComparedRun(source.title, replace(dataset, root=source.title), analysis)


def render_comparison(found: RunComparison, form: Format, ascii_only: bool) -> bytes:
    """The comparison in UTF-8, or in ASCII with escapes."""
    from rankscope.report import comparison_report

    if form == "json":
        return comparison_report.comparison_json(found, ascii_only)
    render = comparison_report.comparison_markdown if form == "markdown" else comparison_report.comparison_text
    return render(found).encode("ascii" if ascii_only else "utf-8", "backslashreplace")


def _redacted(found: RunComparison, a: ComparedRun, b: ComparedRun) -> RunComparison:
    """The comparison without names of hosts and users, and without paths."""
    from rankscope.report.redact import redact_comparison

    try:
        users = [getpass.getuser()]
    except (KeyError, OSError):
        users = []
    return redact_comparison(found, [(one.dataset, one.analysis) for one in (a, b)], [os.uname().nodename], users)
