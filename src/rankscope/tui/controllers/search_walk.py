"""Moves to typed text: along the hits of a search, and to a rank, a number or a time."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC

import numpy as np

from rankscope.features.traces.page.trace_board import TraceBoard
from rankscope.features.traces.page.trace_selection import kind_of
from rankscope.features.traces.page.trace_targets import first_after, goto_on_traces, search_spans
from rankscope.text.escaping import plain
from rankscope.text.wording import plural, ranks_text
from rankscope.tui.board import Board
from rankscope.tui.cell_selection import column_of
from rankscope.tui.controllers.board_set import BoardSet
from rankscope.tui.controllers.main_view import MainView
from rankscope.tui.footer import Found
from rankscope.tui.search import HINT, Hits, Target, parse, search

SEARCHED = "op, group, rank, #number, function, file, message"
"""Where a search in the lanes of operations looks."""
SEARCHED_SPANS = "operation, kernel, group or rank"
"""Where a search in the lanes of traces looks."""


class SearchWalk:
    """Finds typed text on the board on the screen."""

    def __init__(self, view: MainView, boards: BoardSet) -> None:
        self._view, self._boards = view, boards
        self.found: Found | None = None
        """The current search in words; None without a search."""
        self._hits: Hits | None = None

    def ask(self) -> None:
        """Asks for the text of a search."""
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
        self._view.note(self._outcome(self.found))

    def _outcome(self, found: Found) -> str:
        if found.count:
            return f"{plural(found.count, 'hit')} of {found.text!r}; n next, N before, esc ends"
        where = SEARCHED_SPANS if isinstance(self._boards.shown, TraceBoard) else SEARCHED
        hidden = "; ranks that the filter hides were left out" if self._boards.wanted else ""
        return f"nothing has {found.text!r}: no {where}{hidden}"

    def renew(self) -> None:
        """Repeats a running search after the lanes have changed."""
        if self.found is not None:
            self.find(self.found.text)

    def walk(self, step: int) -> None:
        """Moves by `step` hits."""
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


class Goto:
    """Moves the cursor to the place that is typed after `:`."""

    def __init__(self, view: MainView, boards: BoardSet) -> None:
        self._view, self._boards = view, boards

    def ask(self) -> None:
        """Asks for a place."""
        self._view.ask(":", HINT, self.go)

    def go(self, text: str) -> None:
        """Goes to the place in `text`, and says where that is; ValueError says why it cannot."""
        board = self._boards.shown
        if isinstance(board, TraceBoard):
            goto_on_traces(board, parse(text, board.moment))
        else:
            _goto_operation(board, text)
        self._view.board_moved()
        self._view.note(self._outcome())

    def _outcome(self) -> str:
        board, whole = self._boards.shown, len(self._boards.whole.ranks)
        selection = board.selection
        if selection is None:
            return ""
        lanes = board.model.lane_of
        where = f"rank {selection.rank}: lane {lanes[selection.rank] + 1:,} of {len(lanes):,}"
        hidden = f", {whole - len(lanes):,} hidden (esc shows all)" if len(lanes) < whole else ""
        number = "" if selection.seq is None else f", at #{selection.seq}"
        return f"{where}{number}{hidden}"


def _goto_operation(board: Board, text: str) -> None:
    times = board.times if board.view.kind == "time" else None
    day_ns = board.unit if times else int(board.model.items.created.max(initial=0))
    target = parse(text, day_ns, UTC if board.model.dataset.from_logs else None)
    if target.rank is not None:
        if not board.go_rank(target.rank):
            raise ValueError(_no_rank(board, target.rank))
    elif target.step is not None or target.seq is not None:
        _goto_column(board, target)
    elif times is None:
        raise ValueError("times need the time axis: t")
    else:
        board.go_unit(target.time_ns if target.time_ns is not None else board.unit + (target.span_ns or 0))


def _no_rank(board: Board, rank: int) -> str:
    ranks = board.model.ranks
    known = ranks_text(ranks.tolist(), 30) if len(ranks) else "none"
    return f"no rank {rank} among the lanes ({known}); esc ends a filter"


def _goto_column(board: Board, target: Target) -> None:
    if board.view.kind == "time":
        raise ValueError("sequence numbers and steps need the sequence axis: t")
    if target.step is not None:
        board.go_unit(target.step)
        return
    selection, finding = board.selection, board.finding
    group = selection.group if selection is not None else None
    if group is None and finding is not None and (ref := board.model.analysis.findings[finding].group):
        group = ref.key
    column = None if group is None or target.seq is None else column_of(board.model, group, target.seq)
    if column is None:
        raise ValueError(f"no collective #{target.seq} in the group under the cursor")
    board.go_unit(column)
