"""The loop that follows a job: looks, reads changed files, and computes an update while further changes gather."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from rankscope.assemble.load import LoadOptions, environment_of, pattern_of, root_of
from rankscope.watching.clock import CLOCK, Clock, WakeSignal
from rankscope.watching.file_store import FileStore
from rankscope.watching.observer import FileObserver, FileSighting, PeriodicCall
from rankscope.watching.update import FollowProgress, JobUpdate
from rankscope.watching.watched_job import WatchedJob

if TYPE_CHECKING:
    from rankscope.report.redact import Redaction

GATHER_S = 0.3
"""Seconds after which read contents are shown although more is being read; longer after slow updates."""
LONGEST_GATHER_S = 10.0
"""Longest wait for new files, so that no rank is missed that is only unread; the first update waits without limit."""
REST_FACTOR = 2.0
"""Rest after an update, as a multiple of its duration."""
OPENING_S = 0.1
"""Seconds between two progress reports of the first update."""
LONGEST_S = 1.0
"""Longest wait, whatever the clocks say."""
Publish: TypeAlias = Callable[[JobUpdate | FollowProgress], None]
"""Receives every update, and the state of following if only that has changed. Called in the thread of the watcher."""


@dataclass(frozen=True)
class WatchOptions:
    """Options of following."""

    load: LoadOptions = field(default_factory=LoadOptions)
    poll_s: float | None = None
    """Seconds between two looks, without notices; None: as the file system needs it."""
    freeze_after_s: float | None = None
    """Standstill from which the job is frozen; None: derived from the job."""
    redaction: Redaction | None = None
    """Replaces names in the tables of each update, before they are judged; None keeps them."""


class Watcher:
    """Follows the files under some paths until it is stopped."""

    def __init__(self, paths: Sequence[Path], options: WatchOptions = WatchOptions(), clock: Clock = CLOCK) -> None:
        """Raises InputError for bad options."""
        load = options.load
        pattern, environment = pattern_of(load.rank_from), environment_of(load.errors)
        errors = None if load.errors is None else str(load.errors.resolve())
        freeze_ns = None if options.freeze_after_s is None else round(options.freeze_after_s * 1e9)
        self._paths, self._clock = list(paths), clock
        self._stopped, self._wake = False, WakeSignal()
        self._store = FileStore(load.jobs, environment, clock)
        self._looker = FileObserver(paths, options.poll_s, self._tell, clock, follow_links=load.follow_links)
        self._asker = PeriodicCall(self._looker.look, self._wake.set, clock)
        self._told = True
        """Whether there is something to see, or nothing was seen yet."""
        self._sight: FileSighting | None = None
        self._redaction = options.redaction
        self._job = WatchedJob(
            root_of(paths, load), pattern, load.world_size, freeze_ns, errors, clock, options.redaction
        )
        self._reading: FollowProgress | None = None
        """The state of following that was published last."""
        self._number, self._shown_at = 0, 0.0
        self._took = 0.0
        """Duration of the last update."""
        self._gathering_since: float | None = None

    def stop(self) -> None:
        """Ends `run`; may be called from any thread, and from a signal handler."""
        self._stopped = True
        self._wake.set()

    def run(self, publish: Publish) -> None:
        """Follows until `stop`. Raises WorkerError if no process can be started."""
        try:
            while not self._stopped:
                self._step(publish)
            self._conclude(publish)
        finally:
            self._store.close()
            self._looker.close()

    @property
    def bytes_read(self) -> int:
        """Bytes that workers have read so far."""
        return self._store.bytes_read

    def _tell(self) -> None:
        self._told = True
        self._wake.set()

    def _step(self, publish: Publish) -> None:
        self._look()
        if self._away is None:
            # nothing is read, or taken for damaged, while the files cannot be seen
            self._store.work(self._clock.now())
        self._wait()
        if self._stopped or (self._sight is None and not self._asker.hangs):
            return
        self._show(publish)
        reading = self._how()
        news = _is_news(self._reading, reading)
        if news or (not self._number and reading != self._reading and self._clock.now() >= self._shown_at + OPENING_S):
            self._reading = reading
            self._shown_at = self._shown_at if self._number else self._clock.now()
            publish(reading)

    def _look(self) -> None:
        for sight in self._asker.take():
            if self._sight is not None and self._sight.away is not None and sight.away is None:
                self._job.resumed(self._clock.now_ns())
            self._sight = sight
            for changes in sight.changes:
                self._store.note(changes, self._clock.now())
        if self._told or (self._sight is not None and self._clock.now() >= self._sight.next_at):
            self._told = self._asker.is_asking
            self._asker.ask()

    def _wait(self) -> None:
        """Waits until something is noticed, seen, read or due."""
        if self._store.reading:
            self._store.take(0.02)
            return
        look_at = math.inf if self._sight is None or self._asker.is_asking else self._sight.next_at
        work_at = self._store.next_at() if self._away is None else None
        times = (look_at, work_at, self._show_at(), self._judge_at())
        until = min(at for at in times if at is not None)
        self._clock.wait(self._wake, min(until, self._clock.now() + LONGEST_S))

    # Updates

    def _show_at(self) -> float | None:
        """The time of the next update; None if there is nothing new."""
        if not self._store.changed:
            self._gathering_since = None
            return None
        if self._gathering_since is None:
            self._gathering_since = self._clock.now()
        patience = max(GATHER_S, 2 * self._took) if self._store.reading else 0.0
        if self._store.is_unread:
            patience = LONGEST_GATHER_S if self._number else math.inf
        return max(self._shown_at + REST_FACTOR * self._took, self._gathering_since + patience)

    def _judge_at(self) -> float | None:
        """The time to judge the job again without new files; None if there is none."""
        at = self._job.judge_at_ns(away=self._away is not None) if self._job.is_there else None
        return None if at is None else at / 1e9

    def _show(self, publish: Publish) -> None:
        now, shows, judges = self._clock.now(), self._show_at(), self._judge_at()
        if shows is not None and now >= shows:
            changed, noticed = len(self._store.changed), self._store.noticed_at()
            self._gathering_since = None
            if self._job.take(self._store.sources(), self._clock.now_ns()):
                self._publish(publish, now, noticed, changed)
        elif judges is not None and now >= judges:
            self._publish(publish, now, None, 0)

    def _publish(self, publish: Publish, begin: float, noticed: float | None, changed: int) -> None:
        analysis, live = self._job.judge(self._clock.now_ns(), unread=self._store.is_unread)
        alarm = self._job.alarm(analysis, live)
        self._number += 1
        self._reading = self._how()
        publish(JobUpdate(self._number, self._job.dataset, analysis, live, self._reading, changed, noticed, alarm))
        self._shown_at = self._clock.now()
        self._took = self._shown_at - begin

    def _conclude(self, publish: Publish) -> None:
        """Judges results that were read and not judged yet, because no other look follows."""
        if not self._store.changed or self._store.is_unread:
            return
        if self._job.take(self._store.sources(), self._clock.now_ns()):
            self._publish(publish, self._clock.now(), None, 0)

    # The state of following

    @property
    def _away(self) -> str | None:
        """The reason why nothing can be seen at the moment."""
        if self._asker.hangs:
            away: str | None = f"{self._paths[0]}: the file system does not answer"
        else:
            away = self._sight.away if self._sight is not None else None
        return self._redaction.text(away) if self._redaction and away else away

    def _how(self) -> FollowProgress:
        sight, unfinished = self._sight, self._store.unfinished
        reading = FollowProgress(len(self._store.entries), len(unfinished), self._store.reading, away=self._away)
        if sight is None or reading.away is not None:
            return reading
        # a full file system counts until there is room again, even if the cut files are gone
        was = self._reading is not None and self._reading.full
        full = sight.full and (was or bool(unfinished) or self._store.is_damaged)
        return replace(reading, polled_s=sight.polled_s, why_polled=sight.why_polled, full=full)


def _is_news(before: FollowProgress | None, now: FollowProgress) -> bool:
    """Whether the problems differ from those before."""
    return before is None or replace(before, files=0, unread=0) != replace(now, files=0, unread=0)
