"""The page of links that went down; Textual is imported with it, when it is opened."""

from __future__ import annotations

from collections.abc import Sequence

from fabricwatch import flaps

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
        return flaps(self.dataset.table("fabric_links")).rows()

    def has(self, row: Row, text: str) -> bool:
        """Whether a link is of the host."""
        return text in row[0].lower()

    def about(self, row: Row, width: int) -> list[Line]:
        """The findings on a host."""
        return [line(f.title) for f in self.analysis.findings if f.kind == "link-flapped" and row[0] in f.title]

    def choose(self, at: int) -> None:
        """Goes to the first finding on the link."""
        kinds = [finding.kind for finding in self.analysis.findings]
        self.dismiss(kinds.index("link-flapped"))
