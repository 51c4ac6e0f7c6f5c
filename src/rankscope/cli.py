"""The command line: dispatches arguments to a command, and prints errors as one line on stderr.

Exit codes: 0 nothing critical was found, 1 a critical finding, 2 no usable input or wrong arguments.
"""

from __future__ import annotations

import gc
import os
import re
import sys
from collections.abc import Sequence
from typing import NoReturn

import click

from rankscope.command_line import acting, judging
from rankscope.command_line.group import FORMER_NAMES, rankscope
from rankscope.command_line.judging import DEBUG
from rankscope.parsers.workers.machine_share import limit_threads
from rankscope.text.escaping import plain

__all__ = ["acting", "judging", "main", "rankscope", "run"]

UNUSABLE = 2
"""Exit code for unusable input or wrong arguments."""
INTERRUPTED = 130
_PANIC = "PanicException"
"""Name of the exception of polars for errors that would end the process; not an Exception."""
_NO_THREADS = re.compile("spawn.*Resource temporarily unavailable|can't start new thread")
"""Messages of polars and Python if no thread can be started; other resources may be unavailable temporarily, too."""


def main() -> NoReturn:
    """Runs the command line of this process and exits at once, because freeing millions of rows takes longer."""
    # imports and tables make many objects and little garbage; the app enables the collector again
    gc.disable()
    limit_threads()
    code = run(sys.argv[1:])
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except BrokenPipeError:
            continue
        except OSError:
            code = code or 2
    os._exit(code)


def run(args: Sequence[str]) -> int:
    """Runs a command line; returns its exit code."""
    try:
        return rankscope.main(list(args), prog_name="rankscope", standalone_mode=False) or 0
    except click.UsageError as error:
        return _fail(f"{error.format_message().rstrip('.')} (see {_command_of(error, args)} --help)", args)
    except click.ClickException as error:
        return _fail(error.format_message(), args)
    except (click.Abort, KeyboardInterrupt):
        return INTERRUPTED
    except BrokenPipeError:
        _ignore_rest_of_output()
        return 0
    except BaseException as error:
        if not isinstance(error, Exception) and type(error).__name__ != _PANIC:
            raise
        if os.environ.get(DEBUG):
            raise
        return _fail(_about(error), args)


def _command_of(error: click.UsageError, args: Sequence[str]) -> str:
    """The command whose help explains an error; click does not tell it for an option without its value."""
    if error.ctx:
        # the help of a group has the options of the command that needs no name
        context = error.ctx.parent if error.ctx.command.hidden else error.ctx
        return context.command_path if context else "rankscope"
    words = FORMER_NAMES.get(args[0], args[0]).split() if args else []
    return f"rankscope {words[0]}" if words and words[0] in rankscope.commands else "rankscope"


def _about(error: BaseException) -> str:
    """The message for an unexpected error."""
    if _NO_THREADS.search(str(error)):
        return "the system lets this user start no more threads or processes (ulimit -u)"
    return f"error of rankscope's own, {type(error).__name__}: {error} ({DEBUG}=1 shows where)"


def _fail(message: str, args: Sequence[str]) -> int:
    """Prints one line on stderr, and for programs an object on stdout."""
    from rankscope.text.secrets import hide

    line = plain(hide(message), 1_000)
    if sys.stderr:
        sys.stderr.write(f"rankscope: {line}\n")
    if _wants_json(args):
        from rankscope.report.json import render_error

        if any(word.startswith("--redact") for word in args):
            from rankscope.report.redact import Redaction

            line = Redaction.here().text(line)
        click.echo(render_error(line), nl=False)
    return UNUSABLE


def _wants_json(args: Sequence[str]) -> bool:
    """Whether the arguments, right or wrong, ask for JSON on stdout."""
    given = " ".join(args)
    asks = re.search(r"(?:^| )(?:-f|--format)[ =]?json\b", given) is not None
    return asks and args[0] in ("report", "watch", "diff", "numbers", "memory")


def _ignore_rest_of_output() -> None:
    """Redirects stdout to nothing for the interpreter's last flush, because the reader has gone."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
