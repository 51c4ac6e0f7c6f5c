"""`rankscope numbers`: whether recorded numbers are right, alone or against a reference run."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import click

from rankscope.commands.output import ProgressLine, refuse_existing, write_report
from rankscope.commands.report import Format, format_of, redacted_report, render_report
from rankscope.commands.source import JobSource, with_local_paths

if TYPE_CHECKING:
    from rankscope.analysis.model import Analysis
    from rankscope.schema import Dataset


def run(
    source: JobSource,
    *,
    form: Format | None,
    output: str | None,
    force: bool,
    redact: bool,
    redact_sources: bool,
    ascii_only: bool,
    path_map: tuple[tuple[str, str], ...],
    reference: str | None,
    perturbed: tuple[str, ...],
) -> int:
    """Writes the report on numbers; 1 if a rule is broken for sure, or if the run differs from its reference."""
    if perturbed and reference is None:
        raise click.UsageError("--perturbed needs --reference")
    sources = [source, *(replace(source, paths=(path,), called=()) for path in (reference, *perturbed) if path)]
    for one in sources:
        one.check()
    refuse_existing(output, force)
    narrator = ProgressLine()
    try:
        dataset, *others = (_recorded(one, narrator) for one in sources)
    finally:
        narrator.close()
    dataset, analysis = with_local_paths(dataset, _judged(dataset, others), path_map)
    differs = any(finding.limits[0].rule in _REFERENCE for finding in analysis.findings)
    if redact or redact_sources:
        dataset, analysis = redacted_report(dataset, analysis, not redact_sources)
    write_report(render_report(dataset, analysis, form or format_of(output), ascii_only), output, force)
    return int(analysis.is_critical or differs)


_MOST_FILES = 3
"""Most unread files that an error names."""
_REFERENCE = ("RS", "RX", "RP")
"""Rules about a reference run."""


def _recorded(source: JobSource, narrator: ProgressLine) -> Dataset:
    """The records of one run; ClickException if it has no summaries of tensors."""
    dataset = source.read(narrator)
    if not dataset.has_tensors:
        told = dataset.files.drop_nulls("problem").select("path", "problem").rows()
        unread = "".join(f"; {path}: {problem}" for path, problem in told[:_MOST_FILES])
        raise click.ClickException(f"{source.title}: no numbers; rankscope.capture records them{unread}")
    return dataset


def _judged(dataset: Dataset, others: list[Dataset]) -> Analysis:
    """The judgement of a run, and of its comparison with the first of the others, its reference."""
    from rankscope.analysis.facts import Facts
    from rankscope.analysis.model import Analysis
    from rankscope.analysis.numbers.number_findings import with_numbers

    judged = None
    if others:
        from rankscope.analysis.numbers.joint_judgement import judge_beside

        judged = judge_beside(dataset, others[0], others[1:])
    return with_numbers(Facts(dataset), Analysis("", "unknown"), judged)
