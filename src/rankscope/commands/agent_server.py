"""`rankscope tool mcp`: answers questions of agents over standard input and output."""

from __future__ import annotations

import gc
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import click

from rankscope.parsers.file_access import is_directory

if TYPE_CHECKING:
    from rankscope.report.redact import Redaction


def run(directories: tuple[str, ...], redaction: Redaction | None) -> int:
    """Serves until standard input ends; ClickException without the package `mcp`, or for a path of no directory."""
    if find_spec("mcp") is None:
        raise click.ClickException("the server needs the package mcp: pip install 'rankscope[mcp]'")
    for directory in directories:
        if not is_directory(Path(directory)):
            raise click.ClickException(f"{directory}: not a directory")
    from rankscope.commands.agent_tools import agent_server
    from rankscope.commands.kept_jobs import KeptJobs

    gc.enable()
    agent_server(KeptJobs([Path(directory) for directory in directories], redaction)).run("stdio")
    return 0
