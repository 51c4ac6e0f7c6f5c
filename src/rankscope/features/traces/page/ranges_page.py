"""The page of annotations and modules: device time of the ranges that a program names, over ranks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import polars as pl

from rankscope.analysis.model import Analysis
from rankscope.features.traces.range_section import UNKNOWN, differs, range_name
from rankscope.features.traces.rules.model import RANGE_KINDS, TRACE_RESULTS, TraceAnalysis
from rankscope.features.traces.rules.range_times import over_ranks
from rankscope.schema import Dataset
from rankscope.text.wording import duration, plural, ranks_text
from rankscope.tui.columns import Col, Columns
from rankscope.tui.detail.screens.page import TablePage, Way
from rankscope.tui.options import ViewOptions
from rankscope.tui.selection import Selection
from rankscope.tui.styled_text import Line, Span, cut, line

Row = dict[str, Any]
_MOST_RANKS = 16
"""Ranks whose times stand below the list, those that compute most first."""
_WIDE = 110


def _time(name: str) -> Any:
    return lambda row: UNKNOWN if row[name] is None else duration(row[name])


RANGE_COLUMNS = Columns[Row](
    Col(title="gpu", cell=_time("device_ns"), width=8, right=True),
    Col(
        title="share", cell=lambda row: UNKNOWN if row["share"] is None else f"{100 * row['share']:.0f}%", width=5,
        right=True,
    ),
    Col(title="comm", cell=_time("communication_ns"), width=8, right=True),
    Col(title="least", cell=_time("least_ns"), width=8, right=True),
    Col(title="most", cell=_time("most_ns"), width=8, right=True),
    Col(
        title="on", cell=lambda row: Span(str(row["most_rank"]), "warn") if differs(row) else UNKNOWN, width=5,
        right=True,
    ),
    Col(title="host", cell=_time("host_ns"), width=8, right=True, since=_WIDE),
    Col(title="times", cell=lambda row: f"{row['times']:.4g}", width=7, right=True, since=_WIDE),
    Col(title="name", cell=lambda row: range_name(row["name"])),
)  # fmt: skip


class RangesScreen(TablePage[Row]):
    """Annotations and modules over ranks; dismisses with the rank that computes longest in one."""

    WAYS = (Way("m", "kind", "annotations or modules"),)
    DEFAULT_CSS = "RangesScreen #text { height: 7; max-height: 50%; }"
    VIEW = "annotations"
    COLUMNS = RANGE_COLUMNS
    ENTER = "go to the rank with most"
    FIND_HINT = "part of a name: forward"

    def __init__(self, dataset: Dataset, analysis: Analysis, options: ViewOptions | None = None) -> None:
        self.dataset, self.analysis = dataset, analysis
        self.traces = TRACE_RESULTS.find(analysis) or TraceAnalysis()
        self._rows = {
            kind: over_ranks(self.traces.ranges, kind, self.traces.steps).rows(named=True) for kind in RANGE_KINDS
        }
        self.kind = next((kind for kind in RANGE_KINDS if self._rows[kind]), RANGE_KINDS[0])
        super().__init__(options or ViewOptions())

    @classmethod
    def lacks_data(cls, dataset: Dataset, analysis: Analysis) -> bool:
        """Whether no device worked in a range that a program named."""
        del dataset
        traces = TRACE_RESULTS.find(analysis)
        return traces is None or not (traces.ranges["device_ns"] > 0).any()

    def heading(self) -> list[Line]:
        """The kind of rows, what their times are, and the names of the columns."""
        title = Span(f" {self.kind}s" if self.kind != RANGE_KINDS[2] else " classes of modules", "head")
        if not self._rows[self.kind]:
            return [line(title, "  none")]
        per = "of a step" if self.traces.has_steps else "of the window"
        what = f"  {per}, median rank; least, most: without communication"
        return [cut(line(title, Span(what, "dim")), self.size.width), self.titles("bold")]

    def rows(self) -> Sequence[Row]:
        """The ranges of the shown kind, those with most device time first."""
        return self._rows[self.kind]

    def has(self, row: Row, text: str) -> bool:
        """Whether the name has `text`."""
        return text in row["name"].lower()

    def about(self, row: Row, width: int) -> list[Line]:
        """The whole name, and the times of each rank."""
        del width
        own = self.traces.ranges.filter((pl.col("kind") == self.kind) & (pl.col("name").cast(pl.String) == row["name"]))
        computed = pl.col("device_ns") - pl.col("communication_ns")
        by_rank = own.group_by("rank").agg(pl.col("device_ns").sum(), own=computed.sum(), times=pl.col("count").sum())
        by_rank = by_rank.sort(-pl.col("own"), "rank", nulls_last=True)
        parts = [
            f"rank {rank} {UNKNOWN if own_ns is None else duration(own_ns)}"
            for rank, own_ns in by_rank.select("rank", "own").head(_MOST_RANKS).iter_rows()
        ]
        left = by_rank.height - len(parts)
        told = ", ".join([*parts, *([f"{left} more"] if left > 0 else [])])
        where = f"on {ranks_text(row['ranks'])}, {plural(int(own['count'].sum()), 'time')} in all"
        return [
            line(Span(range_name(row["name"]), "head"), f"  {where}"),
            line(Span("computing, whole window  ", "dim"), told),
        ]

    def action_kind(self) -> None:
        """Shows the next kind that has rows."""
        later = RANGE_KINDS[RANGE_KINDS.index(self.kind) + 1 :] + RANGE_KINDS
        self.kind = next((kind for kind in later if self._rows[kind]), self.kind)
        self.fill()
        self.draw_bars()

    def choose(self, at: int) -> None:
        """Goes to the lanes of the rank that computes longest in it."""
        self.dismiss(Selection(self.row(at)["most_rank"]))
