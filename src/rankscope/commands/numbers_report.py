"""`rankscope numbers`: whether recorded numbers are right, alone or against a reference run."""

from __future__ import annotations

import gc
import shlex
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import click

from rankscope.commands.output import ProgressLine, refuse_existing, write_report
from rankscope.commands.report import Format, format_of, render_report
from rankscope.commands.source import JobSource, LoadStep, nothing_usable, with_local_paths
from rankscope.commands.view import on_terminal, show_loaded

if TYPE_CHECKING:
    from rankscope.analysis.model import Analysis
    from rankscope.features.numbers.rules.named_tensors import NameChange
    from rankscope.schema import Dataset
    from rankscope.tui.options import ProgressLike


def run(
    source: JobSource,
    *,
    form: Format | None,
    output: str | None,
    force: bool,
    ascii_only: bool,
    path_map: tuple[tuple[str, str], ...],
    reference: str | None,
    perturbed: tuple[str, ...],
    rename: tuple[str, ...],
    strict: bool = False,
) -> int:
    """Shows the page of numbers on a terminal, else writes the report; 1 if a proof is broken or the runs differ, and
    with `strict` at any finding on numbers."""
    if (perturbed or rename) and reference is None:
        raise click.UsageError(f"{'--perturbed' if perturbed else '--rename'} needs --reference")
    changes = tuple(map(_change, rename))
    source = replace(source, is_compared=reference is not None)
    sources = [source, *(replace(source, paths=(path,), called=()) for path in (reference, *perturbed) if path)]
    for one in sources:
        one.check()
    refuse_existing(output, force)
    if form is None and output is None and source.redaction is None and on_terminal():
        return _exit_code(_shown(sources, rename, path_map, ascii_only), strict)
    with ProgressLine() as narrator:
        dataset, *others = _recorded_runs(sources, narrator)
    dataset, analysis = with_local_paths(dataset, _judged(dataset, others, changes), path_map)
    is_redacted = source.redaction is not None
    write_report(render_report(dataset, analysis, form or format_of(output), ascii_only, is_redacted), output, force)
    return _exit_code(analysis, strict)


def _shown(
    sources: Sequence[JobSource],
    rename: tuple[str, ...],
    path_map: tuple[tuple[str, str], ...],
    ascii_only: bool,
) -> Analysis:
    """Shows the page of numbers on the terminal; the runs are read in a thread of the app."""

    def load(progress: Callable[[ProgressLike], None]) -> tuple[Dataset, Analysis]:
        try:
            dataset, *others = _recorded_runs(sources, progress)
            progress(LoadStep(0, 0, "judging"))
            return with_local_paths(dataset, _judged(dataset, others, changes), path_map)
        finally:
            gc.freeze()
            gc.enable()

    changes = tuple(map(_change, rename))
    run, *others = sources
    words = ["numbers", *(run.called or run.paths), "-f", "text"]
    for option, one in zip(("--reference", *("--perturbed" for _ in others)), others, strict=False):
        words += [option, one.title]
    words += [word for text in rename for word in ("--rename", text)]
    return show_loaded(load, run, shlex.join(words), ascii_only=ascii_only, path_map=path_map, view="numbers")


def _exit_code(analysis: Analysis, strict: bool) -> int:
    """1 if a rule is broken for sure, or if the run differs from its reference; if strict, if any rule is broken."""
    differs = any(one.limits and one.limits[0].rule in _REFERENCE for one in analysis.findings)
    return int(analysis.is_critical or differs or (strict and analysis.cause is not None))


def _change(text: str) -> NameChange:
    """The change of names; UsageError if it is none."""
    from rankscope.features.numbers.rules.named_tensors import parsed_change

    try:
        return parsed_change(text)
    except ValueError as error:
        raise click.UsageError(f"--rename: {error}") from None


_REFERENCE = ("RS", "RX", "RP")
"""Rules about a reference run."""


def _recorded_runs(sources: Sequence[JobSource], progress: Callable[[LoadStep], None]) -> list[Dataset]:
    """The records of all runs."""
    redaction = sources[0].redaction
    read = [_recorded(replace(one, redaction=None), progress) for one in sources]
    return redaction.datasets(read) if redaction else read


def _recorded(source: JobSource, progress: Callable[[LoadStep], None]) -> Dataset:
    """The records of one run; ClickException if it has no summaries of tensors."""
    dataset = source.read(progress)
    if not dataset.has_tensors:
        raise nothing_usable(source, dataset, "no numbers; rankscope.capture and msprobe record them")
    return dataset


def _judged(dataset: Dataset, others: list[Dataset], changes: tuple[NameChange, ...]) -> Analysis:
    """The judgement of a run, and of its comparison with the first of the others, its reference."""
    from rankscope.analysis.facts import Facts
    from rankscope.analysis.model import Analysis
    from rankscope.features.numbers.rules.number_findings import with_numbers

    judged = None
    if others:
        from rankscope.features.numbers.rules.reference import judge_beside

        judged = judge_beside(dataset, others[0], others[1:], changes)
    return with_numbers(Facts(dataset), Analysis("", "unknown"), judged)
