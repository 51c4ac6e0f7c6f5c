"""A page with a list, and whole lines on what is under the cursor."""

from __future__ import annotations

from collections.abc import Iterable

from textual import on
from textual.containers import Container
from textual.widget import Widget

from rankscope.tui.detail.line import Line, Span, line
from rankscope.tui.detail.lines import LineList, Lines
from rankscope.tui.detail.screens.page import Page


class ListPage(Page):
    """Subclasses say how many entries there are, and what is said of each."""

    DEFAULT_CSS = """
    ListPage #list { height: 1fr; }
    ListPage #text { height: 6; border-top: ascii $secondary; }
    """

    def search(self, text: str) -> int:
        """Lists what has `text` in it, in small letters, all if it is empty; returns how many there are."""
        raise NotImplementedError

    def entry_line(self, at: int, width: int) -> Line:
        """An entry of the list."""
        raise NotImplementedError

    def entry_text(self, at: int, width: int) -> list[Line]:
        """What is said of an entry below or beside the list."""
        raise NotImplementedError

    def choose(self, at: int) -> None:
        """Does what enter does on an entry."""
        raise NotImplementedError

    @property
    def listing(self) -> LineList:
        """The list."""
        return self.query_one("#list", LineList)

    def body(self) -> Iterable[Widget]:
        """The list and the text."""
        yield Container(LineList(self.options, id="list"), Lines(self.options, id="text"), id="body")

    def fill(self) -> None:
        """Lists what is looked for."""
        self.listing.show_rows(self.search(self.wanted.lower()), self.entry_line)

    def on_resize(self) -> None:
        """Writes everything anew for the new width."""
        self.draw_bars()
        self.call_after_refresh(self.draw_text)

    @on(LineList.Moved)
    def draw_text(self) -> None:
        """Says what there is to say about the entry under the cursor."""
        text = self.query_one("#text", Lines)
        if text.size.width:
            lines = self.entry_text(self.listing.cursor, text.size.width) if self.listing.count else []
            text.show_lines(lines or self.nothing())

    def nothing(self) -> list[Line]:
        """What is said where the list is empty."""
        return [line(Span("nothing found", "dim"))]

    @on(LineList.Chosen)
    def _chosen(self, event: LineList.Chosen) -> None:
        self.choose(event.sender.cursor)
