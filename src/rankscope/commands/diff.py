"""`rankscope diff A B`: whether two runs agree, where they first part, and whether times differ."""

from __future__ import annotations

import gc
import getpass
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from rankscope.commands.output import ProgressLine, refuse_existing, write_report
from rankscope.commands.report import Format, format_of
from rankscope.commands.source import JobSource, LoadStep
from rankscope.commands.view import on_terminal, options_of_terminal
from rankscope.report.output_files import write_next

if TYPE_CHECKING:
    from rankscope.analysis.comparison.model import ComparedRun, RunComparison
    from rankscope.analysis.comparison.run_comparison import WholeComparison
    from rankscope.analysis.model import Analysis
    from rankscope.schema import Dataset
    from rankscope.tui.comparison.comparison_app import Comparing
    from rankscope.tui.options import ProgressLike


def run(
    sources: tuple[JobSource, JobSource], *, series: re.Pattern[str] | None, form: Format | None, output: str | None,
    force: bool, redact: bool, ascii_only: bool,
) -> int:  # fmt: skip
    """Writes the comparison, or shows it on a terminal; 1 if the runs differ."""
    for source in sources:
        source.check()
    refuse_existing(output, force)
    compare = partial(_compared, sources, series)
    if form is None and output is None and not redact and on_terminal():
        return int(not show(compare, " ".join(source.title for source in sources), ascii_only).is_same)
    narrator = ProgressLine()
    try:
        whole = compare(narrator)
    finally:
        narrator.close()
    found = _redacted(whole.found, *whole.runs) if redact else whole.found
    write_report(render_comparison(found, form or format_of(output), ascii_only), output, force)
    return int(not found.is_same)


def _compared(
    sources: Sequence[JobSource], series: re.Pattern[str] | None, progress: Callable[[LoadStep], None]
) -> WholeComparison:
    """Reads and compares the runs; raises ClickException if there is nothing to compare."""
    a, b = (_loaded(source, series, _told_of(label, progress)) for label, source in zip("AB", sources, strict=True))
    from rankscope.analysis.comparison.run_comparison import NothingComparableError, compare_in_full

    progress(LoadStep(0, 0, "comparing"))
    try:
        return compare_in_full(a, b)
    except NothingComparableError as error:
        raise click.ClickException(str(error)) from error


def _told_of(label: str, progress: Callable[[LoadStep], None]) -> Callable[[LoadStep], None]:
    """Reports progress with the label of the run."""
    return lambda step: progress(replace(step, what=f"{step.what} {label}"))


def show(compare: Comparing, title: str, ascii_only: bool) -> RunComparison:
    """Shows the comparison on the terminal; returns it when the user quits, and leaves the headline behind."""
    from rankscope.tui.comparison.comparison_app import ComparisonApp

    options = options_of_terminal(ascii_only=ascii_only)
    app = ComparisonApp(partial(_collected, compare), title, options, export_comparison)
    app.run()
    if app.view is None:
        raise click.Abort
    click.echo(app.last_words)
    return app.view.found


def _collected(compare: Comparing, progress: Callable[[ProgressLike], None]) -> WholeComparison:
    """Compares, and then lets the interpreter search for cycles again, but not among the data."""
    try:
        return compare(progress)
    finally:
        gc.freeze()
        gc.enable()


def export_comparison(found: RunComparison, directory: Path) -> Path:
    """Writes the Markdown report into a new file below a directory."""
    return write_next(directory, "diff", render_comparison(found, "markdown", ascii_only=False))


def _loaded(source: JobSource, pattern: re.Pattern[str] | None, progress: Callable[[LoadStep], None]) -> ComparedRun:
    """A run with its analysis and its series; raises ClickException if there is neither."""
    from rankscope.analysis.comparison.model import ComparedRun
    from rankscope.assemble.series import load_series

    try:
        series = load_series([Path(path) for path in source.paths], pattern)
    except OSError as error:
        raise click.ClickException(str(error)) from error
    try:
        dataset, analysis = source.load(progress)
    except click.ClickException:
        if series.scalars.is_empty():
            raise
        dataset, analysis = _nothing_but_series(source)
    problems = tuple(f"{file}: {reason}" for file, reason in series.problems.items())
    return ComparedRun(source.title, replace(dataset, root=source.title), analysis, series.scalars, problems)


def _nothing_but_series(source: JobSource) -> tuple[Dataset, Analysis]:
    from rankscope.analysis import analyse
    from rankscope.assemble.assembly import assemble

    dataset = assemble([], source.title, None, source.world_size, None)
    return dataset, replace(analyse(dataset), verdict="training series only")


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
