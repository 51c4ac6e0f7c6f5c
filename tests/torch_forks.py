"""Python processes that begin with torch loaded: forks of one that has imported it, as most jobs take less time.

For tests in which it does not matter how a rank is started. `python -m tests.torch_forks FD` is that one process: it
reads requests from the connection on that descriptor, answers each, and ends with whoever holds the other end.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import multiprocessing
import os
import runpy
import select
import signal
import subprocess
import sys
import types
from collections.abc import Mapping, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import NamedTuple, Protocol

LOADED = ("torch.distributed.fsdp", "torch.distributed.pipelining", "torch.distributed.tensor.parallel",
          "torch.profiler", "torch._inductor.codecache")  # fmt: skip
"""What takes long to import; by the last one torch names the frames of its dumps."""
LONGEST_S = 600.0


class RankProcess(Protocol):
    """As much of `subprocess.Popen` as a test of a job needs."""

    pid: int

    def poll(self) -> int | None: ...
    def wait(self, timeout: float | None = None) -> int: ...
    def send_signal(self, sig: int, /) -> None: ...
    def kill(self) -> None: ...


class Start(NamedTuple):
    """A process to be."""

    arguments: list[str]
    """Those of Python: a script or `-m MODULE`, and its own arguments."""
    environment: dict[str, str]
    folder: str
    output: str
    """The file to which it prints."""
    input: str
    """The file or pipe that it reads."""


class TorchFork:
    """A running process."""

    def __init__(self, start: Start) -> None:
        self.arguments = start.arguments
        self.pid = _asked(start)
        self.returncode: int | None = None
        self._ended = os.pidfd_open(self.pid)

    def poll(self) -> int | None:
        """Its exit code, or None while it runs; negative if a signal ended it."""
        if self.returncode is None and select.select([self._ended], [], [], 0)[0]:
            self.returncode = _asked(self.pid)
            os.close(self._ended)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Its exit code once it has ended. Raises TimeoutExpired after that many seconds."""
        if self.returncode is None:
            select.select([self._ended], [], [], timeout)
        code = self.poll()
        if code is None:
            raise subprocess.TimeoutExpired(self.arguments, timeout or 0.0)
        return code

    def send_signal(self, sig: int, /) -> None:
        """Sends a signal if it still runs."""
        if self.poll() is None:
            signal.pidfd_send_signal(self._ended, sig)

    def kill(self) -> None:
        """Kills it and the processes below it if it still runs."""
        if self.poll() is None:
            os.killpg(self.pid, signal.SIGKILL)


def started(
    arguments: Sequence[str], environment: Mapping[str, str], folder: Path, output: Path, stdin: str = os.devnull
) -> TorchFork:
    """Starts `python ARGUMENTS` with torch loaded; what torch reads from the environment at its import is not new."""
    return TorchFork(Start(list(arguments), dict(environment), str(folder), str(output), stdin))


def printed(arguments: Sequence[str], folder: Path) -> str:
    """What `python ARGUMENTS` prints in a folder, to its end. Fails if it fails, or takes more than minutes."""
    output = folder / "printed"
    process = started(arguments, os.environ, folder, output)
    try:
        assert process.wait(LONGEST_S) == 0, output.read_text()
    finally:
        process.kill()
    return output.read_text()


_connection: list[Connection] = []


def _asked(request: Start | int) -> int:
    """The id of a process that starts, or the exit code of the one with an id; the server starts with the first."""
    if not _connection:
        ours, theirs = multiprocessing.Pipe()
        command = [sys.executable, "-m", "tests.torch_forks", str(theirs.fileno())]
        here = Path(__file__).parents[1]
        server = subprocess.Popen(command, cwd=here, stdin=subprocess.DEVNULL, pass_fds=[theirs.fileno()])
        theirs.close()
        _connection.append(ours)
        atexit.register(server.wait)
        atexit.register(ours.close)
    _connection[0].send(request)
    answer: int = _connection[0].recv()
    return answer


def main(descriptor: int) -> None:
    """Forks and reaps what it is asked to; returns in each fork with the program it shall run."""
    connection = Connection(descriptor)
    for name in LOADED:
        importlib.import_module(name)
    gc.collect()
    # a process that ends looks through all that it has, which takes a second with all of torch
    gc.freeze()
    while True:
        try:
            request = connection.recv()
        except EOFError:
            return
        if isinstance(request, int):
            connection.send(os.waitstatus_to_exitcode(os.waitpid(request, 0)[1]))
        elif pid := os.fork():
            connection.send(pid)
        else:
            connection.close()
            run(request)
            return


def run(start: Start) -> None:
    """Makes this process what `python ARGUMENTS` would be, with the modules that are loaded, and runs the program."""
    os.setsid()
    with open(start.output, "wb", buffering=0) as output:  # noqa: PTH123 - a descriptor is what is needed
        os.dup2(output.fileno(), 1)
        os.dup2(output.fileno(), 2)
    with open(start.input, "rb", buffering=0) as read:  # noqa: PTH123
        os.dup2(read.fileno(), 0)
    os.chdir(start.folder)
    os.environ.clear()
    os.environ.update(start.environment)
    first, *rest = start.arguments
    if first == "-m":
        sys.argv = ["-m", *rest[1:]]
        runpy._run_module_as_main(rest[0])  # type: ignore[attr-defined]
        return
    sys.argv = [first, *rest]
    sys.path.insert(0, str(Path(first).parent))
    program = types.ModuleType("__main__")
    program.__file__ = first
    # it stays the main module to the end of the process, as with `python SCRIPT`
    sys.modules["__main__"] = program
    exec(compile(Path(first).read_bytes(), first, "exec"), vars(program))  # noqa: S102 - a script of a test


if __name__ == "__main__":
    main(int(sys.argv[1]))
