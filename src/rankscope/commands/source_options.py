"""Arguments and options that commands share: those of the input, and those of a job that is followed."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.shell_completion import CompletionItem

if TYPE_CHECKING:
    from rankscope.features.comparison.rules.run_statistics import Budget

_F = TypeVar("_F", bound=Callable[..., Any])


class FileName(click.types.StringParamType):
    """A path or address as it was typed, which shells complete; commands say themselves whether it can be read."""

    def shell_complete(
        self,
        ctx: click.Context,  # noqa: ARG002 - click calls it so
        param: click.Parameter,  # noqa: ARG002
        incomplete: str,
    ) -> list[CompletionItem]:
        """Leaves the names of files to the shell."""
        return [CompletionItem(incomplete, type="file")]


FILE = FileName()


def _regex(_ctx: click.Context, _param: click.Parameter, value: str | None) -> str | None:
    try:
        groups = re.compile(value or "()").groups
    except re.error as error:
        raise click.BadParameter(f"not a regular expression: {error}") from error
    if not groups:
        raise click.BadParameter("the expression needs a group for the rank, such as (\\d+)")
    return value


def _series_pattern(_ctx: click.Context, _param: click.Parameter, value: str | None) -> re.Pattern[str] | None:
    from rankscope.features.series.read.user_pattern import SeriesPatternError, series_pattern

    try:
        return None if value is None else series_pattern(value)
    except SeriesPatternError as error:
        raise click.BadParameter(str(error)) from error


def _prefixes(_ctx: click.Context, _param: click.Parameter, values: Sequence[str]) -> tuple[tuple[str, str], ...]:
    pairs = [value.partition("=") for value in values]
    wrong = [value for value, (source, _, target) in zip(values, pairs, strict=True) if not source or not target]
    if wrong:
        raise click.BadParameter(f"{wrong[0]!r} is not FROM=TO")
    return tuple((source, target) for source, _, target in pairs)


def _ranks(_ctx: click.Context, _param: click.Parameter, value: str | None) -> frozenset[int] | None:
    if value is None:
        return None
    found: set[int] = set()
    for part in value.split(","):
        match = re.fullmatch(r"\s*(\d{1,7})(?:-(\d{1,7}))?\s*", part, re.ASCII)
        if match is None or int(match[2] or match[1]) < int(match[1]):
            raise click.BadParameter(f"{part!r} is not a rank or a range of ranks; ranks are written as 0-7,12")
        found.update(range(int(match[1]), int(match[2] or match[1]) + 1))
    return frozenset(found)


def _names(_ctx: click.Context, _param: click.Parameter, value: str) -> tuple[str, ...]:
    return tuple(filter(None, map(str.strip, value.split(","))))


class RepetitionCount(click.IntRange):
    """A number behind an option that may stand alone; says where to put an option that took a path for its number."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The number; an error for a text that is none."""
        if not str(value).isdecimal():
            self.fail(f"{value!r} is not a number; the option alone goes behind PATH", param, ctx)
        return super().convert(value, param, ctx)


def reads_files(command: _F) -> _F:
    """Adds the files of a job, how they are read, and whether their names are shown."""
    return _with(_loads(redacts(command)), [_paths()])


def reads_files_for_others(command: _F) -> _F:
    """As `reads_files`, for a command that writes a file to give away: it names nobody unless asked to."""
    return _with(_loads(redacts(command, by_default=True)), [_paths()])


def _paths() -> Callable[[_F], _F]:
    return click.argument("paths", nargs=-1, type=FILE, required=True, metavar="PATH...")


def redacts(command: _F, *, by_default: bool = False) -> _F:
    """Adds the options for names in what a command shows; see `report.redact`."""
    usual = "yes" if by_default else "no"
    options = [
        click.option("--redact/--no-redact", default=by_default,
                     help=f"Replace names of hosts, users and paths, for public threads (default: {usual})."),
        click.option("--redact-sources", is_flag=True, help="As --redact, and names of source files too."),
    ]  # fmt: skip
    return _with(command, options)


def reads_dumps(command: _F) -> _F:
    """Adds the files of a job, how they are read, and how text and source files of them are shown."""
    return reads_files(keeps_reads(maps_sources(shows_text(command))))


class ShareName(click.types.StringParamType):
    """A share of the files, as 3/8; says where to put an option that took a path for its share."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The text; an error for one that is no share."""
        if value and re.fullmatch(r"\d*/\d+", value, re.ASCII) is None:
            self.fail(f"{value!r} is no share such as 3/8; the option alone goes behind PATH", param)
        return super().convert(value, param, ctx)


def _loads(command: _F) -> _F:
    """Adds the options for reading files."""
    options = [
        click.option("--rank-from", metavar="REGEX", callback=_regex,
                     help="Regular expression; its first group is the rank in a file's path."),
        click.option("--world-size", type=click.IntRange(1, 2**20), metavar="N",
                     help="Number of ranks of the job (default: what the files tell)."),
        click.option("--attempt", type=click.IntRange(0), metavar="N",
                     help="The attempt to read; 0 is the oldest (default: the newest)."),
        click.option("--jobs", type=click.IntRange(1), metavar="N",
                     help="Processes that read files (default: one for each core, at most 16)."),
        click.option("--errors", type=FILE, metavar="FILE",
                     help="Your own table of known errors; it adds to the one of rankscope."),
        follows_links,
    ]  # fmt: skip
    return _with(command, options)


def follows_links(command: _F) -> _F:
    """Adds the option for links that lead out of what the user named."""
    text = "Also follow links that lead out of PATH."
    return _with(command, [click.option("--follow-links", is_flag=True, help=text)])


def keeps_reads(command: _F) -> _F:
    """Adds the option for the cache; commands that never keep a read do without."""
    option = click.option("--no-cache", is_flag=True, help="Neither use nor fill the cache of earlier reads.")
    return _with(command, [option])


def maps_sources(command: _F) -> _F:
    """Adds the option for source files that lie elsewhere; commands that name none do without."""
    text = "Look for source files of the job below TO instead of FROM; repeatable."
    option = click.option("--path-map", "path_map", multiple=True, metavar="FROM=TO", callback=_prefixes, help=text)
    return _with(command, [option])


def shows_text(command: _F) -> _F:
    """Adds the option for ASCII; commands that write files for programs do without."""
    return _with(command, [click.option("--ascii", "ascii_only", is_flag=True, help="Show ASCII only.")])


def _with(command: _F, options: Sequence[Callable[[_F], _F]]) -> _F:
    """The command with these options, in this order."""
    for option in reversed(options):
        command = option(command)
    return command


class SidesCommand(click.Command):
    """A command whose options for sides take several runs: `--baseline A1 A2` is `--baseline A1 --baseline A2`."""

    sides = ("--baseline", "--candidate")

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Repeats an option of a side before each run behind it, up to the next option."""
        return super().parse_args(ctx, list(self._repeated(args)))

    def _repeated(self, args: Sequence[str]) -> Iterator[str]:
        side, named = "", False
        for number, arg in enumerate(args):
            if arg == "--":
                yield from args[number:]
                return
            if arg.startswith("-") and arg != "-":
                name, equals, _ = arg.partition("=")
                side, named = (name, not equals) if name in self.sides else ("", False)
            elif side and not named:
                yield side
            else:
                named = False
            yield arg


def _budgets(_ctx: click.Context, _param: click.Parameter, values: Sequence[str]) -> tuple[Budget, ...]:
    if not values:
        return ()
    from rankscope.features.comparison.rules.run_statistics import parse_budget

    try:
        return tuple(map(parse_budget, values))
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


def compares(command: _F) -> _F:
    """Adds the arguments and options for the comparison of runs."""
    options = [
        click.argument("paths", nargs=-1, type=FILE, metavar="A B [C...]"),
        click.option("--baseline", "baselines", multiple=True, type=FILE, metavar="A1 A2..",
                     help="Reruns of one setting, to compare with; A1 may stand alone before the options."),
        click.option("--candidate", "candidates", multiple=True, type=FILE, metavar="B1 B2..",
                     help="Reruns of another setting. Three and more a side tell noise from change."),
        click.option("--gate", "budgets", multiple=True, metavar="METRIC=N%", callback=_budgets,
                     help="Exit code 1 only if B is worse by more: step=3%, loss=0.5%, or any other metric; or only "
                     "if schedule, settings, values or outcome differ. Repeatable."),
        click.option("--junit", type=FILE, metavar="FILE",
                     help="With --gate: write JUnit XML to FILE, with a test case for each budget."),
        click.option("--summary", type=FILE, metavar="FILE",
                     help='With --gate: append a Markdown summary to FILE, such as "$GITHUB_STEP_SUMMARY".'),
        click.option("--vary", multiple=True, metavar="NAME=V1,V2",
                     help="Write a script instead that runs the command behind -- with each value in turn."),
        click.option("--times", type=click.IntRange(1, 50), default=4, metavar="N",
                     help="With --vary: runs of each value (default: 4)."),
        click.option("--series", metavar="REGEX", callback=_series_pattern,
                     help="Lines of logs with values; groups (?P<step>..), (?P<loss>..) and so on."),
        click.option("-f", "--format", "form", type=click.Choice(("text", "markdown", "json", "html")),
                     help="Format (default: by the suffix of FILE, else text); html is a page with pictures."),
        click.option("-o", "--output", type=FILE, metavar="FILE", help="Write to FILE, which must not exist."),
        click.option("--force", is_flag=True, help="Overwrite FILE."),
    ]  # fmt: skip
    return _with(_loads(keeps_reads(shows_text(redacts(command)))), options)


def reads_ranks(command: _F) -> _F:
    """Adds the option that reads some ranks of a job."""
    text = "Only these ranks; files of others are not opened."
    return _with(command, [click.option("--ranks", metavar="0-7,12", callback=_ranks, help=text)])


def reads_parts(command: _F) -> _F:
    """Adds the options that read a part of a job: some ranks, and of their dumps some groups or the last entries."""
    options = [
        reads_ranks,
        click.option("--groups", metavar="NAME,...", default="", callback=_names,
                     help="Only the history of these groups, by name or description."),
        click.option("--last", type=click.IntRange(1), metavar="N",
                     help="Only the last N entries of each dump, and what is unfinished."),
    ]  # fmt: skip
    return _with(command, options)


def reports(command: _F) -> _F:
    """Adds the options of a report: its format and its file."""
    options = [
        click.option("-f", "--format", "form", type=click.Choice(("text", "markdown", "json", "html")),
                     help="Format (default: by the suffix of FILE, else text); html is a page with pictures."),
        click.option("-o", "--output", type=FILE, metavar="FILE", help="Write to FILE, which must not exist."),
        click.option("--force", is_flag=True, help="Overwrite FILE."),
    ]  # fmt: skip
    return _with(command, options)


def beside_reference(command: _F) -> _F:
    """Adds a trusted run for recorded numbers, and runs that tell how much it varies."""
    options = [
        click.option("--reference", type=FILE, metavar="REF",
                     help="A trusted run for recorded numbers, of any parallelism, or a golden file of one."),
        click.option("--perturbed", multiple=True, type=FILE, metavar="RUN",
                     help="The reference again, with noise of the size of rounding on its input; repeatable."),
        click.option("--rename", multiple=True, metavar="[RANKS:]REGEX=TEXT",
                     help="Names of modules and parameters in the reference, as 4-7:layers\\.0=layers.2; repeatable."),
    ]  # fmt: skip
    return _with(command, options)


def keeps_golden(command: _F) -> _F:
    """Adds golden files of recorded numbers."""
    options = [
        click.option("--save", type=FILE, metavar="GOLDEN",
                     help="Write a golden file of the run; --perturbed runs give it its tolerance."),
        click.option("--update", is_flag=True, help="Write the numbers of the run to the golden file, with its "
                     "tolerance."),
        click.option("--strict", is_flag=True, help="End with exit code 1 also at a finding that is no proof."),
    ]  # fmt: skip
    return _with(command, options)


def writes_session(command: _F) -> _F:
    """Adds the place of a session, and how its reading is shared among tasks."""
    options = [
        click.option("-o", "--output", type=FILE, required=True, metavar="SESSION",
                     help="The directory of the session."),
        click.option("--force", is_flag=True, help="Replace a session that is there."),
        click.option("--shard", is_flag=False, flag_value="", type=ShareName(), metavar="[I/N]",
                     help="Read only share I of N; alone, as the launcher of this task tells (put it behind PATH)."),
        click.option("--dask", metavar="ADDRESS",
                     help="Read all shares as jobs of this Dask scheduler; local starts one here. --shard /N says how "
                     "many (default: one for each worker)."),
    ]  # fmt: skip
    return _with(command, options)


def replays(command: _F) -> _F:
    """Adds the options for replaying the operations of a job."""
    options = [
        click.option("-o", "--output", type=FILE, default="", metavar="FILE",
                     help="The script; - prints it (default: repro.py, with --determinism determinism.py)."),
        click.option("--force", is_flag=True, help="Overwrite FILE."),
        click.option("--last", type=click.IntRange(1), metavar="N",
                     help="Also the last N collectives of each group."),
        click.option("--from", "begin", default="", metavar="GROUP#SEQ",
                     help="All from this collective on, as tp#12."),
        click.option("--sizes", type=click.Choice(("small", "real")), default="small",
                     help="Sizes of tensors (default: small)."),
        click.option("--memory", type=click.IntRange(1), default=1024, metavar="MIB",
                     help="Most memory of a rank for real sizes (default: 1024)."),
        click.option("--format", "form", type=click.Choice(("script", "param", "chakra")), default="script",
                     help="A script, or a directory of traces for PARAM or Chakra (default: script)."),
        click.option("--determinism", is_flag=False, flag_value="3", type=RepetitionCount(2, 100), metavar="[N]",
                     help="Repeat the recorded reductions N times instead, and compare their bits "
                     "(default: 3; put it behind PATH)."),
        click.option("--minimize/--all", default=None,
                     help="Only the ranks that matter, or all (default: all, up to 64 ranks)."),
        click.option("--run", "start", is_flag=True,
                     help="Run the script here, and hold its verdict against the job's."),
        click.option("--watch", is_flag=True, help="With --run: follow the replay in the app."),
        click.option("--step", is_flag=True, help="With --run: each rank waits at each operation, until S is pressed."),
        click.option("--python", type=FILE, default="", metavar="PROGRAM",
                     help="Python with torch, for --run (default: the one of rankscope)."),
    ]  # fmt: skip
    return _with(command, options)


def forks(command: _F) -> _F:
    """Adds the changes of a replay, and how it is run with them."""
    options = [
        click.option("--sweep", "sweeps", is_flag=True,
                     help="Try one change at a time of each rank to blame (default: if none is named)."),
        click.option("--skip", multiple=True, metavar="OP", help="A rank leaves out an operation; repeatable."),
        click.option("--insert", multiple=True, metavar="OP",
                     help="A rank also issues an operation of its peers; repeatable."),
        click.option("--match", multiple=True, metavar="OP",
                     help="A rank issues an operation as its peers do; repeatable."),
        click.option("--swap", multiple=True, metavar="OP,OP",
                     help="A rank issues two operations the other way round; repeatable."),
        click.option("--release", multiple=True, type=click.IntRange(0), metavar="RANK",
                     help="A rank that stopped goes on; repeatable."),
        click.option("--fill", multiple=True, type=click.IntRange(0), metavar="RANK",
                     help="A rank first issues what its peers wait for; repeatable."),
        click.option("--at", default="", metavar="OP", help="The operation that --set changes."),
        click.option("--set", "values", multiple=True, metavar="NAME=VALUE",
                     help="With --at: size=N, dtype=TYPE or op=NAME; repeatable, all are one change."),
        click.option("--env", multiple=True, metavar="NAME=VALUE",
                     help="Set a variable of NCCL, torch and the like in the script; repeatable."),
        click.option("--delay", multiple=True, metavar="RANK:SECONDS",
                     help="A rank sleeps before its first operation, or before one (OP:SECONDS); repeatable."),
        click.option("--timeout", type=click.FloatRange(1, 60), metavar="SECONDS",
                     help="Each operation of the script fails after SECONDS instead of hanging."),
        click.option("--run", "start", is_flag=True, help="Run the scripts here; of a sweep the best few."),
        click.option("--python", type=FILE, default="", metavar="PROGRAM",
                     help="Python with torch, for --run (default: the one of rankscope)."),
        click.option("-o", "--output", type=FILE, default="", metavar="FILE",
                     help="Write the script with the first change (with --run: fork.py, fork-2.py, ...)."),
        click.option("--force", is_flag=True, help="Overwrite FILE."),
    ]  # fmt: skip
    return _with(command, options)


def follows(command: _F) -> _F:
    """Adds the options for following a running job."""
    options = [
        click.option("--poll", type=click.FloatRange(0.1, 3600), metavar="SECONDS",
                     help="Seconds between two looks (default: chosen by file system)."),
        click.option("--freeze-after", type=click.FloatRange(0.1), metavar="SECONDS",
                     help="Seconds without progress that make a job frozen (default: 60, more if it paused before)."),
        click.option("--on-freeze", metavar="CMD",
                     help="Run CMD when the job freezes; it reads the JSON report from its input."),
        click.option("--wait", is_flag=True, help="Wait for a PATH that does not exist yet, in a directory that does."),
    ]  # fmt: skip
    return _with(command, options)


def takes_stacks(command: _F) -> _F:
    """Adds the options of py-spy, and those of reading what it wrote."""
    options = [
        click.argument("paths", nargs=-1, type=FILE, metavar="[PATH]..."),
        follows_links,
        click.option("-o", "--output", "directory", type=FILE, metavar="DIR", default=".",
                     help="Directory for the files (default: here)."),
        click.option("--pid", "pids", type=click.IntRange(1), multiple=True, metavar="PID",
                     help="Only this process; repeatable."),
        click.option("--json", "as_json", is_flag=True, help="Write JSON instead of text."),
        click.option("--native", is_flag=True, help="Include frames of C and C++."),
        click.option("--nonblocking", is_flag=True, help="Do not pause the process; stacks may be torn."),
        click.option("--times", type=click.IntRange(1, 1000), default=1, metavar="N",
                     help="Number of dumps of each process (default: 1)."),
        click.option("--every", type=click.FloatRange(1.0), default=60.0, metavar="S",
                     help="Seconds between two dumps (default: 60)."),
        click.option("--record", type=click.IntRange(1, 3600), metavar="S",
                     help="Record stacks over S seconds instead of dumping them once."),
        click.option("--rank", type=click.IntRange(0), metavar="RANK",
                     help="With PATH: the rank to hold against the others (default: the one that differs most)."),
        click.option("--export", type=FILE, metavar="FILE",
                     help="With PATH: also write FILE, for speedscope if it ends in .json, else as folded stacks."),
        click.option("--force", is_flag=True, help="Overwrite FILE."),
    ]  # fmt: skip
    return _with(redacts(command), options)
