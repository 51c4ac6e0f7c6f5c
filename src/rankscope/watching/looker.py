"""When to look at the files: as soon as the kernel tells of a change, and again and again where it does not."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from threading import Event
from time import monotonic

from rankscope.watching.census import AwayError, Census, Changes
from rankscope.watching.mounts import file_system, is_silent
from rankscope.watching.notice import Notice

POLL_S = 2.0
"""Seconds between two looks where nothing is told."""
SAFETY_S = 10.0
"""And where something is: no event is sure to come."""
AWAY_S = 2.0
"""And while nothing can be seen."""


class Looker:
    """Looks at the files below some paths. Its times are those of the monotonic clock, in seconds."""

    def __init__(self, paths: Sequence[Path], poll_s: float | None, wake: Event) -> None:
        self._paths, self._poll_s, self._wake = list(paths), poll_s, wake
        self._census = Census(paths)
        self._notice: Notice | None = None
        self._wanted = True
        self.why_polled = ""
        """Why there are no notices."""
        self.away: str | None = None
        """Why nothing can be seen at the moment."""

    def begin(self) -> None:
        """Asks to be told of changes, unless that is no use."""
        kinds = [file_system(path) for path in self._paths]
        silent = next((kind for kind in kinds if is_silent(kind)), None)
        if self._poll_s is not None or silent is not None:
            self.why_polled = "as asked" if silent is None else f"{silent} tells of no changes"
            return
        self.why_polled = ""
        self._notice = Notice(self._wake.set)
        self._notice.watch([path for path in self._paths if path.is_dir()], recursive=True)
        self._notice.watch(list({path.parent for path in self._paths if not path.is_dir()}), recursive=False)

    def close(self) -> None:
        """Asks for no more notices."""
        if self._notice is not None:
            self._notice.close()

    def look(self) -> list[Changes]:
        """What has changed, as far as it is time to look."""
        now, found = monotonic(), []
        told = self._notice.take() if self._notice is not None else set()
        self._wanted |= self._notice is not None and self._notice.has_begun()
        if told:
            changes, everything = self._census.look(told)
            self._wanted |= everything
            found.append(changes)
        if now >= self.next_at:
            found += self._scan()
        return [changes for changes in found if changes]

    def _scan(self) -> list[Changes]:
        self._wanted = False
        try:
            changes = self._census.scan()
        except AwayError as error:
            self.away = str(error)
            return []
        back, self.away = self.away is not None, None
        if self._notice is not None and (back or not self._notice.works):
            # the threads end with their directory; where they cannot start again, looking has to do
            self._notice.close()
            self.begin()
        return [changes]

    @property
    def next_at(self) -> float:
        """When to look at everything."""
        soon = 0.0 if self._wanted else self._census.scanned_at + self.every_s
        return max(soon, self._census.may_scan_at)

    @property
    def polls(self) -> bool:
        """Whether nobody tells of changes."""
        return self._notice is None or not self._notice.works

    @property
    def every_s(self) -> float:
        """Seconds between two looks at everything."""
        if self.away is not None:
            return AWAY_S
        return (self._poll_s or POLL_S) if self.polls else SAFETY_S
