"""The main screen: which widgets it has, and how they follow the board."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

import numpy as np
from textual import on, work
from textual.app import ComposeResult
from textual.containers import Container, Vertical
from textual.message import Message
from textual.screen import Screen
from textual.timer import Timer

from rankscope.tui.actions import FOOTER, TRACED_FOOTER
from rankscope.tui.board import AnyBoard, Board
from rankscope.tui.detail.operation_index import index_of
from rankscope.tui.detail.pane import DetailPane
from rankscope.tui.detail.selection_facts import look_up
from rankscope.tui.filters import Filter, apply
from rankscope.tui.footer import Found, key_parts, overview_parts, status_parts
from rankscope.tui.header import title_parts, verdict_parts
from rankscope.tui.letters import Codes
from rankscope.tui.model import Model
from rankscope.tui.options import ViewOptions
from rankscope.tui.overview import TABLE, Strip, sequence_strip, time_strip
from rankscope.tui.search import Hits
from rankscope.tui.target import Place, place_of_finding
from rankscope.tui.text_bars import TextBar
from rankscope.tui.timeline import Timeline
from rankscope.tui.times import build_times
from rankscope.tui.traces.span_detail import sight_lines
from rankscope.tui.traces.span_facts import look
from rankscope.tui.traces.trace_board import TraceBoard
from rankscope.tui.traces.trace_status import TraceStrip, strip_of
from rankscope.tui.traces.trace_status import status_parts as traces_status
from rankscope.tui.traces.trace_targets import go_finding, go_item, go_last
from rankscope.tui.traces.traced_run import TracedRun
from rankscope.tui.worker_messages import LookedUp, TimesReady

WIDE = 120
"""Columns from which on the detail is beside the lanes."""
DETAIL_AFTER = 0.03
"""Seconds without a move after which the detail follows: holding a key moves only the lanes."""


class LanesFrame(Screen[None]):
    """Title, verdict, overview, lanes, detail and keys; what they show is told by the board."""

    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (WIDE, "-wide")]
    AUTO_FOCUS = "#lanes"
    DEFAULT_CSS = """
    LanesFrame {
        #body { height: 1fr; width: 100%; layout: vertical; }
        #left { height: 62%; width: 100%; }
        #detail { height: 38%; width: 100%; }
        &.-traces #left { height: 70%; }
        &.-traces #detail { height: 30%; }
        &.-wide #body { layout: horizontal; }
        &.-wide #left { height: 100%; width: 62%; }
        &.-wide #detail { height: 100%; width: 38%; margin-left: 1; }
    }
    """

    def __init__(self, model: Model, overview: Codes, options: ViewOptions) -> None:
        super().__init__()
        self.options = options
        self.whole = model
        """The model without a filter."""
        self.operations = Board(model)
        """The lanes of operations."""
        self.traced = TraceBoard(model.traces, model) if model.traces is not None else None
        """The lanes of traces, where there are any."""
        self.board: AnyBoard = self.operations
        """The one that is shown."""
        if self.traced is not None and isinstance(model.dataset, TracedRun):
            self.board = self.traced
        self.wanted = Filter()
        self.hits: Hits | None = None
        self.found: Found | None = None
        self._worst = overview
        self._strips: dict[tuple[int, str, int], Strip] = {}
        self._traced_strip: TraceStrip | None = None
        self.touched = False
        """Whether any key was pressed: then the view stays where it is when more is read."""
        self._detail_timer: Timer | None = None
        self._looks_up, self._looks_again = False, False
        """Whether a thread looks up the detail, and whether the cursor has moved since."""

    # Widgets

    def compose(self) -> ComposeResult:
        """All of them, from top to bottom."""
        # known before the first layout, which would be made twice
        self.set_class(self.app.size.width >= WIDE, "-wide")
        yield TextBar("title")
        yield TextBar("verdict")
        yield TextBar("overview")
        with Container(id="body"):
            with Vertical(id="left"):
                yield self.lanes
                yield TextBar("status")
            yield self.detail
        yield TextBar("keys")

    @cached_property
    def lanes(self) -> Timeline:
        """The lanes."""
        lanes = Timeline(self.options)
        self.watch(lanes, "moves", self.moved, init=False)
        return lanes

    @cached_property
    def detail(self) -> DetailPane:
        """The pane beside or below the lanes."""
        pane = DetailPane(self.options)
        pane.id = "detail"
        return pane

    def bar(self, name: str) -> TextBar:
        """One of the lines of text."""
        return self.query_one(f"#{name}", TextBar)

    # What is shown

    def on_mount(self) -> None:
        """Shows the first finding."""
        self.show_board(self.board)
        self.show_finding(0 if self.whole.analysis.findings else None)
        if self.board is self.operations:
            self.board.centre(0.6)
        elif self.board.span_of_instance() is None:
            self.board.go_neighbour(1)
        self.lanes.changed()
        self.note("")

    def show_board(self, board: AnyBoard) -> None:
        """Shows these lanes from now on."""
        self.board = board
        self.set_class(isinstance(board, TraceBoard), "-traces")
        self.lanes.show(board)

    def show_finding(self, index: int | None) -> None:
        """Moves the lanes to a finding; filters that hide it are dropped."""
        for board in self.boards:
            board.blame(index)
        finding = self.whole.analysis.findings[index] if index is not None else None
        place = place_of_finding(self.whole, finding) if finding is not None else None
        if place is not None:
            self.go(place)
        if finding is not None and isinstance(self.board, TraceBoard):
            go_finding(self.board, finding)
        elif isinstance(self.board, TraceBoard):
            go_last(self.board)
        self._draw_head()
        self.lanes.changed()

    @property
    def boards(self) -> list[AnyBoard]:
        """All there are."""
        return [self.operations] if self.traced is None else [self.operations, self.traced]

    def go(self, place: Place) -> None:
        """Moves the cursor to a place of the whole model."""
        if place.rank not in self.board.model.lane_of:
            self.set_filter(Filter())
            self.note("filters dropped: they hid it")
        self.board.go_rank(place.rank)
        if isinstance(self.board, TraceBoard):
            if place.item is not None:
                go_item(self.board, self.whole, place.item)
        else:
            self._go_operation(self.board, place)
        self.lanes.changed()

    def _go_operation(self, board: Board, place: Place) -> None:
        item = None if place.item is None else self._here(place.item)
        if item is not None:
            board.go_item(item)
        elif place.column is not None and board.view.kind == "sequence":
            board.go_unit(place.column)

    def _here(self, item: int) -> int | None:
        """The item of the filtered model that is this item of the whole one."""
        if self.operations.model is self.whole:
            return item
        whole, model = self.whole.items, self.operations.model
        lane = model.lane_of.get(int(self.whole.ranks[whole.lane[item]]), -1)
        same = (model.items.lane == lane) & (model.items.col == whole.col[item]) & (model.items.row == whole.row[item])
        found = np.flatnonzero(same)
        return int(found[0]) if len(found) else None

    def set_filter(self, wanted: Filter) -> None:
        """Shows only what the filter lets through; one that lets nothing through is refused."""
        model = apply(self.whole, wanted)
        if not len(model.ranks):
            self.note("nothing is left with this filter")
            return
        on_time = self.operations.view.kind == "time"
        self.wanted, self.hits, self.found = wanted, None, None
        self.operations.replace_model(model, None)
        if self.traced is not None:
            self.traced.replace_model(model)
        self.lanes.changed()
        if on_time:
            self.compute_times(model)

    # The axis of time

    @work(thread=True, description="works something out")
    def work_out(self, what: list[Callable[[], Message]]) -> None:
        """Posts what the one thing in a list comes to, worked out in a thread.

        It is taken out of the list: a worker stays, with all it was called with, until cycles are looked for.
        """
        self.post_message(what.pop()())

    def compute_times(self, model: Model) -> None:
        """Brings the clocks together in a thread."""
        self.work_out([lambda: TimesReady(model, build_times(model))])

    @on(TimesReady)
    def _times_ready(self, event: TimesReady) -> None:
        if event.model is not self.operations.model:
            return
        if not len(event.times.start):
            self.note("no times were recorded: only the sequence can be shown")
            return
        self.operations.show_time(event.times)
        self.note("")
        self.lanes.changed()

    # Lines that follow the board

    def moved(self) -> None:
        """The cursor or the window of the lanes has moved."""
        self.draw_lines()
        if self._detail_timer is None:
            self._detail_timer = self.set_timer(DETAIL_AFTER, self._draw_detail)
        else:
            self._detail_timer.reset()

    @property
    def detail_is_due(self) -> bool:
        """Whether the detail has not yet followed the last move."""
        return self._detail_timer is not None or self._looks_up

    def on_resize(self) -> None:
        """Writes the lines anew for the new width."""
        self._draw_head()
        self.draw_lines()
        self.note("")

    def _draw_head(self) -> None:
        width, palette = self.size.width, self.options.palette
        self.bar("title").put(title_parts(self.whole.dataset, self.whole.analysis, width, palette))
        self.bar("verdict").put(*verdict_parts(self.whole.analysis, self.board.finding, width, palette))

    def draw_lines(self) -> None:
        """Writes overview and status anew."""
        board = self.board
        text, window = self._overview(board, self.size.width - 14)
        self.bar("overview").put([(" overview  ", self.rich_style), *overview_parts(text, window)])
        status = self.bar("status")
        width, ascii_only = status.size.width, self.options.ascii_only
        if isinstance(board, TraceBoard):
            status.put(*traces_status(board, self.wanted, self.found, width, ascii_only=ascii_only))
        else:
            status.put(status_parts(board, self.wanted, self.found, width, ascii_only=ascii_only))

    def _overview(self, board: AnyBoard, width: int) -> tuple[str, tuple[int, int]]:
        """The whole run in so many characters, and which of them the window shows."""
        window = (board.view.first, board.view.first + board.view.span(board.width))
        if isinstance(board, TraceBoard):
            if self._traced_strip is None or len(self._traced_strip.text) != max(width, 1):
                self._traced_strip = strip_of(board.lanes, width)
            return self._traced_strip.text, self._traced_strip.window(*window)
        strip = self._strip(board, width)
        return TABLE[strip.codes].tobytes().decode("ascii"), strip.window(*window)

    def _strip(self, board: Board, width: int) -> Strip:
        kind, times = board.view.kind, board.times
        key = (id(board.model), kind, width)
        if key not in self._strips:
            made = time_strip(times, width) if kind == "time" and times else sequence_strip(self._worst, width)
            self._strips = {key: made}
        return self._strips[key]

    def _draw_detail(self) -> None:
        self._detail_timer = None
        if self._looks_up:
            # one at a time: of a big job they would pile up while a key is held
            self._looks_again = True
        elif isinstance(self.board, TraceBoard):
            sight = look(self.board)
            self.detail.show_made(lambda width, height: sight_lines(sight, width, height))
        elif (selection := self.board.selection) is not None:
            self._looks_up = True
            index, analysis = index_of(self.whole.dataset), self.whole.analysis
            self.work_out([lambda: LookedUp(look_up(index, analysis, selection), analysis)])
        else:
            self.detail.show_found(None, self.whole.analysis)

    @on(LookedUp)
    def _looked_up(self, event: LookedUp) -> None:
        again, self._looks_up, self._looks_again = self._looks_again, False, False
        if self._detail_timer is not None:
            return
        if again:
            self._draw_detail()
        else:
            self.detail.show_found(event.detail, event.analysis)

    def note(self, text: str) -> None:
        """Says something in the bottom line; without text the keys are there again."""
        width = self.size.width
        names = TRACED_FOOTER if isinstance(self.board, TraceBoard) else FOOTER
        self.bar("keys").put([(f" {text}"[:width], self.rich_style)] if text else key_parts(width, names))
