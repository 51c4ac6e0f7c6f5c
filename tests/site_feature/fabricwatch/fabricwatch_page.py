"""The page of links that went down; Textual is imported with it, when it is opened."""

from __future__ import annotations

from collections.abc import Sequence

from fabricwatch import flaps  # type: ignore[import-not-found]  # known where it is installed

from rankscope.analysis.model import Analysis
from rankscope.schema import Dataset
from rankscope.tui.columns import Col, Columns
from rankscope.tui.detail.screens.page import TablePage
from rankscope.tui.options import ViewOptions
from rankscope.tui.styled_text import Line, Span, line

Row = tuple[str, str, int]
"""Host, link, and how often it went down."""


class FabricScreen(TablePage[Row]):
    """The links that went down, the worst first."""

    COLUMNS = Columns[Row](
        Col(title="times", cell=lambda row: str(row[2]), width=6, right=True),
        Col(title="host", cell=lambda row: row[0], width=20),
        Col(title="link", cell=lambda row: row[1]),
    )
    FIND_HINT = "a host"

    def __init__(self, dataset: Dataset, analysis: Analysis, options: ViewOptions) -> None:
        super().__init__(options)
        self.dataset, self.analysis = dataset, analysis

    def heading(self) -> list[Line]:
        """The name of the page, and its columns."""
        return [line(Span(" links that went down", "head")), self.titles()]

    def rows(self) -> Sequence[Row]:
        """The links."""
        rows: list[Row] = flaps(self.dataset.table("fabric_links")).rows()
        return rows

    def has(self, row: Row, text: str) -> bool:
        """Whether a link is of the host."""
        return text in row[0].lower()

    def about(self, row: Row, width: int) -> list[Line]:
        """The finding on a link."""
        del width
        return [line(self.analysis.findings[self._finding(row)].title)]

    def choose(self, at: int) -> None:
        """Goes to the finding on a link."""
        self.dismiss(self._finding(self.row(at)))

    def _finding(self, row: Row) -> int:
        """The place of the finding on a link."""
        titles = [finding.title for finding in self.analysis.findings]
        return next(at for at, title in enumerate(titles) if title.startswith(f"link {row[1]} of {row[0]}"))
