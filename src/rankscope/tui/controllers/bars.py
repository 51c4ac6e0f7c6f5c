"""The lines of text around the lanes; they follow the board and the job."""

from __future__ import annotations

from rich.text import Text

from rankscope.tui.actions import FOOTER, TRACED_FOOTER
from rankscope.tui.board import AnyBoard, Board
from rankscope.tui.controllers.board_set import BoardSet
from rankscope.tui.controllers.job_news import JobNews
from rankscope.tui.controllers.main_view import MainView
from rankscope.tui.controllers.search_walk import SearchWalk
from rankscope.tui.footer import key_line, overview_line, status_line
from rankscope.tui.header import verdict_lines
from rankscope.tui.overview import Strip, sequence_strip, time_strip
from rankscope.tui.traces.trace_board import TraceBoard
from rankscope.tui.traces.trace_status import TraceStrip, status_lines, strip_of


class Bars:
    """Title, verdict, overview, status and keys."""

    def __init__(self, view: MainView, boards: BoardSet, search: SearchWalk, news: JobNews) -> None:
        self._view, self._boards, self._search, self._news = view, boards, search, news
        self._strip: tuple[object, int, Strip | TraceStrip] | None = None
        """The overview, with its source and its width."""

    def draw_head(self) -> None:
        """Writes title and verdict."""
        view, finding = self._view, self._boards.shown.finding
        width, palette = view.size.width, view.options.palette
        view.bar("title").put(self._news.title(width))
        view.bar("verdict").put(*verdict_lines(self._news.analysis, finding, width, palette))

    def draw_lines(self) -> None:
        """Writes overview and status."""
        view, board = self._view, self._boards.shown
        strip = self._overview(board, view.size.width - 14)
        window = strip.window(board.view.first, board.view.first + board.view.span(board.width))
        view.bar("overview").put(Text.assemble((" overview  ", view.rich_style), overview_line(strip.text, window)))
        status, wanted, found = view.bar("status"), self._boards.wanted, self._search.found
        width, ascii_only = status.size.width, view.options.ascii_only
        if isinstance(board, TraceBoard):
            status.put(*status_lines(board, wanted, found, width, ascii_only=ascii_only))
        else:
            status.put(status_line(board, wanted, found, width, ascii_only=ascii_only))

    def note(self, text: str) -> None:
        """Shows a message in the bottom line; without text, the trouble with following, else the keys."""
        width, keys = self._view.size.width, self._view.bar("keys")
        text = text or self._news.trouble()
        if text:
            keys.put(Text(f" {text}"[:width], self._view.rich_style))
            return
        state = self._news.state()
        room = max(width - len(state), 1)
        names = TRACED_FOOTER if isinstance(self._boards.shown, TraceBoard) else FOOTER
        keys.put(state + key_line(room, names))

    def _overview(self, board: AnyBoard, width: int) -> Strip | TraceStrip:
        """The overview of the whole run, `width` characters wide."""
        times = board.times if isinstance(board, Board) and board.view.kind == "time" else None
        traces = self._boards.whole.traces if isinstance(board, TraceBoard) else None
        source = traces or times or self._boards.overview
        if self._strip is None or self._strip[0] is not source or self._strip[1] != width:
            made = strip_of(traces, width) if traces else time_strip(times, width) if times else None
            self._strip = source, width, made or sequence_strip(self._boards.overview, width)
        return self._strip[2]
