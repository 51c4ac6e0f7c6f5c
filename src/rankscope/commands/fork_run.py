"""Runs the script of a fork, and reads what its ranks tell and record."""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

import click

from rankscope.analysis import analyse
from rankscope.assemble.load import InputError, load
from rankscope.commands.replay_run import LIMIT_S, script_process
from rankscope.text.escaping import plain

_LONGEST = 120
"""Characters of an error that are shown."""


@dataclass(frozen=True)
class ForkOutcome:
    """Where the ranks of a run stopped."""

    waiting: int
    """Ranks that did not come to their end."""
    lost: int
    """Ranks that told nothing."""
    error: str
    """The first error of a rank, with its number; empty without one."""
    verdict: str
    """What rankscope says of the records; empty without any."""

    @property
    def is_through(self) -> bool:
        """Whether each rank came to its end."""
        return not self.waiting and not self.lost

    @property
    def state(self) -> str:
        """`3 wait`, or `all end`."""
        if self.lost:
            return f"{self.lost} lost"
        return f"{self.waiting} wait" if self.waiting else "all end"


def fork_outcome(script: Path, python: str, ranks: int) -> ForkOutcome:
    """Runs a script; its records, and `output.txt`, lie beside it in a folder of its name. Leaves no process."""
    folder = script.with_name(f"{script.stem}_run")
    folder.mkdir(exist_ok=True)
    for old in (*folder.glob("rank_*.json"), *folder.glob("dumps/fr_trace_rank_*")):
        old.unlink()
    environment = {**os.environ, "REPRO_OUT": str(folder)}
    with (folder / "output.txt").open("w") as output, script_process(str(script), python, environment, output) as run:
        try:
            run.wait(LIMIT_S)
        except subprocess.TimeoutExpired:
            raise click.ClickException(f"{script} did not end within {LIMIT_S} s") from None
    told = [json.loads(path.read_text()) for path in folder.glob("rank_*.json")]
    if not told:
        raise click.ClickException(f"{script}: no rank told where it is; {folder / 'output.txt'} has the reason")
    told.sort(key=lambda one: int(one["rank"]))
    errors = [f"rank {one['rank']}: {plain(one['error'], _LONGEST)}" for one in told if one["error"]]
    waiting = sum(one["at"] is not None for one in told)
    return ForkOutcome(waiting, ranks - len(told), errors[0] if errors else "", _verdict(folder / "dumps"))


def _verdict(dumps: Path) -> str:
    try:
        return analyse(load([dumps])).verdict
    except InputError as error:
        return f"none: {error}"
