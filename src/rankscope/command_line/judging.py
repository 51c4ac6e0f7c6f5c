"""Commands that say what is wrong with a job, or with its numbers, or what differs between runs."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import click

from rankscope.command_line.group import LOADING, PARTS, job_source, on_local_paths, rankscope, redaction_of
from rankscope.commands import source_options

DEBUG = "RANKSCOPE_DEBUG"
"""Environment variable that shows tracebacks of internal errors and the debug log of a report on stderr."""
_PALETTES = ("none", "8", "16", "256", "true")
_THEMES = ("dark", "light", "contrast", "ansi")
_FOLLOWING = ("poll", "freeze_after", "on_freeze", "wait")


BESIDE = ("reference", "perturbed", "rename")
"""Options about recorded numbers beside a trusted run."""
NUMBERS = (*BESIDE, "save", "update", "strict")
"""Options about recorded numbers."""
_REFUSED = {
    "": NUMBERS,
    "numbers": ("why",),
    "memory": ("why", "groups", "last", *NUMBERS),
    "next": ("why", "form", "path_map", *NUMBERS),
}
"""Options that each section of a report does without; "" is the whole report."""
_SPELLED = {"form": "format", "path_map": "path-map"}


def _view_name(_ctx: click.Context, _param: click.Parameter, value: str | None) -> str | None:
    from rankscope.kinds.view_kinds import VIEWS

    if value is not None and value not in VIEWS:
        raise click.BadParameter(f"{value!r} is none of {', '.join(VIEWS)}")
    return value


def _view_names(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    from rankscope.kinds.view_kinds import VIEWS

    return [name for name in VIEWS if name.startswith(incomplete)]


@rankscope.command(hidden=True)
@source_options.reads_dumps
@source_options.reads_parts
@click.option("--palette", type=click.Choice(_PALETTES), help="Colours (default: those of the terminal).")
@click.option("--theme", type=click.Choice(_THEMES), help="Colours of the screen (default: RANKSCOPE_THEME, or dark).")
@click.option("--mouse/--no-mouse", default=None, help="Use the mouse (default: yes, except over SSH).")
@click.option(
    "--view",
    callback=_view_name,
    shell_complete=_view_names,
    metavar="NAME",
    help="Open a view at the start: stacks, time, groups, mesh, heat, breakdown, path, gains, collectives, "
    "annotations, patterns, numbers, memory, snapshots, model, findings, logs, settings or files.",
)
@source_options.beside_reference
@click.option("--watch", is_flag=True, help="Follow the job while it runs.")
@source_options.follows
@click.option("--bell/--no-bell", default=True, help="Ring the terminal's bell when the job freezes.")
def view(**options: Any) -> int:
    """Opens the app on dumps; without a terminal prints the text report."""
    from rankscope.commands.view import run

    if not options["watch"] and any(options[name] not in (None, False) for name in _FOLLOWING):
        raise click.UsageError("--poll, --freeze-after, --on-freeze and --wait need --watch")
    if options["watch"] and any(options[name] for name in PARTS):
        raise click.UsageError("--watch reads the whole job: leave out --ranks, --groups and --last")
    beside = {name: options.pop(name) for name in BESIDE}
    if any(beside.values()):
        from rankscope.commands.numbers_report import show

        refused = [name for name in ("watch", "view") if options.pop(name)]
        if refused:
            raise click.UsageError(f"--reference, --perturbed and --rename take no --{refused[0]}")
        given = {name: value for name, value in options.items() if name not in _FOLLOWING}
        return on_local_paths(show, {**given, **beside}, again=False)
    return on_local_paths(run, _with_follow(options), again=options["watch"])


def _with_follow(options: dict[str, Any]) -> dict[str, Any]:
    """The options with those of following merged into one."""
    from rankscope.commands.watch import FollowOptions

    rest = {name: value for name, value in options.items() if name not in _FOLLOWING}
    return {**rest, "follow": FollowOptions(*(options[name] for name in _FOLLOWING))}


@rankscope.command()
@source_options.reads_files
@source_options.maps_sources
@source_options.shows_text
@source_options.follows
@click.option(
    "-f", "--format", "form", type=click.Choice(("text", "json")), default="text", help="Format of the lines."
)
@click.option("--until-frozen", is_flag=True, help="End with exit code 1 when the job freezes or fails.")
@click.option("--metrics", metavar="FILE.prom", help="Keep metrics there, for Prometheus' textfile collector.")
def watch(**options: Any) -> int:
    """Follows a job: a line for each change of its verdict."""
    from rankscope.commands.watch import run

    return on_local_paths(run, _with_follow(options), again=True)


@rankscope.command()
@source_options.reads_dumps
@source_options.reads_parts
@source_options.reports
@click.option(
    "--why", type=click.IntRange(0), multiple=True, metavar="RANK", help="Say why RANK is accused or not; repeatable."
)
@click.option("--only", type=click.Choice(("numbers", "memory", "next")), help="Answer this question alone.")
@source_options.beside_reference
@source_options.keeps_golden
def report(**options: Any) -> int:
    """Prints what was found, as text, Markdown or JSON.

    \b
    With --only it answers one question:
      numbers  are the recorded numbers right, and which went wrong first?
               Exit code 1 also if the run differs from its --reference, and
               with --strict at any finding
      memory   who holds the memory of each device, in snapshots of torch?
               Exit code 0, or 2 without any snapshot
      next     which commands collect what the verdict lacks? One block for a
               shell: stacks while the job hangs, variables, a start through
               rankscope.capture, and how much all of it writes
    """
    section = options.pop("only") or ""
    given = [name for name in _REFUSED[section] if options.pop(name)]
    if given:
        option = f"--{_SPELLED.get(given[0], given[0])}"
        needs = given[0] in NUMBERS and not section
        raise click.UsageError(f"{option} needs --only numbers" if needs else f"--only {section} takes no {option}")
    return on_local_paths(_answer(section), options, again=False)


def _answer(section: str) -> Callable[..., int]:
    """The function that prints a section of the report, or with "" the whole one."""
    if section == "numbers":
        from rankscope.commands import numbers_report

        return numbers_report.run
    if section == "memory":
        from rankscope.commands import memory_report

        return memory_report.run
    if section == "next":
        from rankscope.commands import next_steps

        return next_steps.run
    from rankscope.commands.report import log_to_stderr, run

    if os.environ.get(DEBUG):
        log_to_stderr()
    return run


@rankscope.command(cls=source_options.SidesCommand)
@source_options.compares
def diff(**options: Any) -> int:
    """Tells whether two or more runs agree, and where B first differs from A.

    Each is what `rankscope report` reads: a directory, an archive or a file. Of more than two, each is compared with
    A. Reruns of two settings are compared as two sides: --baseline A1 A2 A3 --candidate B1 B2 B3.

    Exit codes: 0 no difference (with --gate: no budget exceeded), 1 a difference (a budget exceeded), 2 nothing to
    compare (a budget not measured) or wrong arguments.
    """
    from rankscope.commands.diff import run

    loading, redaction = {name: options.pop(name) for name in LOADING}, redaction_of(options)
    return run(lambda path: replace(job_source((path,), dict(loading)), redaction=redaction), **options)
