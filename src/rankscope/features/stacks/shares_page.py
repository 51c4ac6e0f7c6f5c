"""Stacks over time: the calls of all ranks as one tree, and what one rank does that the others do not."""

from __future__ import annotations

from rankscope.analysis.model import Analysis
from rankscope.features.stacks.share_text import ShareRow, call_text, share_rows
from rankscope.features.stacks.stack_shares import ShareTree, odd_rank, rank_differences, share_tree
from rankscope.schema import Dataset
from rankscope.text.escaping import plain
from rankscope.text.wording import ranks_text
from rankscope.tui.detail.screens.page import ListPage
from rankscope.tui.options import ViewOptions
from rankscope.tui.selection import Selection
from rankscope.tui.styled_text import Line, Span, cut, line, wrapped

MOST_RANKS = 12
"""Most ranks whose shares stand below the list, the largest first."""
DEEPEST = 24
"""Most cells of indentation."""


class SharesScreen(ListPage):
    """The tree of shares; dismisses with the rank that spends the largest share in the call."""

    DEFAULT_CSS = "SharesScreen #text { height: 8; max-height: 50%; }"
    VIEW = "time"
    ENTER = "go to its rank"
    FIND_HINT = "part of a call: load_batch"

    def __init__(self, dataset: Dataset, analysis: Analysis, options: ViewOptions | None = None) -> None:
        super().__init__(options or ViewOptions())
        self._tree = share_tree(dataset)
        self._told = _told_rank(self._tree, analysis)
        self._all = share_rows(self._tree) if self._tree is not None else []
        self._shown: list[ShareRow] = []

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
        heads = line(Span(f" {'mean':>5} {'share':<10} call", "bold"))
        return [line(title, "  ", *self._difference()), heads]

    def _difference(self) -> list[Span | str]:
        more = []
        if self._tree is not None and self._told is not None:
            more = [one for one in rank_differences(self._tree, self._told) if one.more > 0]
        if not more:
            return [Span("no rank differs from the others", "dim")]
        one = more[0]
        where = f"{one.own:.0%} in {call_text(one.path[-1])}, the others {one.others:.0%}"
        return [Span(f"rank {self._told}", "bad"), f": {where}"]

    def search(self, text: str) -> int:
        """Lists the calls."""
        self._shown = [row for row in self._all if text in call_text(row.node.frame).lower()]
        return len(self._shown)

    def entry_line(self, at: int, width: int) -> Line:
        """A call with its mean share, and the ranks that differ from most."""
        row = self._shown[at]
        indent = " " * min(row.depth, DEEPEST)
        own = f" {row.mean:>5.0%} {row.bar} {indent}{call_text(row.node.frame)}"
        return cut(line(own, "  ", Span(row.odd, "bad" if self._told in row.ranks else "warn")), width)

    def entry_text(self, at: int, width: int) -> list[Line]:
        """The place of the call, and its share in each rank."""
        frame, shares = self._shown[at].node.frame, self._shown[at].node.shares
        ordered = sorted(shares, key=lambda rank: (-shares[rank], rank))
        told = ", ".join(f"rank {rank} {shares[rank]:.0%}" for rank in ordered[:MOST_RANKS])
        more = f", and {len(ordered) - MOST_RANKS:,} more" if len(ordered) > MOST_RANKS else ""
        ranks = self._tree.ranks if self._tree is not None else ()
        never = [rank for rank in ranks if rank not in shares]
        lines = [
            line(Span("call  ", "dim"), plain(f"{frame.function} {frame.file}:{frame.line}")),
            line(Span("share ", "dim"), f"{told}{more}"),
        ]
        if never:
            lines.append(line(Span("never ", "dim"), ranks_text(never, 40)))
        return wrapped(lines, width, 6)

    def choose(self, at: int) -> None:
        """Goes to the lanes of the rank with the largest share."""
        shares = self._shown[at].node.shares
        self.dismiss(Selection(max(shares, key=lambda rank: (shares[rank], -rank))))


def _told_rank(tree: ShareTree | None, analysis: Analysis) -> int | None:
    """The accused rank, if it has stacks over time; else the one that differs most."""
    if tree is None:
        return None
    accused = next((rank for rank in analysis.culprits if rank in tree.samples), None)
    return odd_rank(tree) if accused is None else accused
