"""A window over lanes of ranks: who is kept apart because they are to blame, and in which order they stand."""

from __future__ import annotations

from rankscope.tui.axis import View
from rankscope.tui.model import Model
from rankscope.tui.order import Ordering
from rankscope.tui.window import Window

ALONE = 16
"""So many ranks to blame each have rows of their own; more share rows with each other, never with others."""


class RankWindow(Window):
    """A window whose rows are made of the ranks of a model."""

    def __init__(self, view: View, width: int, height: int, model: Model) -> None:
        super().__init__(view, width, height)
        self.model = model
        self.lane = 0
        self.finding: int | None = None
        self.blamed: frozenset[int] = frozenset(model.analysis.culprits)
        self.ordering: Ordering = "rank"
        self.fresh: frozenset[int] = frozenset()
        """Ranks that changed since somebody looked, of a job that is watched."""

    def set_order(self, ordering: Ordering) -> None:
        """Orders the lanes another way."""
        self.ordering = ordering
        self.refold()

    def blame(self, finding: int | None) -> None:
        """Keeps apart the ranks of a finding, beside those of the root causes."""
        self.finding = finding
        also = self.model.analysis.findings[finding].culprit_ranks if finding is not None else ()
        self.blamed = frozenset(self.model.analysis.culprits) | frozenset(also)
        self.refold()
