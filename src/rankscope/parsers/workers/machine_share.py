"""Share of the machine for this program: a login node has many cores, many users, and few threads for each user."""

from __future__ import annotations

import os
import sys
from collections.abc import MutableMapping
from pathlib import Path

MOST_PROCESSES = 16
"""Most decoding processes; more would wait for the process that assembles their results."""
MOST_THREADS = 8
"""Most threads of polars, which starts two for each core by default, and fails beyond the limit of `ulimit -u`."""
_SET_HERE = "RANKSCOPE_THREADS_SET"
"""Names of the variables that this program set, not the user."""


def usable_cores() -> int:
    """Cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def process_count() -> int:
    """The number of decoding processes, without an option of the user."""
    return min(MOST_PROCESSES, usable_cores())


def limit_threads(environment: MutableMapping[str, str] = os.environ) -> None:
    """Limits the threads of libraries before their import, in this process and in processes that it starts.

    It keeps variables that the user has set. It limits polars, and the BLAS of numpy, which is not used here.
    """
    wanted = {"POLARS_MAX_THREADS": min(MOST_THREADS, usable_cores()), "OPENBLAS_NUM_THREADS": 1}
    names = [name for name in wanted if name not in environment]
    environment.update({name: str(wanted[name]) for name in names})
    if names:
        environment[_SET_HERE] = ",".join(names)


def users_variables(environment: MutableMapping[str, str] = os.environ) -> dict[str, str]:
    """The environment for the user's programs: without the changes of `limit_threads`."""
    names = {_SET_HERE, *environment.get(_SET_HERE, "").split(",")}
    return {name: value for name, value in environment.items() if name not in names}


# Start of further processes of this program.


def interpreter_command(start: str, *arguments: str) -> list[str]:
    """A command with the imports of this process, without the program's main module or site hooks.

    `start` is the program; it has to take its `sys.path` from `sys.argv` behind `arguments`.
    """
    path = dict.fromkeys([_package_folder(), *filter(None, sys.path)])
    return [sys.executable, "-S", "-E", "-c", start, *arguments, *path]


_RUN_MODULE = """import runpy, sys
sys.path.append(sys.argv.pop(1))
runpy.run_module(sys.argv.pop(1), run_name="__main__", alter_sys=True)"""


def module_command(module: str, *arguments: str) -> list[str]:
    """A command that runs a module of this package, which need not be installed: `rankscope.pyz` unpacks it."""
    return [sys.executable, "-P", "-c", _RUN_MODULE, _package_folder(), module, *arguments]


def _package_folder() -> str:
    return str(Path(__file__).resolve().parents[3])
