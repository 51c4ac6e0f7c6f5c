"""`rankscope diff A B`: whether runs agree, where they first part, and whether times differ."""

from __future__ import annotations

import gc
import itertools
import re
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from rankscope.commands.output import ProgressLine, encoded, export_directory, refuse_existing, write_report
from rankscope.commands.report import Format, format_of
from rankscope.commands.source import JobSource, LoadStep
from rankscope.commands.view import on_terminal, options_of_terminal
from rankscope.features.comparison.redacted_runs import redacted_runs
from rankscope.report.output_files import write_next

if TYPE_CHECKING:
    from rankscope.features.comparison.page.comparison_app import Comparing
    from rankscope.features.comparison.rules.model import ComparedRun, RunComparison
    from rankscope.features.comparison.rules.run_sides import WholeComparison
    from rankscope.features.comparison.rules.run_statistics import Budget
    from rankscope.tui.options import ProgressLike


class RunSides(NamedTuple):
    """Paths of the runs of both sides."""

    baselines: tuple[str, ...]
    candidates: tuple[str, ...]
    pooled: bool
    """Whether the candidates are reruns of one setting."""


def run_sides(paths: Sequence[str], baselines: Sequence[str], candidates: Sequence[str]) -> RunSides:
    """The sides as they are given: alone, paths are the baseline and the others; beside an option the side it lacks."""
    if not baselines and not candidates:
        if len(paths) < 2:
            raise click.UsageError("name two runs or more, A B", click.get_current_context(silent=True))
        return RunSides((paths[0],), tuple(paths[1:]), len(paths) == 2)
    if candidates:
        found = RunSides((*paths, *baselines), tuple(candidates), True)
    else:
        found = RunSides(tuple(baselines), tuple(paths), True)
    for name, own in (("--baseline", found.baselines), ("--candidate", found.candidates)):
        if not own:
            raise click.UsageError(f"name the other runs behind {name}", click.get_current_context(silent=True))
    return found


def run(
    source_of: Callable[[str], JobSource], *, paths: Sequence[str], baselines: Sequence[str], candidates: Sequence[str],
    budgets: tuple[Budget, ...], junit: str | None, summary: str | None, vary: Sequence[str], times: int,
    output: str | None, force: bool, **options: Any,
) -> int:  # fmt: skip
    """Writes the comparison, or the plan of an experiment; 1 if the runs differ, or if a budget is exceeded."""
    if vary:
        from rankscope.commands.experiment import write_experiment

        return write_experiment(vary, paths, times=times, output=output, force=force)
    sides = run_sides(paths, baselines, candidates)
    if budgets and not sides.pooled:
        raise click.ClickException("--gate takes two sides: name the other runs behind --baseline and --candidate")
    if (junit or summary) and not budgets:
        raise click.ClickException("--junit and --summary write the answer of --gate: give a budget")
    refuse_repeated(sides)
    sources = [
        [replace(source_of(path), is_compared=True) for path in own] for own in (sides.baselines, sides.candidates)
    ]
    for source in itertools.chain(*sources):
        source.check()
    for file in (output, junit):
        refuse_existing(file, force)
    return _write(sources, sides.pooled, GateFiles(budgets, junit, summary), output, force, **options)


class GateFiles(NamedTuple):
    """The budgets of a gate, and the files for its answer."""

    budgets: tuple[Budget, ...]
    junit: str | None = None
    summary: str | None = None

    def write(self, found: RunComparison, force: bool) -> None:
        """Writes the answer of the gate; the summary goes behind what its file holds. Raises ClickException."""
        if not self.junit and not self.summary:
            return
        from rankscope.features.comparison.report.gate_files import gate_junit, gate_summary

        if self.junit:
            write_report(gate_junit(found), self.junit, force)
        if self.summary:
            try:
                with Path(self.summary).open("ab") as file:
                    file.write(gate_summary(found))
            except OSError as error:
                raise click.ClickException(f"{self.summary}: {error.strerror}") from error


def refuse_repeated(sides: RunSides) -> None:
    """Raises ClickException if one run is given several times: as reruns, copies of one run would show no noise."""
    known: dict[Path, str] = {}
    paths = (*sides.baselines, *sides.candidates)
    if len(paths) == 2:
        return
    for path in paths:
        place = Path(path).resolve()
        if place in known:
            raise click.ClickException(f"{known[place]} and {path} are the same run: it counts once, and is no rerun")
        known[place] = path


def _write(
    sources: Sequence[Sequence[JobSource]], pooled: bool, gate: GateFiles, output: str | None, force: bool,
    *, series: re.Pattern[str] | None, form: Format | None, ascii_only: bool,
) -> int:  # fmt: skip
    is_redacted = any(source.redaction is not None for source in itertools.chain(*sources))
    if form is None and output is None and not is_redacted and not gate.budgets and on_terminal():
        return _exit_code(_show(partial(_in_full, sources, series, pooled), sources, ascii_only))
    with ProgressLine() as narrator:
        sides = _read(sources, series, narrator)
    form = form or format_of(output)
    found = _compared(sides, pooled, gate.budgets, form == "html")
    write_report(render_comparison(found, form, ascii_only, is_redacted), output, force)
    gate.write(found, force)
    return _exit_code(found)


def _compared(
    sides: Sequence[Sequence[ComparedRun]], pooled: bool, budgets: Sequence[Budget], is_drawn: bool
) -> RunComparison:
    from rankscope.features.comparison.rules.run_comparison import NothingComparableError, compare_runs

    baselines, candidates = sides
    try:
        if len(baselines) == len(candidates) == 1 and not budgets:
            return compare_runs(baselines[0], candidates[0], is_drawn=is_drawn)
        from rankscope.features.comparison.rules.run_sides import compare_sides
        from rankscope.features.comparison.rules.run_statistics import gate_checks

        found = compare_sides(baselines, candidates, pooled=pooled, is_drawn=is_drawn)
    except NothingComparableError as error:
        raise click.ClickException(str(error)) from error
    return replace(found, gate=gate_checks(budgets, found))


def _read(
    sources: Sequence[Sequence[JobSource]], series: re.Pattern[str] | None, progress: Callable[[LoadStep], None]
) -> list[list[ComparedRun]]:
    """The runs of both sides, with their analyses; the progress tells which run is read."""
    read = [
        _loaded(source, series, _told_of(f"{side}{number if len(own) > 1 else ''}", progress))
        for side, own in zip("AB", sources, strict=True)
        for number, source in enumerate(own, 1)
    ]
    redaction = sources[0][0].redaction
    refuse_copies(read)
    read = (
        read if redaction else [read[0], *(replace(run, code_changes=changed_files(read[0], run)) for run in read[1:])]
    )
    runs = [_judged(one, progress) for one in (redacted_runs(redaction, read) if redaction else read)]
    return [runs[: len(sources[0])], runs[len(sources[0]) :]]


def refuse_copies(runs: Sequence[ComparedRun]) -> None:
    """Raises ClickException if two of several runs issued all operations at the same nanoseconds: they are one run."""
    known: dict[int, str] = {}
    for run in runs if len(runs) > 2 else ():
        times = run.dataset.ops.select("rank", "created_ns").drop_nulls()
        if times.is_empty():
            continue
        mark = hash(tuple(times.hash_rows(seed=0).sort().to_list()))
        if mark in known:
            raise click.ClickException(
                f"{known[mark]} and {run.title} hold the same run: it counts once, and is no rerun"
            )
        known[mark] = run.title


_COMMIT = re.compile(r"[0-9a-f]{40,64}")
_GIT_LIMIT_S = 10
_MOST_CHANGED = 12


def changed_files(a: ComparedRun, b: ComparedRun) -> tuple[str, ...]:
    """Files that differ between the commits of two runs, where the repository of the working directory has both."""
    from rankscope.parsers.sidecar import COMMIT

    told = [run.dataset.settings.filter(name=COMMIT)["value"] for run in (a, b)]
    commits = [str(values[0]) for values in told if len(values) and _COMMIT.fullmatch(str(values[0]))]
    if len(commits) != 2 or commits[0] == commits[1]:
        return ()
    command = [
        "git",
        "--no-optional-locks",
        "-c",
        "core.fsmonitor=false",
        "diff",
        "--no-ext-diff",
        "--no-textconv",
        "--numstat",
    ]
    try:
        done = subprocess.run([*command, *commits, "--"], capture_output=True, timeout=_GIT_LIMIT_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ()
    rows = (
        [line.split("\t") for line in done.stdout.decode("utf-8", "replace").splitlines()]
        if not done.returncode
        else []
    )
    shown = [
        f"between the commits: {name} (+{more} -{less})" for more, less, name in (row for row in rows if len(row) == 3)
    ]
    left = [f"between the commits: {len(shown) - _MOST_CHANGED:,} more files"] if len(shown) > _MOST_CHANGED else []
    return (*shown[:_MOST_CHANGED], *left)


def _told_of(label: str, progress: Callable[[LoadStep], None]) -> Callable[[LoadStep], None]:
    return lambda step: progress(replace(step, what=f"{step.what} {label}"))


def _in_full(
    sources: Sequence[Sequence[JobSource]], series: re.Pattern[str] | None, pooled: bool,
    progress: Callable[[ProgressLike], None],
) -> WholeComparison:  # fmt: skip
    """Reads and compares the runs; then the interpreter searches for cycles again, but not among the data."""
    from rankscope.features.comparison.rules.run_comparison import NothingComparableError
    from rankscope.features.comparison.rules.run_sides import compare_sides_in_full

    try:
        baselines, candidates = _read(sources, series, progress)
        progress(LoadStep(0, 0, "comparing"))
        return compare_sides_in_full(baselines, candidates, pooled=pooled)
    except NothingComparableError as error:
        raise click.ClickException(str(error)) from error
    finally:
        gc.freeze()
        gc.enable()


def _show(compare: Comparing, sources: Sequence[Sequence[JobSource]], ascii_only: bool) -> RunComparison:
    """Shows the comparison on the terminal; returns it when the user quits, and leaves the headline behind."""
    from rankscope.features.comparison.page.comparison_app import ComparisonApp

    title = " ".join(source.title for own in sources for source in own)
    read = [path for own in sources for source in own for path in source.paths]
    options = options_of_terminal(ascii_only=ascii_only, export_dir=export_directory(read))
    app = ComparisonApp(compare, title, options, export_comparison)
    app.run()
    if app.view is None:
        raise click.Abort
    click.echo(app.last_words)
    return app.view.found


def export_comparison(found: RunComparison, directory: Path) -> Path:
    """Writes the Markdown report into a new file below a directory."""
    return write_next(directory, "diff", render_comparison(found, "markdown", ascii_only=False))


def _exit_code(found: RunComparison) -> int:
    outcomes = {one.outcome for one in found.gate}
    if not outcomes:
        return int(not found.is_same)
    return 1 if "failed" in outcomes else 2 if "unmeasured" in outcomes else 0


def _loaded(source: JobSource, pattern: re.Pattern[str] | None, progress: Callable[[LoadStep], None]) -> ComparedRun:
    """A run as it was read, with its series and options; raises ClickException if there is none of them."""
    from rankscope.analysis.model import Analysis
    from rankscope.assemble.assembly import assemble
    from rankscope.features.comparison.rules.model import ComparedRun
    from rankscope.features.series.rows import load_series

    try:
        series = load_series([Path(path) for path in source.paths], pattern, follow_links=source.follow_links)
    except OSError as error:
        raise click.ClickException(str(error)) from error
    try:
        dataset = replace(source, redaction=None).read(progress)
    except click.ClickException:
        if series.scalars.is_empty() and not series.options.sources:
            raise
        dataset = assemble([], source.title, None, source.world_size, None)
    problems = tuple(f"{file}: {reason}" for file, reason in series.problems.items())
    called = " ".join(source.called or source.paths)
    return ComparedRun(called, dataset, Analysis("", "unknown"), series.scalars, problems, series.options)


def _judged(run: ComparedRun, progress: Callable[[LoadStep], None]) -> ComparedRun:
    """The run with its analysis."""
    from rankscope.analysis import analyse

    progress(LoadStep(0, 0, "analysing"))
    dataset = replace(run.dataset, root=run.title)
    analysis = analyse(dataset)
    if dataset.files.is_empty():
        analysis = replace(analysis, verdict="options only" if run.series.is_empty() else "training series only")
    return replace(run, dataset=dataset, analysis=analysis)


def render_comparison(found: RunComparison, form: Format, ascii_only: bool, is_redacted: bool = False) -> bytes:
    """The comparison in UTF-8, or in ASCII with escapes."""
    from rankscope.features.comparison.report import comparison_report

    if form == "html":
        from rankscope.features.comparison.report.comparison_page import comparison_page

        return comparison_page(found, is_redacted).encode("ascii" if ascii_only else "utf-8", "xmlcharrefreplace")
    if form == "json":
        return comparison_report.comparison_json(found, ascii_only)
    render = comparison_report.comparison_markdown if form == "markdown" else comparison_report.comparison_text
    return encoded(render(found), ascii_only)
