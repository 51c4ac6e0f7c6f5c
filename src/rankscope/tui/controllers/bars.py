"""The lines of text around the lanes; they follow the board and the job."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from rich.text import Text

from rankscope.features.traces.page.activity import COUNT, KINDS, WAITING
from rankscope.features.traces.page.activity import legend as trace_legend
from rankscope.features.traces.page.lanes import TraceLanes
from rankscope.features.traces.page.trace_board import TraceBoard
from rankscope.features.traces.page.trace_cells import Asked, draw
from rankscope.text.step_commands import first_command
from rankscope.text.wording import duration, plural
from rankscope.tui.actions import (
    ALONE_FOOTER,
    DETAIL_PANE,
    FILTERED,
    FOOTER,
    SEARCHING,
    TRACED_FOOTER,
    Hint,
    hint_line,
    known_hints,
    lane_hints,
)
from rankscope.tui.board import AnyBoard, Board
from rankscope.tui.controllers.board_set import BoardSet
from rankscope.tui.controllers.job_news import JobNews
from rankscope.tui.controllers.main_view import MainView
from rankscope.tui.controllers.search_walk import SearchWalk
from rankscope.tui.filters import Filter, describe
from rankscope.tui.footer import Found, found_text, joined, lane_words, overview_line, room_for_legend, status_line
from rankscope.tui.header import verdict_lines
from rankscope.tui.letters import legend
from rankscope.tui.order import ORDERINGS
from rankscope.tui.overview import Strip, sequence_strip, time_strip
from rankscope.tui.styled_text import BLANK, cut, line
from rankscope.tui.text_bars import pane_title, rule

LARGE = 44
"""Lines from which the verdict shows the culprit in large digits, and the overview has a frame."""
TALL = 30
"""Lines from which the legend of stacked panes has a line of its own."""
NO_LANES = "no lanes: no operation is in these files"
OVERVIEW_HEAD = 11
"""Characters before the overview."""


class Bars:
    """Title, verdict, overview, status and keys."""

    def __init__(self, view: MainView, boards: BoardSet, search: SearchWalk, news: JobNews) -> None:
        self._view, self._boards, self._search, self._news = view, boards, search, news
        self._strip: tuple[object, int, Strip | TraceStrip] | None = None
        """The overview, with its source and its width."""

    def draw_head(self) -> None:
        """Writes title and verdict."""
        view, finding = self._view, self._boards.shown.finding
        width, options = view.size.width, view.options
        view.bar("title").put(self._news.title(width))
        large = view.size.height >= LARGE and not options.ascii_only
        view.bar("verdict").put(*verdict_lines(self._news.analysis, finding, width, large=large))

    def draw_lines(self) -> None:
        """Writes overview and status."""
        view, board = self._view, self._boards.shown
        if not self._boards.has_lanes:
            self._draw_alone()
            return
        over = view.frame("over")
        strip = self._overview(board, view.size.width - (4 if over.is_framed else 14))
        window = strip.window(board.view.first, board.view.first + board.view.span(board.width))
        view.bar("overview").put(
            Text.assemble("" if over.is_framed else " overview".ljust(OVERVIEW_HEAD), overview_line(strip.text, window))
        )
        over.put(BLANK, Text(f" {strip.legend} ", "dim"))
        self._draw_status(board)

    def _draw_alone(self) -> None:
        """Writes why there are no lanes, in the edge of the detail."""
        view = self._view
        if view.frame("right").is_framed:
            view.frame("right").put(Text(f"{NO_LANES} "), BLANK)
            return
        left = line(pane_title("detail", lit=view.pane == "detail"), " ", NO_LANES, " ")
        view.bar("overview").put(rule(left, BLANK, view.size.width, ascii_only=view.options.ascii_only))

    def _draw_status(self, board: AnyBoard) -> None:
        view, wanted, found = self._view, self._boards.wanted, self._search.found
        width, ascii_only = view.frame("left").size.width, view.options.ascii_only
        traced = isinstance(board, TraceBoard)
        explain = trace_legend if traced else legend
        words = trace_words(board, wanted, found) if isinstance(board, TraceBoard) else lane_words(board, wanted, found)
        told = joined(words, ascii_only=ascii_only)
        if view.frame("left").is_framed:
            view.frame("left").put(told, Text(f" {explain(view.present, width - 4)} ", "dim"))
            return
        below = traced or view.size.height >= TALL
        room = width - 2 if below else room_for_legend(told, width)
        key = Text(explain(view.present, room), "dim")
        edge = status_line(told, BLANK if below else key, width, view.pane, ascii_only=ascii_only)
        view.bar("status").put(edge, *([Text.assemble("  ", key)] if below else []))

    def unit_at(self, x: int) -> int | None:
        """The column, or the time, at a character of the overview; None beside it."""
        board = self._boards.shown
        framed = self._view.frame("over").is_framed
        strip = self._overview(board, self._view.size.width - (4 if framed else 14))
        first, last = strip.window(board.view.first, board.view.first + board.view.span(board.width))
        at = x - (0 if framed else OVERVIEW_HEAD)
        # the window stands between brackets
        at -= (at > first) + (at > last + 1)
        count = len(strip.text)
        return strip.low + at * (strip.high - strip.low) // count if 0 <= at < count else None

    def note(self, text: str) -> None:
        """Shows a message in the bottom line; without text, the trouble with following, else the keys."""
        width, keys = self._view.size.width, self._view.bar("keys")
        text = text or self._news.trouble()
        if text:
            keys.put(cut(Text(f" {text}"), width))
            return
        state = self._news.state()
        keys.put(Text.assemble(state, self._keys(max(width - len(state), 1))))

    def _keys(self, width: int) -> Text:
        """The keys of the pane that has the focus."""
        important = ("question_mark", "q", "escape")
        if self._view.in_detail and self._boards.has_lanes:
            return hint_line(DETAIL_PANE, width, important)
        if self._search.found is not None:
            return hint_line(SEARCHING, width, important)
        filtered = [FILTERED] if self._boards.wanted else []
        return hint_line(lane_hints(width, self._names(), filtered), width)

    def _names(self) -> tuple[str, ...]:
        """Actions for the keys of the lanes, the most important first."""
        lanes = TRACED_FOOTER if isinstance(self._boards.shown, TraceBoard) else FOOTER
        names = lanes if self._boards.has_lanes else ALONE_FOOTER
        at = self._boards.shown.finding
        copies = at is not None and first_command(self._boards.whole.analysis.findings[at].next_steps)
        idle = {"" if copies else "copy_command", "" if self._boards.whole.dataset.has_tensors else "numbers"}
        return tuple(name for name in names if name not in idle)

    def here(self) -> tuple[str, list[Hint]]:
        """A title for the keys of the pane that has the focus, and all of them."""
        if self._view.in_detail and self._boards.has_lanes:
            return "This pane (detail)", list(DETAIL_PANE)
        if self._search.found is not None:
            return "This view (lanes, during a search)", list(SEARCHING)
        where = "This view (lanes)" if self._boards.has_lanes else "This view (no lanes)"
        return where, known_hints(self._names())

    def _overview(self, board: AnyBoard, width: int) -> Strip | TraceStrip:
        """The overview of the whole run, `width` characters wide."""
        times = board.times if isinstance(board, Board) and board.view.kind == "time" else None
        traces = self._boards.whole.traces if isinstance(board, TraceBoard) else None
        source = traces or times or self._boards.overview
        if self._strip is None or self._strip[0] is not source or self._strip[1] != width:
            made = strip_of(traces, width) if traces else time_strip(times, width) if times else None
            self._strip = source, width, made or sequence_strip(self._boards.overview, width)
        return self._strip[2]


# The line between lanes of traces and detail, and the overview of the whole run.

WAITERS = 0.25
"""Share of waiting ranks from which the overview shows the wait."""


def trace_words(board: TraceBoard, wanted: Filter, found: Found | None) -> list[str]:
    """The state of the lanes of traces, and the agreement of their clocks."""
    pieces = [_rows_text(board), *board.memory_words]
    if board.lined is not None:
        pieces.append(f"lined up on {plural(len(board.lined.arrived), 'arrival')}, esc ends it")
    if wanted:
        pieces.append(f"only {describe(wanted, board.model)}")
    if found is not None:
        pieces.append(found_text(found))
    if board.marker is not None:
        pieces.append(f"marker {'+' if board.unit >= board.marker else '-'}{duration(abs(board.unit - board.marker))}")
    if board.ordering != "rank":
        pieces.append(f"{ORDERINGS[board.ordering]} (r)")
    return [*pieces, board.lanes.clock_words]


def _rows_text(board: TraceBoard) -> str:
    text = plural(len({rank for at in range(board.count) for rank in board.ranks_of(at)}), "rank")
    if board.count > board.height:
        text += f", rows {board.top + 1}-{min(board.top + board.height, board.count)} of {board.count:,}"
    return text


@dataclass(frozen=True)
class TraceStrip:
    """The whole run in one line."""

    low: int
    high: int
    text: str

    @property
    def legend(self) -> str:
        """The meaning of its characters; they are those of the lanes."""
        return "the activity of most ranks"

    def window(self, first: int, last: int) -> tuple[int, int]:
        """Cells of the part of the run from `first` up to `last`: the first, and one after the last."""
        size, count = max(self.high - self.low, 1), len(self.text)
        begin = min(max((first - self.low) * count // size, 0), max(count - 1, 0))
        return begin, min(max(-(-(last - self.low) * count // size), begin + 1), count)


def strip_of(lanes: TraceLanes, width: int) -> TraceStrip:
    """The activity of most ranks in each column; if many wait for others, the wait."""
    count = max(width, 1)
    edges = lanes.low + (lanes.high - lanes.low) * np.arange(count + 1) // count
    rows = [Asked(lane) for lane in range(len(lanes.ranks))]
    if not rows:
        return TraceStrip(lanes.low, lanes.high, " " * count)
    cells = draw(lanes.cover, lanes.key_of, rows, np.broadcast_to(edges, (len(rows), count + 1)))
    waits = (cells.codes >= WAITING) & (cells.codes < COUNT)
    many = waits.mean(axis=0) >= WAITERS
    out = [_most(cells.text[:, at]) for at in range(count)]
    for at in np.flatnonzero(many).tolist():
        out[at] = KINDS[int(np.bincount(cells.codes[waits[:, at], at]).argmax())].letter
    return TraceStrip(lanes.low, lanes.high, "".join(out))


def _most(column: np.typing.NDArray[np.uint8]) -> str:
    return chr(int(np.bincount(column).argmax()))
