"""The boards of one job: all of them, the one on the screen, their filter and their cursor."""

from __future__ import annotations

from rankscope.kinds.functions import function
from rankscope.tui.boards import LaneBoard
from rankscope.tui.cell_selection import Place
from rankscope.tui.filters import Filter, apply
from rankscope.tui.letters import Codes
from rankscope.tui.live.anchor import carry, same_finding
from rankscope.tui.model import Model, board_kind
from rankscope.tui.shown_operations import ShownOperations
from rankscope.tui.shown_sites import ShownSites
from rankscope.tui.times import Times


class BoardSet:
    """The lanes of operations, and those of a feature on the axis of time where there are any."""

    def __init__(self, model: Model, overview: Codes) -> None:
        self.whole, self.overview = model, overview
        """The model without a filter, and the worst code of each column."""
        self.operations = ShownOperations(model)
        self.timed = _timed(model)
        self.shown: LaneBoard = self.operations
        """The board on the screen."""
        if self.timed is not None and model.from_timed:
            self.shown = self.timed
        self.wanted = Filter()

    @property
    def sites(self) -> ShownSites | None:
        """The lanes of call sites, while they are on the screen."""
        return self.shown if isinstance(self.shown, ShownSites) else None

    @property
    def all(self) -> list[LaneBoard]:
        """All boards."""
        return [board for board in (self.operations, self.timed, self.sites) if board is not None]

    def hides(self, rank: int) -> bool:
        """Whether the filter leaves out a rank."""
        model = self.sites.source if self.sites is not None else self.shown.model
        return rank not in model.lane_of

    @property
    def has_lanes(self) -> bool:
        """Whether any operation can be drawn: logs and stacks alone may hold none."""
        return self.timed is not None or self.whole.dataset.ops.height > 0

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
        for board in self.all:
            board.replace_model(model)

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
        before, finding, on_timed = self.whole.analysis, self.shown.finding, self.shown is self.timed
        self.whole, self.overview = model, overview
        carry(self.operations, narrow, times)
        if self.sites is not None:
            self.sites.replace_model(narrow)
        if narrow.timed is None or self.timed is None:
            self.timed = _timed(narrow)
        else:
            self.timed.replace_model(narrow)
        if on_timed:
            self.shown = self.timed or self.operations
        return same_finding(before, finding, model.analysis)

    def go(self, place: Place) -> None:
        """Moves the cursor of the board on the screen to a place of the whole model."""
        self.shown.go_place(self.whole, place)


def _timed(model: Model) -> LaneBoard | None:
    """The board of the lanes on the axis of time; None without any."""
    kind = board_kind(model.dataset)
    if kind is None or model.timed is None:
        return None
    board: LaneBoard = function(kind.board)(model.timed, model)
    return board
