"""`rankscope repro fork`: the schedule of a job with one change, simulated, written as a script, and run."""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, cast

import click

from rankscope.commands.output import default_output, refuse_existing, write_report
from rankscope.commands.repro import loaded_job
from rankscope.commands.source import JobSource
from rankscope.text.wording import plural, ranks_text

if TYPE_CHECKING:
    from rankscope.analysis.model import Analysis
    from rankscope.commands.fork_run import ForkOutcome
    from rankscope.features.replay.edits import Edit, EditKind, Trial
    from rankscope.features.replay.schedule_fit import Fit, ReplayConditions
    from rankscope.schema import Dataset

MOST_SHOWN = 12
"""Changes of a sweep that are shown."""
MOST_RUN = 3
"""Changes of a sweep that are run."""
NOT_PROVED = (
    "not proved: that this is the bug. The records end where the job hung: what its code does with this change, "
    "times and data are not in them"
)


@dataclass(frozen=True)
class ForkChanges:
    """The changes as typed."""

    edits: Mapping[str, Sequence[str]]
    """By kind."""
    at: str
    """The operation that gets `values`."""
    values: Sequence[str]
    settings: Sequence[str]
    delays: Sequence[str]
    timeout: float | None

    def check(self, *, sweeps: bool) -> None:
        """ClickException if they do not go together."""
        if bool(self.at) != bool(self.values):
            raise click.ClickException("--at OP and --set NAME=VALUE need each other: --at 3:tp#12 --set size=8")
        if sweeps and self.is_named:
            raise click.ClickException("--sweep tries changes by itself: leave the named ones out")

    def shown(self, source: JobSource) -> ForkChanges:
        """The changes with names of groups as they stand in the data of a source that was read."""
        edits = {kind: list(map(source.shown, texts)) for kind, texts in self.edits.items()}
        return replace(self, edits=edits, at=source.shown(self.at), delays=list(map(source.shown, self.delays)))

    @property
    def is_named(self) -> bool:
        """Whether a change of the schedule is named."""
        return bool(self.at) or any(self.edits.values())

    def of(self, dataset: Dataset) -> Iterator[Edit]:
        """The changes of the schedule; ValueError if one cannot be read."""
        from rankscope.features.replay.edits import Edit, parse_place, parse_values

        if self.at:
            yield Edit("set", *parse_place(dataset, self.at), values=parse_values(self.values))
        for kind, texts in self.edits.items():
            for text in texts:
                if kind in ("release", "fill"):
                    yield Edit(cast("EditKind", kind), int(text))
                elif kind == "swap":
                    one, _, other = text.partition(",")
                    (rank, key), (_, second) = parse_place(dataset, one), parse_place(dataset, other)
                    yield Edit("swap", rank, key, second)
                else:
                    yield Edit(cast("EditKind", kind), *parse_place(dataset, text))


@dataclass(frozen=True)
class _Fork:
    """A job whose schedule is changed, and how its scripts are written and run."""

    dataset: Dataset
    analysis: Analysis
    best: Fit
    conditions: ReplayConditions
    output: str
    force: bool
    python: str
    """Empty if nothing is run."""

    @property
    def suspects(self) -> tuple[int, ...]:
        """Ranks to blame, or those of whom one is."""
        return tuple(rank for rank in self.analysis.suspects if rank in self.best.schedule.steps)

    def sentence(self, trial: Trial | None) -> str:
        """The change of the schedule in words; empty without one."""
        from rankscope.features.replay.edits import edit_sentence

        if trial is None:
            return ""
        more = f"; ranks then issue {trial.further} more that peers wait for" if trial.further else ""
        return edit_sentence(self.dataset, self.best.schedule, trial.edit) + more

    def row(self, trial: Trial | None) -> str:
        """The difference from the job, in words."""
        parts = (self.sentence(trial), *self.conditions.sentences(self.dataset))
        return "; ".join(filter(None, parts)) or "as recorded"

    def written(self, trial: Trial | None, at: int) -> Path:
        """Writes the script with a change: `fork.py`, then fork-2.py; ClickException if it is there already."""
        from rankscope.features.replay.repro_script import repro_script
        from rankscope.features.replay.schedule_fit import check_delays

        best = changed_fit(self.best, trial) if trial else self.best
        check_delays(self.conditions, best.schedule)
        path = self.path(at)
        script = repro_script(
            self.dataset, self.analysis, best, best.schedule, self.sentence(trial), conditions=self.conditions
        )
        refuse_existing(path, self.force)
        write_report(script.encode(), path, self.force)
        return Path(path)

    def path(self, at: int) -> str:
        """The name of a script: 0 is that without a change of the schedule, if others have one."""
        path = Path(self.output)
        return self.output if at == 1 else str(path.with_name(f"{path.stem}-{at or 'unchanged'}{path.suffix}"))


def run(
    source: JobSource, *, changes: ForkChanges, sweeps: bool, start: bool, python: str, output: str, force: bool
) -> int:
    """Prints how many ranks wait with each change alone. Exit code 0 if one lets all come to the end."""
    changes.check(sweeps=sweeps)
    if start and output == "-":
        raise click.ClickException("--run needs a script in a file: -o fork.py")
    output = output or (default_output("fork.py", source.paths) if start else "")
    dataset, analysis = loaded_job(source, output, force)
    changes = changes.shown(source)
    from rankscope.features.replay.schedule_fit import check_delays, parse_conditions

    try:
        best = fork_base(dataset, analysis, start=start)
        conditions = parse_conditions(dataset, changes.settings, changes.delays, changes.timeout)
        check_delays(conditions, best.schedule)
        fork = _Fork(dataset, analysis, best, conditions, output, force, (python or sys.executable) if start else "")
        sweeps = sweeps or not (changes.is_named or conditions)
        trials = _swept(fork) if sweeps else _named(fork, changes)
        return _told(fork, trials, sweeps=sweeps)
    except ValueError as error:
        raise click.ClickException(str(error)) from error


def changed_fit(best: Fit, trial: Trial) -> Fit:
    """The schedule with a change, in the place of that without it."""
    return replace(best, schedule=trial.schedule, setting=trial.setting, outcome=trial.outcome)


def fork_base(dataset: Dataset, analysis: Analysis, *, start: bool, minimize: bool | None = None) -> Fit:
    """The schedule to change: of a run that of the ranks that `rankscope repro` would replay.

    `minimize` as in `rehearsal.chosen`. ValueError if there is none, or if a replay would mislead.
    """
    from rankscope.features.replay.schedule_fit import fit_job
    from rankscope.features.replay.simulator import simulate

    if not start:
        return fit_job(dataset, analysis)
    from rankscope.commands.rehearsal import chosen

    found = chosen(dataset, analysis, minimize)
    kept = frozenset(found.schedule.steps)
    return replace(
        found.fit, schedule=found.schedule, outcome=simulate(found.schedule, found.fit.setting),
        equal=found.fit.equal & kept, told=found.fit.told & kept,
    )  # fmt: skip


def _named(fork: _Fork, changes: ForkChanges) -> list[Trial]:
    from rankscope.features.replay.edits import tried

    edits = changes.of(fork.dataset)
    return [tried(fork.best.schedule, fork.best.setting, edit, fork.suspects) for edit in edits]


def _swept(fork: _Fork) -> list[Trial]:
    """The best changes of the ranks to blame; ValueError if there is nobody to change."""
    from rankscope.features.replay.edits import sweep

    waiting = fork.best.outcome.waiting
    if not waiting:
        raise ValueError("all ranks come to the end as recorded: no change is needed")
    if not fork.suspects:
        raise ValueError("nobody is to blame: name a change, as --skip 3:tp#12")
    every = sweep(fork.best.schedule, fork.best.setting, fork.suspects)
    through = sum(not trial.waiting for trial in every)
    click.echo(
        f"{plural(len(every), 'single change')} tried of {ranks_text(sorted(fork.suspects))}: "
        f"{through} {'lets' if through == 1 else 'let'} all ranks come to the end"
    )
    return [trial for trial in every if trial.waiting < waiting][: MOST_RUN if fork.python else MOST_SHOWN]


def _told(fork: _Fork, trials: Sequence[Trial], *, sweeps: bool) -> int:
    """Prints the table, writes the scripts, and runs them if asked to; the exit code."""
    click.echo(f"without a change, {fork.best.agreement}")
    click.echo(f"simulated  {'over gloo  ' if fork.python else ''}change")
    waiting = fork.best.outcome.waiting
    rows: list[tuple[Trial | None, int, int]] = [(None, waiting, 0 if trials else 1)]
    rows += [(trial, trial.waiting, at) for at, trial in enumerate(trials, start=1)]
    helps = False
    for trial, left, at in rows:
        told = f"{left} wait" if left else "all end"
        real = _real(fork, trial, at)
        click.echo(_row(f"{told:<11}{f'{real.state:<11}' if real else ''}", fork.row(trial)))
        for line in (f"verdict: {real.verdict}", real.error) if real else ():
            if line:
                click.echo(_row("  ", line))
        if real and real.astray:
            click.echo(f"  the run differs from the simulation: {plural(real.astray, 'rank')} stopped elsewhere")
        if trial or not trials:
            helps = helps or (real.is_through if real else not left)
    for line in (*fork.conditions.remarks(), *([NOT_PROVED] if sweeps and helps else [])):
        click.echo(_row("", line))
    if not helps:
        click.echo("no such change alone lets all ranks come to the end")
    if fork.output and not fork.python and (trials or fork.conditions):
        fork.written(trials[0] if trials else None, 1)
        click.echo(f"{fork.output}: the script with the first of these changes", err=True)
    return 0 if helps else 1


def _real(fork: _Fork, trial: Trial | None, at: int) -> ForkOutcome | None:
    """The outcome of a real run; None if none is asked for."""
    if not fork.python:
        return None
    from rankscope.commands.fork_run import fork_outcome

    script = fork.written(trial, at)
    click.echo(f"{script}: runs", err=True)
    return fork_outcome(script, fork.python, len(fork.best.schedule.steps))


def _row(head: str, text: str) -> str:
    width = max(shutil.get_terminal_size((100, 24)).columns, 40)
    return textwrap.fill(text, width, initial_indent=head, subsequent_indent=" " * len(head))
