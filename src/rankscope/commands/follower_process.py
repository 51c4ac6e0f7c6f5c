"""Following of a job in a separate process, so that the process with the screen only has to answer keys.

Messages are pickled, because both ends are this program. The other process opens no file of the job either; its workers
do, and they send it only numbers and text.
"""

from __future__ import annotations

import contextlib
import gc
import io
import os
import pickle
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.reduction import recv_handle, send_handle
from time import monotonic
from typing import TYPE_CHECKING, Any, TypeGuard

import click
import numpy as np
import numpy.typing as npt
import polars as pl

from rankscope.commands.source import YOUNG_THRESHOLDS, JobSource
from rankscope.commands.watch import FollowOptions, followed_job, watcher_for
from rankscope.parsers.workers.machine_share import interpreter_command

if TYPE_CHECKING:
    from rankscope.tui.live.prepared import Prepared
    from rankscope.watching.update import FollowProgress, JobUpdate

NICENESS = 10
"""Niceness of the process and its workers."""
FROZEN_UPDATES = 2
"""Number of first updates whose objects are excluded from searches for cycles."""
TIDY_S = 120.0
"""Time between two searches for cycles in all objects, run between updates."""
_START_CODE = (
    "import sys; sys.path[:] = sys.argv[2:]; from rankscope.commands.follower_process import main; "
    "main(int(sys.argv[1]))"
)


@dataclass(frozen=True)
class FollowRequest:
    """Paths and options of a job to follow."""

    source: JobSource
    follow: FollowOptions
    path_map: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class FollowFailure:
    """Error that ended following."""

    text: str


class FollowerProcess:
    """Source of updates for the screen, from a separate process. Raises ClickException for bad options."""

    def __init__(self, wanted: FollowRequest) -> None:
        watcher_for(wanted.source, wanted.follow)
        self._wanted = wanted
        self._stopped = False
        self._socket: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None

    def run(self, publish: Callable[[JobUpdate | FollowProgress | Prepared], None]) -> None:
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

    def _pass_on(
        self, connection: Connection, publish: Callable[[JobUpdate | FollowProgress | Prepared], None]
    ) -> None:
        from rankscope.watching.update import FollowProgress

        updates = 0
        while not self._stopped:
            news = receive(connection)
            if isinstance(news, FollowFailure):
                self.stop()
                raise click.ClickException(news.text)
            publish(news)
            if not isinstance(news, FollowProgress):
                updates += 1
                if updates <= FROZEN_UPDATES:
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
        interpreter_command(_START_CODE, str(descriptor)),
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, pass_fds=[descriptor],
    )  # fmt: skip


def _how(process: subprocess.Popen[bytes]) -> str:
    try:
        code = process.wait(timeout=1.0)
    except subprocess.TimeoutExpired:
        return ""
    return f" ({signal.Signals(-code).name})" if code < 0 else f" (exit {code})"


def main(descriptor: int) -> None:
    """Main function of the process: follows until the other end is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _stand_back()
    connection = Connection(descriptor)
    try:
        _follow(connection)
    except (BrokenPipeError, EOFError):
        return
    except click.ClickException as error:
        _send(connection, FollowFailure(error.message))
    except Exception as error:  # noqa: BLE001 - the other end tells the user
        _send(connection, FollowFailure(f"{type(error).__name__}: {error}"))


def _stand_back() -> None:
    """Lets the process with the screen go first if both want the same core."""
    os.nice(NICENESS)
    if sys.platform == "linux":
        with contextlib.suppress(OSError):
            os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))


def _follow(connection: Connection) -> None:
    from rankscope.tui.live.prepared import prepare
    from rankscope.watching.update import FollowProgress

    wanted: FollowRequest = connection.recv()
    following = followed_job(wanted.source, wanted.follow, wanted.path_map)
    threading.Thread(target=_end_with, args=(connection, following.stop), daemon=True).start()
    gc.freeze()
    gc.set_threshold(*YOUNG_THRESHOLDS)
    sending, tidied_at = threading.Lock(), monotonic()

    def pass_on(news: JobUpdate | FollowProgress) -> None:
        nonlocal tidied_at
        shown = news if isinstance(news, FollowProgress) else prepare(news)
        with sending:
            send(connection, shown)
        if monotonic() - tidied_at > TIDY_S:
            gc.collect()
            tidied_at = monotonic()

    following.run(pass_on)


def _end_with(connection: Connection, stop: Callable[[], None]) -> None:
    """Ends following when the other end is gone; that end never sends anything."""
    with contextlib.suppress(OSError, EOFError):
        connection.recv_bytes()
    stop()


def _send(connection: Connection, failed: FollowFailure) -> None:
    with contextlib.suppress(OSError):
        send(connection, failed)


# Messages with large tables between two processes of this program: tables as polars IPC, shared memory.

LARGE_BYTES = 1 << 13
"""Tables and arrays of at least this many bytes are sent separately."""
_PROTOCOL = 5
_COLUMN = "values"
_Table = pl.DataFrame | npt.NDArray[Any]


class _TablePickler(pickle.Pickler):
    """Pickles an object without its large tables, which it collects, each once."""

    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file, _PROTOCOL)
        self.tables: dict[int, tuple[int, _Table]] = {}
        """Number and table by identity of the table."""

    def reducer_override(self, obj: object) -> Any:
        """A call for the number of a large table; Python does not call this for built-in types."""
        if not _is_large(obj):
            return NotImplemented
        number, _ = self.tables.setdefault(id(obj), (len(self.tables), obj))
        return _table, (number, obj.shape if isinstance(obj, np.ndarray) else None)


class _TableUnpickler(pickle.Unpickler):
    """Unpickles an object with its large tables."""

    def __init__(self, data: bytes, tables: list[pl.DataFrame]) -> None:
        super().__init__(io.BytesIO(data))
        self._tables = tables

    def find_class(self, module: str, name: str) -> Any:
        """The callable of that name, as pickled."""
        ours = (module, name) == (__name__, _table.__name__)
        return self._given if ours else super().find_class(module, name)

    def _given(self, number: int, shape: tuple[int, ...] | None) -> _Table:
        table = self._tables[number]
        return table if shape is None else table[_COLUMN].to_numpy().reshape(shape)


def _table(number: int, _shape: tuple[int, ...] | None) -> _Table:
    """Placeholder in the message for the table with a number."""
    raise LookupError(f"table {number} was sent apart")


def send(connection: Connection, thing: object) -> None:
    """Sends a picklable object. Raises OSError if the other end is gone, or if memory is exhausted."""
    file = io.BytesIO()
    packer = _TablePickler(file)
    packer.dump(thing)
    with contextlib.ExitStack() as stack:
        # a table that cannot be written must not leave half a message behind
        descriptors = [_shared(table, stack) for _, table in packer.tables.values()]
        connection.send(len(descriptors))
        for descriptor in descriptors:
            send_handle(connection, descriptor, 0)
    connection.send_bytes(file.getvalue())


def _shared(table: _Table, stack: contextlib.ExitStack) -> int:
    """The descriptor of memory with a table as polars IPC; `stack` closes it."""
    descriptor = os.memfd_create("rankscope")
    stack.callback(os.close, descriptor)
    frame = table if isinstance(table, pl.DataFrame) else pl.DataFrame({_COLUMN: table.reshape(-1)})
    with open(descriptor, "wb", closefd=False) as shared:
        frame.write_ipc(shared, compression="uncompressed")
    return descriptor


def receive(connection: Connection) -> Any:
    """Receives an object. Raises EOFError or OSError if the other end is gone."""
    tables = [_mapped(recv_handle(connection)) for _ in range(connection.recv())]
    return _TableUnpickler(connection.recv_bytes(), tables).load()


def _mapped(descriptor: int) -> pl.DataFrame:
    try:
        return pl.read_ipc(f"/proc/self/fd/{descriptor}").rechunk()
    finally:
        os.close(descriptor)


def _is_large(thing: object) -> TypeGuard[_Table]:
    if isinstance(thing, np.ndarray):
        return thing.nbytes >= LARGE_BYTES and thing.dtype.kind in "iufb"
    return type(thing) is pl.DataFrame and thing.width > 0 and thing.estimated_size() >= LARGE_BYTES
