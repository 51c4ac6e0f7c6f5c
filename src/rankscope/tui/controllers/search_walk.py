"""The search that goes on, and the walk along its hits."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from rankscope.report.escape import plain
from rankscope.tui.controllers.board_set import BoardSet
from rankscope.tui.controllers.main_view import MainView
from rankscope.tui.footer import Found
from rankscope.tui.search import Hits, search
from rankscope.tui.traces.trace_board import TraceBoard
from rankscope.tui.traces.trace_selection import kind_of
from rankscope.tui.traces.trace_targets import first_after, search_spans


class SearchWalk:
    """Finds what is typed on the board that is shown."""

    def __init__(self, view: MainView, boards: BoardSet) -> None:
        self._view, self._boards = view, boards
        self.found: Found | None = None
        """The search in words, while one goes on."""
        self._hits: Hits | None = None

    def ask(self) -> None:
        """Asks what to search for."""
        self._view.ask("/", "op, group, rank 12, #1121, function, file, message", self.find)

    def end(self) -> None:
        """Ends the search."""
        self.found = self._hits = None

    def find(self, text: str) -> None:
        """Goes to the first hit after the cursor."""
        if not text.strip():
            self.end()
            self._view.draw_lines()
            return
        board = self._boards.shown
        hits = search_spans(board.lanes, text) if isinstance(board, TraceBoard) else search(board.model, text)
        self._hits, self.found = hits, Found(plain(text, 30), 0, len(hits.items), hits.messages)
        self._go(self._first(hits.items.tolist()))

    def renew(self) -> None:
        """Searches again, where a search goes on: the lanes are others."""
        if self.found is not None:
            self.find(self.found.text)

    def walk(self, step: int) -> None:
        """Some hits on."""
        if self.found is not None:
            self._go(self.found.at + step)

    def _first(self, hits: list[int]) -> int:
        board = self._boards.shown
        if isinstance(board, TraceBoard):
            return first_after(board.lanes, np.array(hits, np.int64), board.moment)
        items = board.model.items
        after = [at for at, item in enumerate(hits) if items.col[item] >= board.unit]
        return after[0] if after and board.view.kind == "sequence" else 0

    def _go(self, at: int) -> None:
        if self._hits is None or self.found is None:
            return
        board, items = self._boards.shown, self._hits.items
        if len(items):
            at %= len(items)
            self.found = replace(self.found, at=at)
            hit = int(items[at])
            if isinstance(board, TraceBoard):
                board.go_span(hit, kind_of(board.lanes, hit))
            else:
                board.go_item(hit)
        self._view.board_moved()
