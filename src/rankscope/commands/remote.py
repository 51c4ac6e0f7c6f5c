"""`rankscope http://host:port`: what a debug server tells is put into a directory, which is opened like any other."""

from __future__ import annotations

import contextlib
import sys
import tempfile
import threading
from collections.abc import Generator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from rankscope.commands.output import Narrator
from rankscope.commands.source import Step
from rankscope.report.output_files import overwrite
from rankscope.text.escaping import plain

if TYPE_CHECKING:
    from rankscope.triggers.debug_server import DebugServer, Polled

EVERY_S = 10.0
"""So often a server is asked again while its job is watched."""
AWAY_S = 2.0
"""And one that did not answer."""
FAREWELL_S = 10.0
"""A request that is under way has so long to end."""


def is_address(path: str) -> bool:
    """Whether what the user gave is the address of a server."""
    return path.startswith(("http://", "https://"))


@contextlib.contextmanager
def local(paths: tuple[str, ...], again: bool) -> Generator[tuple[str, ...]]:
    """The paths with addresses of servers replaced by directories, which go with the context.

    `again`: the servers are asked again and again, whether they answer at first or not. Raises ClickException for one
    that cannot be asked.
    """
    if not any(map(is_address, paths)):
        yield paths
        return
    stop = threading.Event()
    askers: list[threading.Thread] = []
    with tempfile.TemporaryDirectory(prefix="rankscope-", ignore_cleanup_errors=True) as scratch:
        places = [Path(scratch, str(i)) if is_address(path) else None for i, path in enumerate(paths)]
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
                # one that is in the middle of asking must not write into what is taken away
                asker.join(FAREWELL_S)


def _begin(address: str, place: Path, again: bool) -> DebugServer:
    from rankscope.triggers.debug_server import DebugServer, ServerError

    place.mkdir()
    narrator = Narrator()
    narrator(Step(0, 0, f"asking {address}"))
    try:
        server = DebugServer(address)
        problems = (_poll(server, place) if again else server.poll(place)).problems
    except ServerError as error:
        raise click.ClickException(str(error)) from error
    finally:
        narrator.close()
    for problem in problems[:5]:
        sys.stderr.write(f"rankscope: {plain(problem, 500)}\n")
    return server


def _poll(server: DebugServer, place: Path) -> Polled:
    """Asks a server; of one that does not answer it is noted where its answers would be."""
    from rankscope.triggers.debug_server import Polled, ServerError
    from rankscope.watching.census import away_note

    try:
        polled = server.poll(place)
    except ServerError as error:
        overwrite(away_note(place), plain(str(error), 400).encode())
        return Polled(0, 0, 0, (str(error),))
    away_note(place).unlink(missing_ok=True)
    return polled


def _ask_again(server: DebugServer, place: Path, stop: threading.Event) -> None:
    from rankscope.watching.census import away_note

    while not stop.wait(AWAY_S if away_note(place).exists() else EVERY_S):
        # a server that is away for a while leaves what it said before; a full disk is seen by who reads it
        with contextlib.suppress(OSError):
            _poll(server, place)
