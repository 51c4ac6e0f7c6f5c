"""Moves to typed text: along the hits of a search, and to a rank, a number or a time."""

from __future__ import annotations

from dataclasses import replace

from rankscope.text.escaping import plain
from rankscope.text.wording import plural
from rankscope.tui.controllers.board_set import BoardSet
from rankscope.tui.controllers.main_view import MainView
from rankscope.tui.footer import Found
from rankscope.tui.search import HINT, Hits


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
        hits = board.search(text)
        self._hits, self.found = hits, Found(plain(text, 30), 0, len(hits.items), hits.messages)
        self._go(board.first_hit(hits.items))
        self._view.note(self._outcome(self.found))

    def _outcome(self, found: Found) -> str:
        if found.count:
            return f"{plural(found.count, 'hit')} of {found.text!r}; n next, N before, esc ends"
        hidden = "; ranks that the filter hides were left out" if self._boards.wanted else ""
        return f"nothing has {found.text!r}: no {self._boards.shown.SEARCHED}{hidden}"

    def renew(self) -> None:
        """Repeats a running search after the lanes have changed."""
        if self.found is not None:
            self.find(self.found.text)

    def walk(self, step: int) -> None:
        """Moves by `step` hits."""
        if self.found is not None:
            self._go(self.found.at + step)

    def _go(self, at: int) -> None:
        if self._hits is None or self.found is None:
            return
        board, items = self._boards.shown, self._hits.items
        if len(items):
            at %= len(items)
            self.found = replace(self.found, at=at)
            board.go_hit(int(items[at]))
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
        self._boards.shown.go_text(text)
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
