"""`rankscope repro`: a script that replays what each rank issued around the failure."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import click

from rankscope.commands.output import ProgressLine, refuse_existing
from rankscope.commands.source import JobSource
from rankscope.text.wording import plural, rank_ranges

MOST_RANKS = 64
"""Ranks up to which all are replayed, unless fewer are asked for."""
LIMIT_S = 600
"""The longest that the started script may take."""


def run(source: JobSource, *, output: str, force: bool, minimize: bool | None, start: bool, python: str) -> int:
    """Writes the script and says what is in it; with `start` also runs it, and returns its exit code."""
    source.check()
    if output != "-":
        refuse_existing(output, force)
    narrator = ProgressLine()
    try:
        dataset, analysis = source.load(narrator)
    finally:
        narrator.close()
    from rankscope.analysis.replay.fitting import fit
    from rankscope.analysis.replay.schedule import schedule_of
    from rankscope.analysis.replay.shrinking import shrunk
    from rankscope.report.repro_script import repro_script

    try:
        whole = schedule_of(dataset, stuck=analysis.status not in ("healthy", "progressing", "slow"))
    except ValueError as error:
        raise click.ClickException(str(error)) from error
    best = fit(whole, analysis)
    if not best.is_sound:
        raise click.ClickException(f"only {best.agreement} when the schedule is simulated: a replay would mislead")
    small = len(whole.steps) > MOST_RANKS if minimize is None else minimize
    schedule = shrunk(best, analysis) if small else whole
    text = repro_script(dataset, analysis, best, schedule)
    if output == "-":
        click.echo(text, nl=False)
    else:
        Path(output).write_text(text, encoding="utf-8")
        steps = sum(map(len, schedule.steps.values()))
        ranks = f"{plural(len(schedule.steps), 'rank')} of {len(whole.steps):,} ({rank_ranges(schedule.steps)})"
        click.echo(f"{output}: {ranks}, {plural(steps, 'operation')}; simulated, {best.agreement}", err=True)
    return _start(output, python) if start else 0


def _start(output: str, python: str) -> int:
    """Runs the script with a Python that has torch; its exit code."""
    if output == "-":
        raise click.ClickException("--run needs a file: -o repro.py")
    try:
        return subprocess.run([python or sys.executable, output], check=False, timeout=LIMIT_S).returncode
    except subprocess.TimeoutExpired:
        raise click.ClickException(f"{output} did not end within {LIMIT_S} s") from None
