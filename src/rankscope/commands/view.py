"""`rankscope PATH...`: the app, or the text report without a terminal."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rankscope.commands import report
from rankscope.commands import watch as watching
from rankscope.commands.output import export_directory
from rankscope.commands.source import SHORT_SEARCH_THRESHOLDS, JobSource, LoadStep
from rankscope.commands.watch import DEFAULT_OPTIONS, FollowOptions
from rankscope.parsers.file_access import is_directory
from rankscope.parsers.workers.machine_share import users_variables
from rankscope.text.escaping import plain
from rankscope.triggers.pipes import TriggerPipe, ask_pipes, find_pipes

if TYPE_CHECKING:
    from rankscope.analysis.model import Analysis
    from rankscope.assemble.held_sources import SparseReading
    from rankscope.commands.config_file import ScreenConfig
    from rankscope.schema import Dataset
    from rankscope.tui.app import RankscopeApp
    from rankscope.tui.options import Load, Palette, ThemeName, ViewOptions

REPLAYED = ("hang", "mismatch")
"""Statuses of jobs whose replay stops, too."""
SWITCH_S = 0.001
"""Longest time that a thread keeps the interpreter while another one waits; Python's default is 5 ms."""


def run(
    source: JobSource,
    *,
    ascii_only: bool = False,
    palette: Palette | None = None,
    theme: ThemeName | None = None,
    mouse: bool | None = None,
    path_map: tuple[tuple[str, str], ...] = (),
    watch: bool = False,
    follow: FollowOptions = DEFAULT_OPTIONS,
    bell: bool = True,
    view: str | None = None,
    step: Callable[[], str] | None = None,
) -> int:
    """Opens the app on a terminal; elsewhere prints the report, with its exit code, or follows the job in lines."""
    if not on_terminal():
        without = partial(watching.run, follow=follow) if watch else report.run
        return without(source, ascii_only=ascii_only, path_map=path_map)
    source.check(may_come=follow.wait if watch else None)
    from rankscope.tui.app import RankscopeApp

    options = _options(
        source, ascii_only=ascii_only, palette=palette, theme=theme, mouse=mouse, path_map=path_map, bell=bell,
        view=view or "",
    )  # fmt: skip
    options = replace(options, step=step)
    if watch:
        app = _app_that_follows(source, follow, options)
    else:
        first, rest = _readings(source)
        app = RankscopeApp(load=first, title=source.title, options=options, rest=rest)
    app.run()
    _say_last(app, source)
    return 0


def show_loaded(load: Load, source: JobSource, report_call: str, **given: Any) -> Analysis:
    """Opens the app on what `load` reads, with the `given` options; returns the analysis when the user quits.

    `report_call` are the arguments that print the same without a screen. Raises click.Abort if the user quits before.
    """
    from rankscope.tui.app import RankscopeApp

    app = RankscopeApp(load=load, title=source.title, options=_options(source, **given))
    app.run()
    if not app.last_words:
        raise click.Abort
    click.echo(f"{app.last_words}\nfull report: rankscope {plain(report_call)}")
    return app.lanes.boards.whole.analysis


def _options(source: JobSource, **given: Any) -> ViewOptions:
    """The options of the screen on a source: it exports, asks for dumps and opens the user's editor."""
    options = options_of_terminal(
        exports={name: partial(export_report, form) for name, form in EXPORTS.items()},
        export_traces=_export_traces, pipes=PathPipes(source.paths),
        export_dir=export_directory(source.paths), given=source.given, **given,
    )  # fmt: skip
    return replace(options, editor_environment=users_variables(), export_repro=_export_repro)


def options_of_terminal(**given: Any) -> ViewOptions:
    """The options of the screen on this terminal: those `given`, else of the environment, else of the user's file."""
    from rankscope.commands.config_file import screen_config
    from rankscope.tui.options import THEME, from_environment

    config = screen_config()
    given["ascii_only"] = given.get("ascii_only") or bool(config.ascii)
    if given.get("mouse") is None:
        given["mouse"] = config.mouse
    if given.get("theme") is None and not os.environ.get(THEME):
        given["theme"] = config.theme
    if given.get("palette") is None and not os.environ.get("NO_COLOR"):
        given["palette"] = config.palette

    given["keys"] = _known_keys(config)
    for name in ("COLUMNS", "LINES"):
        # exported, these variables hide a resize of the terminal
        os.environ.pop(name, None)
    return from_environment(os.environ, **given)


def _known_keys(config: ScreenConfig) -> Mapping[str, str]:
    """The user's keys; ClickException for an action that does not exist."""
    if not config.keys:
        return {}
    from rankscope.commands.config_file import config_path
    from rankscope.tui.actions import BY_ID

    if wrong := next((name for name in config.keys if name not in BY_ID), None):
        raise click.ClickException(f"{config_path()}: keys: no action is called {wrong!r}; rankscope config lists them")
    return config.keys


def _say_last(app: RankscopeApp, source: JobSource) -> None:
    """Prints what stays in the terminal when the screen is gone: the verdict, and how to go on."""
    if not app.last_words:
        return
    click.echo(app.last_words)
    if source.redaction is not None:
        return
    called = source.given.words()
    click.echo(f"full report: rankscope report {called}")
    if app.lanes.boards.whole.analysis.status in REPLAYED:
        click.echo(f"a script that stops there: rankscope repro {called}")


def _app_that_follows(source: JobSource, follow: FollowOptions, options: ViewOptions) -> RankscopeApp:
    from rankscope.commands.follower_process import FollowerProcess, FollowRequest
    from rankscope.tui.app import RankscopeApp

    answer_keys()
    apart = FollowerProcess(FollowRequest(source, follow, options.path_map))
    return RankscopeApp(load=None, title=source.title, options=options, watch=apart)


def _readings(source: JobSource) -> tuple[Load, Load]:
    """The first reading, which makes an early verdict, and the second one, which opens only traces again."""
    from rankscope.assemble.held_sources import SparseReading

    kept = SparseReading()
    return partial(_first, source, kept), partial(source.load, kept=kept)


def _first(source: JobSource, kept: SparseReading, progress: Callable[[LoadStep], None]) -> tuple[Dataset, Analysis]:
    """The first reading: only collectives and steps of traces, and the last entries of long dumps."""
    try:
        dataset, analysis = source.load(progress, detail="collectives", kept=kept)
        if not dataset.has_traces and not dataset.parts.whole_follows:
            kept.clear()
        return dataset, analysis
    finally:
        gc.freeze()
        gc.enable()


def answer_keys() -> None:
    """Makes the thread that takes updates yield to the one that answers keys.

    A search for cycles stops both; one through all imported objects takes a tenth of a second.
    """
    gc.enable()
    gc.set_threshold(*SHORT_SEARCH_THRESHOLDS)
    sys.setswitchinterval(SWITCH_S)


def export_report(form: report.Format, dataset: Dataset, analysis: Analysis, directory: Path) -> Path:
    """Writes the report as `findings` with the ending of its form, or the next free name; imports the writer then."""
    from rankscope.commands.report import SUFFIXES, render_report
    from rankscope.report.output_files import write_next

    suffix = next(ending for ending, of in SUFFIXES.items() if of == form)
    return write_next(directory, "findings", render_report(dataset, analysis, form, ascii_only=False), suffix)


EXPORTS: dict[str, report.Format] = {"Markdown": "markdown", "HTML": "html", "JSON": "json"}
"""The forms of a report that the screen writes, by their names there."""


def _export_traces(dataset: Dataset, analysis: Analysis, directory: Path) -> Path:
    """Exports the merged trace; imports the writer only then."""
    from rankscope.features.traces.perfetto import export_merged

    return export_merged(dataset, analysis, directory)


def _export_repro(dataset: Dataset, analysis: Analysis, directory: Path) -> Path:
    """Writes the script that replays the job, without names, as `rankscope repro` does.

    ValueError if there is nothing to replay, or if it would mislead.
    """
    from rankscope.analysis import analyse
    from rankscope.commands.rehearsal import write_script
    from rankscope.report.redact import Redaction

    nameless = Redaction.here().dataset(dataset)
    verdict = analyse(nameless).verdict
    return write_script(nameless, replace(analysis, verdict=verdict), directory)


def on_terminal() -> bool:
    """Whether stdin and stdout are a terminal."""
    return all(stream and stream.isatty() for stream in (sys.stdin, sys.stdout)) and os.environ.get("TERM") != "dumb"


# Requests for dumps of a running job, through the trigger pipes beside its dumps.


@dataclass(frozen=True)
class PathPipes:
    """The trigger pipes of some paths. A pipe may vanish before it is written to; `ask` then says so."""

    paths: Sequence[str]

    def ranks(self) -> list[int]:
        """Ranks that can be asked."""
        return sorted({pipe.rank for pipe in self._find()})

    def ask(self) -> str:
        """Asks all of them; returns the outcome in words."""
        asked = ask_pipes(self._find())
        failed = [one for one in asked if one.problem is not None]
        text = f"{len(asked) - len(failed):,} of {len(asked):,} ranks asked for dumps"
        if failed:
            text += f"; rank {failed[0].pipe.rank}: {failed[0].problem}"
        return plain(text)

    def _find(self) -> list[TriggerPipe]:
        places = [Path(path) if is_directory(Path(path)) else Path(path).parent for path in self.paths]
        return find_pipes(dict.fromkeys(places))
