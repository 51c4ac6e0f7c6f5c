"""What the versions of one dump say that was written anew while it was watched: since when nothing has changed."""

from __future__ import annotations

from dataclasses import dataclass

from rankscope.assemble.copies import same_recorder
from rankscope.assemble.repeats import progressed
from rankscope.assemble.sources import Source

Span = tuple[int, int]
"""Modification times of an earlier and a later version, in nanoseconds since the epoch."""


@dataclass(frozen=True)
class Versions:
    """The versions of one recorder's dump, of which only the newest is kept."""

    since_ns: int
    """Since this version no operation was issued, started or completed."""
    newest_ns: int
    moved: Span | None = None
    """The last two versions of which the later one shows more."""
    restarted: bool = False
    """The first of them took the place of another recorder's."""

    @property
    def unchanged(self) -> Span | None:
        """The first and the last version that say the same; None if there is only one."""
        return (self.since_ns, self.newest_ns) if self.since_ns < self.newest_ns else None


def first_version(source: Source, restarted: bool = False) -> Versions | None:
    """What one version says by itself: nothing, but it begins the count. None without a time."""
    if source.dump is None or source.mtime_ns is None:
        return None
    return Versions(source.mtime_ns, source.mtime_ns, restarted=restarted)


def next_version(before: Source, after: Source) -> Versions | None:
    """What is known with a newer version of the dump `before`; the times are of one clock, the file server's."""
    old, new = before.versions, first_version(after)
    if old is None or new is None or before.dump is None or after.dump is None or new.newest_ns <= old.newest_ns:
        return new
    if before.dump.rows and after.dump.rows and not same_recorder(before, after):
        return first_version(after, restarted=True)
    moved = progressed(before.dump, after.dump, after.mtime_ns)
    if moved is None:
        return Versions(new.newest_ns, new.newest_ns, restarted=old.restarted)
    if moved:
        return Versions(new.newest_ns, new.newest_ns, (old.newest_ns, new.newest_ns), old.restarted)
    return Versions(old.since_ns, new.newest_ns, old.moved, old.restarted)
