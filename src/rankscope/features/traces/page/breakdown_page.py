"""The breakdown: a row for each rank with the uses of its time."""

from __future__ import annotations

from typing import Any

import polars as pl

from rankscope.analysis.model import Analysis
from rankscope.features.traces.path_section import NO_RANK, process_text
from rankscope.features.traces.rules.model import TRACE_RESULTS, TraceAnalysis
from rankscope.features.traces.trace_section import LATE, SHARES, WAITED
from rankscope.schema import Dataset
from rankscope.text.escaping import plain
from rankscope.text.wording import clipped, duration, short_name
from rankscope.tui.detail.screens.page import ListPage, Way
from rankscope.tui.options import ViewOptions
from rankscope.tui.selection import Selection
from rankscope.tui.styled_text import Line, Role, Span, cut, line, wrapped

_KERNELS, _NAME = 5, 40
"""Kernels that are named, and characters of a name."""


class BreakdownScreen(ListPage):
    """The uses of time of each rank; dismisses with the chosen rank."""

    DEFAULT_CSS = "BreakdownScreen #text { height: 9; }"
    WAYS = (Way("s", "sort", "sort by the next column"),)
    VIEW = "breakdown"
    ENTER = "go to rank"
    FIND_HINT = "a rank: 12"

    def __init__(self, dataset: Dataset, analysis: Analysis, options: ViewOptions | None = None) -> None:
        super().__init__(options or ViewOptions())
        self.dataset, self.analysis = dataset, analysis
        self.traces = TRACE_RESULTS.find(analysis) or TraceAnalysis()
        self.order = 0
        self._shown: list[Row] = []

    @classmethod
    def lacks_data(cls, dataset: Dataset, analysis: Analysis) -> bool:
        """Whether no trace was analysed."""
        del dataset
        return TRACE_RESULTS.find(analysis) is None or TRACE_RESULTS.of(analysis).steps.is_empty()

    def heading(self) -> list[Line]:
        """The description of the table, and the names of its columns."""
        if self.traces.steps.is_empty():
            return [line(Span(" breakdown", "head"), "  none")]
        how = f"  means of a step, shares of it; sorted by {ORDERS[self.order]}"
        lines = [line(Span(" breakdown", "head"), Span(how, "dim"))]
        if self.traces.refused:
            more = f" (+{len(self.traces.refused) - 1} more)" if len(self.traces.refused) > 1 else ""
            lines.append(line(Span(f" {plain(self.traces.refused[0])}{more}", "warn")))
        return [*lines, line(Span(f" {heading_text()}", "bold"))]

    def search(self, text: str) -> int:
        """Lists the ranks."""
        rows = breakdown(self.traces, ORDERS[self.order])
        self._shown = [row for row in rows if not text or str(row["rank"]) == text]
        return len(self._shown)

    def entry_line(self, at: int, width: int) -> Line:
        """A rank."""
        row = self._shown[at]
        role: Role = "bad" if row["rank"] in self.analysis.culprits else "text"
        head, *rest = cells(row)
        head = f"{NO_RANK:>{len(head)}}" if self.dataset.is_rankless else head
        return cut(line(Span(head, role), Span(" " + " ".join(rest))), width)

    def entry_text(self, at: int, width: int) -> list[Line]:
        """Reasons for a late rank, its longest kernels, and reasons for idle streams."""
        rank = self._shown[at]["rank"]
        lines = [line(Span(process_text(self.dataset, [rank]), "head"), *self._cause(rank))]
        own = pl.col("rank") == rank
        for kind in ("compute", "communication"):
            top = self.traces.kernels.filter(own & (pl.col("kind") == kind)).sort("total_ns", descending=True)
            parts = [
                f"{clipped(short_name(name or '?'), _NAME)} {duration(total)} x{count}"
                for name, total, count in top.head(_KERNELS).select("name", "total_ns", "count").iter_rows()
            ]
            if parts:
                lines.append(line(Span(f"{kind}  ", "dim"), ", ".join(parts)))
        why = (
            self.traces.idle.filter(own).group_by("kind").agg(pl.col("idle_ns").sum()).sort("idle_ns", descending=True)
        )
        parts = [f"{kind} {duration(ns)}" for kind, ns in why.iter_rows() if ns]
        if parts:
            lines.append(line(Span("streams idle  ", "dim"), ", ".join(parts)))
        return wrapped(lines, width, 2)

    def _cause(self, rank: int) -> list[Span | str]:
        cause = self.traces.causes.get(rank)
        if cause is None:
            return []
        what = f": {plain(short_name(cause.what))}" if cause.what else ""
        where = f" in {plain(short_name(cause.where))}" if cause.where else ""
        return [Span(f"  late because of its {cause.cause}", "bad"), f"{what}{where} ({100 * cause.share:.0f}% of it)"]

    def action_sort(self) -> None:
        """Sorts by the next column."""
        self.order = (self.order + 1) % len(ORDERS)
        self.fill()
        self.draw_bars()

    def choose(self, at: int) -> None:
        """Goes to the lanes of the rank."""
        self.dismiss(Selection(self._shown[at]["rank"]))


# The breakdown as a table: the uses of time of each rank, over all its steps. No widget, no terminal.

ORDERS = ("rank", "late", "step", "exposed", "idle", "gap")
"""Sort keys of the rows: a column of `breakdown`; ranks rise, all others fall."""
_SHARES = tuple(part for part in SHARES if part.title)
_WIDTHS = {"rank": 5, "steps": 5, "step": 8} | {part.title: part.width for part in (*_SHARES, LATE, WAITED)}
"""Columns, and their characters."""
Row = dict[str, Any]


def breakdown(traces: TraceAnalysis, order: str = "rank") -> list[Row]:
    """A row for each rank over all its steps, with its columns: times are means of a step in ns, shares parts of it.

    A share is None where only collectives and steps of the trace were read.
    """
    whole = (pl.col("end_ns") - pl.col("start_ns")).sum()
    shares = [
        pl.when(pl.col(f"{part.name}_ns").is_not_null().any())
        .then((pl.col(f"{part.name}_ns").sum() / whole).fill_nan(0).fill_null(0))
        .alias(part.title)
        for part in _SHARES
    ]
    means = [
        pl.col(f"{part.name}_ns").mean().fill_null(0).round().cast(pl.Int64).alias(part.title)
        for part in (LATE, WAITED)
    ]
    step = (whole / pl.len()).round().cast(pl.Int64).alias("step")
    table = traces.steps.filter(pl.col("rank").is_not_null()).group_by("rank")
    made = table.agg(pl.len().cast(pl.Int64).alias("steps"), step, *shares, *means)
    sort = made.sort("rank") if order == "rank" else made.sort(order, "rank", descending=[True, False], nulls_last=True)
    return sort.to_dicts()


def heading_text() -> str:
    """The names of the columns."""
    return " ".join(f"{title:>{width}}" for title, width in _WIDTHS.items())


def cells(row: Row) -> list[str]:
    """A row as the texts of its columns."""
    texts = {title: str(row[title]) for title in ("rank", "steps")}
    texts |= {title: duration(row[title]) for title in ("step", LATE.title, WAITED.title)}
    texts |= {part.title: "-" if row[part.title] is None else f"{100 * row[part.title]:.0f}%" for part in _SHARES}
    return [f"{texts[title]:>{width}}" for title, width in _WIDTHS.items()]
