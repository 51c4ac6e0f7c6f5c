"""`rankscope repro --determinism`: a script that repeats the reductions of a job, and compares their bits."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from rankscope.commands.output import default_output, write_report
from rankscope.commands.repro import loaded_job
from rankscope.commands.source import JobSource
from rankscope.text.wording import plural

LIMIT_S = 3600
"""The longest that the started script may take; it bounds its own repetitions."""
_WORDS = {"broken": "no replay needed", "open": "open", "fixed": "fixed"}


def run(source: JobSource, *, times: int, output: str, force: bool, start: bool, python: str) -> int:
    """Prints what rules say of the job's settings and writes the script; with `start` runs it: its exit code."""
    if start and output == "-":
        raise click.ClickException("--run needs a file: -o determinism.py")
    output = output or default_output("determinism.py", source.paths)
    dataset, analysis = loaded_job(source, output, force)
    from rankscope.features.replay.determinism_script import determinism_script, left_out
    from rankscope.features.replay.summation_order import findings_on_order, order_settings, reductions_of

    try:
        found = reductions_of(dataset)
    except ValueError as error:
        raise click.ClickException(str(error)) from error
    settings = order_settings(dataset, found.library)
    lines = [f"found: {title}" for title in findings_on_order(analysis)]
    lines += [f"{_WORDS[standing]}: {sentence}" for standing, sentence in settings.told]
    click.echo("\n".join(lines), err=True)
    write_report(determinism_script(dataset, found, settings, times).encode(), output, force)
    if output != "-":
        more = f"; {left_out(found)}" if left_out(found) else ""
        click.echo(f"{output}: {plural(len(found.chosen), 'reduction')}, {times} repetitions{more}", err=True)
    if not start:
        return 0
    from rankscope.commands.replay_run import run_script

    return run_script(Path(output), python or sys.executable, limit_s=LIMIT_S)
