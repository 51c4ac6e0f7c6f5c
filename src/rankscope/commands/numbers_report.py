"""`rankscope report --only numbers`: whether recorded numbers are right, alone or against a reference run."""

from __future__ import annotations

import gc
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from rankscope.commands.output import ProgressLine, refuse_existing, write_report
from rankscope.commands.report import Format, format_of, render_report
from rankscope.commands.source import JobSource, LoadStep, nothing_usable, with_local_paths
from rankscope.commands.view import on_terminal, show_loaded
from rankscope.text.wording import plural

if TYPE_CHECKING:
    from rankscope.analysis.model import Analysis
    from rankscope.features.numbers.golden.golden_file import GoldenRun
    from rankscope.features.numbers.rules.named_tensors import NameChange
    from rankscope.schema import Dataset
    from rankscope.tui.options import ProgressLike

_WANTED = "rankscope.capture (--numbers) and msprobe record numbers"


def run(
    source: JobSource,
    *,
    form: Format | None,
    output: str | None,
    force: bool,
    ascii_only: bool,
    path_map: tuple[tuple[str, str], ...],
    reference: str | None = None,
    perturbed: tuple[str, ...] = (),
    rename: tuple[str, ...] = (),
    save: str | None = None,
    update: bool = False,
    strict: bool = False,
) -> int:
    """Writes the report; 1 if a proof is broken or the runs differ, and with `strict` at any finding on numbers."""
    if perturbed and reference is None and save is None:
        raise click.UsageError("--perturbed needs --reference or --save")
    if save is not None and reference is not None:
        raise click.UsageError("--save takes no --reference: a golden file is rewritten by --reference GOLDEN --update")
    golden, sources, changes = _compared(source, reference, perturbed, rename, save is not None)
    if update and golden is None:
        raise click.UsageError("--update needs --reference with a golden file")
    refuse_existing(output, force)
    if save is not None:
        refuse_existing(save, force)
        return _saved(sources, save, force, strict)
    if golden is not None and reference is not None:
        return _beside_golden(
            sources[0], golden, reference, _Output(form, output, force, ascii_only), path_map, update, strict
        )
    with ProgressLine() as narrator:
        dataset, *others = _recorded_runs(sources, narrator)
    dataset, analysis = with_local_paths(dataset, _judged(dataset, others, changes), path_map)
    is_redacted = source.redaction is not None
    write_report(render_report(dataset, analysis, form or format_of(output), ascii_only, is_redacted), output, force)
    return _exit_code(analysis, strict)


def show(
    source: JobSource,
    *,
    reference: str | None,
    perturbed: tuple[str, ...],
    rename: tuple[str, ...],
    path_map: tuple[tuple[str, str], ...],
    **screen: Any,
) -> int:
    """Shows the page of numbers beside a reference on a terminal; elsewhere, and beside a golden file, the report.

    `screen` are options of the screen. The exit code is that of `run`.
    """
    if perturbed and reference is None:
        raise click.UsageError("--perturbed needs --reference")
    golden, sources, changes = _compared(source, reference, perturbed, rename, False)
    if golden is None and source.redaction is None and on_terminal():
        return _exit_code(_shown(sources, rename, changes, path_map, screen), False)
    return run(
        source, form=None, output=None, force=False, ascii_only=screen["ascii_only"], path_map=path_map,
        reference=reference, perturbed=perturbed, rename=rename,
    )  # fmt: skip


def _compared(
    source: JobSource, reference: str | None, perturbed: tuple[str, ...], rename: tuple[str, ...], saves: bool
) -> tuple[GoldenRun | None, list[JobSource], tuple[NameChange, ...]]:
    """(golden file that is the reference, run and runs beside it, changes of names); an error if they do not fit."""
    if rename and reference is None:
        raise click.UsageError("--rename needs --reference")
    golden = None if reference is None else read_golden(reference)
    if golden is not None and (perturbed or rename):
        raise click.UsageError("a golden file has its own tolerance and names: --perturbed and --rename need a run")
    changes = tuple(map(_change, rename))
    source = replace(source, is_compared=reference is not None or saves)
    beside = (None if golden is not None else reference, *perturbed)
    sources = [source, *(replace(source, paths=(path,), called=()) for path in beside if path)]
    for one in sources:
        one.check()
    return golden, sources, changes


class _Output(NamedTuple):
    """Where the report goes."""

    form: Format | None
    file: str | None
    force: bool
    ascii_only: bool


def read_golden(path: str) -> GoldenRun | None:
    """The golden file at a path; None if it is a directory or another file. ClickException for one that is broken."""
    from rankscope.features.numbers.golden.golden_file import LARGEST_FILE, decode_golden, looks_like_golden

    file = Path(path)
    if not file.is_file():
        return None
    try:
        with file.open("rb") as stream:
            head = stream.read(64)
            if not looks_like_golden(head):
                if file.suffix == ".json":
                    raise click.ClickException(f"{path}: no golden file: it does not begin with rankscope_golden")
                return None
            return decode_golden(head + stream.read(LARGEST_FILE), path)
    except OSError as error:
        raise click.ClickException(f"{path}: {error.strerror}") from error
    except ValueError as error:
        raise click.ClickException(f"{path}: {error}") from error


def _saved(sources: Sequence[JobSource], save: str, force: bool, strict: bool) -> int:
    """Writes a golden file, and says what it holds; ClickException for a run that is proven wrong, unless `force`."""
    from rankscope.features.numbers.golden.golden_comparison import saved_golden

    with ProgressLine() as narrator:
        dataset, *perturbed = _recorded_runs(sources, narrator)
    analysis = _judged(dataset, [], ())
    if analysis.is_critical and not force:
        raise click.ClickException(f"{save}: not saved, for the run is wrong: {analysis.verdict}")
    try:
        content = saved_golden(dataset, perturbed)
    except ValueError as error:
        raise click.ClickException(f"--perturbed: {error}") from error
    write_report(content, save, force)
    click.echo(golden_summary(dataset, content, len(perturbed), save, analysis))
    return _exit_code(analysis, strict)


def golden_summary(dataset: Dataset, content: bytes, perturbed: int, path: str, analysis: Analysis) -> str:
    """Size, tensors and tolerance of a golden file that was written of a run, and the verdict on it."""
    from rankscope.features.numbers.golden.golden_file import kept_rows
    from rankscope.report.words import headline

    runs = f"tolerance of {plural(perturbed, 'perturbed run')}" if perturbed else "bits must be equal"
    size = f"{len(content) / 1e6:.2f} MB"
    return f"{headline(analysis)}\n{path}: {plural(kept_rows(dataset).height, 'tensor')}, {size}, {runs}"


def _beside_golden(
    source: JobSource, golden: GoldenRun, path: str, to: _Output, path_map: tuple[tuple[str, str], ...],
    update: bool, strict: bool,
) -> int:  # fmt: skip
    """Writes the report on a run beside a golden file, or the numbers of the run to that file."""
    from rankscope.features.numbers.golden.golden_comparison import changed_tensors, updated_golden

    with ProgressLine() as narrator:
        dataset = _recorded(replace(source, redaction=None), narrator)
    if update:
        analysis = _judged(dataset, [], ())
        if analysis.is_critical and not to.force:
            raise click.ClickException(f"{path}: not updated, for the run is wrong: {analysis.verdict}")
        common, changed = changed_tensors(dataset, golden)
        content = updated_golden(dataset, golden)
        write_report(content, path, force=True)
        click.echo(golden_summary(dataset, content, golden.perturbed, path, analysis))
        click.echo(f"{changed:,} of {plural(common, 'tensor')} differ from before")
        return _exit_code(analysis, strict)
    if source.redaction is not None:
        dataset, other = source.redaction.datasets([dataset, golden.dataset])
        golden = replace(golden, dataset=other)
    analysis = judged_beside_golden(dataset, golden, path)
    dataset, analysis = with_local_paths(dataset, analysis, path_map)
    is_redacted = source.redaction is not None
    report = render_report(dataset, analysis, to.form or format_of(to.file), to.ascii_only, is_redacted)
    write_report(report, to.file, to.force)
    return _exit_code(analysis, strict)


def judged_beside_golden(dataset: Dataset, golden: GoldenRun, path: str) -> Analysis:
    """The judgement of a run beside a golden file; ClickException if the two cannot be compared."""
    from rankscope.analysis.facts import Facts
    from rankscope.analysis.model import Analysis
    from rankscope.features.numbers.golden.golden_comparison import judge_golden
    from rankscope.features.numbers.rules.number_findings import with_numbers

    try:
        judged = judge_golden(dataset, golden)
    except ValueError as error:
        raise click.ClickException(f"{path}: {error}") from error
    return with_numbers(Facts(dataset), Analysis("", "unknown"), judged)


def _shown(
    sources: Sequence[JobSource],
    rename: tuple[str, ...],
    changes: tuple[NameChange, ...],
    path_map: tuple[tuple[str, str], ...],
    screen: Mapping[str, Any],
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

    run, *others = sources
    words = ["report", "--only", "numbers", *(run.called or run.paths)]
    for option, one in zip(("--reference", *("--perturbed" for _ in others)), others, strict=False):
        words += [option, one.title]
    words += [word for text in rename for word in ("--rename", text)]
    return show_loaded(load, run, shlex.join(words), path_map=path_map, view="numbers", **screen)


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
    dataset = replace(source, wanted=_WANTED).read(progress)
    if not dataset.has_tensors:
        raise nothing_usable(source, dataset, f"no numbers; {_WANTED}")
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
