"""The group of all commands, and what they make of paths and options."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

from rankscope import __version__

if TYPE_CHECKING:
    from rankscope.commands.source import JobSource
    from rankscope.report.redact import Redaction

LOADING = ("rank_from", "world_size", "attempt", "jobs", "errors", "follow_links", "no_cache")
"""Options that say how files are read; commands that keep nothing of a read have no `no_cache`."""
PARTS = ("ranks", "groups", "last")
"""Options that say what part of a job is read, of the commands that have them."""
_HELP = ("-h", "--help")
_PLAIN_NAME = re.compile(r"[\w.@%+=~-]+")
"""Names of files that every shell takes as they are."""


class _OpensByDefault(click.Group):
    """A command group that opens the app if its first argument may be a path."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Inserts `view` before arguments that begin with neither a command nor an option of the group."""
        if not args and not ctx.resilient_parsing:
            raise click.UsageError("no PATH given: name a directory of dumps, logs or traces", ctx)
        if args and args[0] not in (*self.commands, *_HELP, "--version"):
            args = ["view", *args]
        return super().parse_args(ctx, args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Completes the first word: a command, a file beside it if a letter is given, or an option of `view`."""
        if incomplete.startswith("-"):
            options = self.commands["view"].shell_complete(ctx, incomplete) + super().shell_complete(ctx, incomplete)
            return list({option.value: option for option in options}.values())
        if "/" in incomplete or incomplete.startswith("~"):
            return [CompletionItem(incomplete, type="file")]
        return [*super().shell_complete(ctx, incomplete), *_files_here(incomplete)]

    def format_usage(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Prints both usages."""
        formatter.write_usage(ctx.command_path, "[OPTIONS] PATH...")
        formatter.write_usage(ctx.command_path, "report [OPTIONS] PATH...", prefix=" " * len("Usage: "))

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Prints the options of `view`, which needs no name, and the other commands."""
        command = self.commands["view"]
        options = [p for p in [*command.params, *self.get_params(ctx)] if isinstance(p, click.Option)]
        records = [p.get_help_record(ctx) for p in options]
        with formatter.section("Options"):
            formatter.write_dl(list(dict.fromkeys(filter(None, records))))
        self.format_commands(ctx, formatter)


def _files_here(incomplete: str) -> list[CompletionItem]:
    """Files of the working directory whose names begin so: shells add none of their own to a list of commands."""
    if not incomplete:
        return []
    names = sorted(path.name for path in Path.cwd().iterdir() if path.name.startswith(incomplete))
    return [CompletionItem(name) for name in names if _PLAIN_NAME.fullmatch(name)]


@click.group(cls=_OpensByDefault, context_settings={"help_option_names": _HELP, "max_content_width": 80})
@click.version_option(__version__, message="%(prog)s %(version)s")
def rankscope() -> None:
    """Names the rank that broke a distributed PyTorch job.

    PATH is a directory of flight recorder dumps, an archive of one, a single file of any name, - for
    standard input, or the address of a torch.distributed.debug server (http://host:25999). The report is
    printed where there is no terminal, and for standard input. Write ./report for a path that is named
    like a command.

    \b
    Exit codes of a report:
      0  nothing critical was found
      1  a critical finding
      2  no usable input, or wrong arguments
    """


def on_local_paths(command: Callable[..., int], options: dict[str, Any], *, again: bool) -> int:
    """Runs a command on local paths, and passes it the user's names of them."""
    from rankscope.commands.source import is_local

    paths = options.pop("paths")
    if all(map(is_local, paths)):
        return command(job_source(paths, options, paths), **options)
    from rankscope.commands.remote import local_input

    with local_input(paths, again) as found:
        source = job_source(found.paths, options, found.called)
        return command(replace(source, unread=found.unread), **options)


def job_source(paths: tuple[str, ...], options: dict[str, Any], called: tuple[str, ...] = ()) -> JobSource:
    """The paths with their options, which are taken out of `options`."""
    from rankscope.commands.source import JobSource

    redaction = redaction_of(options)
    own = {name: options.pop(name) for name in _reading(options)}
    return JobSource(paths, **own, called=called, redaction=redaction)


def redaction_of(options: dict[str, Any]) -> Redaction | None:
    """The redaction that the options ask for, which are taken out of `options`; None for names as they are."""
    redact, sources = options.pop("redact", False), options.pop("redact_sources", False)
    if not redact and not sources:
        return None
    from rankscope.report.redact import Redaction

    return Redaction.here(keep_source_names=not sources)


def _reading(options: dict[str, Any]) -> list[str]:
    # `repro --last` counts the collectives of its script
    parts = PARTS if "ranks" in options else ()
    return [name for name in (*LOADING, *parts) if name in options]
