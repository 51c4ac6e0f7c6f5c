"""Worker processes over a list of files. One that dies or hangs costs only the file it was at."""

from __future__ import annotations

import contextlib
import os
import queue
import select
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import IO, Any, TypeAlias

from rankscope.parsers.contents import DecodedFile, LogStretch
from rankscope.parsers.files.directory_walk import FoundPath
from rankscope.parsers.registry import restore_content
from rankscope.parsers.workers.machine_share import interpreter_command, process_count
from rankscope.parsers.workers.protocol import receive_message, send_message

START_SECONDS = 120.0
"""A process that has not started by then does not start: a cold network file system is slow, a broken one for ever."""
BASE_SECONDS = 30.0
BYTES_PER_SECOND = 1 << 19
"""A file gets BASE_SECONDS and a second for so many bytes between two messages of its worker."""
BYTES_PER_WORKER = 4 << 20
"""Another process is started for so many bytes: starting one takes as long as decoding them."""
ARCHIVE_SUFFIXES = (".tar", ".tgz", ".tar.gz", ".tar.zst", ".zip")
"""Large files so named are shared between all workers, if they are archives; a name decides nothing else."""
PACKED_SUFFIXES = (*ARCHIVE_SUFFIXES, ".gz", ".zst")
RANGE_BYTES = 16 << 20
"""Other large files are given out in ranges of so many bytes: if one is a log, each is read by itself."""
PIPE_BYTES = 1 << 20
"""A dump fits in: its worker goes on with the next one at once. The most a user may ask Linux for."""
RENEWED_AFTER = 10_000
"""A process gives way to a new one after so many files: heaps grow with each, and a job is watched for days."""
MOST_WAITING = 16
"""With so many results that nobody took yet, no more ranges of files are read."""
WAIT_SECONDS = 0.01
FAREWELL_SECONDS = 2.0
"""A process that broke off has so long to end."""
LOOK_SECONDS = 1.0
"""So often the clock is asked whether a process has said nothing for too long."""
Now: TypeAlias = Callable[[], float]
"""Seconds of a clock that never goes back."""
_BROKEN = (EOFError, OSError, ValueError, LookupError, TypeError, ArithmeticError, MemoryError)
"""What is raised when the pipe of a process ends, is closed by `stop`, or carries no message."""
_START = """import gc, sys
gc.disable()
sys.path[:] = sys.argv[1:]
from rankscope.parsers.workers.worker import main
main()"""
"""Imports make no garbage that is worth a search."""
_MEMORY = {
    "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1",
    "MALLOC_MMAP_THRESHOLD_": str(32 << 20), "MALLOC_TRIM_THRESHOLD_": str(64 << 20),
}  # fmt: skip
"""Files are read in blocks of some MB: pages for them are asked of Linux once, not for each block."""


@dataclass(frozen=True)
class FileTail:
    """From where on a file that still grows is to be read, if it is a log."""

    start: int = 0
    mark: str = ""
    """What `tailing.mark` said of the file up to there: another one in its place is read from the beginning."""
    ended: bool = False
    """It has not grown for a while: its last line is read though it lacks its end."""


@dataclass(frozen=True)
class Task:
    """A file for a worker; of an archive every `parts`-th member from `part` on."""

    found: FoundPath
    part: int = 0
    parts: int = 1
    tail: FileTail | None = None
    """Of a file that is watched; else None."""


@dataclass
class Result:
    """Something a worker found in a file; `last` is set once for each task, with or without content."""

    task: Task
    inner: str = ""
    kind: str | None = None
    problem: str | None = None
    size: int | None = None
    mtime_ns: int | None = None
    decoded: DecodedFile | None = None
    stretch: LogStretch | None = None
    """Of a log that is watched: the bytes that `decoded` tells of."""
    stamp: tuple[int, int, int] | None = None
    """With `last`, of a file that is watched: size, time and inode, if none of them changed while it was read."""
    last: bool = False
    fatal: str | None = None
    """Why no worker can work at all."""


Tasks: TypeAlias = "queue.SimpleQueue[Task | None]"
"""What the threads take their tasks from; None ends the one that takes it."""


class WorkerError(Exception):
    """Worker processes cannot be started."""


class _SlowError(Exception):
    """A worker said nothing for too long."""


def workers_for(found: Sequence[FoundPath], jobs: int | None) -> int:
    """How many processes the files are worth."""
    most = jobs if jobs is not None else process_count()
    total = sum(f.size for f in found)
    shared = any(f.shown.endswith(ARCHIVE_SUFFIXES) or f.size > 2 * RANGE_BYTES for f in found)
    return max(1, min(most, total // BYTES_PER_WORKER + 1, most if shared else max(1, len(found))))


class Pool:
    """Starts the processes and hands out tasks at once, while others import; `run` yields what comes back."""

    def __init__(
        self,
        found: Sequence[FoundPath],
        jobs: int | None,
        environment: Mapping[str, str] | None = None,
        now: Now = time.monotonic,
    ) -> None:
        count = workers_for(found, jobs)
        tasks = [task for f in sorted(found, key=lambda f: (-f.size, f.shown)) for task in _tasks(f, count)]
        self._tasks: Tasks = queue.SimpleQueue()
        for task in tasks:
            self._tasks.put(task)
        self._left = len(tasks)
        self._results: queue.SimpleQueue[Result] = queue.SimpleQueue()
        try:
            self._threads = [
                WorkerThread(self._tasks, self._results, environment or {}, now) for _ in range(count if tasks else 0)
            ]
        except OSError as error:
            raise WorkerError(f"no worker process can be started: {error.strerror}") from error
        for thread in self._threads:
            self._tasks.put(None)
            thread.start()

    def run(self) -> Generator[Result]:
        """Every result of every task; ends when all tasks are done. Raises WorkerError."""
        try:
            while self._left:
                result = self._results.get()
                if result.fatal is not None:
                    raise WorkerError(result.fatal)
                self._left -= result.last
                yield result
        finally:
            self.close()

    def close(self) -> None:
        """Ends the processes, whatever they are at."""
        for thread in self._threads:
            thread.stop()


def _tasks(found: FoundPath, workers: int) -> list[Task]:
    shared = found.size > BYTES_PER_WORKER and found.shown.endswith(ARCHIVE_SUFFIXES)
    parts = workers if shared else 1 if found.shown.endswith(PACKED_SUFFIXES) else found.size // RANGE_BYTES
    return [Task(found, part, parts) for part in range(parts)] if parts > 1 else [Task(found)]


class WorkerThread(threading.Thread):
    """Feeds one process until a task is None, and starts another if it dies."""

    def __init__(
        self,
        tasks: Tasks,
        results: queue.SimpleQueue[Result],
        environment: Mapping[str, str],
        now: Now = time.monotonic,
    ) -> None:
        super().__init__(daemon=True)
        self.environment, self.now = environment, now
        self.tasks = tasks
        self.results = results
        self.stopped = threading.Event()
        self.ready = False
        self.served = 0
        self.stamp: tuple[int, int, int] | None = None
        self.process = _start(environment)

    def run(self) -> None:
        """Takes tasks until there are none."""
        while not self.stopped.is_set() and (task := self.tasks.get()) is not None:
            self.served += 1
            if self.served % RENEWED_AFTER == 0:
                self._renew()
            if not self.ready and not self._wait_until_ready():
                self.results.put(Result(task, fatal="the worker process does not start", last=True))
                return
            self.stamp = None
            while task.parts > 1 and self.results.qsize() > MOST_WAITING and not self.stopped.wait(WAIT_SECONDS):
                pass  # of a file beyond memory, no more is read than can be joined
            problem = self._serve(task)
            if not self.stopped.is_set():
                kind = "unreadable" if problem else None
                self.results.put(Result(task, kind=kind, problem=problem, stamp=self.stamp, last=True))

    def stop(self) -> None:
        """Kills the process."""
        self.stopped.set()
        _end(self.process)

    def _wait_until_ready(self) -> bool:
        """Whether the process says that it has started."""
        assert self.process.stdout is not None
        output = self.process.stdout
        try:
            receive_message(lambda count: _read(output, count, self.now() + START_SECONDS, self.now))
        except (_SlowError, *_BROKEN):
            return False
        self.ready = True
        return True

    def _serve(self, task: Task) -> str | None:
        """Has one file decoded; returns why it could not be."""
        try:
            self._ask(task)
        except _SlowError:
            problem = "takes too long to decode: given up"
        except _BROKEN:
            problem = self._death()
        else:
            return None
        if not self.stopped.is_set():
            self._renew()
        return problem

    def _renew(self) -> None:
        """Puts a new process in the place of this one."""
        _end(self.process)
        self.process, self.ready = _start(self.environment), False
        if self.stopped.is_set():  # meanwhile
            _end(self.process)

    def _ask(self, task: Task) -> None:
        assert self.process.stdin is not None and self.process.stdout is not None
        found = task.found
        order = {"path": os.fsencode(found.path).hex(), "size": found.size, "part": task.part, "parts": task.parts}
        if task.tail is not None:
            order["tail"] = [task.tail.start, task.tail.mark, task.tail.ended]
        send_message(self.process.stdin, order)
        seconds = BASE_SECONDS + found.size / BYTES_PER_SECOND
        output = self.process.stdout
        while True:
            header, body = receive_message(lambda count: _read(output, count, self.now() + seconds, self.now))
            if "done" in header:
                self.stamp = _stamp(header["stamp"])
                return
            self.results.put(_result(task, header, body))

    def _death(self) -> str:
        try:
            code = self.process.wait(timeout=FAREWELL_SECONDS)
        except subprocess.TimeoutExpired:
            return "decoding it made the process talk nonsense: refused"
        if code < 0:
            return f"decoding it ended the process ({signal.Signals(-code).name}): refused"
        return f"decoding it ended the process (exit {code}): refused"


def _start(more: Mapping[str, str]) -> subprocess.Popen[bytes]:
    environment = {**os.environ, **more, **_MEMORY}
    return subprocess.Popen(
        interpreter_command(_START),
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment, bufsize=0,
        pipesize=PIPE_BYTES,
    )  # fmt: skip


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            with contextlib.suppress(OSError):
                stream.close()


def _read(stream: IO[bytes], count: int, deadline: float, now: Now) -> bytearray:
    """Exactly `count` bytes of a pipe. Raises EOFError at its end and _SlowError after the deadline."""
    data = bytearray(count)
    view = memoryview(data)
    while view:
        while not select.select([stream], [], [], max(0.0, min(deadline - now(), LOOK_SECONDS)))[0]:
            if now() >= deadline:
                raise _SlowError
        got = os.readv(stream.fileno(), [view])
        if not got:
            raise EOFError
        view = view[got:]
    return data


def _result(task: Task, header: dict[str, Any], body: memoryview) -> Result:
    content = header["decoded"]
    decoded = None if content is None else restore_content(header["kind"], content, body, header["rows"])
    stretch = None if header["stretch"] is None else LogStretch(*header["stretch"])
    return Result(
        task, header["inner"], header["kind"], header["problem"], header["size"], header["mtime_ns"], decoded, stretch
    )  # fmt: skip


def _stamp(values: list[int] | None) -> tuple[int, int, int] | None:
    return None if values is None else (int(values[0]), int(values[1]), int(values[2]))
