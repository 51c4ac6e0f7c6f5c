"""Updates of a followed job: the state of the job, and the state of following."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rankscope.analysis.live_state import LiveState
    from rankscope.analysis.model import Analysis
    from rankscope.schema import Dataset


@dataclass(frozen=True)
class FollowProgress:
    """The state of following."""

    files: int = 0
    """Number of files."""
    writing: int = 0
    """Number of incomplete files; their earlier version is shown, if there is one."""
    unread: int = 0
    """Number of files that workers are reading."""
    polled_s: float | None = None
    """Seconds between two looks without notices of the file system; None with notices."""
    why_polled: str = ""
    away: str | None = None
    """Reason why nothing can be seen at the moment."""
    said: str = ""
    """Error of the command that runs when the job freezes, if it failed."""
    full: bool = False
    """Whether the file system is full, so that files may be cut."""

    @property
    def trouble(self) -> str:
        """The problem of following in one line; empty if there is none."""
        from rankscope.text.escaping import plain

        if self.away is not None:
            kept = "what was read is shown, and it is looked for again" if self.files else "it is waited for"
            return f"{plain(self.away)}; {kept}"
        return "the file system has no room left: dumps are cut short" if self.full else ""

    @property
    def how(self) -> str:
        """The way in which changes are noticed, in a few words."""
        from rankscope.text.wording import SECOND_NS, duration

        if self.polled_s is None:
            return "notified of changes"
        return f"looking every {duration(round(self.polled_s * SECOND_NS))} ({self.why_polled})"


@dataclass(frozen=True)
class JobUpdate:
    """The state of the job."""

    number: int
    """Counts from 1."""
    dataset: Dataset
    analysis: Analysis
    live: LiveState
    reading: FollowProgress
    changed: int
    """Number of files that changed since the last update."""
    noticed_at: float | None = None
    """Monotonic time at which the oldest of these changes was seen."""
    alarm: bool = False
    """Whether the job froze or failed with this update; True once, until the job has gone on."""
