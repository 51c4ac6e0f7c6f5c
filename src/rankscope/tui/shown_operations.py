"""Lanes of operations as the screen shows them, on the axis of logical time or of time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC
from functools import partial

import numpy as np
from numpy.typing import NDArray

from rankscope.text.escaping import plain
from rankscope.text.wording import plural, ranks_text
from rankscope.tui import lane_paint, letters, search
from rankscope.tui.actions import FOOTER
from rankscope.tui.axis import group_ticks, sequence_ruler, time_ruler
from rankscope.tui.board import Board
from rankscope.tui.boards import LaneBoard
from rankscope.tui.cell_selection import Place, column_of
from rankscope.tui.clocks import align_clocks
from rankscope.tui.lane_cells import LaneCells
from rankscope.tui.lane_paint import Gutter, Line
from rankscope.tui.letters import Codes
from rankscope.tui.model import Model
from rankscope.tui.overview import Strip, sequence_strip, time_strip
from rankscope.tui.search import Target, parse
from rankscope.tui.text_bars import shortened

Ints = NDArray[np.int64]


JOINT = {".": "several done", "-": "goes on", "~": "waits on"}
"""Characters of cells of one character that are no letter of an operation, and their meaning."""


class ShownOperations(Board, LaneBoard):
    """The lanes of operations of one model."""

    FOOTER = FOOTER
    SEARCHED = "op, group, rank, #number, function, file, message"

    def __init__(self, model: Model, width: int = 60, height: int = 10) -> None:
        self._ticks: tuple[Model, int | None, tuple[list[int], list[int]]] = (model, None, ([], []))
        """Columns and numbers of the collectives of a group, for the ruler."""
        self._characters: frozenset[int] = frozenset()
        """The characters of the cells that were drawn last."""
        super().__init__(model, width, height)

    def cells(self, lanes: Ints) -> LaneCells:
        """The cells of some lanes in the window."""
        cells = super().cells(lanes)
        self._characters = frozenset(cells.text.tobytes())
        return cells

    def clock_offsets(self, whole: Model) -> Mapping[int, int]:
        """The difference of each rank's clock from the clock that most agree with."""
        return align_clocks(whole.dataset).offsets

    # Moves

    def go_place(self, whole: Model, place: Place) -> None:
        """Moves to a place of the whole model; to its column only on the axis of logical time."""
        self.go_rank(place.rank)
        if (item := None if place.item is None else self._item_here(whole, place.item)) is not None:
            self.go_item(item)
        elif place.column is not None and self.view.kind == "sequence":
            self.go_unit(place.column)

    def _item_here(self, whole: Model, item: int) -> int | None:
        """The item of the shown model for an item of the whole model."""
        if self.model is whole:
            return item
        items, model = whole.items, self.model
        lane = model.lane_of.get(int(whole.ranks[items.lane[item]]), -1)
        same = (model.items.lane == lane) & (model.items.col == items.col[item]) & (model.items.row == items.row[item])
        found = np.flatnonzero(same)
        return int(found[0]) if len(found) else None

    def go_text(self, text: str) -> None:
        """Moves to a typed rank, number, step or time; ValueError says why it cannot."""
        times = self.times if self.view.kind == "time" else None
        day_ns = self.unit if times else int(self.model.items.created.max(initial=0))
        target = parse(text, day_ns, UTC if self.model.dataset.from_logs else None)
        if target.rank is not None:
            if not self.go_rank(target.rank):
                ranks = self.model.ranks
                known = ranks_text(ranks.tolist(), 30) if len(ranks) else "none"
                raise ValueError(f"no rank {target.rank} among the lanes ({known}); esc ends a filter")
        elif target.step is not None or target.seq is not None:
            self._go_column(target)
        elif times is None:
            raise ValueError("times need the time axis: t")
        else:
            self.go_unit(target.time_ns if target.time_ns is not None else self.unit + (target.span_ns or 0))

    def _go_column(self, target: Target) -> None:
        if self.view.kind == "time":
            raise ValueError("sequence numbers and steps need the sequence axis: t")
        if target.step is not None:
            self.go_unit(target.step)
            return
        selection, finding = self.selection, self.finding
        group = selection.group if selection is not None else None
        if group is None and finding is not None and (ref := self.model.analysis.findings[finding].group):
            group = ref.key
        column = None if group is None or target.seq is None else column_of(self.model, group, target.seq)
        if column is None:
            raise ValueError(f"no collective #{target.seq} in the group under the cursor")
        self.go_unit(column)

    def search(self, text: str) -> search.Hits:
        """Items with every word of `text`."""
        return search.search(self.model, text)

    def first_hit(self, hits: Ints) -> int:
        """The first hit from the column of the cursor on; 0 if none is, or on the axis of time."""
        after = np.flatnonzero(self.model.items.col[hits] >= self.unit)
        return int(after[0]) if len(after) and self.view.kind == "sequence" else 0

    def go_hit(self, hit: int) -> None:
        """Moves to an item."""
        self.go_item(hit)

    # Words and lines

    @property
    def row_words(self) -> list[str]:
        """The number of ranks, of rows if ranks share some, and of those in view; and the drawn memory."""
        lanes, rows = len(self.model.ranks), len(self.rows)
        text = plural(lanes, "rank") if lanes else "no rank is known"
        if rows < lanes:
            text += f" in {plural(rows, 'row')}"
        if rows > self.height:
            text += f", rows {self.top + 1}-{min(self.top + self.height, rows)} shown"
        return [text, *self.memory_words]

    @property
    def clock_words(self) -> list[str]:
        """How well the clocks agree, on the axis of time."""
        return [self.times.note] if self.view.kind == "time" and self.times is not None else []

    def legend(self, present: Codes) -> list[str]:
        """Marks, then letters, then blanks; last, the characters that stand for several operations or for no start."""
        joint = JOINT if self.view.chars == 1 else {}
        return [
            *letters.legend(present, narrow=self.view.chars == 1),
            *(f"{c} {text}" for c, text in joint.items() if ord(c) in self._characters),
        ]

    def overview(self, whole: Model, worst: Codes) -> tuple[object, Callable[[int], Strip]]:
        """The worst code of each column of the whole model, or the shown operations on the axis of time."""
        del whole
        if self.view.kind == "time" and self.times:
            return self.times, partial(time_strip, self.times)
        return worst, partial(sequence_strip, worst)

    def gutter(self, width: int) -> Gutter:
        """The gutter for this number of lanes."""
        return lane_paint.gutter_for(width, len(self.model.ranks))

    def rulers(self, gutter: Gutter) -> list[tuple[str, str]]:
        """Times of day, or the numbers of the collectives of the group under the cursor."""
        if self.view.kind == "time":
            # logs print the local time of their hosts; the screen shows it as it is
            return [("  time", time_ruler(self.view, self.width, UTC if self.model.dataset.from_logs else None))]
        selection = self.selection
        group = selection.group if selection is not None and not selection.is_p2p else None
        if self._ticks[0] is not self.model or self._ticks[1] != group:
            self._ticks = (self.model, group, group_ticks(self.model, group))
        name = "step"
        if group is not None:
            known = self.model.dataset.group_list[group]
            name = shortened(plain(known.description or known.name), gutter.width - 5) + " #"
        return [(f"  {name}", sequence_ruler(self.view, self.width, self._ticks[2], self.model.width))]

    def compose(self, gutter: Gutter, count: int) -> tuple[list[Line], Codes]:
        """The rows of the window."""
        del count
        return lane_paint.compose(self, gutter)
