"""The files of a job that is watched, put together: as a whole, or what is new of them into what was there."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from rankscope import schema
from rankscope.parsers.files.walk import printable
from rankscope.watching.behind import stands_behind, with_later_behind
from rankscope.watching.history import History
from rankscope.watching.same import grew_only, with_times

if TYPE_CHECKING:
    from rankscope.parsers.assemble.more import Longer
    from rankscope.parsers.assemble.sources import Source
    from rankscope.parsers.assemble.traces.more import Arrived
    from rankscope.schema import Dataset


@dataclass(frozen=True)
class Changes:
    """What is to be put together."""

    paths: tuple[str, ...]
    """Files that are others than they were, as they are shown; among them those that say the same."""
    said: tuple[str, ...]
    """Those of them that say something else."""
    traces: tuple[Source, ...]
    """Traces that came."""


class Assembly:
    """What is shown of one job, and what is known of its files."""

    def __init__(
        self, root: str, pattern: re.Pattern[str] | None, world_size: int | None, errors: str | None = None
    ) -> None:
        from rankscope.parsers.assemble.tables import Memory

        self._root, self._asked, self._errors = printable(root), (pattern, world_size, None), errors
        self._history = History()
        self._repeats = schema.empty(schema.REPEATS)
        self.memory = Memory()
        self.dataset: Dataset | None = None
        self.given: list[Source] = []
        """What it was put together of."""
        self.waiting: list[Source] | None = None
        """What was taken last, while it is not put together."""
        self.news: frozenset[int] | None = None
        """Ranks whose dumps were all that was new when it was put together last; None: there was more."""
        self.longer: Longer | None = None
        """What is put together, if that is what was judged and more operations in logs."""
        self.arrived: Arrived | None = None
        """Traces that came since all was put together."""

    def take(self, sources: Sequence[Source]) -> list[Source]:
        """Takes all sources; gives them in the order in which they are to be put together."""
        later = [source.shown for source in self.arrived.given] if self.arrived is not None else []
        self.waiting = with_later_behind(self._whole, later, sources)
        return self.waiting

    @property
    def _whole(self) -> list[Source]:
        """What all was put together of last."""
        return self.memory.placed.given if self.memory.placed is not None else []

    @property
    def is_whole(self) -> bool:
        """Whether nothing was left for later."""
        return not self.memory.partly and self.longer is None and self.arrived is None

    def changes(self) -> Changes:
        """What is new in what was taken."""
        from rankscope.parsers.assemble.placed import only_grew

        now = self.waiting or []
        pairs = [(last, one) for last, one in zip(self.given, now, strict=False) if last is not one]
        said = tuple(one.shown for last, one in pairs if not only_grew(last, one))
        traces = tuple(now[len(self.given) :]) if stands_behind(self.given, now) else ()
        return Changes(tuple(one.shown for _, one in pairs), said, traces)

    def put_together(self, *, partly: bool, chatter: bool) -> bool:
        """Puts together what waits; whether that is other than it was but for the times of files.

        `partly`: what other files tell of new dumps, what is more in logs tells of the rest, and what traces that came
        tell together with the others, may be left as it was until all is judged. `chatter`: what says the same as
        before is no news of any rank.
        """
        if self.waiting is None:
            return False
        same = self.dataset is not None and grew_only(self.dataset, self.given, self.waiting)
        if self.dataset is not None and same:
            self.dataset = with_times(self.dataset, self.waiting)
            self.news = frozenset() if chatter else None
            self.given = self.waiting
        else:
            self.given = self._put_together(self.waiting, partly=partly)
        self.waiting = None
        return not same

    def put_all_together(self) -> None:
        """Puts together once more what it was put together of, as a whole."""
        self.given = self._put_together(self.given, partly=False)

    def _put_together(self, sources: list[Source], *, partly: bool) -> list[Source]:
        """Gives the sources as they were then."""
        self.longer = None
        if partly and self._partly(sources):
            return sources
        return self._as_whole(sources)

    def _partly(self, sources: list[Source]) -> bool:
        """Puts only what is new into what was there; whether that could be done."""
        from rankscope.parsers.assemble.again import partly_again
        from rankscope.parsers.assemble.more import with_more, without_what_dumps_tell
        from rankscope.parsers.assemble.repeats import repeat_table

        memory, count = self.memory, len(self._whole)
        if not self._have_arrived(sources):
            return False
        sources = sources[:count]
        self.longer = with_more(memory, sources)
        known = self.longer.dataset if self.longer is not None else memory.dataset
        if self.longer is None and not (known is not None and self.arrived and grew_only(known, self._whole, sources)):
            known = None
        if known is not None:
            dataset, self.news = replace(with_times(known, sources), repeats=self._repeats), frozenset()
        else:
            known = partly_again(memory, self._asked, without_what_dumps_tell(memory, sources))
            if known is None or self._history.link(memory.sources, memory.fresh):
                return False
            self._repeats, self.news = repeat_table(memory.sources, memory.repeats, memory.fresh), memory.renewed
            dataset = replace(known, repeats=self._repeats)
        self.dataset = self.arrived.put_behind(dataset) if self.arrived is not None else dataset
        return True

    def _have_arrived(self, sources: list[Source]) -> bool:
        """Whether all files that were not there are traces that can be put behind the rest; true without any."""
        from rankscope.parsers.assemble.traces.more import arrived

        memory, later = self.memory, sources[len(self._whole) :]
        if memory.dataset is None or not (later or self.arrived):
            return not later
        known = stands_behind(self._whole, sources)
        found = arrived(memory, memory.dataset, later, self.arrived) if known else None
        self.arrived = found or self.arrived
        return found is not None

    def _as_whole(self, sources: list[Source]) -> list[Source]:
        from rankscope.parsers.assemble.dataset import assemble
        from rankscope.parsers.assemble.repeats import repeat_table

        memory, about = self.memory, (self._root, *self._asked, self.memory, self._errors)
        if self.arrived is not None:
            memory.traces = self.arrived.all_pieces
        self.longer = self.arrived = None
        sources = sorted((source.whole() for source in sources), key=lambda s: (s.shown, s.problem or ""))
        dataset = assemble(sources, *about)
        placed, fresh, self.news = memory.sources, memory.fresh, memory.renewed
        if self._history.link(placed, fresh):
            dataset = assemble(self._history.without_former(placed), *about)
            placed, fresh, self.news = memory.sources, None, None
            self._history.link(placed)
        self._repeats = repeat_table(placed, memory.repeats, fresh)
        self.dataset = replace(dataset, repeats=self._repeats)
        return sources
