"""`rankscope repro`: a script that replays what each rank issued around the failure."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import click

from rankscope.commands.output import ProgressLine, refuse_existing, write_report
from rankscope.commands.source import JobSource
from rankscope.text.wording import plural, rank_ranges

if TYPE_CHECKING:
    from rankscope.analysis.model import Analysis
    from rankscope.analysis.replay.fitting import Fit
    from rankscope.schema import Dataset

MOST_RANKS = 64
"""Ranks up to which all are replayed, unless fewer are asked for."""
LIMIT_S = 600
"""The longest that the started script may take."""


def fitted_job(source: JobSource, output: str, force: bool) -> tuple[Dataset, Analysis, Fit]:
    """The job with its schedule; ClickException if there is none, or if `output` cannot be written."""
    source.check()
    refuse_existing(output or None, force)
    narrator = ProgressLine()
    try:
        dataset, analysis = source.load(narrator)
    finally:
        narrator.close()
    from rankscope.analysis.replay.fitting import fit_job

    try:
        return dataset, analysis, fit_job(dataset, analysis)
    except ValueError as error:
        raise click.ClickException(str(error)) from error


def run(source: JobSource, *, output: str, force: bool, minimize: bool | None, start: bool, python: str) -> int:
    """Writes the script and says what is in it; with `start` also runs it, and returns its exit code."""
    if start and output == "-":
        raise click.ClickException("--run needs a file: -o repro.py")
    dataset, analysis, best = fitted_job(source, output, force)
    if not best.is_sound:
        raise click.ClickException(f"only {best.agreement} when the schedule is simulated: a replay would mislead")
    from rankscope.analysis.replay.shrinking import shrunk
    from rankscope.report.repro_script import repro_script

    every = best.schedule.steps
    small = len(every) > MOST_RANKS if minimize is None else minimize
    schedule = shrunk(best, analysis) if small else best.schedule
    write_report(repro_script(dataset, analysis, best, schedule).encode(), output, force)
    if output != "-":
        steps = sum(map(len, schedule.steps.values()))
        ranks = f"{plural(len(schedule.steps), 'rank')} of {len(every):,} ({rank_ranges(schedule.steps)})"
        click.echo(f"{output}: {ranks}, {plural(steps, 'operation')}; simulated, {best.agreement}", err=True)
    return _start(output, python) if start else 0


def _start(output: str, python: str) -> int:
    """Runs the script with a Python that has torch; its exit code."""
    try:
        return subprocess.run([python or sys.executable, output], check=False, timeout=LIMIT_S).returncode
    except subprocess.TimeoutExpired:
        raise click.ClickException(f"{output} did not end within {LIMIT_S} s") from None
