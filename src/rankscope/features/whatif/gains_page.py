"""The page of gains: what is worth mending, best first."""

from __future__ import annotations

from collections.abc import Sequence

from rankscope.analysis.model import Analysis
from rankscope.features.whatif.gain_text import ADVICE, EXPLANATIONS, gain_noun, slowdown_line, span
from rankscope.features.whatif.model import WHAT_IF_REASON, WHAT_IF_RESULTS, Gain
from rankscope.schema import Dataset
from rankscope.tui.columns import Col, Columns
from rankscope.tui.detail.screens.page import TablePage
from rankscope.tui.options import ViewOptions
from rankscope.tui.selection import Selection
from rankscope.tui.styled_text import Line, Span, line, wrapped


class GainsScreen(TablePage[Gain]):
    """The gains of mending; dismisses with the first rank of the chosen one."""

    VIEW = "gains"
    ENTER = "go to rank"
    FIND_HINT = "a cause: stage"

    def __init__(self, dataset: Dataset, analysis: Analysis, options: ViewOptions | None = None) -> None:
        del dataset
        # the columns ask for the answers
        self.answers, self.reason = WHAT_IF_RESULTS.find(analysis), WHAT_IF_REASON.find(analysis)
        super().__init__(options or ViewOptions())

    def table(self) -> Columns[Gain]:
        """The columns, with the time of a step as it was recorded."""
        measured_ns = self.answers.measured_ns if self.answers else 0
        return Columns[Gain](
            Col(title="gain", cell=lambda gain: Span(f"-{100 * gain.share:.0f} %", "bold"), width=6, right=True),
            Col(title="cause", cell=lambda gain: gain.cause, width=8),
            Col(title="a step", cell=lambda gain: span(measured_ns, gain.step_ns), width=18),
            Col(title="without", cell=gain_noun),
        )

    @classmethod
    def lacks_data(cls, dataset: Dataset, analysis: Analysis) -> bool:
        """Whether nothing was asked, or nothing would gain."""
        del dataset
        answers = WHAT_IF_RESULTS.find(analysis)
        return answers is None or not answers.gains

    def heading(self) -> list[Line]:
        """The slowdown, and the columns; or why nothing was asked."""
        said = slowdown_line(self.answers) if self.answers else f"not asked: {self.reason}"
        return [line(Span(" gains", "head"), f"  {said}"), self.titles()]

    def rows(self) -> Sequence[Gain]:
        """The gains, best first."""
        return self.answers.gains if self.answers else ()

    def how_to_fill(self) -> list[Line]:
        """The answer where no cause would gain; else how to fill the page."""
        if self.answers is None:
            return super().how_to_fill()
        return wrapped([line("no cause that was asked about would make a step clearly shorter")], self.size.width - 1)

    def has(self, row: Gain, text: str) -> bool:
        """Whether the cause or the ranks of a gain have `text`."""
        return text in f"{row.cause} {gain_noun(row)}".lower()

    def about(self, row: Gain, width: int) -> list[Line]:
        """How it was simulated, and what to do."""
        return wrapped([line(EXPLANATIONS[row.cause]), line(Span("next  ", "dim"), ADVICE[row.cause])], width, 2)

    def choose(self, at: int) -> None:
        """Goes to the lanes of its first rank."""
        ranks = self.row(at).ranks
        if ranks:
            self.dismiss(Selection(ranks[0]))
        else:
            self.note("no rank is the cause")
