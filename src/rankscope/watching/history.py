"""What versions of dumps said that are no longer there: since when each rank stands still, and who restarted."""

from __future__ import annotations

from collections.abc import Sequence

from rankscope.assemble.copies import first_version, next_version
from rankscope.assemble.sources import Source
from rankscope.kinds.input_kinds import DUPLICATE

CERTAIN = ("option", "name", "content")
"""How a rank must be known for its dumps to be compared."""


class History:
    """Keeps of each rank's recorders the newest dump, and what is known of the time before it."""

    def __init__(self) -> None:
        self._last: dict[tuple[int, str], Source] = {}
        self._began_ns = 0
        """When the newest attempt began that was seen to take the place of another."""

    def link(self, sources: Sequence[Source]) -> bool:
        """Gives each dump that is used what its versions say; whether some are of an attempt before the newest."""
        dumps = [s for s in sources if s.used and s.dump is not None and s.rank is not None]
        for source in dumps:
            if source.rank_source in CERTAIN:
                self._link(source, (source.rank or 0, min(source.libraries, default="")))
        return any(map(self.is_former, dumps))

    def _link(self, source: Source, key: tuple[int, str]) -> None:
        last = self._last.get(key)
        if last is not None and last.content is source.content and last.mtime_ns == source.mtime_ns:
            source.versions = last.versions
        else:
            source.versions = first_version(source) if last is None else next_version(last, source)
            if source.versions is not None and source.versions.restarted and source.span is not None:
                self._began_ns = max(self._began_ns, source.span[0])
        self._last[key] = source

    def is_former(self, source: Source) -> bool:
        """Whether a dump ends before the newest attempt began: its rank has written none of that yet."""
        return source.dump is not None and source.span is not None and source.span[1] < self._began_ns

    def without_former(self, sources: Sequence[Source]) -> list[Source]:
        """The same to be assembled again, without the rows of earlier attempts."""
        return [_set_aside(s) if self.is_former(s) else s.renewed() for s in sources]


def _set_aside(source: Source) -> Source:
    note = "of an earlier attempt: the job was started again"
    return Source(source.shown, DUPLICATE.name, source.size, source.mtime_ns, note)
