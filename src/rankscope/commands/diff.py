"""`rankscope diff A B`: whether two runs agree, where they first part, and whether times differ."""

from __future__ import annotations

import getpass
import os
import re
from dataclasses import replace
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Literal

import click

from rankscope.commands.output import ProgressLine, refuse_existing, write_report
from rankscope.commands.report import Format, format_of
from rankscope.commands.source import JobSource

if TYPE_CHECKING:
    from rankscope.analysis.comparison.model import ComparedRun, RunComparison
    from rankscope.analysis.model import Analysis
    from rankscope.schema import Dataset

ComparisonFormat = Literal[Format, "html"]
"""Formats of reports, and a page with pictures."""


def run(
    sources: tuple[JobSource, JobSource], *, series: re.Pattern[str] | None, form: ComparisonFormat | None,
    output: str | None, force: bool, redact: bool, ascii_only: bool,
) -> int:  # fmt: skip
    """Writes the comparison; 1 if the runs differ."""
    for source in sources:
        source.check()
    refuse_existing(output, force)
    form = form or _format_of(output)
    narrator = ProgressLine()
    try:
        a, b = (_loaded(source, series, narrator) for source in sources)
    finally:
        narrator.close()
    from rankscope.analysis.comparison.run_comparison import NothingComparableError, compare_runs

    try:
        found = compare_runs(a, b, is_drawn=form == "html")
    except NothingComparableError as error:
        raise click.ClickException(str(error)) from error
    if redact:
        found = _redacted(found, a, b)
    content = render_comparison(found, form, ascii_only, redact)
    write_report(content, output, force)
    return int(not found.is_same)


def _loaded(source: JobSource, pattern: re.Pattern[str] | None, narrator: ProgressLine) -> ComparedRun:
    """A run with its analysis and its series; raises ClickException if there is neither."""
    from rankscope.analysis.comparison.model import ComparedRun
    from rankscope.assemble.series import load_series

    try:
        series = load_series([Path(path) for path in source.paths], pattern)
    except OSError as error:
        raise click.ClickException(str(error)) from error
    try:
        dataset, analysis = source.load(narrator)
    except click.ClickException:
        if series.scalars.is_empty():
            raise
        dataset, analysis = _nothing_but_series(source)
    problems = tuple(f"{file}: {reason}" for file, reason in series.problems.items())
    placed = replace(dataset, root=source.title)
    return ComparedRun(source.title, placed, analysis, series.scalars, problems, series.options)


def _nothing_but_series(source: JobSource) -> tuple[Dataset, Analysis]:
    from rankscope.analysis import analyse
    from rankscope.assemble.assembly import assemble

    dataset = assemble([], source.title, None, source.world_size, None)
    return dataset, replace(analyse(dataset), verdict="training series only")


def _format_of(output: str | None) -> ComparisonFormat:
    return "html" if PurePath(output or "").suffix.lower() in (".html", ".htm") else format_of(output)


def render_comparison(
    found: RunComparison, form: ComparisonFormat, ascii_only: bool, is_redacted: bool = False
) -> bytes:
    """The comparison in UTF-8, or in ASCII with escapes."""
    from rankscope.report import comparison_report

    if form == "html":
        from rankscope.report.comparison_page import comparison_page

        return comparison_page(found, is_redacted).encode("ascii" if ascii_only else "utf-8", "xmlcharrefreplace")
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
