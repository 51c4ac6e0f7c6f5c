"""All findings: a list, and the full text of the finding under the cursor."""

from __future__ import annotations

from collections import Counter

from rankscope.analysis.model import Analysis, Finding
from rankscope.kinds.finding_kinds import SEVERITIES
from rankscope.report.words import descriptions, under_causes
from rankscope.schema import Dataset
from rankscope.text.escaping import plain
from rankscope.text.wording import plural
from rankscope.tui.columns import Col, Columns
from rankscope.tui.detail.finding_text import full_text, severity_role
from rankscope.tui.detail.screens.page import TablePage
from rankscope.tui.options import ViewOptions
from rankscope.tui.styled_text import Line, Span, line

_BESIDE = 120
"""Columns from which the text is beside the list."""
Row = tuple[int, Finding]
"""The index of a finding, and the finding."""


def _title(finding: Finding) -> Span:
    """The title, indented if the finding follows from another."""
    indent = "  " if finding.caused_by else ""
    return Span(indent + plain(finding.title), "bold" if finding.root_cause else "text")


FINDING_COLUMNS = Columns[Row](
    Col(title="root", cell=lambda row: Span("ROOT" if row[1].root_cause else "", "bad"), width=4),
    Col(title="level", cell=lambda row: Span(SEVERITIES[row[1].severity].badge, severity_role(row[1])), width=4),
    Col(
        title="waits",
        cell=lambda row: str(max(row[1].blast_radius, len(row[1].waiting_ranks)) or ""),
        width=6,
        right=True,
    ),
    Col(title="kind", cell=lambda row: Span(plain(row[1].kind), "dim"), width=20, since=100),
    Col(title="finding", cell=lambda row: _title(row[1])),
)


class FindingsScreen(TablePage[Row]):
    """The findings; dismisses with the index of the chosen one, for the lanes."""

    DEFAULT_CSS = """
    FindingsScreen #list { height: 40%; }
    FindingsScreen #text { height: 1fr; }
    FindingsScreen.-wide > #body { layout: horizontal; }
    FindingsScreen.-wide #list { width: 45%; height: 100%; }
    FindingsScreen.-wide #text { width: 1fr; height: 100%; border-top: none; border-left: solid $secondary; }
    FindingsScreen.-wide.-ascii #text { border-top: none; border-left: ascii $secondary; }
    """
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (_BESIDE, "-wide")]
    VIEW = "findings"
    FIND_HINT = "kind, title, rank, group"
    COLUMNS = FINDING_COLUMNS

    def __init__(
        self, dataset: Dataset, analysis: Analysis, options: ViewOptions | None = None, index: int = 0
    ) -> None:
        super().__init__(options or ViewOptions())
        self.analysis = analysis
        self._groups = descriptions(dataset)
        self._order = under_causes(analysis)
        self._first = self._order.index(index) if index < len(self._order) else 0

    @classmethod
    def lacks_data(cls, dataset: Dataset, analysis: Analysis) -> bool:
        """Whether nothing was found."""
        del dataset
        return not analysis.findings

    def heading(self) -> list[Line]:
        """The number of findings, and the verdict."""
        findings = self.analysis.findings
        counts = Counter(f.severity for f in findings)
        roots = sum(f.root_cause for f in findings)
        parts = [plural(roots, "root cause"), *(f"{n} {name}" for name, n in counts.items())]
        title = f"  {', '.join(parts)}" if findings else "  none"
        verdict = line(" ", Span(plain(self.analysis.verdict), "bold"))
        return [line(Span(" findings", "head"), title), verdict, *([self.titles()] if findings else [])]

    @property
    def list_width(self) -> int:
        """Cells of the list, which is beside the text on a wide screen."""
        return self.size.width if self.size.width < _BESIDE else self.size.width * 45 // 100

    def begin(self) -> None:
        """Fills the list; the cursor starts on the finding of the lanes."""
        self.fill()
        self.call_after_refresh(self.listing.move_to, self._first)

    def rows(self) -> list[Row]:
        """The findings, each below its cause."""
        return [(at, self.analysis.findings[at]) for at in self._order]

    def has(self, row: Row, text: str) -> bool:
        """Whether a finding has `text` in its kind, its title, its ranks or its group."""
        finding = row[1]
        ranks = " ".join(f"rank {rank}" for rank in finding.culprit_ranks[:64])
        group = f"{finding.group.id} {finding.group.description}" if finding.group else ""
        return text in f"{finding.kind} {finding.severity} {finding.title} {ranks} {group}".lower()

    def entry_text(self, at: int, width: int) -> list[Line]:
        """A finding in full."""
        return full_text(self.analysis, self.row(at)[1], self._groups, width)

    def choose(self, at: int) -> None:
        """Shows the finding in the lanes."""
        self.dismiss(self.row(at)[0])
