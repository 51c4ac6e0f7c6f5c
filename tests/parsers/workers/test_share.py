"""What is taken of a machine: few threads on many cores, unless the user says otherwise."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from rankscope.parsers.files.directory_walk import FoundPath
from rankscope.parsers.workers import machine_share
from rankscope.parsers.workers.pool import workers_for

SHOW = """
import os, sys
from rankscope import cli
def run(args):
    print("numpy" in sys.modules, os.environ["POLARS_MAX_THREADS"], os.environ["OPENBLAS_NUM_THREADS"])
    return 0
cli.run = run
cli.main()
"""


def shown(**more: str) -> str:
    names = ("POLARS_MAX_THREADS", "OPENBLAS_NUM_THREADS")
    environment = {name: value for name, value in os.environ.items() if name not in names}
    command = [sys.executable, "-c", SHOW]
    return subprocess.run(command, env={**environment, **more}, capture_output=True, text=True, check=True).stdout


def test_a_command_limits_its_libraries_before_they_are_imported() -> None:
    assert shown() == f"False {min(8, machine_share.usable_cores())} 1\n"
    assert shown(POLARS_MAX_THREADS="3") == "False 3 1\n"


def test_on_many_cores_it_takes_a_share(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine_share, "usable_cores", lambda: 128)
    environment: dict[str, str] = {}
    machine_share.limit_threads(environment)
    assert environment["POLARS_MAX_THREADS"] == "8"
    assert machine_share.process_count() == 16
    many = [FoundPath(f"rank_{rank}", f"rank_{rank}", 10**8) for rank in range(1000)]
    assert (workers_for(many, None), workers_for(many, 64)) == (16, 64)


def test_programs_of_the_user_see_what_the_user_set() -> None:
    environment = {"HOME": "/home/me", "POLARS_MAX_THREADS": "3"}
    before = dict(environment)
    machine_share.limit_threads(environment)
    assert environment["OPENBLAS_NUM_THREADS"] == "1" and environment["POLARS_MAX_THREADS"] == "3"
    # a process that was started by this one
    machine_share.limit_threads(environment)
    assert machine_share.users_variables(environment) == before
