"""Worker processes for a list of files. A worker that dies or hangs costs only its current file."""

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

from rankscope.kinds.functions import PackageError
from rankscope.parsers.contents import DecodedFile, LogStretch, restore_content
from rankscope.parsers.files.directory_walk import FoundPath
from rankscope.parsers.workers.machine_share import interpreter_command, process_count
from rankscope.parsers.workers.protocol import receive_message, send_message

START_SECONDS = 120.0
"""Time for the start of a process; a cold network file system is slow, a broken one never answers."""
BASE_SECONDS = 30.0
BYTES_PER_SECOND = 1 << 19
"""Each file has BASE_SECONDS, and a second for this many bytes, between two messages of its worker."""
BYTES_PER_WORKER = 4 << 20
"""Bytes for which one more process is started: its start takes as long as decoding them."""
ARCHIVE_SUFFIXES = (".tar", ".tgz", ".tar.gz", ".tar.zst", ".txz", ".tar.xz", ".tbz2", ".tar.bz2", ".zip")
"""Suffixes of large files whose members are shared between all workers, if they are archives."""
PACKED_SUFFIXES = (*ARCHIVE_SUFFIXES, ".gz", ".zst", ".xz", ".bz2")
RANGE_BYTES = 16 << 20
"""Bytes of a range of another large file: ranges of a log are read separately."""
PIPE_BYTES = 1 << 20
"""Size of a pipe: a dump fits in, so its worker continues at once. Linux allows users no more."""
RENEWED_AFTER = 10_000
"""Files after which a new process replaces a worker: its heap grows, and a watched job runs for days."""
BATCH_FILES, BATCH_BYTES = 64, 1 << 23
"""Most files, and bytes of them, of one message to a process: a message costs as much as many small files."""
BATCH_SHARE = 16
"""A batch takes at most one of so many waiting files, so that processes share the last ones evenly."""
MOST_WAITING = 16
"""Most waiting results; with more, no further ranges of files are read."""
WAIT_SECONDS = 0.01
FAREWELL_SECONDS = 2.0
"""Time for a failed process to end."""
LOOK_SECONDS = 1.0
"""Interval of the check for silent processes."""
Now: TypeAlias = Callable[[], float]
"""Seconds of a clock that never goes back."""
_BROKEN = (EOFError, OSError, ValueError, LookupError, TypeError, ArithmeticError, MemoryError)
"""Errors of a pipe at its end, closed by `stop`, or without a valid message."""
_START = """import gc, sys
gc.disable()
sys.path[:] = sys.argv[1:]
from rankscope.parsers.workers.worker import main
main()"""
"""Program of a worker. Imports create no garbage, so collection starts later."""
_MEMORY = {
    "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1",
    "MALLOC_MMAP_THRESHOLD_": str(32 << 20), "MALLOC_TRIM_THRESHOLD_": str(64 << 20),
}  # fmt: skip
"""Environment of workers. They read files in blocks of some MB, and keep the memory of a block for the next."""


@dataclass(frozen=True)
class FileTail:
    """The place from which a growing file is read on, if it is a log."""

    start: int = 0
    mark: str = ""
    """The `log_files.file_mark` of the file up to there; a file with another mark is read from its beginning."""
    ended: bool = False
    """The file has not grown for a while: its last line is read even without a line end."""


@dataclass(frozen=True)
class Task:
    """A file for a worker; of an archive every `parts`-th member from `part` on."""

    found: FoundPath
    part: int = 0
    parts: int = 1
    tail: FileTail | None = None
    """The tail of a watched file; else None."""


@dataclass
class Result:
    """A finding of a worker in a file; `last` is set once for each task, with or without content."""

    task: Task
    inner: str = ""
    kind: str | None = None
    problem: str | None = None
    size: int | None = None
    mtime_ns: int | None = None
    decoded: DecodedFile | None = None
    stretch: LogStretch | None = None
    """The bytes of a watched log that `decoded` covers."""
    stamp: tuple[int, int, int] | None = None
    """Size, time and inode of a watched file, in its last result, if none of them changed during the read."""
    last: bool = False
    fatal: str | None = None
    """The reason why no worker can work at all."""


Tasks: TypeAlias = "queue.SimpleQueue[Task | None]"
"""The queue of tasks for the threads; None ends the thread that takes it."""


class WorkerError(Exception):
    """Worker processes cannot be started."""


class _SlowError(Exception):
    """A worker sent no message for too long."""


def workers_for(found: Sequence[FoundPath], jobs: int | None) -> int:
    """The useful number of processes for these files."""
    most = jobs if jobs is not None else process_count()
    total = sum(f.size for f in found)
    shared = any(f.shown.endswith(ARCHIVE_SUFFIXES) or f.size > 2 * RANGE_BYTES for f in found)
    return max(1, min(most, total // BYTES_PER_WORKER + 1, most if shared else max(1, len(found))))


class Pool:
    """Starts the processes and hands out tasks at once, during other imports; `run` yields the results."""

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
        """Every result of every task, until all tasks are done. Raises WorkerError."""
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
        """Ends the processes at once."""
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
        self.next: Task | None = None
        """A task that did not fit into the last batch."""
        self.process = self._process()

    def run(self) -> None:
        """Takes tasks until there are none."""
        while not self.stopped.is_set() and (batch := self._batch()):
            while batch[0].parts > 1 and self.results.qsize() > MOST_WAITING and not self.stopped.wait(WAIT_SECONDS):
                pass  # for a file beyond memory, no more is read than can be joined
            try:
                # a batch with a file that ends the process is read again, each file by itself
                if len(batch) == 1 or not self._serve_batch(batch):
                    for task in batch:
                        self._serve(task)
            except WorkerError as error:
                self.results.put(Result(batch[0], fatal=str(error), last=True))
                return

    def _batch(self) -> list[Task]:
        """The next task, or several small ones if many wait; empty at the end."""
        first, self.next = self.next or self.tasks.get(), None
        batch = [] if first is None else [first]
        left = BATCH_BYTES - sum(task.found.size for task in batch)
        most = min(BATCH_FILES, self.tasks.qsize() // BATCH_SHARE) if batch and batch[0].parts == 1 else 0
        with contextlib.suppress(queue.Empty):
            while len(batch) < most:
                if (task := self.tasks.get_nowait()) is None:
                    self.tasks.put(None)
                    break
                left -= task.found.size
                if left < 0 or task.parts > 1:
                    self.next = task
                    break
                batch.append(task)
        return batch

    def stop(self) -> None:
        """Kills the process."""
        self.stopped.set()
        _end(self.process)

    def _process(self) -> subprocess.Popen[bytes]:
        return _start(self.environment)

    def _wait_until_ready(self) -> bool:
        """Whether the process reports its start."""
        assert self.process.stdout is not None
        output = self.process.stdout
        try:
            receive_message(lambda count: _read(output, count, self.now() + START_SECONDS, self.now))
        except (_SlowError, *_BROKEN):
            return False
        self.ready = True
        return True

    def _serve_batch(self, batch: Sequence[Task]) -> bool:
        """Lets the process decode several files; gives their results only if it reads all of them."""
        results: list[Result] = []
        if self._failure(batch, results.append) is not None:
            return False
        for result in results:
            self.results.put(result)
        return True

    def _serve(self, task: Task) -> None:
        """Lets the process decode one file, which is unreadable if it does not."""
        problem = self._failure([task], self.results.put)
        if problem is not None and not self.stopped.is_set():
            self.results.put(Result(task, kind="unreadable", problem=problem, last=True))

    def _failure(self, batch: Sequence[Task], put: Callable[[Result], None]) -> str | None:
        """Lets the process decode files; returns the reason for a failure. Raises WorkerError if none starts."""
        self.served += len(batch)
        if self.served > RENEWED_AFTER:
            self._renew()
        if self.stopped.is_set():
            return "stopped"
        if not self.ready and not self._wait_until_ready():
            raise WorkerError("the worker process does not start")
        try:
            self._ask(batch, put)
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
        """Replaces the process by a new one."""
        _end(self.process)
        self.ready, self.served = False, 0
        self.process = self._process()
        if self.stopped.is_set():  # stopped meanwhile
            _end(self.process)

    def _ask(self, batch: Sequence[Task], put: Callable[[Result], None]) -> None:
        assert self.process.stdin is not None and self.process.stdout is not None
        send_message(self.process.stdin, {"files": [_order(task) for task in batch]})
        seconds = BASE_SECONDS + sum(task.found.size for task in batch) / BYTES_PER_SECOND
        output = self.process.stdout
        while True:
            header, body = receive_message(lambda count: _read(output, count, self.now() + seconds, self.now))
            for content in header["contents"]:
                put(_result(batch[content["place"]], content, body))
            if "stamps" in header:
                for task, stamp in zip(batch, header["stamps"], strict=True):
                    put(Result(task, stamp=_stamp(stamp), last=True))
                return

    def _death(self) -> str:
        try:
            code = self.process.wait(timeout=FAREWELL_SECONDS)
        except subprocess.TimeoutExpired:
            return "its reader returned an invalid result: refused"
        if code < 0:
            return f"decoding it ended the process ({signal.Signals(-code).name}): refused"
        return f"decoding it ended the process (exit {code}): refused"


def _start(more: Mapping[str, str]) -> subprocess.Popen[bytes]:
    environment = {**os.environ, **more, **_MEMORY}
    return subprocess.Popen(
        interpreter_command(_START),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=environment,
        bufsize=0,
        pipesize=PIPE_BYTES,
    )


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


def _order(task: Task) -> dict[str, Any]:
    """A task for a process, as JSON."""
    found, tail = task.found, task.tail
    order: dict[str, Any] = {name: os.fsencode(getattr(found, name)).hex() for name in ("path", "within")}
    order["size"] = found.size
    order |= {"part": task.part, "parts": task.parts, "given": found.given}
    return order if tail is None else {**order, "tail": [tail.start, tail.mark, tail.ended]}


def _result(task: Task, header: dict[str, Any], body: memoryview) -> Result:
    content, decoded, problem = header["decoded"], None, header["problem"]
    if content is not None:
        try:
            decoded = restore_content(header["kind"], content, body, header["rows"])
        except PackageError as error:
            problem = str(error)
    stretch = None if header["stretch"] is None else LogStretch(*header["stretch"])
    return Result(task, header["inner"], header["kind"], problem, header["size"], header["mtime_ns"], decoded, stretch)


def _stamp(values: list[int] | None) -> tuple[int, int, int] | None:
    return None if values is None else (int(values[0]), int(values[1]), int(values[2]))
