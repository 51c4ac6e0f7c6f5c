"""Starts a script that replays a job, and holds its verdict against the original's."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import IO

import click

from rankscope.analysis import analyse
from rankscope.analysis.model import Analysis
from rankscope.assemble.load import InputError, load
from rankscope.commands.rehearsal import same_verdict
from rankscope.commands.source import JobSource

LIMIT_S = 600
"""The longest that a script may take."""
ENDING_S = 10
"""So long a script may take to end its processes."""
STEPS_FILE = "steps"
"""Its length is how many operations each rank may begin, if the script runs step by step."""


def started(script: Path, original: Analysis, *, watch: bool, step: bool, python: str) -> int:
    """Runs a script with a Python that has torch; its exit code, or 1 if the verdict on it is not the original's.

    What it records lies beside it, in a folder of its name. With `watch` the app shows that while it runs.
    """
    folder = script.with_name(f"{script.stem}_run")
    folder.mkdir(exist_ok=True)
    (folder / "dumps").mkdir(exist_ok=True)
    environment = {**os.environ, "REPRO_OUT": str(folder)}
    if step:
        (folder / STEPS_FILE).write_bytes(b"")
        environment["STEPS"] = str(folder / STEPS_FILE)
    shown = (folder / "output.txt").open("w") if watch or step else None
    with script_process(str(script), python, environment, shown) as process:
        if shown is not None:
            return _watched(folder, step=step)
        try:
            code = process.wait(LIMIT_S)
        except subprocess.TimeoutExpired:
            raise click.ClickException(f"{script} did not end within {LIMIT_S} s") from None
    return _compared(folder, original, code)


@contextmanager
def script_process(
    script: str, python: str, environment: Mapping[str, str] | None = None, output: IO[str] | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """A script in a process group of its own, of which nothing is left afterwards; ClickException if it cannot start.

    Its output goes to `output`, or to that of this process.
    """
    try:
        process = subprocess.Popen(
            [python, script], env=environment, start_new_session=True, stdout=output, stderr=output
        )
    except OSError as error:
        raise click.ClickException(f"{python}: {error.strerror}") from error
    try:
        yield process
    finally:
        for number in (signal.SIGTERM, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError, subprocess.TimeoutExpired):
                os.killpg(process.pid, number)
                process.wait(ENDING_S)


def _watched(folder: Path, *, step: bool) -> int:
    """Shows the records of a replay in the app, until it is left."""
    from rankscope.commands.view import run

    further = partial(_one_further, folder / STEPS_FILE) if step else None
    return run(JobSource((str(folder / "dumps"),)), watch=True, step=further)


def _one_further(steps: Path) -> str:
    """Lets each rank begin one operation more."""
    try:
        with steps.open("ab") as file:
            file.write(b".")
            return f"step {file.tell():,}: each rank may begin its next operation"
    except OSError as error:
        return f"no step: {error.strerror or error}"


def _compared(folder: Path, original: Analysis, code: int) -> int:
    """Says whether the verdict on the records is the original's."""
    try:
        replay = analyse(load([folder / "dumps"]))
    except InputError as error:
        click.echo(f"{folder / 'dumps'}: no verdict on the replay: {error}", err=True)
        return code or 2
    if same_verdict(original, replay):
        click.echo(f"the verdict on the replay is that of the job: {replay.verdict}")
        return code
    click.echo(f"the verdict on the replay is another: {replay.verdict}\nthat of the job: {original.verdict}")
    return code or 1
