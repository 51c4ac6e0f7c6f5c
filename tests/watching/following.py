"""Follows a directory in tests, and waits for what is told of it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType

from rankscope.parsers.load import LoadOptions
from rankscope.watching.update import Reading, Update
from rankscope.watching.watcher import Watcher, WatchOptions

PATIENCE_S = 60.0
"""A machine may be busy."""


class Following:
    """A watcher in a thread, until the block ends."""

    def __init__(self, *paths: Path, poll_s: float | None = None, freeze_after_s: float | None = None) -> None:
        options = WatchOptions(LoadOptions(jobs=1), poll_s, freeze_after_s)
        self.watcher = Watcher(list(paths), options)
        self.updates: list[Update] = []
        self.readings: list[Reading] = []
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._run)
        self._told = threading.Condition()

    def __enter__(self) -> Following:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.watcher.stop()
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive()
        if self.error is not None and error is None:
            raise self.error

    def _run(self) -> None:
        try:
            self.watcher.run(self._take)
        except BaseException as error:  # noqa: BLE001 - raised in the test
            self.error = error

    def _take(self, news: Update | Reading) -> None:
        with self._told:
            if isinstance(news, Update):
                self.updates.append(news)
                self.readings.append(news.reading)
            else:
                self.readings.append(news)
            self._told.notify_all()

    def until(self, wanted: Callable[[Update], object]) -> Update:
        """The newest update, once it is as wanted."""
        self._wait(lambda: self.updates and wanted(self.updates[-1]), self._shown)
        return self.updates[-1]

    def _shown(self) -> str:
        if not self.updates:
            return f"nothing, {self.readings[-1:]}"
        last = self.updates[-1]
        return f"{last.number}: {last.live}, {last.analysis.verdict}, {rows(last)}, {last.reading}"

    def until_read(self, wanted: Callable[[Reading], object]) -> Reading:
        """How following goes, once it is as wanted."""
        self._wait(lambda: self.readings and wanted(self.readings[-1]), self._shown)
        return self.readings[-1]

    def _wait(self, ready: Callable[[], object], shown: Callable[[], object]) -> None:
        end = time.monotonic() + PATIENCE_S
        with self._told:
            while not ready():
                assert self.error is None, self.error
                left = end - time.monotonic()
                assert left > 0, f"it did not come about; the last was {shown()}"
                self._told.wait(left)

    def until_bytes(self, count: int) -> None:
        """Waits until so much was read."""
        end = time.monotonic() + PATIENCE_S
        while self.watcher.bytes_read < count:
            assert time.monotonic() < end, f"only {self.watcher.bytes_read} bytes were read"
            time.sleep(0.02)

    def quiet(self, seconds: float) -> Sequence[Update]:
        """The updates of a while in which nothing should happen."""
        count = len(self.updates)
        time.sleep(seconds)
        return self.updates[count:]


def rows(update: Update) -> dict[str, int]:
    """Rows by path of every file that is shown."""
    return dict(update.dataset.files.select("path", "rows").iter_rows())


def problems(update: Update) -> dict[str, str]:
    """What is wrong with files, by path."""
    return {path: problem for path, problem in update.dataset.files.select("path", "problem").iter_rows() if problem}
