"""Commands that make something: stacks, scripts, merged traces, a job that breaks, what other programs need."""

from __future__ import annotations

from functools import partial
from typing import Any

import click
from click.shell_completion import get_completion_class

from rankscope.command_line.group import DefaultGroup, job_source, rankscope, redaction_of
from rankscope.commands import source_options

SCENARIOS = ("skip", "mismatch", "straggler", "order-deadlock", "slow", "wrong-gradient")
COMPLETE_VARIABLE = "_RANKSCOPE_COMPLETE"
"""Environment variable by which the script of a shell asks for completions; click reads it."""
SCHEMAS = ("report", "watch", "frame")


@rankscope.command()
@click.argument("scenario", type=click.Choice(SCENARIOS), default=SCENARIOS[0], metavar="[SCENARIO]")
@click.option(
    "--at",
    type=click.IntRange(1, 10_000),
    default=50,
    metavar="STEP",
    help="Step in which the job breaks (default: 50).",
)
@source_options.shows_text
@source_options.redacts
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
      wrong-gradient  a rank ends up with a wrong gradient, nothing hangs
    """
    from rankscope.commands.demo import run

    return run(redaction=redaction_of(options), **options)


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

    return run(redaction=redaction_of(options), **options)


@rankscope.command()
@source_options.reads_files
@source_options.keeps_reads
@source_options.reads_ranks
@click.option(
    "-o", "--output", type=source_options.FILE, required=True, metavar="FILE", help="A new file, .json or .json.gz."
)
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

    return run(job_source(options.pop("paths"), options), **options)


@rankscope.command()
@source_options.reads_files
@source_options.reads_parts
@source_options.writes_session
def ingest(**options: Any) -> int:
    """Writes what it reads as a session, which opens in a second.

    SESSION is opened like a directory of dumps: rankscope SESSION. With --shard several tasks read at once, each its
    share of the files, on as many machines as there are:

    \b
      srun -N8 rankscope ingest DIR -o SESSION --shard
    """
    from rankscope.commands.ingest import run

    return run(job_source(options.pop("paths"), options), **options)


@rankscope.group(cls=DefaultGroup, default="script")
def repro() -> None:
    """Writes a script that replays what each rank issued around the failure.

    PATH is a directory of dumps; without any, of logs of every collective, or of traces. The script needs only torch:
    it hangs where the job hung, on a few CPU cores.
    With --determinism it repeats the job's reductions instead, and tells which settings repeat them bit for bit.
    `repro fork` changes one thing and tells whether the job still hangs.
    """


@repro.command(hidden=True)
@source_options.reads_files_for_others
@source_options.keeps_reads
@source_options.replays
def script(**options: Any) -> int:
    """Writes the script."""
    from rankscope.commands.repro import ReplayForm, ReplayRun, run

    source, times = job_source(options.pop("paths"), options), options.pop("determinism")
    how = ReplayRun(*(options.pop(name) for name in ("start", "watch", "step", "python")))
    what = ReplayForm(*(options.pop(name) for name in ("last", "begin", "sizes", "memory", "form")))
    if times is not None:
        from rankscope.commands.determinism_check import run as repeat

        del options["minimize"]
        return repeat(source, times=times, start=how.start, python=how.python, **options)
    return run(source, how=how, what=what, **options)


@repro.command()
@source_options.reads_files_for_others
@source_options.keeps_reads
@source_options.reads_parts
@source_options.forks
def fork(**options: Any) -> int:
    """Tells whether the job still hangs with one change.

    PATH is a directory of dumps. OP is RANK:GROUP#SEQ, as 3:tensor_parallel#12. Without a change, one at a time
    is tried for each rank to blame, and the best are listed. The answer is a simulation of who waits for whom; --run
    also plays it in real processes, over gloo, on this machine.
    """
    from rankscope.commands.fork import ForkChanges, run

    kinds = ("skip", "insert", "match", "swap", "release", "fill")
    edits = {kind: [str(value) for value in options.pop(kind)] for kind in kinds}
    changes = ForkChanges(edits, *(options.pop(name) for name in ("at", "values", "env", "delay", "timeout")))
    return run(job_source(options.pop("paths"), options), changes=changes, **options)


@rankscope.command()
def config() -> int:
    """Prints the configuration of the screen, with comments.

    It is read from config.toml in the user's configuration directory, which the first line names; what is printed is
    such a file.
    """
    from rankscope.commands.config_file import run

    return run()


@rankscope.group(no_args_is_help=False)
def tool() -> None:
    """Serves other programs: shells, readers of JSON, agents."""


@tool.command()
@click.argument("shell", type=click.Choice(("bash", "zsh", "fish")))
def completion(shell: str) -> int:
    """Prints the script that completes commands, options and paths in a shell.

    \b
    bash  rankscope tool completion bash > ~/.local/share/bash-completion/completions/rankscope
    zsh   rankscope tool completion zsh > ~/.zfunc/_rankscope    (a folder of fpath, before compinit)
    fish  rankscope tool completion fish > ~/.config/fish/completions/rankscope.fish
    """
    completion_class = get_completion_class(shell)
    if completion_class is None:
        raise click.ClickException(f"click knows no completion for {shell}")
    click.echo(completion_class(rankscope, {}, "rankscope", COMPLETE_VARIABLE).source())
    return 0


@rankscope.command()
@click.argument("path", type=source_options.FILE, default=".", metavar="[PATH]")
@click.option("-f", "--format", "form", type=click.Choice(("text", "json")), default="text", help="Format.")
@source_options.shows_text
@source_options.redacts
def doctor(**options: Any) -> int:
    """Tells whether rankscope runs well here, and what would be better.

    It looks at the terminal, at the file system of PATH (default: here), at limits of threads, files and memory, at the
    processor and at versions. Exit codes: 0, or 1 if something does not work.
    """
    from rankscope.commands.doctor import run

    return run(redaction=redaction_of(options), **options)


@tool.command()
@click.argument("name", type=click.Choice(SCHEMAS), default=SCHEMAS[0], metavar="[NAME]")
def schema(name: str) -> int:
    """Prints the form of what programs read, as JSON.

    \b
    NAME (default: report):
      report  JSON Schema of `rankscope report --format json`
      watch   JSON Schema of a line of `rankscope watch --format json`
      frame   tables, columns, dtypes, units and enums of all that is read
    """
    from rankscope.commands.schemas import run

    return run(name)


@tool.command()
@click.argument("directories", nargs=-1, type=source_options.FILE, required=True, metavar="DIR...")
@partial(source_options.redacts, by_default=True)
def mcp(directories: tuple[str, ...], **options: Any) -> int:
    """Answers questions of agents about jobs, by the Model Context Protocol.

    It speaks over standard input and output, and reads nothing outside of DIR. Needs the extra rankscope[mcp].
    """
    from rankscope.commands.agent_server import run

    return run(directories, redaction_of(options))
