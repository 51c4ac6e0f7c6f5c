"""The command line: dispatches arguments to a command, and prints errors as one line on stderr.

Exit codes: 0 nothing critical was found, 1 a critical finding, 2 no usable input or wrong arguments.
"""

from __future__ import annotations

import gc
import os
import re
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import click

from rankscope import __version__
from rankscope.commands import source_options
from rankscope.parsers.workers.machine_share import limit_threads
from rankscope.text.escaping import plain

if TYPE_CHECKING:
    from rankscope.commands.source import JobSource

UNUSABLE = 2
"""Exit code for unusable input or wrong arguments."""
INTERRUPTED = 130
DEBUG = "RANKSCOPE_DEBUG"
"""Environment variable that shows tracebacks of internal errors and the debug log of a report on stderr."""
_PALETTES = ("none", "8", "16", "256", "true")
_THEMES = ("dark", "light", "contrast", "ansi")
_SCENARIOS = ("skip", "mismatch", "straggler", "order-deadlock", "slow")
_LOADING = ("rank_from", "world_size", "attempt", "jobs", "errors")
_FOLLOWING = ("poll", "freeze_after", "on_freeze")
_HELP = ("-h", "--help")
_PANIC = "PanicException"
"""Name of the exception of polars for errors that would end the process; not an Exception."""
_NO_THREADS = re.compile("spawn.*Resource temporarily unavailable|can't start new thread")
"""Messages of polars and Python if no thread can be started; other resources may be unavailable temporarily, too."""
_F = TypeVar("_F", bound=Callable[..., Any])


class _OpensByDefault(click.Group):
    """A command group that opens the app if its first argument may be a path."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Inserts `view` before arguments that begin with neither a command nor an option of the group."""
        if not args:
            raise click.UsageError("no PATH given: name a directory of dumps, logs or traces", ctx)
        if args[0] not in (*self.commands, *_HELP, "--version"):
            args = ["view", *args]
        return super().parse_args(ctx, args)

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


def _view_name(_ctx: click.Context, _param: click.Parameter, value: str | None) -> str | None:
    from rankscope.kinds.view_kinds import VIEW_NAMES

    if value is not None and value not in VIEW_NAMES:
        raise click.BadParameter(f"{value!r} is none of {', '.join(VIEW_NAMES)}")
    return value


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


@rankscope.command(hidden=True)
@source_options.reads_dumps
@click.option("--palette", type=click.Choice(_PALETTES), help="Colours (default: those of the terminal).")
@click.option("--theme", type=click.Choice(_THEMES), help="Colours of the screen (default: RANKSCOPE_THEME, or dark).")
@click.option("--mouse/--no-mouse", default=None, help="Use the mouse (default: yes, except over SSH).")
@click.option(
    "--view",
    callback=_view_name,
    metavar="NAME",
    help="Open a view at the start: findings, logs, groups, stacks, settings, mesh, files, heat, breakdown, path, "
    "patterns or time.",
)
@click.option("--watch", is_flag=True, help="Follow the job while it runs.")
@source_options.follows
@click.option("--bell/--no-bell", default=True, help="Ring the terminal's bell when the job freezes.")
def view(**options: Any) -> int:
    """Opens the app on dumps; without a terminal prints the text report."""
    from rankscope.commands.view import run

    if not options["watch"] and any(options[name] is not None for name in _FOLLOWING):
        raise click.UsageError("--poll, --freeze-after and --on-freeze need --watch")
    return _on_local_paths(run, _with_follow(options), again=options["watch"])


def _on_local_paths(command: Callable[..., int], options: dict[str, Any], *, again: bool) -> int:
    """Runs a command on local paths, and passes it the user's names of them."""
    from rankscope.commands.remote import local_paths, shown_path

    given = options.pop("paths")
    called = tuple(map(shown_path, given))
    with local_paths(given, again) as paths:
        return command(_job_source(paths, options, called), **options)


def _job_source(paths: tuple[str, ...], options: dict[str, Any], called: tuple[str, ...] = ()) -> JobSource:
    """The paths with their options, which are taken out of `options`."""
    from rankscope.commands.source import JobSource

    return JobSource(paths, **{name: options.pop(name) for name in _LOADING}, called=called)


def _with_follow(options: dict[str, Any]) -> dict[str, Any]:
    """The options with those of following merged into one."""
    from rankscope.commands.watch import FollowOptions

    rest = {name: value for name, value in options.items() if name not in _FOLLOWING}
    return {**rest, "follow": FollowOptions(*(options[name] for name in _FOLLOWING))}


@rankscope.command()
@source_options.reads_dumps
@source_options.follows
@click.option(
    "-f", "--format", "form", type=click.Choice(("text", "json")), default="text", help="Format of the lines."
)
@click.option("--until-frozen", is_flag=True, help="End with exit code 1 when the job freezes or fails.")
def watch(**options: Any) -> int:
    """Follows a job: a line for each change of its verdict."""
    from rankscope.commands.watch import run

    return _on_local_paths(run, _with_follow(options), again=True)


@rankscope.command()
@source_options.reads_dumps
@source_options.reports
@click.option(
    "--why", type=click.IntRange(0), multiple=True, metavar="RANK", help="Say why RANK is accused or not; repeatable."
)
def report(**options: Any) -> int:
    """Prints what was found, as text, Markdown or JSON."""
    from rankscope.commands.report import log_to_stderr, run

    if os.environ.get(DEBUG):
        log_to_stderr()
    return _on_local_paths(run, options, again=False)


@rankscope.command()
@source_options.reads_dumps
@source_options.reports
@source_options.against_reference
def numbers(**options: Any) -> int:
    """Tells whether the recorded numbers are right, and which went wrong first.

    PATH is a directory of numbers_rank_N.jsonl from rankscope.capture. Collectives and replicas are held against what
    arithmetic allows; with --reference also against another run. Exit codes: as of a report; 1 also if the run differs
    from its reference.
    """
    from rankscope.commands.numbers_report import run

    return _on_local_paths(run, options, again=False)


@rankscope.command()
@click.argument("scenario", type=click.Choice(_SCENARIOS), default=_SCENARIOS[0], metavar="[SCENARIO]")
@click.option(
    "--at",
    type=click.IntRange(1, 10_000),
    default=50,
    metavar="STEP",
    help="Step in which the job breaks (default: 50).",
)
@click.option("--ascii", "ascii_only", is_flag=True, help="Show ASCII only.")
def demo(**options: Any) -> int:
    """Runs a job of four ranks on this machine that breaks while you watch.

    It is a real one, with gloo, and needs torch; it ends when you leave. Without a terminal the report is
    printed when the verdict stands.

    \b
    Scenarios:
      skip            a rank leaves the loop, the others wait for it
      mismatch        a rank broadcasts where the others sum
      straggler       a rank is late in every step, nothing hangs
      order-deadlock  a rank enters two groups the other way round
      slow            a rank gets slower and slower, and then stuck
    """
    from rankscope.commands.demo import run

    return run(**options)


@rankscope.command(name="next")
@source_options.reads_dumps
def next_steps(**options: Any) -> int:
    """Prints the commands that collect what the verdict lacks.

    One block for a shell: stacks of the ranks in question while the job hangs, variables for its backend and version of
    torch, a start through rankscope.capture, and how much all of it writes.
    """
    from rankscope.commands.next_steps import run

    del options["path_map"]
    return _on_local_paths(run, options, again=False)


@rankscope.command()
@source_options.takes_stacks
def stacks(**options: Any) -> int:
    """Takes stacks of all ranks of this host with py-spy, or shows stacks over time.

    Ranks are told by the environment of the processes (RANK, or that of MPI or Slurm), and by what
    rankscope.capture left in DIR. Put them beside the flight recorder dumps: they are read as evidence.
    With PATH nothing is taken: what --record, py-spy record or repeated dumps left there is shown as one tree over
    all ranks, with what one rank does that the others do not.
    """
    from rankscope.commands.stacks import run

    return run(**options)


@rankscope.command()
@source_options.reads_dumps
@click.option("-o", "--output", required=True, metavar="FILE", help="A new file, .json or .json.gz.")
@click.option("--force", is_flag=True, help="Overwrite FILE.")
@click.option(
    "--flows/--no-flows",
    default=True,
    help="Draw arrows from launches to kernels and through collectives (default: yes).",
)
def export(**options: Any) -> int:
    """Merges profiler traces into one, on one clock, for Perfetto.

    PATH is a directory of traces, an archive of them, or a single trace. Open FILE in https://ui.perfetto.dev.
    """
    from rankscope.commands.export import run

    del options["ascii_only"], options["path_map"]
    return run(_job_source(options.pop("paths"), options), **options)


@rankscope.command()
@source_options.reads_dumps
@source_options.replays
def repro(**options: Any) -> int:
    """Writes a script that replays what each rank issued around the failure.

    PATH is a directory of dumps; without any, of logs of every collective, or of traces. The script needs only torch:
    it hangs where the job hung, on a few CPU cores.
    With --determinism it repeats the job's reductions instead, and tells which settings repeat them bit for bit.
    """
    from rankscope.commands.repro import ReplayForm, ReplayRun, run

    del options["ascii_only"], options["path_map"]
    source, times = _job_source(options.pop("paths"), options), options.pop("determinism")
    how = ReplayRun(*(options.pop(name) for name in ("start", "watch", "step", "python")))
    what = ReplayForm(*(options.pop(name) for name in ("last", "begin", "sizes", "memory", "form")))
    if times is not None:
        from rankscope.commands.determinism_check import run as repeat

        del options["minimize"]
        options["output"] = options["output"] or "determinism.py"
        return repeat(source, times=times, start=how.start, python=how.python, **options)
    return run(source, how=how, what=what, **options)


@rankscope.command()
@source_options.reads_dumps
@source_options.forks
def fork(**options: Any) -> int:
    """Tells whether the job still hangs with one change.

    PATH is a directory of dumps. OP is RANK:GROUP#SEQ, as 3:tensor_parallel#12. Without a change, one at a time
    is tried for each rank to blame, and the best are listed. The answer is a simulation of who waits for whom; --run
    also plays it in real processes, over gloo, on this machine.
    """
    from rankscope.commands.fork import ForkChanges, run

    del options["ascii_only"], options["path_map"]
    kinds = ("skip", "insert", "match", "swap", "release", "fill")
    edits = {kind: [str(value) for value in options.pop(kind)] for kind in kinds}
    changes = ForkChanges(edits, *(options.pop(name) for name in ("at", "values", "env", "delay", "timeout")))
    return run(_job_source(options.pop("paths"), options), changes=changes, **options)


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

    loading = {name: options.pop(name) for name in _LOADING}
    return run(lambda path: _job_source((path,), dict(loading)), **options)


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
        path = error.ctx.command_path if error.ctx else "rankscope"
        return _fail(f"{error.format_message().rstrip('.')} (see {path} --help)", args)
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


def _about(error: BaseException) -> str:
    """The message for an unexpected error."""
    if _NO_THREADS.search(str(error)):
        return "the system lets this user start no more threads or processes (ulimit -u)"
    return f"error of rankscope's own, {type(error).__name__}: {error} ({DEBUG}=1 shows where)"


def _fail(message: str, args: Sequence[str]) -> int:
    """Prints one line on stderr, and for programs an object on stdout."""
    line = plain(message, 1_000)
    if sys.stderr:
        sys.stderr.write(f"rankscope: {line}\n")
    if _wants_json(args):
        from rankscope.report.json import render_error

        click.echo(render_error(line), nl=False)
    return UNUSABLE


def _wants_json(args: Sequence[str]) -> bool:
    """Whether the arguments, right or wrong, ask for JSON on stdout."""
    given = " ".join(args)
    asks = re.search(r"(?:^| )(?:-f|--format)[ =]?json\b", given) is not None
    return asks and args[0] in ("report", "watch", "diff", "numbers")


def _ignore_rest_of_output() -> None:
    """Redirects stdout to nothing for the interpreter's last flush, because the reader has gone."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
