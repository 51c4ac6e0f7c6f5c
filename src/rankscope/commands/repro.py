"""`rankscope repro`: a script that replays what each rank issued around the failure."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from rankscope.commands.output import (
    ProgressLine,
    default_output,
    refuse_existing,
    refuse_filled,
    write_files,
    write_report,
)
from rankscope.commands.source import JobSource
from rankscope.text.wording import plural, rank_ranges

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rankscope.analysis.model import Analysis
    from rankscope.commands.rehearsal import Rehearsal
    from rankscope.features.replay.replay_sizes import ReplaySizes
    from rankscope.features.replay.replay_source import SchedulePart
    from rankscope.schema import Dataset


SCRIPT = "script"
MIB = 1 << 20


@dataclass(frozen=True)
class ReplayForm:
    """The operations that are taken, and the form in which they are written."""

    last: int | None = None
    begin: str = ""
    """The first operation, as GROUP#SEQ."""
    sizes: str = "small"
    memory: int = 1024
    """MiB of a rank, for real sizes of a script."""
    form: str = SCRIPT

    def output(self, asked: str, force: bool, paths: tuple[str, ...]) -> str:
        """The file or directory to write; ClickException if it cannot be. `paths` are read."""
        if self.last and self.begin:
            raise click.ClickException("--last and --from: only one of them can be given")
        if self.form == SCRIPT:
            return asked or default_output("repro.py", paths)
        if asked == "-":
            raise click.ClickException(f"--format {self.form} needs a directory: -o repro_{self.form}")
        output = asked or default_output(f"repro_{self.form}", paths)
        refuse_filled(output, force)
        return output

    def part(self, source: JobSource, dataset: Dataset) -> SchedulePart | None:
        """The part that is asked for; ValueError if its first operation is none."""
        from rankscope.features.replay.edits import parse_operation
        from rankscope.features.replay.replay_source import SchedulePart

        if not self.last and not self.begin:
            return None
        return SchedulePart(self.last or 0, parse_operation(dataset, source.shown(self.begin)) if self.begin else None)

    def tensors(self, found: Rehearsal) -> ReplaySizes:
        """Sizes of tensors; traces for others have the recorded ones."""
        from rankscope.features.replay.replay_sizes import real_sizes, small_sizes

        if self.form == SCRIPT and self.sizes == "small":
            return small_sizes(found.schedule)
        memory = self.memory * MIB if self.form == SCRIPT else None
        return real_sizes(found.schedule, memory, serial=found.fit.setting.order == "serial")

    def files(self, dataset: Dataset, found: Rehearsal, sizes: ReplaySizes) -> Iterator[tuple[str, bytes]]:
        """Names and contents of the files for replayers of others."""
        if self.form == "param":
            from rankscope.features.replay.execution_trace import execution_traces

            return execution_traces(dataset, found.schedule, sizes)
        from rankscope.features.replay.chakra_trace import chakra_traces

        return chakra_traces(dataset, found.schedule, sizes)


@dataclass(frozen=True)
class ReplayRun:
    """How the script is started, if it is."""

    start: bool
    watch: bool
    step: bool
    python: str

    def check(self, output: str, form: str) -> None:
        """ClickException if it cannot be."""
        if (self.watch or self.step) and not self.start:
            raise click.ClickException("--watch and --step need --run")
        if self.start and (output == "-" or form != SCRIPT):
            raise click.ClickException("--run needs a script in a file: -o repro.py")
        if (self.watch or self.step) and not sys.stdout.isatty():
            raise click.ClickException("--watch and --step need a terminal")


def loaded_job(source: JobSource, output: str, force: bool) -> tuple[Dataset, Analysis]:
    """The job; ClickException if `output` cannot be written."""
    source.check()
    refuse_existing(output or None, force)
    with ProgressLine() as narrator:
        return source.load(narrator)


def run(source: JobSource, *, output: str, force: bool, minimize: bool | None, how: ReplayRun, what: ReplayForm) -> int:
    """Writes the script and says what is in it; starts it if asked to, and returns its exit code."""
    how.check(output, what.form)
    output = what.output(output, force, source.paths)
    dataset, analysis = loaded_job(source, output if what.form == SCRIPT else "", force)
    from rankscope.commands.rehearsal import chosen
    from rankscope.features.replay.repro_script import repro_script

    try:
        found = chosen(dataset, analysis, minimize, what.part(source, dataset))
    except ValueError as error:
        raise click.ClickException(str(error)) from error
    sizes = what.tensors(found)
    if what.form == SCRIPT:
        script = repro_script(dataset, analysis, found.fit, found.schedule, sizes=sizes)
        write_report(script.encode(), output, force)
    else:
        write_files(what.files(dataset, found, sizes), output, force)
    if output != "-":
        lines = (f"{output}: {_about(found)}", *found.schedule.remarks, *sizes.remarks)
        click.echo("\n".join(lines), err=True)
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
