"""The breakdown: a row for each rank with the uses of its time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, NamedTuple

import polars as pl
from textual.binding import Binding, BindingType

from rankscope.analysis.model import Analysis
from rankscope.features.traces.rules.model import TRACE_RESULTS, TraceAnalysis
from rankscope.schema import Dataset
from rankscope.text.escaping import plain
from rankscope.text.wording import clipped, duration, short_name
from rankscope.tui.detail.screens.page import ListPage
from rankscope.tui.options import ViewOptions
from rankscope.tui.selection import Selection
from rankscope.tui.styled_text import Line, Role, Span, cut, line, wrapped

_KERNELS, _NAME = 5, 40
"""Kernels that are named, and characters of a name."""


class BreakdownScreen(ListPage):
    """The uses of time of each rank; dismisses with the chosen rank."""

    DEFAULT_CSS = "BreakdownScreen #text { height: 9; }"
    BINDINGS: ClassVar[list[BindingType]] = [Binding("s", "sort", "sort")]
    VIEW = "breakdown"
    ENTER = "go to rank"
    FIND_HINT = "a rank: 12"

    def __init__(self, dataset: Dataset, analysis: Analysis, options: ViewOptions | None = None) -> None:
        super().__init__(options or ViewOptions())
        self.dataset, self.analysis = dataset, analysis
        self.traces = TRACE_RESULTS.find(analysis) or TraceAnalysis()
        self.order = 0
        self._shown: list[Total] = []

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
        self._shown = [row for row in rows if not text or str(row.rank) == text]
        return len(self._shown)

    def entry_line(self, at: int, width: int) -> Line:
        """A rank."""
        row = self._shown[at]
        role: Role = "bad" if row.rank in self.analysis.culprits else "text"
        head, *rest = cells(row)
        return cut(line(Span(head, role), Span(" " + " ".join(rest))), width)

    def entry_text(self, at: int, width: int) -> list[Line]:
        """Reasons for a late rank, its longest kernels, and reasons for idle streams."""
        row = self._shown[at]
        lines = [line(Span(f"rank {row.rank}", "head"), *self._cause(row.rank))]
        own = pl.col("rank") == row.rank
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
        self.dismiss(Selection(self._shown[at].rank))


# The breakdown as a table: the uses of time of each rank, over all its steps. No widget, no terminal.

ORDERS = ("rank", "late", "step", "exposed", "idle", "gap")
"""Sort keys of the rows: a column of `breakdown`; ranks rise, all others fall."""
_HEADS = ("rank", "steps", "step", "compute", "exposed", "copy", "idle", "gap", "overlap", "late", "waited")
WIDTHS = (5, 5, 8, 7, 7, 5, 5, 4, 7, 8, 8)
"""Characters of each column."""


class Total(NamedTuple):
    """A rank over all its steps; times are means of a step in nanoseconds, shares parts of the step.

    A share is None where only collectives and steps of the trace were read.
    """

    rank: int
    steps: int
    step: int
    compute: float | None
    exposed: float | None
    copy: float | None
    idle: float | None
    gap: float | None
    overlap: float | None
    late: int
    waited: int


def breakdown(traces: TraceAnalysis, order: str = "rank") -> list[Total]:
    """A row for each rank."""
    whole = (pl.col("end_ns") - pl.col("start_ns")).sum()
    shares = [
        pl.when(pl.col(f"{column}_ns").is_not_null().any())
        .then((pl.col(f"{column}_ns").sum() / whole).fill_nan(0).fill_null(0))
        .alias(name)
        for name, column in (
            ("compute", "compute"), ("exposed", "exposed"), ("copy", "memory"), ("idle", "idle"), ("gap", "host_gap"),
            ("overlap", "overlap"),
        )
    ]  # fmt: skip
    means = [pl.col(f"{name}_ns").mean().fill_null(0).round().cast(pl.Int64).alias(name) for name in ("late", "waited")]
    step = (whole / pl.len()).round().cast(pl.Int64).alias("step")
    table = traces.steps.filter(pl.col("rank").is_not_null()).group_by("rank")
    made = table.agg(pl.len().cast(pl.Int64).alias("steps"), step, *shares, *means)
    sort = made.sort("rank") if order == "rank" else made.sort(order, "rank", descending=[True, False], nulls_last=True)
    return [Total(*row) for row in sort.select(Total._fields).iter_rows()]


def heading_text() -> str:
    """The names of the columns."""
    return " ".join(f"{head:>{size}}" for head, size in zip(_HEADS, WIDTHS, strict=True))


def cells(row: Total) -> list[str]:
    """A row as the texts of its columns."""
    shares = ["-" if share is None else f"{100 * share:.0f}%" for share in row[3:9]]
    texts: Sequence[str] = [
        str(row.rank),
        str(row.steps),
        duration(row.step),
        *shares,
        duration(row.late),
        duration(row.waited),
    ]
    return [f"{text:>{size}}" for text, size in zip(texts, WIDTHS, strict=True)]
