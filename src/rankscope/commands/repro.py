"""`rankscope repro`: a script that replays what each rank issued around the failure."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from rankscope.commands.output import ProgressLine, refuse_existing, write_report
from rankscope.commands.source import JobSource
from rankscope.text.wording import plural, rank_ranges

if TYPE_CHECKING:
    from rankscope.analysis.model import Analysis
    from rankscope.analysis.replay.fitting import Fit
    from rankscope.commands.rehearsal import Rehearsal
    from rankscope.schema import Dataset


@dataclass(frozen=True)
class ReplayRun:
    """How the script is started, if it is."""

    start: bool
    watch: bool
    step: bool
    python: str

    def check(self, output: str) -> None:
        """ClickException if it cannot be."""
        if (self.watch or self.step) and not self.start:
            raise click.ClickException("--watch and --step need --run")
        if self.start and output == "-":
            raise click.ClickException("--run needs a file: -o repro.py")
        if (self.watch or self.step) and not sys.stdout.isatty():
            raise click.ClickException("--watch and --step need a terminal")


def loaded_job(source: JobSource, output: str, force: bool) -> tuple[Dataset, Analysis]:
    """The job; ClickException if `output` cannot be written."""
    source.check()
    refuse_existing(output or None, force)
    narrator = ProgressLine()
    try:
        return source.load(narrator)
    finally:
        narrator.close()


def fitted_job(source: JobSource, output: str, force: bool) -> tuple[Dataset, Analysis, Fit]:
    """The job with its schedule; ClickException if there is none, or if `output` cannot be written."""
    dataset, analysis = loaded_job(source, output, force)
    from rankscope.analysis.replay.fitting import fit_job

    try:
        return dataset, analysis, fit_job(dataset, analysis)
    except ValueError as error:
        raise click.ClickException(str(error)) from error


def run(source: JobSource, *, output: str, force: bool, minimize: bool | None, how: ReplayRun) -> int:
    """Writes the script and says what is in it; starts it if asked to, and returns its exit code."""
    how.check(output)
    dataset, analysis = loaded_job(source, output, force)
    from rankscope.commands.rehearsal import chosen
    from rankscope.report.repro_script import repro_script

    try:
        found = chosen(dataset, analysis, minimize)
    except ValueError as error:
        raise click.ClickException(str(error)) from error
    write_report(repro_script(dataset, analysis, found.fit, found.schedule).encode(), output, force)
    if output != "-":
        click.echo(f"{output}: {_about(found)}", err=True)
    if not how.start:
        return 0
    from rankscope.commands.replay_run import started

    return started(Path(output), analysis, watch=how.watch, step=how.step, python=how.python or sys.executable)


def _about(found: Rehearsal) -> str:
    """One line about a script: its ranks and operations, and how far the replay agrees with the job."""
    every, steps = len(found.fit.schedule.steps), sum(map(len, found.schedule.steps.values()))
    ranks = f"{plural(len(found.schedule.steps), 'rank')} of {every:,} ({rank_ranges(found.schedule.steps)})"
    verdict = "the verdict is the same" if found.same else f"but the verdict is another: {found.analysis.verdict}"
    return f"{ranks}, {plural(steps, 'operation')}; simulated, {found.fit.agreement}, {verdict}"
