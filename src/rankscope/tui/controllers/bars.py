"""The lines of text around the lanes; they follow the board and the job."""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text

from rankscope.text.escaping import plain
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
from rankscope.tui.controllers.findings_walk import FindingsWalk
from rankscope.tui.controllers.job_news import JobNews
from rankscope.tui.controllers.main_view import MainView
from rankscope.tui.controllers.search_walk import SearchWalk
from rankscope.tui.footer import in_lines, joined, lane_words, overview_line, status_line
from rankscope.tui.header import verdict_lines
from rankscope.tui.overview import Strip
from rankscope.tui.styled_text import BLANK, Line, Span, cut, line
from rankscope.tui.tabs import LANES, VERDICT, Tab, tabs_line
from rankscope.tui.text_bars import pane_title, rule

NO_LANES = "no lanes: no operation is in these files"
OVERVIEW_HEAD = 11
"""Characters before the overview."""


class Bars:
    """Title, verdict, tabs, overview, legend, status and keys."""

    def __init__(
        self, view: MainView, boards: BoardSet, search: SearchWalk, findings: FindingsWalk, news: JobNews
    ) -> None:
        self._view, self._boards, self._search, self._findings = view, boards, search, findings
        self._news = news
        self._strip: tuple[object, int, Strip] | None = None
        """The overview, with its source and its width."""
        self._legend: tuple[object, int] = None, 1
        """The window that the legend explains, and its lines. It does not shrink there: where it gave a line back to
        the lanes, their next row might need that line again."""

    def title(self, width: int) -> Line:
        """The line at the top of every page: the input, the state of the job, how sure it is, and which finding."""
        return self._news.title(width, self._boards.shown.finding)

    def draw_head(self, tabs: Sequence[Tab]) -> None:
        """Writes title, verdict and tabs."""
        view, finding = self._view, self._boards.shown.finding
        width = view.size.width
        view.bar("title").put(self.title(width))
        view.bar("verdict").put(*verdict_lines(self._news.analysis, finding, width))
        at_verdict = self._findings.at_verdict or not self._boards.has_lanes
        view.bar("tabs").put(tabs_line(tabs, VERDICT if at_verdict else LANES, "", width))

    def draw_lines(self) -> None:
        """Writes overview, legend and status."""
        view, board = self._view, self._boards.shown
        if not self._boards.has_lanes:
            left = line(pane_title("detail", lit=view.in_detail), " ", NO_LANES, " ")
            view.bar("overview").put(rule(left, BLANK, view.size.width, ascii_only=view.options.ascii_only))
            return
        strip = self._overview(board, view.size.width - OVERVIEW_HEAD - 3)
        part = strip.window(board.view.first, board.view.first + board.view.span(board.width))
        view.bar("overview").put(
            Text.assemble((" overview".ljust(OVERVIEW_HEAD), "dim"), overview_line(strip.text, part))
        )
        width, ascii_only = view.room_of_lanes, view.options.ascii_only
        legend = in_lines(board.legend(view.present), width - 3)
        window = board, board.finding, board.view, width
        self._legend = window, max(len(legend), self._legend[1] if self._legend[0] == window else 1)
        legend += [""] * (self._legend[1] - len(legend))
        view.bar("legend").put(*(line("  ", Span(text, "dim")) for text in legend))
        words = joined(lane_words(board, self._boards.wanted, self._search.found), ascii_only=ascii_only)
        lit = view.in_detail
        view.bar("status").put(status_line(self._pane_name(), words, width, lit=lit, ascii_only=ascii_only))

    def _pane_name(self) -> str:
        """The title of the pane below the lanes; "" where it stands beside them."""
        if self._view.is_beside:
            return ""
        return "why" if self._findings.at_finding and self._boards.shown.CARD else "detail"

    def unit_at(self, x: int) -> int | None:
        """The column, or the time, at a character of the overview; None beside it."""
        board = self._boards.shown
        strip = self._overview(board, self._view.size.width - OVERVIEW_HEAD - 3)
        first, last = strip.window(board.view.first, board.view.first + board.view.span(board.width))
        at = x - OVERVIEW_HEAD
        # the window stands between brackets
        at -= (at > first) + (at > last + 1)
        count = len(strip.text)
        return strip.low + at * (strip.high - strip.low) // count if 0 <= at < count else None

    def note(self, text: str) -> None:
        """Shows a message in the bottom line; without text, the trouble with following, else the keys."""
        width, keys = self._view.size.width, self._view.bar("keys")
        text = text or self._news.trouble()
        if text:
            keys.put(cut(Text(f" {plain(text)}"), width))
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
        return tuple(name for name in names if copies or name != "copy_command")

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
