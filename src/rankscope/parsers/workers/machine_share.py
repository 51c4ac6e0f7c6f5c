"""How much of a machine the program takes: a login node has a hundred cores, many users, and few threads for each."""

from __future__ import annotations

import os
import sys
from collections.abc import MutableMapping
from pathlib import Path

MOST_PROCESSES = 16
"""More that decode would wait for the one that puts together what they have read."""
MOST_THREADS = 8
"""Of polars, which starts two for each core otherwise, and fails where the system allows no more (`ulimit -u`)."""
_SET_HERE = "RANKSCOPE_THREADS_SET"
"""Names of the variables that the user has not set."""


def usable_cores() -> int:
    """Cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def process_count() -> int:
    """How many processes may decode at once, where the user does not say."""
    return min(MOST_PROCESSES, usable_cores())


def limit_threads(environment: MutableMapping[str, str] = os.environ) -> None:
    """Limits the threads of libraries, before these are imported, in this process and those that it starts.

    What the user has set stays: variables of polars and of the BLAS of numpy, of which nothing here has any use.
    """
    wanted = {"POLARS_MAX_THREADS": min(MOST_THREADS, usable_cores()), "OPENBLAS_NUM_THREADS": 1}
    names = [name for name in wanted if name not in environment]
    environment.update({name: str(wanted[name]) for name in names})
    if names:
        environment[_SET_HERE] = ",".join(names)


def users_variables(environment: MutableMapping[str, str] = os.environ) -> dict[str, str]:
    """The environment for programs of the user's: as it was before `limit_threads`."""
    names = {_SET_HERE, *environment.get(_SET_HERE, "").split(",")}
    return {name: value for name, value in environment.items() if name not in names}


# How the program starts processes of its own.


def interpreter_command(start: str, *arguments: str) -> list[str]:
    """A command that imports what this process would, without running the program's main module or site hooks.

    `start` is the program; it has to take its `sys.path` from what follows `arguments` in `sys.argv`.
    """
    package = str(Path(__file__).resolve().parents[3])
    path = dict.fromkeys([package, *filter(None, sys.path)])
    return [sys.executable, "-S", "-E", "-c", start, *arguments, *path]
