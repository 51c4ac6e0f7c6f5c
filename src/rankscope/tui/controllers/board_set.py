"""The boards of one job: all of them, the one on the screen, their filter and their cursor."""

from __future__ import annotations

import numpy as np

from rankscope.features.traces.page.lanes import TracedRun
from rankscope.features.traces.page.trace_board import TraceBoard
from rankscope.features.traces.page.trace_targets import go_item
from rankscope.tui.board import AnyBoard, Board
from rankscope.tui.cell_selection import Place
from rankscope.tui.filters import Filter, apply
from rankscope.tui.letters import Codes
from rankscope.tui.live.anchor import carry, same_finding
from rankscope.tui.model import Model
from rankscope.tui.times import Times


class BoardSet:
    """The lanes of operations, and of traces where there are any."""

    def __init__(self, model: Model, overview: Codes) -> None:
        self.whole, self.overview = model, overview
        """The model without a filter, and the worst code of each column."""
        self.operations = Board(model)
        self.traced = TraceBoard(model.traces, model) if model.traces is not None else None
        self.shown: AnyBoard = self.operations
        """The board on the screen."""
        if self.traced is not None and isinstance(model.dataset, TracedRun):
            self.shown = self.traced
        self.wanted = Filter()

    @property
    def all(self) -> list[AnyBoard]:
        """All boards."""
        return [self.operations] if self.traced is None else [self.operations, self.traced]

    @property
    def has_lanes(self) -> bool:
        """Whether any operation can be drawn: logs and stacks alone may hold none."""
        return self.traced is not None or self.whole.dataset.ops.height > 0

    @property
    def on_time(self) -> bool:
        """Whether the lanes of operations are on the axis of time."""
        return self.operations.view.kind == "time"

    def blame(self, index: int | None) -> None:
        """Marks on all boards the ranks that a finding blames."""
        for board in self.all:
            board.blame(index)

    def narrow(self, wanted: Filter, model: Model) -> None:
        """Shows `model`, the part of the whole that passes the filter `wanted`."""
        self.wanted = wanted
        self.operations.replace_model(model, None)
        if self.traced is not None:
            self.traced.replace_model(model)

    def narrowed(self, model: Model) -> Model:
        """The part of a model that passes the filter; the whole model if nothing passes."""
        narrow = apply(model, self.wanted)
        return narrow if len(narrow.ranks) else model

    def take(
        self, model: Model, overview: Codes, narrow: Model | None = None, times: Times | None = None
    ) -> int | None:
        """Shows a newer state of the job; boards keep their places. Returns the new index of the same finding.

        `narrow` is the part of `model` that passes the filter, with its `times` if they are known.
        """
        narrow = self.narrowed(model) if narrow is None or not len(narrow.ranks) else narrow
        before, finding, on_traces = self.whole.analysis, self.shown.finding, self.shown is self.traced
        self.whole, self.overview = model, overview
        carry(self.operations, narrow, times)
        if narrow.traces is None:
            self.traced = None
        elif self.traced is None:
            self.traced = TraceBoard(narrow.traces, narrow)
        else:
            self.traced.replace_model(narrow)
        if on_traces:
            self.shown = self.traced or self.operations
        return same_finding(before, finding, model.analysis)

    def go(self, place: Place) -> None:
        """Moves the cursor of the board on the screen to a place of the whole model."""
        self.shown.go_rank(place.rank)
        if isinstance(self.shown, TraceBoard):
            if place.item is not None:
                go_item(self.shown, self.whole, place.item)
        elif (item := None if place.item is None else self._here(place.item)) is not None:
            self.shown.go_item(item)
        elif place.column is not None and self.shown.view.kind == "sequence":
            self.shown.go_unit(place.column)

    def _here(self, item: int) -> int | None:
        """The item of the filtered model for an item of the whole model."""
        if self.operations.model is self.whole:
            return item
        whole, model = self.whole.items, self.operations.model
        lane = model.lane_of.get(int(self.whole.ranks[whole.lane[item]]), -1)
        same = (model.items.lane == lane) & (model.items.col == whole.col[item]) & (model.items.row == whole.row[item])
        found = np.flatnonzero(same)
        return int(found[0]) if len(found) else None
