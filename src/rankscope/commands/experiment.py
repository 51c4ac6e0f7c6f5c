"""The plan of an experiment with one factor: a guarded bash script that runs a job in turn with each value."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass

import click

from rankscope.commands.output import refuse_existing, write_report
from rankscope.text.wording import plural

AS_IT_IS = "as-it-is"
"""Name of the runs in which the variable is not touched."""
_NAME = re.compile(r"[A-Za-z_]\w*")
_COMMA = re.compile(r"(?<!\\),")
_FOLDER = re.compile(r"[^\w.-]+")
MOST_VALUES = 8

_SCRIPT = """\
#!/usr/bin/env bash
# Does {name} make a difference? {runs} of the same command, in turn, one after another.
# This prints what it would run. Run it: RUN=1 bash {script}
# Each run has its own folder with its output (job.log) and the flight recorder dumps of a failure.
# The command may write there, too: RANKSCOPE_RUN_DIR names it.
set -uo pipefail
out=${{OUT:-{folder}}}

if [ "${{RUN:-0}}" = 1 ]; then
  mkdir -p "$(dirname "$out")" && mkdir "$out" || exit 2
fi

run() {{  # folder, then the words of the command
  local dir=$out/$1
  shift
  printf '%q ' + "$@" && echo "> $dir/job.log"
  [ "${{RUN:-0}}" = 1 ] || return 0
  mkdir -p "$dir"
  RANKSCOPE_RUN_DIR=$dir TORCH_NCCL_DEBUG_INFO_TEMP_FILE=$dir/nccl_trace_rank_ \\
    TORCH_FR_DUMP_TEMP_FILE=$dir/nccl_trace_rank_ "$@" > "$dir/job.log" 2>&1 || echo "  exit code $? in $dir"
}}

{lines}

compare() {{
  printf '%q ' + "$@" && echo
  [ "${{RUN:-0}}" = 1 ] || return 0
  "$@"
}}

{compares}
"""


@dataclass(frozen=True)
class Factor:
    """A variable of the environment, and the values to compare; the first is the baseline."""

    name: str
    values: tuple[str | None, ...]
    """None: the variable as it is."""

    def label(self, number: int) -> str:
        """The name of the folder of runs with a value."""
        value = self.values[number]
        if value is None:
            return AS_IT_IS
        words = _FOLDER.sub("-", value).strip("-.") or "empty"
        others = [_FOLDER.sub("-", other or "").strip("-.") or "empty" for other in self.values if other is not None]
        return words if others.count(words) == 1 and words != AS_IT_IS else f"{words}-{number + 1}"


def factor_of(given: Sequence[str]) -> Factor:
    """The factor of `--vary NAME=VALUE,VALUE`; raises ClickException unless it is one."""
    values: dict[str, list[str]] = {}
    for text in given:
        name, equals, told = text.partition("=")
        if not equals or not _NAME.fullmatch(name):
            raise click.ClickException(f"--vary {text}: not NAME=VALUE")
        values.setdefault(name, []).extend(part.replace("\\,", ",") for part in _COMMA.split(told))
    if len(values) > 1:
        raise click.ClickException(f"--vary: one factor at a time, not {', '.join(values)}")
    ((name, own),) = values.items()
    distinct: tuple[str | None, ...] = tuple(dict.fromkeys(own))
    if len(distinct) > MOST_VALUES:
        raise click.ClickException(f"--vary {name}: at most {MOST_VALUES} values")
    return Factor(name, distinct if len(distinct) > 1 else (None, *distinct))


def experiment_script(factor: Factor, command: Sequence[str], times: int, script: str) -> str:
    """The script: `times` runs of each value in the order ABAB, then their comparison with the first value."""
    labels = [factor.label(number) for number in range(len(factor.values))]
    words = shlex.join(command)
    lines = [
        f"run {shlex.quote(f'{labels[number]}-{turn}')} {_setting(factor, number)}{words}"
        for turn in range(1, times + 1) for number in range(len(labels))
    ]  # fmt: skip
    compares = [
        f"compare rankscope diff --baseline {_folders(labels[0], times)} --candidate {_folders(label, times)}"
        for label in labels[1:]
    ]
    return _SCRIPT.format(
        name=factor.name, runs=plural(len(lines), "run"), script=shlex.quote(script).replace("\n", " "),
        folder=f"vary-{factor.name}", lines="\n".join(lines), compares="\n".join(compares),
    )  # fmt: skip


def _setting(factor: Factor, number: int) -> str:
    value = factor.values[number]
    return "" if value is None else f"env {factor.name}={shlex.quote(value)} "


def _folders(label: str, times: int) -> str:
    return " ".join(f'"$out"/{shlex.quote(f"{label}-{turn}")}' for turn in range(1, times + 1))


def write_experiment(
    given: Sequence[str], command: Sequence[str], *, times: int, output: str | None, force: bool
) -> int:
    """Writes the script to a file, or prints it."""
    if not command:
        raise click.ClickException("--vary needs the command of the job behind --: .. -- torchrun train.py")
    factor = factor_of(given)
    refuse_existing(output, force)
    named = output if output is not None and output != "-" else "experiment.sh"
    write_report(experiment_script(factor, command, times, named).encode(), output, force)
    if output is not None and output != "-":
        runs = plural(times * len(factor.values), "run")
        click.echo(f"{output}: {runs}; RUN=1 bash {shlex.quote(output)} starts them and compares", err=True)
    return 0
