"""Worker processes that stay, for files that are read again whenever they change."""

from __future__ import annotations

import queue
from collections.abc import Iterator, Mapping

from rankscope.parsers.workers.pool import Result, Task, Tasks, WorkerError, WorkerThread
from rankscope.parsers.workers.share import processes


class Crew:
    """Takes tasks at any time, and gives out results as they come; the processes start with the first tasks."""

    def __init__(self, jobs: int | None = None, environment: Mapping[str, str] | None = None) -> None:
        self._most = jobs or processes()
        self._environment = environment or {}
        self._tasks: Tasks = queue.SimpleQueue()
        self._results: queue.SimpleQueue[Result] = queue.SimpleQueue()
        self._threads: list[WorkerThread] = []
        self.left = 0
        """Tasks of which the last result was not taken yet."""

    def submit(self, task: Task) -> None:
        """Has a file read. Raises WorkerError if no process can be started."""
        self.left += 1
        self._tasks.put(task)
        if len(self._threads) < min(self._most, self.left):
            self._start()

    def _start(self) -> None:
        try:
            thread = WorkerThread(self._tasks, self._results, self._environment)
        except OSError as error:
            if self._threads:
                return  # those that are there do it alone
            raise WorkerError(f"no worker process can be started: {error.strerror}") from error
        self._threads.append(thread)
        thread.start()

    def results(self, seconds: float) -> Iterator[Result]:
        """What has come, for the first of which it waits at most so long. Raises WorkerError."""
        wait = seconds
        while True:
            try:
                result = self._results.get(timeout=wait) if wait > 0 else self._results.get_nowait()
            except queue.Empty:
                return
            if result.fatal is not None:
                raise WorkerError(result.fatal)
            self.left -= result.last
            wait = 0.0
            yield result

    def close(self) -> None:
        """Ends the processes, whatever they are at."""
        for thread in self._threads:
            thread.stop()
            self._tasks.put(None)
