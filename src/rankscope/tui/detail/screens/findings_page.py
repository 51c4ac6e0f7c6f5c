"""All findings: a list, and the full text of the finding under the cursor."""

from __future__ import annotations

from collections import Counter

from rankscope.analysis.model import Analysis, Finding
from rankscope.kinds.finding_kinds import SEVERITIES
from rankscope.report.words import descriptions, under_causes
from rankscope.schema import Dataset
from rankscope.text.escaping import plain
from rankscope.text.wording import plural
from rankscope.tui.detail.finding_text import full_text, severity_role
from rankscope.tui.detail.screens.page import ListPage
from rankscope.tui.options import ViewOptions
from rankscope.tui.styled_text import Line, Span, line

_KIND_FROM = 100
"""Cells of the list from which the kind of a finding is shown."""
_BESIDE = 120
"""Columns from which the text is beside the list."""


def _kind_cell(kind: str, width: int) -> str:
    return f"{plain(kind):<20} " if width >= _KIND_FROM else ""


def finding_line(finding: Finding, width: int) -> Line:
    """A finding in a line: root mark, severity, ranks held up, kind where there is room, title; indented if it follows
    from another.
    """
    role = severity_role(finding)
    held = max(finding.blast_radius, len(finding.waiting_ranks))
    under = "  " if finding.caused_by else ""
    return line(
        Span("ROOT " if finding.root_cause else "     ", "bad"),
        Span(f"{SEVERITIES[finding.severity].badge} ", role),
        f"{held or '':>6} ",
        Span(_kind_cell(finding.kind, width), "dim"),
        Span(under + plain(finding.title), "bold" if finding.root_cause else "text"),
    )


class FindingsScreen(ListPage):
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

    def __init__(
        self, dataset: Dataset, analysis: Analysis, options: ViewOptions | None = None, index: int = 0
    ) -> None:
        super().__init__(options or ViewOptions())
        self.analysis = analysis
        self._groups = descriptions(dataset)
        self._order = under_causes(analysis)
        self._shown = self._order
        self._first = self._order.index(index) if index < len(self._order) else 0

    def heading(self) -> list[Line]:
        """The number of findings, and the verdict."""
        findings = self.analysis.findings
        counts = Counter(f.severity for f in findings)
        roots = sum(f.root_cause for f in findings)
        parts = [plural(roots, "root cause"), *(f"{n} {name}" for name, n in counts.items())]
        title = f"  {', '.join(parts)}" if findings else "  none"
        width = self.size.width if self.size.width < _BESIDE else self.size.width * 45 // 100
        columns = line(Span(f" root level waits {_kind_cell('kind', width)}finding", "dim"))
        verdict = line(" ", Span(plain(self.analysis.verdict), "bold"))
        return [line(Span(" findings", "head"), title), verdict, *([columns] if findings else [])]

    def on_mount(self) -> None:
        """Fills the list; the cursor starts on the finding of the lanes."""
        self.fill()
        self.call_after_refresh(self.listing.move_to, self._first)

    def search(self, text: str) -> int:
        """Lists the findings with `text` in them."""
        self._shown = [at for at in self._order if text in _searched(self.analysis.findings[at])]
        return len(self._shown)

    def entry_line(self, at: int, width: int) -> Line:
        """A finding of the list."""
        return finding_line(self.analysis.findings[self._shown[at]], width)

    def entry_text(self, at: int, width: int) -> list[Line]:
        """A finding in full."""
        return full_text(self.analysis, self.analysis.findings[self._shown[at]], self._groups, width)

    def choose(self, at: int) -> None:
        """Shows the finding in the lanes."""
        self.dismiss(self._shown[at])


def _searched(finding: Finding) -> str:
    ranks = " ".join(f"rank {rank}" for rank in finding.culprit_ranks[:64])
    group = f"{finding.group.id} {finding.group.description}" if finding.group else ""
    return f"{finding.kind} {finding.severity} {finding.title} {ranks} {group}".lower()
