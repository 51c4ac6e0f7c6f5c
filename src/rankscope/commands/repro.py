"""`rankscope repro`: a script that replays what each rank issued around the failure."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import click

from rankscope.commands.output import ProgressLine, refuse_existing, refuse_filled, write_files, write_report
from rankscope.commands.source import JobSource
from rankscope.text.wording import plural, rank_ranges

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rankscope.analysis.model import Analysis
    from rankscope.analysis.replay.fitting import Fit
    from rankscope.analysis.replay.schedule import Schedule
    from rankscope.report.replay_sizes import ReplaySizes
    from rankscope.schema import Dataset

MOST_RANKS = 64
"""Ranks up to which all are replayed, unless fewer are asked for."""
MIB = 1 << 20
LIMIT_S = 600
"""The longest that the started script may take."""


def fitted_job(
    source: JobSource, output: str, force: bool, last: int | None = None, begin: str = ""
) -> tuple[Dataset, Analysis, Fit]:
    """The job with its schedule, or the part of it that is asked for; ClickException if there is none, or if `output`
    cannot be written."""
    source.check()
    refuse_existing(output or None, force)
    narrator = ProgressLine()
    try:
        dataset, analysis = source.load(narrator)
    finally:
        narrator.close()
    from rankscope.analysis.replay.edit_text import parse_operation
    from rankscope.analysis.replay.fitting import fit_job
    from rankscope.analysis.replay.schedule_part import SchedulePart

    try:
        part = SchedulePart(last or 0, parse_operation(dataset, begin) if begin else None)
        return dataset, analysis, fit_job(dataset, analysis, part)
    except ValueError as error:
        raise click.ClickException(str(error)) from error


def run(
    source: JobSource, *, output: str, force: bool, minimize: bool | None, start: bool, python: str,
    last: int | None = None, begin: str = "", sizes: str = "small", memory: int = 1024, form: str = "script",
) -> int:  # fmt: skip
    """Writes the script and says what is in it; with `start` also runs it, and returns its exit code."""
    output = output or {"script": "repro.py"}.get(form, f"repro_{form}")
    if start and (output == "-" or form != "script"):
        raise click.ClickException("--run needs a script in a file: -o repro.py")
    if last and begin:
        raise click.ClickException("--last and --from: only one of them can be given")
    if form != "script":
        if output == "-":
            raise click.ClickException(f"--format {form} needs a directory: -o repro_{form}")
        refuse_filled(output, force)
    dataset, analysis, best = fitted_job(source, output if form == "script" else "", force, last, begin)
    if not best.is_sound:
        raise click.ClickException(f"only {best.agreement} when the schedule is simulated: a replay would mislead")
    from rankscope.analysis.replay.shrinking import shrunk
    from rankscope.report.repro_script import repro_script

    every = best.schedule.steps
    small = len(every) > MOST_RANKS if minimize is None else minimize
    schedule = shrunk(best, analysis) if small else best.schedule
    told = _sizes(best, schedule, sizes, memory if form == "script" else 0)
    if form == "script":
        write_report(repro_script(dataset, analysis, best, schedule, sizes=told).encode(), output, force)
    else:
        write_files(_files(form, dataset, schedule, told), output, force)
    if output != "-":
        steps = sum(map(len, schedule.steps.values()))
        ranks = f"{plural(len(schedule.steps), 'rank')} of {len(every):,} ({rank_ranges(schedule.steps)})"
        click.echo(f"{output}: {ranks}, {plural(steps, 'operation')}; simulated, {best.agreement}", err=True)
        click.echo("".join(f"{remark}\n" for remark in (*schedule.remarks, *told.remarks)), err=True, nl=False)
    return _start(output, python) if start else 0


def _sizes(best: Fit, schedule: Schedule, sizes: str, memory: int) -> ReplaySizes:
    """Sizes as asked for; those of traces for others, with a `memory` of 0, are the recorded ones."""
    from rankscope.report.replay_sizes import real_sizes, small_sizes

    if sizes == "small" and memory:
        return small_sizes(schedule)
    return real_sizes(schedule, memory * MIB or None, serial=best.setting.order == "serial")


def _files(form: str, dataset: Dataset, schedule: Schedule, sizes: ReplaySizes) -> Iterator[tuple[str, bytes]]:
    """Names and contents of the files in a form of others' replayers."""
    if form == "param":
        from rankscope.report.execution_trace import execution_traces

        return execution_traces(dataset, schedule, sizes)
    from rankscope.report.chakra_trace import chakra_traces

    return chakra_traces(dataset, schedule, sizes)


def _start(output: str, python: str) -> int:
    """Runs the script with a Python that has torch; its exit code."""
    try:
        return subprocess.run([python or sys.executable, output], check=False, timeout=LIMIT_S).returncode
    except subprocess.TimeoutExpired:
        raise click.ClickException(f"{output} did not end within {LIMIT_S} s") from None
