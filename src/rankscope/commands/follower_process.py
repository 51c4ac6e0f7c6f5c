"""Following a job in a process of its own, so that the one with the screen has nothing to do but to answer keys.

What crosses is pickled: both ends are this program. The process at the other end opens no file of the job either; its
workers do, and they send it only numbers and text.
"""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from time import monotonic
from typing import TYPE_CHECKING

import click

from rankscope.commands.crossing import receive, send
from rankscope.commands.cycles import YOUNG_ONLY
from rankscope.commands.source import Source
from rankscope.commands.watch import Follow, followed, watcher_for
from rankscope.parsers.workers.share import interpreter

if TYPE_CHECKING:
    from rankscope.tui.live.prepared import Prepared
    from rankscope.watching.update import Reading, Update

BEHIND = 10
"""How nice the process and its workers are, to the one that answers keys."""
SETTLED = 2
"""With so many updates the screen is there, and with it what need not be searched for cycles any more."""
TIDY_S = 120.0
"""So often cycles are looked for in all there is, between two updates."""
_START = (
    "import sys; sys.path[:] = sys.argv[2:]; from rankscope.commands.follower_process import main; "
    "main(int(sys.argv[1]))"
)


@dataclass(frozen=True)
class Wanted:
    """What is to be followed, and how."""

    source: Source
    follow: Follow
    path_map: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Failed:
    """Following has ended with an error."""

    text: str


class Apart:
    """What the screen is given to follow. Raises ClickException if the options are no good."""

    def __init__(self, wanted: Wanted) -> None:
        watcher_for(wanted.source, wanted.follow)
        self._wanted = wanted
        self._stopped = False
        self._socket: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None

    def run(self, publish: Callable[[Update | Reading | Prepared], None]) -> None:
        """Follows until `stop`; ClickException if the process cannot go on."""
        self._socket, theirs = socket.socketpair()
        try:
            self._process = _start(theirs.fileno())
        except OSError as error:
            raise click.ClickException(f"no process can be started to follow the job: {error.strerror}") from error
        finally:
            theirs.close()
        with Connection(os.dup(self._socket.fileno())) as connection, contextlib.suppress(OSError, EOFError):
            connection.send(self._wanted)
            self._pass_on(connection, publish)
        if not self._stopped:
            raise click.ClickException(f"the process that follows the job has ended{_how(self._process)}")

    def _pass_on(self, connection: Connection, publish: Callable[[Update | Reading | Prepared], None]) -> None:
        from rankscope.watching.update import Reading

        updates = 0
        while not self._stopped:
            news = receive(connection)
            if isinstance(news, Failed):
                self.stop()
                raise click.ClickException(news.text)
            publish(news)
            if not isinstance(news, Reading):
                updates += 1
                if updates <= SETTLED:
                    gc.freeze()

    def stop(self) -> None:
        """Ends `run`, even while the process hangs in a file system that does not answer."""
        self._stopped = True
        if self._process is not None:
            self._process.kill()
        if self._socket is not None:
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)


def _start(descriptor: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        interpreter(_START, str(descriptor)),
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, pass_fds=[descriptor],
    )  # fmt: skip


def _how(process: subprocess.Popen[bytes]) -> str:
    try:
        code = process.wait(timeout=1.0)
    except subprocess.TimeoutExpired:
        return ""
    return f" ({signal.Signals(-code).name})" if code < 0 else f" (exit {code})"


def main(descriptor: int) -> None:
    """The process: follows until the other end is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _stand_back()
    connection = Connection(descriptor)
    try:
        _follow(connection)
    except (BrokenPipeError, EOFError):
        return
    except click.ClickException as error:
        _send(connection, Failed(error.message))
    except Exception as error:  # noqa: BLE001 - the other end tells the user
        _send(connection, Failed(f"{type(error).__name__}: {error}"))


def _stand_back() -> None:
    """Lets the process with the screen go first wherever both want the same core."""
    os.nice(BEHIND)
    if sys.platform == "linux":
        with contextlib.suppress(OSError):
            os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))


def _follow(connection: Connection) -> None:
    from rankscope.tui.live.prepared import prepare
    from rankscope.watching.update import Reading

    wanted: Wanted = connection.recv()
    following = followed(wanted.source, wanted.follow, wanted.path_map)
    threading.Thread(target=_end_with, args=(connection, following.stop), daemon=True).start()
    gc.freeze()
    gc.set_threshold(*YOUNG_ONLY)
    sending, tidied_at = threading.Lock(), monotonic()

    def pass_on(news: Update | Reading) -> None:
        nonlocal tidied_at
        shown = news if isinstance(news, Reading) else prepare(news)
        with sending:
            send(connection, shown)
        if monotonic() - tidied_at > TIDY_S:
            gc.collect()
            tidied_at = monotonic()

    following.run(pass_on)


def _end_with(connection: Connection, stop: Callable[[], None]) -> None:
    """Ends following when the other end is gone: nothing is ever sent from there."""
    with contextlib.suppress(OSError, EOFError):
        connection.recv_bytes()
    stop()


def _send(connection: Connection, failed: Failed) -> None:
    with contextlib.suppress(OSError):
        send(connection, failed)
