"""`rankscope http://host:port` and `rankscope -`: answers of a debug server, and standard input, in files to read."""

from __future__ import annotations

import contextlib
import shutil
import sys
import tempfile
import threading
from collections.abc import Generator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from rankscope.commands.output import ProgressLine
from rankscope.commands.source import LoadStep
from rankscope.report.output_files import overwrite
from rankscope.text.escaping import plain
from rankscope.text.given_input import STDIN_NAME

if TYPE_CHECKING:
    from rankscope.triggers.debug_server import DebugServer, PollResult

POLL_S = 10.0
"""Seconds between two requests to a server while its job is watched."""
RETRY_S = 2.0
"""Seconds until the next request to a server that did not answer."""
FAREWELL_S = 10.0
"""Longest wait for the end of a running request."""


STDIN_PATHS = ("-", "/dev/stdin", "/dev/fd/0", "/proc/self/fd/0")


def is_stdin(path: str) -> bool:
    """Whether a path from the user means standard input: "-", or the device if a pipe stands behind it."""
    return path == "-" or (path in STDIN_PATHS and Path(path).is_fifo())


def shown_path(path: str) -> str:
    """The name of a path in reports."""
    return STDIN_NAME if is_stdin(path) else path


def is_address(path: str) -> bool:
    """Whether a path from the user is the address of a server."""
    return path.startswith(("http://", "https://"))


@contextlib.contextmanager
def local_paths(paths: tuple[str, ...], again: bool) -> Generator[tuple[str, ...]]:
    """The paths with server addresses replaced by directories, which are deleted with the context, and standard input
    by a file.

    `again`: the servers are asked repeatedly, even if they do not answer at first. Raises ClickException for a server
    that cannot be asked, and for standard input that cannot be read, or not followed.
    """
    if not any(is_address(path) or is_stdin(path) for path in paths):
        yield paths
        return
    with tempfile.TemporaryDirectory(prefix="rankscope-", ignore_cleanup_errors=True) as scratch:
        paths = tuple(_stored_input(Path(scratch), again) if is_stdin(path) else path for path in paths)
        with _answers(paths, Path(scratch), again) as local:
            yield local


def _stored_input(scratch: Path, again: bool) -> str:
    """The path of a file with everything that comes from standard input."""
    if again:
        raise click.ClickException("standard input cannot be followed: give a file, or leave --watch out")
    if sys.stdin is None or sys.stdin.isatty():
        raise click.ClickException("nothing is piped into standard input")
    stored = scratch / STDIN_NAME
    if not stored.exists():
        try:
            with stored.open("wb") as file:
                shutil.copyfileobj(sys.stdin.buffer, file)
        except OSError as error:
            raise click.ClickException(f"{STDIN_NAME}: {error.strerror or 'cannot be read'}") from error
    return str(stored)


@contextlib.contextmanager
def _answers(paths: tuple[str, ...], scratch: Path, again: bool) -> Generator[tuple[str, ...]]:
    """The paths with server addresses replaced by directories below `scratch`."""
    stop = threading.Event()
    askers: list[threading.Thread] = []
    places = [scratch / str(i) if is_address(path) else None for i, path in enumerate(paths)]
    for path, place in zip(paths, places, strict=True):
        if place is not None:
            server = _begin(path, place, again)
            askers += [threading.Thread(target=_ask_again, args=(server, place, stop), daemon=True)] * again
    for asker in askers:
        asker.start()
    try:
        yield tuple(path if place is None else str(place) for path, place in zip(paths, places, strict=True))
    finally:
        stop.set()
        for asker in askers:
            # a running request must not write into a deleted directory
            asker.join(FAREWELL_S)


def _begin(address: str, place: Path, again: bool) -> DebugServer:
    from rankscope.triggers.debug_server import DebugServer, ServerError

    place.mkdir()
    try:
        with ProgressLine() as narrator:
            narrator(LoadStep(0, 0, f"asking {address}"))
            server = DebugServer(address)
            problems = (_poll(server, place) if again else server.poll(place)).problems
    except ServerError as error:
        raise click.ClickException(str(error)) from error
    for problem in problems[:5]:
        sys.stderr.write(f"rankscope: {plain(problem, 500)}\n")
    return server


def _poll(server: DebugServer, place: Path) -> PollResult:
    """Asks a server; for one that does not answer, notes where its answers would be."""
    from rankscope.triggers.debug_server import PollResult, ServerError
    from rankscope.watching.census import away_note

    try:
        polled = server.poll(place)
    except ServerError as error:
        overwrite(away_note(place), plain(str(error), 400).encode())
        return PollResult(0, 0, 0, (str(error),))
    away_note(place).unlink(missing_ok=True)
    return polled


def _ask_again(server: DebugServer, place: Path, stop: threading.Event) -> None:
    from rankscope.watching.census import away_note

    while not stop.wait(RETRY_S if away_note(place).exists() else POLL_S):
        # a server that is away keeps its earlier answers; the reader notices a full disk
        with contextlib.suppress(OSError):
            _poll(server, place)
