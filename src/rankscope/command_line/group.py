"""The group of all commands, and what they make of paths and options."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import replace
from difflib import get_close_matches
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
FORMER_NAMES = {
    "numbers": "report --only numbers",
    "memory": "report --only memory",
    "next": "report --only next",
    "fork": "repro fork",
    "schema": "tool schema",
    "completion": "tool completion",
    "mcp": "tool mcp",
}
"""Former names of commands, which go on working, and the words that stand for them now."""
_PLAIN_NAME = re.compile(r"[\w.@%+=~-]+")
"""Names of files that every shell takes as they are."""


class DefaultGroup(click.Group):
    """A command group that runs its hidden command `default` if its first argument may be a path."""

    def __init__(self, *args: Any, default: str, **options: Any) -> None:
        super().__init__(*args, **options)
        self.default = default

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Inserts the default before arguments that begin with neither a command nor an option of the group."""
        # a shell that completes the first word has no arguments yet
        named = args[0] in (*self.commands, *_HELP, "--version") if args else ctx.resilient_parsing
        if not named:
            args = [self.default, *args]
        return super().parse_args(ctx, args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Completes the first word: a command, a file, or an option of the default."""
        if incomplete.startswith("-"):
            options = self.commands[self.default].shell_complete(ctx, incomplete)
            options += super().shell_complete(ctx, incomplete)
            return list({option.value: option for option in options}.values())
        if "/" in incomplete or incomplete.startswith("~"):
            return [CompletionItem(incomplete, type="file")]
        return [*super().shell_complete(ctx, incomplete), *_files_here(incomplete)]

    def format_usage(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Prints the usage of the default and that of the first command with a name."""
        formatter.write_usage(ctx.command_path, "[OPTIONS] PATH...")
        name = next(name for name, command in self.commands.items() if not command.hidden)
        formatter.write_usage(ctx.command_path, f"{name} [OPTIONS] PATH...", prefix=" " * len("Usage: "))

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Prints the options of the default, which needs no name, and the other commands."""
        command = self.commands[self.default]
        options = [p for p in [*command.params, *self.get_params(ctx)] if isinstance(p, click.Option)]
        records = [p.get_help_record(ctx) for p in options]
        with formatter.section("Options"):
            formatter.write_dl(list(dict.fromkeys(filter(None, records))))
        self.format_commands(ctx, formatter)


class _Program(DefaultGroup):
    """All commands; it knows their former names, and misspelled ones."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Puts the present name for a former one, and says so; UsageError for a word that is nearly a command."""
        if not args and not ctx.resilient_parsing:
            raise click.UsageError("no PATH given: name a directory of dumps, logs or traces", ctx)
        first = args[0] if args else ""
        if first in FORMER_NAMES:
            if not ctx.resilient_parsing:
                click.echo(f"rankscope: `rankscope {first}` is now `rankscope {FORMER_NAMES[first]}`", err=True)
            args = [*FORMER_NAMES[first].split(), *args[1:]]
        elif first not in self.commands and "--wait" not in args and (command := self._nearest(first)):
            raise click.UsageError(f"{first}: no such command or path; did you mean {command}?", ctx)
        return super().parse_args(ctx, args)

    def _nearest(self, word: str) -> str:
        """The command that a word nearly spells; "" if there is none, or if the word names a file."""
        names = [name for name, command in self.commands.items() if not command.hidden]
        if not word or word.startswith("-") or os.path.lexists(word):
            return ""
        near = get_close_matches(word, [*names, *FORMER_NAMES], cutoff=0.75)
        # letters in the wrong order are the most frequent slip
        return min(near, key=lambda name: sorted(name) != sorted(word), default="")


def _files_here(incomplete: str) -> list[CompletionItem]:
    """Files of the working directory whose names begin so: shells add none of their own to a list of commands."""
    if not incomplete:
        return []
    names = sorted(path.name for path in Path.cwd().iterdir() if path.name.startswith(incomplete))
    return [CompletionItem(name) for name in names if _PLAIN_NAME.fullmatch(name)]


@click.group(cls=_Program, default="view", context_settings={"help_option_names": _HELP, "max_content_width": 80})
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
