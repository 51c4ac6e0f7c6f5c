"""The lines of text around the lanes; they follow the board and the job."""

from __future__ import annotations

from rich.text import Text

from rankscope.text.step_commands import first_command
from rankscope.tui.actions import (
    ALONE_FOOTER,
    DETAIL_PANE,
    FILTERED,
    SEARCHING,
    Hint,
    hint_line,
    known_hints,
    lane_hints,
)
from rankscope.tui.boards import LaneBoard
from rankscope.tui.controllers.board_set import BoardSet
from rankscope.tui.controllers.job_news import JobNews
from rankscope.tui.controllers.main_view import MainView
from rankscope.tui.controllers.search_walk import SearchWalk
from rankscope.tui.footer import joined, lane_words, overview_line, room_for_legend, status_line
from rankscope.tui.header import verdict_lines
from rankscope.tui.overview import Strip
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
        self._strip: tuple[object, int, Strip] | None = None
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

    def _draw_status(self, board: LaneBoard) -> None:
        view = self._view
        width, ascii_only = view.frame("left").size.width, view.options.ascii_only
        words = joined(lane_words(board, self._boards.wanted, self._search.found), ascii_only=ascii_only)
        if view.frame("left").is_framed:
            view.frame("left").put(words, Text(f" {board.legend(view.present, width - 4)} ", "dim"))
            return
        below = board.FILLS or view.size.height >= TALL
        room = width - 2 if below else room_for_legend(words, width)
        key = Text(board.legend(view.present, room), "dim")
        edge = status_line(words, BLANK if below else key, width, view.pane, ascii_only=ascii_only)
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
        names = self._boards.shown.FOOTER if self._boards.has_lanes else ALONE_FOOTER
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

    def _overview(self, board: LaneBoard, width: int) -> Strip:
        """The overview of the whole run, `width` characters wide."""
        source, draw = board.overview(self._boards.whole, self._boards.overview)
        if self._strip is None or self._strip[0] is not source or self._strip[1] != width:
            self._strip = source, width, draw(width)
        return self._strip[2]
