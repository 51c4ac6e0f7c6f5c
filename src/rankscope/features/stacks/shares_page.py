"""Stacks over time: the calls of all ranks as one tree, and what one rank does that the others do not."""

from __future__ import annotations

from rankscope.analysis.model import Analysis
from rankscope.features.stacks.share_text import BAR, ShareRow, share_rows
from rankscope.features.stacks.stack_shares import ShareTree, call_place, odd_rank, rank_differences, share_tree
from rankscope.schema import Dataset
from rankscope.text.escaping import plain
from rankscope.text.wording import ranks_text
from rankscope.tui.columns import Col, Columns
from rankscope.tui.detail.screens.page import TablePage
from rankscope.tui.options import ViewOptions
from rankscope.tui.selection import Selection
from rankscope.tui.styled_text import Line, Span, line, wrapped

MOST_RANKS = 12
"""Most ranks whose shares stand below the list, the largest first."""
DEEPEST = 24
"""Most cells of indentation."""


class SharesScreen(TablePage[ShareRow]):
    """The tree of shares; dismisses with the rank that spends the largest share in the call."""

    DEFAULT_CSS = "SharesScreen #text { height: 8; max-height: 50%; }"
    VIEW = "time"
    ENTER = "go to its rank"
    FIND_HINT = "part of a call: load_batch"

    def __init__(self, dataset: Dataset, analysis: Analysis, options: ViewOptions | None = None) -> None:
        super().__init__(options or ViewOptions())
        self._tree = share_tree(dataset)
        self._odd_rank = _shown_rank(self._tree, analysis)
        self._calls = share_rows(self._tree) if self._tree is not None else []

    def table(self) -> Columns[ShareRow]:
        """The columns: the mean of all ranks, and the ranks that differ from most."""
        return Columns(
            Col(title="mean", cell=lambda row: f"{row.mean:.0%}", width=5, right=True),
            Col(title="share", cell=lambda row: row.bar, width=BAR),
            Col(title="call", cell=self._call),
        )

    def _call(self, row: ShareRow) -> Line:
        call = f"{' ' * min(row.depth, DEEPEST)}{call_place(row.node.frame)}"
        return line(call, "  ", Span(row.odd, "bad" if self._odd_rank in row.ranks else "warn"))

    @classmethod
    def lacks_data(cls, dataset: Dataset, analysis: Analysis) -> bool:
        """Whether there are no stacks over time."""
        del analysis
        return share_tree(dataset) is None

    def heading(self) -> list[Line]:
        """The rank that differs, with its call, and the names of the columns."""
        title = Span(" stacks over time", "head")
        if self._tree is None:
            return [line(title, Span("  none: stacks at one moment only, or none", "dim"))]
        return [line(title, "  ", *self._difference()), self.titles("bold")]

    def _difference(self) -> list[Span | str]:
        differences = []
        if self._tree is not None and self._odd_rank is not None:
            every = rank_differences(self._tree, self._odd_rank)
            differences = [difference for difference in every if difference.more > 0]
        if not differences:
            return [Span("no rank differs from the others", "dim")]
        first = differences[0]
        where = f"{first.own:.0%} in {call_place(first.path[-1])}, the others {first.others:.0%}"
        return [Span(f"rank {self._odd_rank}", "bad"), f": {where}"]

    def rows(self) -> list[ShareRow]:
        """All calls."""
        return self._calls

    def has(self, row: ShareRow, text: str) -> bool:
        """Whether a call has `text` in its name or place."""
        return text in call_place(row.node.frame).lower()

    def entry_text(self, at: int, width: int) -> list[Line]:
        """The place of the call, and its share in each rank."""
        frame, shares = self.row(at).node.frame, self.row(at).node.shares
        ordered = sorted(shares, key=lambda rank: (-shares[rank], rank))
        largest = ", ".join(f"rank {rank} {shares[rank]:.0%}" for rank in ordered[:MOST_RANKS])
        more = f", and {len(ordered) - MOST_RANKS:,} more" if len(ordered) > MOST_RANKS else ""
        ranks = self._tree.ranks if self._tree is not None else ()
        never = [rank for rank in ranks if rank not in shares]
        lines = [
            line(Span("call  ", "dim"), plain(f"{frame.function} {frame.file}:{frame.line}")),
            line(Span("share ", "dim"), f"{largest}{more}"),
            *([line(Span("never ", "dim"), ranks_text(never, 40))] if never else []),
        ]
        return wrapped(lines, width, 6)

    def choose(self, at: int) -> None:
        """Goes to the lanes of the rank with the largest share."""
        shares = self.row(at).node.shares
        self.dismiss(Selection(max(shares, key=lambda rank: (shares[rank], -rank))))


def _shown_rank(tree: ShareTree | None, analysis: Analysis) -> int | None:
    """The accused rank, if it has stacks over time; else the one that differs most."""
    if tree is None:
        return None
    accused = next((rank for rank in analysis.culprits if rank in tree.samples), None)
    return odd_rank(tree) if accused is None else accused
