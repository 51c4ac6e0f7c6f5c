"""Follows a directory in tests, and waits for what is told of it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType

from rankscope.assemble.load import LoadOptions
from rankscope.watching.clock import CLOCK
from rankscope.watching.update import FollowProgress, JobUpdate
from rankscope.watching.watcher import Watcher, WatchOptions
from tests.watching.hand_clock import PATIENCE_S, HandClock


class Following:
    """A watcher in a thread, until the block ends; by a clock that the test turns, or by that of the machine."""

    def __init__(
        self,
        *paths: Path,
        poll_s: float | None = None,
        freeze_after_s: float | None = None,
        clock: HandClock | None = None,
        follow_links: bool = False,
    ) -> None:
        options = WatchOptions(LoadOptions(jobs=1, follow_links=follow_links), poll_s, freeze_after_s)
        self.watcher, self._clock = Watcher(list(paths), options, clock or CLOCK), clock
        self.updates: list[JobUpdate] = []
        self.readings: list[FollowProgress] = []
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

    def _take(self, news: JobUpdate | FollowProgress) -> None:
        with self._told:
            if isinstance(news, JobUpdate):
                self.updates.append(news)
                self.readings.append(news.reading)
            else:
                self.readings.append(news)
            self._told.notify_all()

    def until(self, wanted: Callable[[JobUpdate], object]) -> JobUpdate:
        """The newest update, once it is as wanted."""
        self._wait(lambda: self.updates and wanted(self.updates[-1]), self._shown)
        return self.updates[-1]

    def _shown(self) -> str:
        if not self.updates:
            return f"nothing, {self.readings[-1:]}"
        last = self.updates[-1]
        return f"{last.number}: {last.live}, {last.analysis.verdict}, {rows(last)}, {last.reading}"

    def until_read(self, wanted: Callable[[FollowProgress], object]) -> FollowProgress:
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
                if self._clock is not None:
                    self._clock.wake()
                self._told.wait(min(left, 0.05))

    def turn(self, seconds: float) -> Sequence[JobUpdate]:
        """Lets time pass by the clock of the test; the updates that come of it."""
        assert self._clock is not None
        count = len(self.updates)
        self._clock.turn(seconds)
        self.rest()
        return self.updates[count:]

    def seen(self, *paths: Path) -> Sequence[JobUpdate]:
        """The updates that come while it finds these files as they are now, and does what is due by the clock."""
        count, end = len(self.updates), time.monotonic() + PATIENCE_S
        while not all(map(self._is_seen, paths)):
            assert self.error is None, self.error
            assert time.monotonic() < end, f"not seen; the last was {self._shown()}"
            time.sleep(0.02)
        self.rest()
        return self.updates[count:]

    def missed(self, path: Path) -> None:
        """Waits until it finds that a file is not there any more."""
        assert self._clock is not None
        end = time.monotonic() + PATIENCE_S
        while str(path) not in self.watcher._store._gone:
            assert time.monotonic() < end, f"not missed; the last was {self._shown()}"
            self.rest()

    def _is_seen(self, path: Path) -> bool:
        about, entry = path.stat(), self.watcher._store.entries.get(str(path))
        return entry is not None and entry.stamp == (about.st_size, about.st_mtime_ns, about.st_ino)

    def rest(self, *, hangs: bool = False) -> None:
        """Waits until all is done that is due by the clock of the test, but for a look that `hangs`."""
        assert self._clock is not None
        self._clock.rest(lambda: not hangs and self.watcher._asker.is_asking)
        assert self.error is None, self.error


def rows(update: JobUpdate) -> dict[str, int]:
    """Rows by path of every file that is shown."""
    return dict(update.dataset.files.select("path", "rows").iter_rows())


def problems(update: JobUpdate) -> dict[str, str]:
    """What is wrong with files, by path."""
    return {path: problem for path, problem in update.dataset.files.select("path", "problem").iter_rows() if problem}
