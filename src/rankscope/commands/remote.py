"""`rankscope http://host:port` and `rankscope -`: answers of a debug server, and standard input, in files to read."""

from __future__ import annotations

import contextlib
import shutil
import sys
import tempfile
import threading
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from rankscope.commands.output import ProgressLine
from rankscope.commands.source import STDIN_NAME, LoadStep, is_address, is_stdin, shown_path
from rankscope.report.output_files import overwrite
from rankscope.text.escaping import plain
from rankscope.text.secrets import hide

if TYPE_CHECKING:
    from rankscope.triggers.debug_server import DebugServer, PollResult

POLL_S = 10.0
"""Seconds between two requests to a server while its job is watched."""
RETRY_S = 2.0
"""Seconds until the next request to a server that did not answer."""
FAREWELL_S = 10.0
"""Longest wait for the end of a running request."""


@dataclass(frozen=True)
class LocalInput:
    """Paths on this machine in place of those that the user gave."""

    paths: tuple[str, ...]
    called: tuple[str, ...]
    """The user's names for the paths."""
    unread: tuple[tuple[str, str], ...] = ()
    """Addresses of servers that could not be asked, and why."""


@contextlib.contextmanager
def local_input(paths: tuple[str, ...], again: bool) -> Generator[LocalInput]:
    """The paths with server addresses replaced by directories, which are deleted with the context, and standard input
    by a file.

    `again`: the servers are asked repeatedly, even if they do not answer at first. Raises ClickException if no server
    can be asked and there is no other path, and for standard input that cannot be read, or not followed.
    """
    called = tuple(map(shown_path, paths))
    with tempfile.TemporaryDirectory(prefix="rankscope-", ignore_cleanup_errors=True) as scratch:
        paths = tuple(_stored_input(Path(scratch), again) if is_stdin(path) else path for path in paths)
        with _answers(LocalInput(paths, called), Path(scratch), again) as local:
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
def _answers(asked: LocalInput, scratch: Path, again: bool) -> Generator[LocalInput]:
    """The input with server addresses replaced by directories below `scratch`."""
    from rankscope.triggers.debug_server import ServerError

    stop = threading.Event()
    askers: list[threading.Thread] = []
    local: list[tuple[str, str]] = []
    unread: list[tuple[str, str]] = []
    for number, (path, called) in enumerate(zip(asked.paths, asked.called, strict=True)):
        if not is_address(path):
            local.append((path, called))
            continue
        place = scratch / str(number)
        try:
            server = _begin(path, place, again)
        except ServerError as error:
            unread.append((called, str(error).removeprefix(f"{called}: ")))
            continue
        local.append((str(place), called))
        askers += [threading.Thread(target=_ask_again, args=(server, place, stop), daemon=True)] * again
    if not local:
        raise click.ClickException("; ".join(f"{called}: {reason}" for called, reason in unread))
    for asker in askers:
        asker.start()
    try:
        yield LocalInput(tuple(path for path, _ in local), tuple(called for _, called in local), tuple(unread))
    finally:
        stop.set()
        for asker in askers:
            # a running request must not write into a deleted directory
            asker.join(FAREWELL_S)


def _begin(address: str, place: Path, again: bool) -> DebugServer:
    """A server that was asked once. Raises ServerError."""
    from rankscope.triggers.debug_server import DebugServer

    place.mkdir()
    with ProgressLine() as narrator:
        narrator(LoadStep(0, 0, f"asking {shown_path(address)}"))
        server = DebugServer(address)
        problems = (_poll(server, place) if again else server.poll(place)).problems
    for problem in problems[:5]:
        sys.stderr.write(f"rankscope: {plain(hide(problem), 500)}\n")
    return server


def _poll(server: DebugServer, place: Path) -> PollResult:
    """Asks a server; for one that does not answer, notes where its answers would be."""
    from rankscope.triggers.debug_server import PollResult, ServerError
    from rankscope.watching.census import away_note

    try:
        polled = server.poll(place)
    except ServerError as error:
        overwrite(away_note(place), plain(hide(str(error)), 400).encode())
        return PollResult(0, 0, 0, (str(error),))
    away_note(place).unlink(missing_ok=True)
    return polled


def _ask_again(server: DebugServer, place: Path, stop: threading.Event) -> None:
    from rankscope.watching.census import away_note

    while not stop.wait(RETRY_S if away_note(place).exists() else POLL_S):
        # a server that is away keeps its earlier answers; the reader notices a full disk
        with contextlib.suppress(OSError):
            _poll(server, place)
