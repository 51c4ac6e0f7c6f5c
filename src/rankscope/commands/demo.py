"""`rankscope demo`: a real job on this machine that breaks while it is watched."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from rankscope.commands import report, view
from rankscope.commands.output import ProgressLine, write_report
from rankscope.commands.source import JobSource, LoadStep
from rankscope.commands.watch import FollowOptions
from rankscope.parsers.workers.machine_share import module_command, users_variables

if TYPE_CHECKING:
    from rankscope.analysis.model import Analysis
    from rankscope.report.redact import Redaction

RANKS = 4
LONGEST_S = 180.0
"""Longest wait for the verdict without a terminal."""
STARTING_S = 60.0
ENDING_S = 1.0
"""Longest wait for processes that nobody reaps."""
LOOK_S = 1.0
FROZEN_S = 5.0
"""The job of the demo takes four steps in a second, so it is called frozen this early."""
_STABLE_LOOKS = 3
"""Successive looks that must show the same verdict."""


@dataclass
class DemoJob:
    """The running job."""

    process: subprocess.Popen[bytes]
    directory: Path
    output: Path

    @property
    def dumps(self) -> int:
        """Number of ranks that have left a dump."""
        return len(list(self.directory.glob("fr_trace_rank_*")))

    def wait(self) -> None:
        """Waits until every rank has left a dump; raises ClickException if that does not happen."""
        end = time.monotonic() + STARTING_S
        with ProgressLine() as narrator:
            while self.dumps < RANKS:
                if self.process.poll() is not None or time.monotonic() > end:
                    lines = self.output.read_text(errors="replace").strip().splitlines()
                    raise click.ClickException(
                        f"the job does not start: {lines[-1] if lines else 'it printed nothing'}"
                    )
                narrator(LoadStep(self.dumps, RANKS, "starting ranks"))
                time.sleep(0.1)


def run(scenario: str, at: int, ascii_only: bool = False, redaction: Redaction | None = None) -> int:
    """Runs a scenario until the screen is left; without a terminal, until the verdict is stable, and prints it."""
    if importlib.util.find_spec("torch") is None:
        raise click.ClickException(f"the demo runs a real job and needs torch: {sys.executable} -m pip install torch")
    with (
        tempfile.TemporaryDirectory(prefix="rankscope-demo-", ignore_cleanup_errors=True) as scratch,
        _job(scenario, at, Path(scratch)) as job,
    ):
        job.wait()
        if view.on_terminal():
            return _watch(job.directory, ascii_only, redaction)
        return _report(job.directory, ascii_only, redaction)


@contextlib.contextmanager
def _job(scenario: str, at: int, scratch: Path) -> Generator[DemoJob]:
    """The job; it ends with this context, or when this process is killed, because it reads a pipe to its end."""
    output, directory = scratch / "output", scratch / "dumps"
    directory.mkdir()
    command = module_command("rankscope.capture.demo", scenario, str(scratch), str(at))
    with output.open("wb") as log:
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=log, stderr=subprocess.STDOUT, start_new_session=True,
            env=users_variables(),
        )  # fmt: skip
    try:
        yield DemoJob(process, directory, output)
    finally:
        _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kills a job and its ranks and waits for all of them, because a survivor would write into a removed folder."""
    end = time.monotonic() + ENDING_S
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    with contextlib.suppress(ProcessLookupError):
        while time.monotonic() < end:
            os.killpg(process.pid, 0)
            time.sleep(0.02)


def _watch(directory: Path, ascii_only: bool, redaction: Redaction | None) -> int:
    """Opens the screen on the dumps as they come."""
    follow = FollowOptions(freeze_after=FROZEN_S, wait=True)
    return view.run(JobSource((str(directory),), redaction=redaction), ascii_only=ascii_only, watch=True, follow=follow)


def _report(directory: Path, ascii_only: bool, redaction: Redaction | None) -> int:
    """Prints the report once it is stable; returns its exit code."""
    source, said = JobSource((str(directory),), redaction=redaction), [""] * _STABLE_LOOKS
    end = time.monotonic() + LONGEST_S
    while True:
        time.sleep(LOOK_S)
        dataset, analysis = source.load(lambda _step: None)
        said = [*said[1:], _verdict(analysis)]
        if (said[0] and len(set(said)) == 1) or time.monotonic() > end:
            break
    # the stable verdict, not that of later dumps
    write_report(report.render_report(dataset, analysis, "text", ascii_only), None, False)
    return int(analysis.is_critical)


def _verdict(analysis: Analysis) -> str:
    """The kinds, places and culprits of the root causes; empty without any."""
    found = [f for f in analysis.findings if f.root_cause and f.severity != "info"]
    return ";".join(f"{f.kind} {sorted(f.culprit_ranks)}" for f in found)
