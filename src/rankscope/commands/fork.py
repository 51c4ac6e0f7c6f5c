"""`rankscope fork`: the schedule of a job with one change, simulated, and written as a script."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, cast

import click

from rankscope.commands.output import write_report
from rankscope.commands.repro import fitted_job
from rankscope.commands.source import JobSource
from rankscope.text.wording import plural, ranks_text

if TYPE_CHECKING:
    from rankscope.analysis.replay.edits import Edit, EditKind
    from rankscope.schema import Dataset

MOST_SHOWN = 12
"""Changes of a sweep that are shown."""


def run(source: JobSource, *, changes: Mapping[str, Sequence[str]], output: str, force: bool) -> int:
    """Prints how many ranks wait with each change, without any: with one change at a time. Exit code 0 if one helps."""
    dataset, analysis, best = fitted_job(source, output, force)
    from rankscope.analysis.replay.edit_text import edit_sentence, trial_lines
    from rankscope.analysis.replay.edits import sweep, tried

    try:
        trials = [tried(best.schedule, best.setting, edit) for edit in _edits(dataset, changes)]
    except ValueError as error:
        raise click.ClickException(str(error)) from error
    waiting = best.outcome.waiting
    if not any(changes.values()):
        every = sweep(best.schedule, best.setting, tuple(analysis.culprits))
        trials = [trial for trial in every if trial.waiting < waiting][:MOST_SHOWN]
        click.echo(f"{plural(len(every), 'single change')} tried of {ranks_text(sorted(analysis.culprits))}")
    click.echo(f"simulated; without a change, {best.agreement}")
    click.echo("\n".join(trial_lines(dataset, best.schedule, waiting, trials)))
    helps = any(not trial.waiting for trial in trials)
    if not helps:
        click.echo("no such change alone lets all ranks come to the end")
    if output and trials:
        from rankscope.report.repro_script import repro_script

        first = trials[0]
        changed = replace(best, schedule=first.schedule, setting=first.setting, outcome=first.outcome)
        sentence = edit_sentence(dataset, best.schedule, first.edit)
        write_report(repro_script(dataset, analysis, changed, first.schedule, sentence).encode(), output, force)
        click.echo(f"{output}: the script with the first of these changes", err=True)
    return 0 if helps else 1


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
