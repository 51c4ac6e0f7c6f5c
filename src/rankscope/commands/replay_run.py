"""Starts a script that replays a job, and holds its verdict against the original's."""

from __future__ import annotations

import contextlib
import os
import shutil
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
from rankscope.parsers.workers.machine_share import module_command

LIMIT_S = 600
"""The longest that a script may take."""
ENDING_S = 10
"""So long a script may take to end its processes."""
OUTPUT = "output.txt"
STEPS_FILE = "steps"
"""Its length is how many operations each rank may begin, if the script runs step by step."""


def started(script: Path, original: Analysis, *, watch: bool, step: bool, python: str) -> int:
    """Runs a script with a Python that has torch; its exit code, or 1 if the verdict on it is not the original's.

    With `watch` or `step` the app shows its records while it runs.
    """
    if not (watch or step):
        code = run_script(script, python, replay_environment(script))
        return _compared(records_of(script), original, code)
    environment = replay_environment(script, step=step)
    with (records_of(script) / OUTPUT).open("w") as output, script_process(script, python, environment, output):
        return _watched(script, step=step)


def records_of(script: Path) -> Path:
    """The folder beside a script, of its name, that holds what its ranks tell, and in `dumps` what they record."""
    folder = script.with_name(f"{script.stem}_run")
    (folder / "dumps").mkdir(parents=True, exist_ok=True)
    return folder


def replay_environment(script: Path, *, step: bool = False) -> dict[str, str]:
    """The variables with which a replay leaves its records beside the script, and goes step by step if asked to."""
    folder = records_of(script)
    if not step:
        return {"REPRO_OUT": str(folder)}
    (folder / STEPS_FILE).write_bytes(b"")
    return {"REPRO_OUT": str(folder), "STEPS": str(folder / STEPS_FILE)}


def run_script(
    script: Path,
    python: str,
    environment: Mapping[str, str] | None = None,
    output: IO[str] | None = None,
    limit_s: float = LIMIT_S,
) -> int:
    """The exit code of a script; ClickException if it cannot start, or does not end within `limit_s`."""
    with script_process(script, python, environment, output) as process:
        try:
            return process.wait(limit_s)
        except subprocess.TimeoutExpired:
            raise click.ClickException(f"{script} did not end within {limit_s:g} s") from None


@contextmanager
def script_process(
    script: Path, python: str, environment: Mapping[str, str] | None = None, output: IO[str] | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """A script in a process group of its own. Nothing is left of it afterwards, nor when this process is killed.

    Its output goes to `output`, or to that of this process. ClickException if it cannot start.
    """
    if shutil.which(python) is None:
        raise click.ClickException(f"{python}: no such program")
    process = subprocess.Popen(
        module_command("rankscope.capture.keeper", python, str(script)),
        env={**os.environ, **(environment or {})},
        start_new_session=True, stdin=subprocess.PIPE, stdout=output, stderr=output,
    )  # fmt: skip
    try:
        yield process
    finally:
        for number in (signal.SIGTERM, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError, subprocess.TimeoutExpired):
                os.killpg(process.pid, number)
                process.wait(ENDING_S)


def _watched(script: Path, *, step: bool) -> int:
    """Shows the records of a replay in the app, until it is left."""
    from rankscope.commands.view import run
    from rankscope.commands.watch import FollowOptions

    folder = records_of(script)
    further = partial(_one_further, folder / STEPS_FILE) if step else None
    return run(JobSource((str(folder / "dumps"),)), watch=True, follow=FollowOptions(wait=True), step=further)


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
