"""What following a job gives out: the job as it is now, and how following goes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rankscope.analysis.live_state import Live
    from rankscope.analysis.model import Analysis
    from rankscope.schema import Dataset


@dataclass(frozen=True)
class Reading:
    """How following goes."""

    files: int = 0
    """Files there are."""
    writing: int = 0
    """Files that are not whole yet: what they were before is shown, if they were."""
    unread: int = 0
    """Files that workers are reading."""
    polled_s: float | None = None
    """Seconds between two looks, where the file system does not tell of changes; None where it does."""
    why_polled: str = ""
    away: str | None = None
    """Why nothing can be seen at the moment."""
    said: str = ""
    """What became of the command that is run when the job freezes, if it failed."""
    full: bool = False
    """The file system has no room, so that files may be cut short."""

    @property
    def trouble(self) -> str:
        """What is wrong with following, in one line; empty if nothing is."""
        from rankscope.text.escaping import plain

        if self.away is not None:
            return f"{plain(self.away)}; what was read is shown, and it is looked for again"
        return "the file system has no room left: dumps are cut short" if self.full else ""

    @property
    def how(self) -> str:
        """How changes are noticed, in a few words."""
        from rankscope.text.wording import SECOND_NS, duration

        if self.polled_s is None:
            return "told of changes"
        return f"looking every {duration(round(self.polled_s * SECOND_NS))} ({self.why_polled})"


@dataclass(frozen=True)
class Update:
    """The job as it is now."""

    number: int
    """From 1 on."""
    dataset: Dataset
    analysis: Analysis
    live: Live
    reading: Reading
    changed: int
    """Files that are not what they were in the update before."""
    noticed_at: float | None = None
    """When the oldest of these changes was seen, on the monotonic clock."""
    alarm: bool = False
    """The job froze or failed with this update: said once, until it has gone on."""
