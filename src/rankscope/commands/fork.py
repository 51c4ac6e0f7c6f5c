"""`rankscope fork`: the schedule of a job with one change, simulated, and written as a script."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, cast

import click

from rankscope.commands.output import ProgressLine, refuse_existing
from rankscope.commands.source import JobSource
from rankscope.text.wording import plural, ranks_text

if TYPE_CHECKING:
    from rankscope.analysis.replay.edits import Edit, EditKind
    from rankscope.schema import Dataset

MOST_SHOWN = 12
"""Changes of a sweep that are shown."""


def run(source: JobSource, *, changes: Mapping[str, Sequence[str]], output: str, force: bool) -> int:
    """Prints how many ranks wait with each change, without any: with one change at a time. Exit code 0 if one helps."""
    source.check()
    if output:
        refuse_existing(output, force)
    narrator = ProgressLine()
    try:
        dataset, analysis = source.load(narrator)
    finally:
        narrator.close()
    from rankscope.analysis.replay.edit_text import trial_lines
    from rankscope.analysis.replay.edits import apply_edit, sweep, tried
    from rankscope.analysis.replay.fitting import fit
    from rankscope.analysis.replay.schedule import schedule_of
    from rankscope.report.repro_script import repro_script

    try:
        schedule = schedule_of(dataset, stuck=analysis.status not in ("healthy", "progressing", "slow"))
        best = fit(schedule, analysis)
        edits = list(_edits(dataset, changes))
        trials = [tried(schedule, best.setting, edit) for edit in edits]
    except ValueError as error:
        raise click.ClickException(str(error)) from error
    waiting = sum(bool(left) for left in best.outcome.pending.values())
    if not edits:
        every = sweep(schedule, best.setting, tuple(analysis.culprits))
        trials = [trial for trial in every if trial.waiting < waiting][:MOST_SHOWN]
        click.echo(f"{plural(len(every), 'single change')} tried of {ranks_text(sorted(analysis.culprits))}")
    click.echo(f"simulated; without a change, {best.agreement}")
    click.echo("\n".join(trial_lines(dataset, schedule, waiting, trials)))
    if not any(not trial.waiting for trial in trials):
        click.echo("no such change alone lets all ranks come to the end")
    if output and trials:
        changed = apply_edit(schedule, trials[0].edit)
        text = repro_script(dataset, analysis, replace(best, schedule=changed, outcome=trials[0].outcome), changed)
        Path(output).write_text(text, encoding="utf-8")
        click.echo(f"{output}: the script with the first of these changes", err=True)
    return 0 if any(not trial.waiting for trial in trials) else 1


def _edits(dataset: Dataset, changes: Mapping[str, Sequence[str]]) -> Iterator[Edit]:
    """The changes of the command line."""
    from rankscope.analysis.replay.edit_text import parse_place
    from rankscope.analysis.replay.edits import Edit

    for kind, texts in changes.items():
        for text in texts:
            if kind == "release":
                yield Edit("release", int(text))
            elif kind == "swap":
                one, _, other = text.partition(",")
                (rank, key), (_, second) = parse_place(dataset, one), parse_place(dataset, other)
                yield Edit("swap", rank, key, second)
            else:
                yield Edit(cast("EditKind", kind), *parse_place(dataset, text))
