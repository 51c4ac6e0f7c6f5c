"""All followed files: workers read changed ones, and earlier results are kept for the rest."""

from __future__ import annotations

import queue
from collections.abc import Iterator, Mapping
from dataclasses import replace

from rankscope.assemble.sources import SourceFile
from rankscope.parsers.files.directory_walk import FoundPath
from rankscope.parsers.workers.machine_share import process_count
from rankscope.parsers.workers.pool import Result, Task, Tasks, WorkerError, WorkerThread
from rankscope.watching.census import FileChanges
from rankscope.watching.clock import CLOCK, Clock
from rankscope.watching.watched_file import WatchedFile

GRACE_S = 0.6
"""Seconds until a missing file counts as gone, because some are deleted just before they are written anew."""


class FileStore:
    """The followed files. Times are monotonic, in seconds."""

    def __init__(
        self, jobs: int | None = None, environment: Mapping[str, str] | None = None, clock: Clock = CLOCK
    ) -> None:
        self._crew, self._clock = WorkerCrew(jobs, environment), clock
        self.entries: dict[str, WatchedFile] = {}
        self._open: set[str] = set()
        """Paths of files that need work."""
        self._gone: dict[str, float] = {}
        """The time at which each missing file was first missed."""
        self.changed: set[str] = set()
        """Paths with changed contents since the last `sources`."""
        self.bytes_read = 0
        """Bytes read by workers."""

    def note(self, changes: FileChanges, now: float) -> None:
        """Records the changes that a look has found."""
        moving = [(self.entries.pop(old, None), found) for old, found in changes.moved]
        for old, found in changes.moved:
            self._gone.pop(old, None)
            self._gone.pop(found.path, None)
        for entry, found in moving:
            if entry is None or not entry.is_shown:
                self._seen(found, now)
                continue
            entry.found = found
            entry.sources = tuple(_renamed(one, found) for one in entry.shown())
            self.entries[found.path] = entry
            self._open.add(found.path)
            self.changed.add(found.path)
        for found in changes.changed:
            self._seen(found, now)
        for path in changes.gone:
            if path in self.entries:
                self._gone.setdefault(path, now)

    def _seen(self, found: FoundPath, now: float) -> None:
        self._gone.pop(found.path, None)
        known = self.entries.get(found.path)
        if found.problem is not None:
            sources = (SourceFile(found.shown, found.kind, found.size, found.mtime_ns, found.problem),)
            self.entries[found.path] = WatchedFile(found, now, None, sources)
            self.changed.add(found.path)
        elif known is None:
            age = max(0.0, (self._clock.unix_ns() - (found.mtime_ns or 0)) / 1e9)
            self.entries[found.path] = WatchedFile(found, now - age, now, noticed_at=now)
        else:
            known.seen(found, now)
        self._open.add(found.path)

    def work(self, now: float) -> None:
        """Sends due files to workers, and forgets files that are gone. Raises WorkerError."""
        for path in list(self._open):
            entry = self.entries.get(path)
            if entry is None or (entry.asked is None and entry.next_at is None):
                self._open.discard(path)
            elif entry.asked is None:
                self._work_on(entry, now)
        for path in [path for path, since in self._gone.items() if now - since >= GRACE_S]:
            del self._gone[path], self.entries[path]
            self.changed.add(path)

    def _work_on(self, entry: WatchedFile, now: float) -> None:
        if entry.settle(now):
            self.changed.add(entry.found.path)
        elif (entry.due is not None or entry.tail_open) and (entry.next_at or 0.0) <= now:
            self._ask(entry, now)

    def _ask(self, entry: WatchedFile, now: float) -> None:
        self._crew.submit(entry.task(now))

    def take(self, seconds: float) -> None:
        """Takes results of workers; waits for the first at most so long. Raises WorkerError."""
        for result in self._crew.results(seconds):
            entry = self._entry_of(result)
            if result.last:
                self.bytes_read += _bytes(result)
            if entry is None:
                continue
            if not result.last:
                entry.parts.append(result)
            elif entry.take(result, self._clock.now()):
                self.changed.add(entry.found.path)

    def _entry_of(self, result: Result) -> WatchedFile | None:
        """The file that waits for a result; None if it is gone."""
        entry = self.entries.get(result.task.found.path)
        return entry if entry is not None and entry.asked is result.task.found else None

    @property
    def reading(self) -> int:
        """The number of files that workers are reading."""
        return self._crew.left

    @property
    def is_unread(self) -> bool:
        """Whether there are files that were never read, not even in part."""
        known = (self.entries[path] for path in self._open if path in self.entries)
        return any(entry.is_unread for entry in known)

    @property
    def unfinished(self) -> list[WatchedFile]:
        """The number of files that are probably still being written."""
        known = [self.entries[path] for path in self._open if path in self.entries]
        return [entry for entry in known if entry.held is not None or entry.tries]

    @property
    def is_damaged(self) -> bool:
        """Whether any file is damaged in its shown version."""
        return any(source.problem is not None for entry in self.entries.values() for source in entry.sources)

    def next_at(self) -> float | None:
        """The next time with work to do, even without changes."""
        known = [self.entries[path] for path in self._open if path in self.entries]
        times = [at for entry in known if (at := entry.next_at) is not None]
        return min([*times, *(since + GRACE_S for since in self._gone.values())], default=None)

    def noticed_at(self) -> float | None:
        """The time of the oldest change that is not shown yet."""
        times = [
            entry.noticed_at
            for path in self.changed
            if (entry := self.entries.get(path)) is not None and entry.noticed_at is not None
        ]
        return min(times, default=None)

    def sources(self) -> list[SourceFile]:
        """All contents to assemble, sorted by path."""
        for path in self.changed:
            entry = self.entries.get(path)
            if entry is not None:
                entry.noticed_at = None if entry.is_shown else self._clock.now()
        self.changed = set()
        shown = [source for entry in self.entries.values() for source in entry.shown()]
        return sorted(shown, key=lambda s: (s.shown, s.problem or ""))

    def close(self) -> None:
        """Ends the workers."""
        self._crew.close()


def _bytes(result: Result) -> int:
    size = result.task.found.size if result.stamp is None else result.stamp[0]
    return max(0, size - (result.task.tail.start if result.task.tail is not None else 0))


def _renamed(source: SourceFile, found: FoundPath) -> SourceFile:
    inner = source.shown.partition("!")[2]
    return replace(source, shown=found.shown + (f"!{inner}" if inner else ""))


# Persistent worker processes, for files that are read whenever they change.


class WorkerCrew:
    """Takes tasks at any time and returns results as they come; processes start with the first tasks."""

    def __init__(self, jobs: int | None = None, environment: Mapping[str, str] | None = None) -> None:
        self._most = jobs or process_count()
        self._environment = environment or {}
        self._tasks: Tasks = queue.SimpleQueue()
        self._results: queue.SimpleQueue[Result] = queue.SimpleQueue()
        self._threads: list[WorkerThread] = []
        self.left = 0
        """Tasks without their last result."""

    def submit(self, task: Task) -> None:
        """Queues a file to read. Raises WorkerError if no process can be started."""
        self.left += 1
        self._tasks.put(task)
        if len(self._threads) < min(self._most, self.left):
            self._start()

    def _start(self) -> None:
        try:
            thread = WorkerThread(self._tasks, self._results, self._environment)
        except OSError as error:
            if self._threads:
                return  # the running processes suffice
            raise WorkerError(f"no worker process can be started: {error.strerror}") from error
        self._threads.append(thread)
        thread.start()

    def results(self, seconds: float) -> Iterator[Result]:
        """The available results; waits for the first at most so long. Raises WorkerError."""
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
        """Ends the processes, whatever they are doing."""
        for thread in self._threads:
            thread.stop()
            self._tasks.put(None)
