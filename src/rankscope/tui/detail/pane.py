"""The pane below or beside the lanes: the selection under the cursor."""

from __future__ import annotations

from collections.abc import Callable

from rankscope.analysis.model import Analysis
from rankscope.schema import Dataset
from rankscope.tui.detail.compact_detail import compact
from rankscope.tui.detail.expanded_detail import expanded
from rankscope.tui.detail.line_widgets import Lines
from rankscope.tui.detail.operation_index import index_of
from rankscope.tui.detail.selection_facts import Detail, look_up
from rankscope.tui.options import ViewOptions
from rankscope.tui.selection import Selection
from rankscope.tui.styled_text import Line, Span, line

ROOMY = 16
"""Lines from which the pane shows all facts instead of the most important."""


class DetailPane(Lines):
    """Shows one selection at a time: the most important facts if the pane is low, all if it is high."""

    def __init__(self, options: ViewOptions | None = None) -> None:
        super().__init__(options or ViewOptions())
        self.detail: Detail | None = None
        """The detail in the pane."""
        self._analysis: Analysis | None = None
        self._made: Callable[[int, int], list[Line]] | None = None

    def show_made(self, make: Callable[[int, int], list[Line]]) -> None:
        """Shows the lines that `make` makes for a width and a height."""
        self._made = make
        self._lay_out()

    def show(self, dataset: Dataset, analysis: Analysis, selection: Selection | None) -> None:
        """Shows `selection` from now on; without one, the pane is empty."""
        self.show_found(None if selection is None else look_up(index_of(dataset), analysis, selection), analysis)

    def show_found(self, detail: Detail | None, analysis: Analysis) -> None:
        """Shows the looked-up detail of a selection."""
        self._analysis, self._made, self.detail = analysis, None, detail
        self._lay_out()

    def on_resize(self) -> None:
        """Writes the lines anew for the new size."""
        self._lay_out()

    def _lay_out(self) -> None:
        if self.size.width and self.size.height:
            self.show_lines(self._text(self.size.width, self.size.height))

    def _text(self, width: int, height: int) -> list[Line]:
        if self._made is not None:
            return self._made(width, height)
        if self.detail is None or self._analysis is None:
            return [line(Span("nothing is selected", "dim"))]
        if height < ROOMY:
            return compact(self.detail, width)
        return expanded(self.detail, self._analysis, width)
