"""From the sources that are shown to one update: assembled and analysed, with what earlier updates told."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from time import time_ns
from typing import TYPE_CHECKING

from rankscope.parsers.files.walk import printable
from rankscope.watching.history import History

if TYPE_CHECKING:
    from rankscope.analysis.freeze import Freeze
    from rankscope.analysis.live import Gate, Live
    from rankscope.analysis.model import Analysis
    from rankscope.parsers.assemble.sources import Source
    from rankscope.schema import Dataset

AGES_NS = 10**18
"""No file is older."""


class Job:
    """One job that is watched. Memory is that of its files, however many updates there were."""

    def __init__(
        self, root: str, pattern: re.Pattern[str] | None, world_size: int | None, freeze_after_ns: int | None
    ) -> None:
        from rankscope.analysis.live import Gate
        from rankscope.parsers.assemble.tables import Memory

        self._root, self._pattern, self._world_size = printable(root), pattern, world_size
        self._history = History()
        self._gate: Gate = Gate(freeze_after_ns)
        self._memory = Memory()
        self._dataset: Dataset | None = None
        self._alarmed = False

    def assemble(self, sources: Sequence[Source]) -> bool:
        """Takes all sources; whether they tell anything."""
        from rankscope.parsers.assemble.dataset import assemble
        from rankscope.parsers.assemble.repeats import repeat_table

        if not any(source.tells for source in sources):
            return False
        dataset = assemble(sources, self._root, self._pattern, self._world_size, None, self._memory)
        if self._history.link(sources):
            sources = self._history.without_former(sources)
            dataset = assemble(sources, self._root, self._pattern, self._world_size, None, self._memory)
            self._history.link(sources)
        self._dataset = replace(dataset, repeats=repeat_table(sources))
        return True

    @property
    def dataset(self) -> Dataset:
        """What was assembled last; RuntimeError before that."""
        if self._dataset is None:
            raise RuntimeError("nothing is assembled yet")
        return self._dataset

    @property
    def is_there(self) -> bool:
        """Whether anything was assembled."""
        return self._dataset is not None

    def judge(self, at_ns: int, *, fresh: bool, unread: bool) -> tuple[Analysis, Live]:
        """What is to be said of it at a moment of a clock that never goes back.

        `fresh`: something was written; `unread`: there are files of which nothing was read yet.
        """
        from rankscope.analysis import analyse
        from rankscope.analysis.live import Look, with_state

        said: list[Live] = []

        def settle(freeze: Freeze) -> Freeze:
            look = Look(at_ns, fresh, self._age_ns(), unread)
            self._gate, live, allowed = self._gate.look(self.dataset, freeze, look)
            said.append(live)
            return allowed

        analysis = analyse(self.dataset, settle)
        return with_state(analysis, said[0], len(self.dataset.seen_ranks)), said[0]

    def alarm(self, analysis: Analysis, live: Live) -> bool:
        """Whether somebody is to be told: once when it freezes or fails, and again after it has gone on."""
        bad = live.state == "frozen" or analysis.is_critical
        alarm = bad and not self._alarmed
        self._alarmed = bad or (self._alarmed and live.state != "progressing")
        return alarm

    def judge_at_ns(self) -> int | None:
        """When it is to be judged again though nothing is written."""
        return self._gate.judge_at_ns

    def _age_ns(self) -> int:
        newest = self.dataset.files.filter(self.dataset.files["used"])["mtime_ns"].max()
        return min(max(0, time_ns() - newest), AGES_NS) if isinstance(newest, int) else 0
