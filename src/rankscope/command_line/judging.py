"""Commands that say what is wrong with a job, or with its numbers, or what differs between runs."""

from __future__ import annotations

import os
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
    help="Open a view at the start: findings, logs, groups, stacks, settings, numbers, memory, snapshots, model, mesh, "
    "files, heat, breakdown, path, patterns, gains, collectives, annotations or time.",
)
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
def report(**options: Any) -> int:
    """Prints what was found, as text, Markdown or JSON."""
    from rankscope.commands.report import log_to_stderr, run

    if os.environ.get(DEBUG):
        log_to_stderr()
    return on_local_paths(run, options, again=False)


@rankscope.command(name="next")
@source_options.reads_files
@source_options.keeps_reads
@source_options.shows_text
@source_options.reads_parts
def next_steps(**options: Any) -> int:
    """Prints the commands that collect what the verdict lacks.

    One block for a shell: stacks of the ranks in question while the job hangs, variables for its backend and version of
    torch, a start through rankscope.capture, and how much all of it writes.
    """
    from rankscope.commands.next_steps import run

    return on_local_paths(run, options, again=False)


@rankscope.command()
@source_options.reads_dumps
@source_options.reads_parts
@source_options.reports
@source_options.against_reference
def numbers(**options: Any) -> int:
    """Tells whether the recorded numbers are right, and which went wrong first.

    PATH is a directory of numbers_rank_N.jsonl from rankscope.capture. Collectives and replicas are held against what
    arithmetic allows; with --reference also against another run. Exit codes: as of a report; 1 also if the run differs
    from its reference, and with --strict at any finding.
    """
    from rankscope.commands.numbers_report import run

    return on_local_paths(run, options, again=False)


@rankscope.command()
@source_options.reads_dumps
@source_options.reads_ranks
@source_options.reports
def memory(**options: Any) -> int:
    """Tells who holds the memory of each device, in snapshots of torch.

    PATH is a snapshot of torch.cuda.memory._dump_snapshot or a directory of them. Of each device: the places of the
    program that hold most at the peak and at the dump, and what lies free in gaps; of several ranks what one holds
    alone. Exit codes: 0, or 2 without any snapshot.
    """
    from rankscope.commands.memory_report import run

    return on_local_paths(run, options, again=False)


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
