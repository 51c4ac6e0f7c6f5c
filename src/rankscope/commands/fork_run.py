"""Runs the script of a fork, and reads what its ranks tell and record."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import click

from rankscope.analysis import analyse
from rankscope.assemble.load import InputError, load
from rankscope.commands.replay_run import OUTPUT, records_of, replay_environment, run_script
from rankscope.text.escaping import plain
from rankscope.text.secrets import hide

_LONGEST = 120
"""Characters of an error that are shown."""


@dataclass(frozen=True)
class ForkOutcome:
    """Where the ranks of a run stopped."""

    waiting: int
    """Ranks that did not come to their end."""
    lost: int
    """Ranks that told nothing."""
    astray: int
    """Ranks that stopped elsewhere than in the simulation."""
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
    """Runs a script; what it prints lies beside its records."""
    folder = records_of(script)
    with (folder / OUTPUT).open("w") as output:
        run_script(script, python, replay_environment(script), output)
    told = [json.loads(path.read_text()) for path in folder.glob("rank_*.json")]
    if not told:
        raise click.ClickException(f"{script}: no rank told where it is; {folder / OUTPUT} has the reason")
    told.sort(key=lambda one: int(one["rank"]))
    errors = [f"rank {one['rank']}: {plain(hide(one['error']), _LONGEST)}" for one in told if one["error"]]
    waiting = sum(one["at"] is not None for one in told)
    astray = sum(not one["same"] for one in told)
    verdict = _verdict(folder / "dumps")
    return ForkOutcome(waiting, ranks - len(told), astray, errors[0] if errors else "", verdict)


def _verdict(dumps: Path) -> str:
    try:
        return analyse(load([dumps])).verdict
    except InputError as error:
        return f"none: {error}"
