"""Lanes of traces as the screen shows them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from rankscope.analysis.model import Finding
from rankscope.features.traces.page import activity, trace_paint
from rankscope.features.traces.page.activity import COUNT, KINDS, WAITING
from rankscope.features.traces.page.lanes import TraceLanes
from rankscope.features.traces.page.span_facts import look, sight_lines
from rankscope.features.traces.page.trace_board import TraceBoard
from rankscope.features.traces.page.trace_cells import Asked, draw
from rankscope.features.traces.page.trace_rows import parts_of
from rankscope.features.traces.page.trace_ruler import step_line, time_line
from rankscope.features.traces.page.trace_selection import kind_of
from rankscope.features.traces.page.trace_targets import (
    first_after,
    go_finding,
    go_item,
    go_last,
    goto_on_traces,
    search_spans,
)
from rankscope.text.wording import plural
from rankscope.tui.actions import TRACED_FOOTER
from rankscope.tui.boards import LaneBoard
from rankscope.tui.cell_selection import Place
from rankscope.tui.lane_paint import Gutter, Line
from rankscope.tui.letters import Codes
from rankscope.tui.model import Model
from rankscope.tui.overview import Strip
from rankscope.tui.search import Hits, parse
from rankscope.tui.styled_text import Line as StyledLine

Ints = NDArray[np.int64]
UNFOLDED = 64
"""Most ranks whose parts may be unfolded to fill a screen."""
WAITERS = 0.25
"""Share of waiting ranks from which the overview shows the wait."""


class ShownTraces(TraceBoard, LaneBoard):
    """The lanes of traces of one model."""

    FOOTER = TRACED_FOOTER
    SEARCHED = "operation, kernel, group or rank"
    RULED = 2
    _has_steps = False
    """Whether a step begins in the cells that were drawn last."""

    def facts(self) -> Callable[[int, int], list[StyledLine]]:
        """The span under the cursor: its collective, launch, stack and step."""
        return partial(sight_lines, look(self))

    def clock_offsets(self, whole: Model) -> Mapping[int, int]:
        """The offsets of the traces, of each rank that was traced."""
        del whole
        rows = self.lanes.dataset.traces.select("rank", "file").drop_nulls().rows()
        return {rank: -self.lanes.traces.offsets.get(file, 0) for rank, file in rows}

    @property
    def most_rows(self) -> int:
        """All parts of each rank, where these are few enough to be unfolded; else the rows that there are."""
        lanes = range(len(self.lanes.ranks)) if len(self.lanes.ranks) <= UNFOLDED else ()
        return max(self.count, sum(len(parts_of(self.lanes, lane)) for lane in lanes))

    # Moves

    def go_place(self, whole: Model, place: Place) -> None:
        """Moves to a rank, and to the operation there if its trace has it."""
        self.go_rank(place.rank)
        if place.item is not None:
            go_item(self, whole, place.item)

    def go_finding(self, finding: Finding | None) -> None:
        """Moves to the cause of a late rank; without a finding, to the rank that came last by the most."""
        if finding is not None:
            go_finding(self, finding)
        else:
            go_last(self)

    def go_text(self, text: str) -> None:
        """Moves to a typed rank, number, step or time; ValueError says why it cannot."""
        goto_on_traces(self, parse(text, self.moment))

    def search(self, text: str) -> Hits:
        """Spans with every word of `text`."""
        return search_spans(self.lanes, text)

    def first_hit(self, hits: Ints) -> int:
        """The first hit that starts at or after the time under the cursor; 0 if none does."""
        return first_after(self.lanes, hits, self.moment)

    def go_hit(self, hit: int) -> None:
        """Moves to a span, in a row of its kind."""
        self.go_span(hit, kind_of(self.lanes, hit))

    # Words and lines

    @property
    def row_words(self) -> list[str]:
        """The number of ranks, and the rows in view; the drawn memory; the line-up."""
        count = len({rank for at in range(self.count) for rank in self.ranks_of(at)})
        text = "no rank" if self.lanes.dataset.is_rankless else plural(count, "rank")
        if self.count > self.height:
            text += f", rows {self.top + 1}-{min(self.top + self.height, self.count)} of {self.count:,}"
        lined = self.lined
        ends = [] if lined is None else [f"lined up on {plural(len(lined.arrived), 'arrival')}, esc ends it"]
        return [text, *self.memory_words, *ends]

    @property
    def clock_words(self) -> list[str]:
        """How well the clocks agree."""
        return [self.lanes.clock_words]

    def legend(self, present: Codes) -> list[str]:
        """The most important activities first; last, the begin of a step."""
        return activity.legend(present, has_steps=self._has_steps)

    def overview(self, whole: Model, worst: Codes) -> tuple[object, Callable[[int], Strip]]:
        """The activity of most ranks of the whole model."""
        del worst
        lanes = whole.timed if isinstance(whole.timed, TraceLanes) else self.lanes
        return lanes, partial(strip_of, lanes)

    def gutter(self, width: int) -> Gutter:
        """The gutter for this number of ranks."""
        return trace_paint.gutter_for(width, self.lane_count)

    def rulers(self, gutter: Gutter) -> list[tuple[str, str]]:
        """The steps of the rank under the cursor, and the time."""
        del gutter
        label = "  time" if self.lined is None else "  from arrival"
        return [("", step_line(self, self.width)), (label, time_line(self, self.width))]

    def compose(self, gutter: Gutter, count: int) -> tuple[list[Line], Codes]:
        """`count` rows from the first in view on."""
        lines, codes = trace_paint.compose(self, gutter, count)
        self._has_steps = any(activity.STEP.encode() in line.text for line in lines)
        return lines, codes

    # Memory below the lanes

    def last_rows(self, rows: Sequence[int]) -> list[int]:
        """The last row of each rank."""
        return [row for row in rows if row + 1 >= self.count or self.rows[row + 1].first]

    def edges_of(self, rows: Sequence[int]) -> Ints:
        """The edges of each row, which a line-up shifts."""
        return self.cells_of([self.rows[row] for row in rows])[1]


def strip_of(lanes: TraceLanes, width: int) -> Strip:
    """The activity of most ranks in each column; if many wait for others, the wait."""
    count = max(width, 1)
    edges = lanes.low + (lanes.high - lanes.low) * np.arange(count + 1) // count
    rows = [Asked(lane) for lane in range(len(lanes.ranks))]
    if not rows:
        return Strip(lanes.low, lanes.high, " " * count)
    cells = draw(lanes.cover, lanes.key_of, rows, np.broadcast_to(edges, (len(rows), count + 1)))
    waits = (cells.codes >= WAITING) & (cells.codes < COUNT)
    out = [chr(int(np.bincount(cells.text[:, at]).argmax())) for at in range(count)]
    for at in np.flatnonzero(waits.mean(axis=0) >= WAITERS).tolist():
        out[at] = KINDS[int(np.bincount(cells.codes[waits[:, at], at]).argmax())].letter
    return Strip(lanes.low, lanes.high, "".join(out))
