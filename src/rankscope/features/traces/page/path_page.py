"""The critical path: a row for each step, with the path over time, rank by rank, below it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import polars as pl

from rankscope.analysis.model import Analysis
from rankscope.features.traces.path_section import (
    NO_RANK,
    counter_rows,
    kernel_names,
    operator_name,
    part_phrase,
    pattern_table,
    process_text,
)
from rankscope.features.traces.rules.critical_path import step_lengths, top_names
from rankscope.features.traces.rules.model import PATH_KINDS, TRACE_RESULTS, TraceAnalysis
from rankscope.features.traces.rules.trace_story import group_label
from rankscope.schema import Dataset
from rankscope.text.escaping import plain
from rankscope.text.wording import duration
from rankscope.tui.detail.screens.page import ListPage, Way
from rankscope.tui.options import ViewOptions
from rankscope.tui.selection import Moment, Selection
from rankscope.tui.styled_text import Line, Role, Span, cut, line, wrapped

LETTERS = dict(zip(PATH_KINDS, "c=mlh", strict=True))
"""The letter of each kind in the strip of a path."""
_ROLES: dict[str, Role] = {"communication": "good", "launch": "dim", "host": "warn"}
_HEADS = ("step", "length", *("compute", "comm", "memory", "launch", "host"), "on")
_WIDTHS = (6, 8, 7, 5, 6, 6, 5, 0)
_NAMES, _LABEL = 4, 6


class PathScreen(ListPage):
    """The critical path of each step; dismisses with its longest part."""

    DEFAULT_CSS = "PathScreen #text { height: 11; max-height: 60%; }"
    WAYS = (Way("s", "sort", "sort by length, or by time"),)
    VIEW = "path"
    ENTER = "go to its longest part"
    FIND_HINT = "a step: 12"

    def __init__(self, dataset: Dataset, analysis: Analysis, options: ViewOptions | None = None) -> None:
        super().__init__(options or ViewOptions())
        self.dataset, self.analysis = dataset, analysis
        self.traces = TRACE_RESULTS.find(analysis) or TraceAnalysis()
        self._all = path_rows(self.traces)
        self._by_length = False
        self._shown: list[PathRow] = []

    @classmethod
    def lacks_data(cls, dataset: Dataset, analysis: Analysis) -> bool:
        """Whether no path of a step is known."""
        del dataset
        return TRACE_RESULTS.find(analysis) is None or TRACE_RESULTS.of(analysis).path.is_empty()

    def heading(self) -> list[Line]:
        """The meaning of the rows, and the names of the columns."""
        title = Span(" critical path", "head")
        if not self._all:
            why = (
                "  none yet"
                if self.is_early
                else "  none: there are no analysed traces, or only their collectives were read"
            )
            return [line(title, Span(why, "dim"))]
        order = "longest first" if self._by_length else "by time"
        how = Span(f"  what the length of each step comes from; {order}", "dim")
        heads = " ".join(f"{head:>{size}}" for head, size in zip(_HEADS, _WIDTHS, strict=True))
        return [line(title, how), line(Span(f" {heads}", "bold"))]

    def search(self, text: str) -> int:
        """Lists the steps."""
        rows = sorted(self._all, key=lambda row: -row.length_ns) if self._by_length else self._all
        self._shown = [row for row in rows if not text or str(row.step) == text]
        return len(self._shown)

    def entry_line(self, at: int, width: int) -> Line:
        """A step."""
        row = self._shown[at]
        cells = [str(row.step), duration(row.length_ns), *(f"{100 * share:.0f}%" for share in row.kinds)]
        text = " ".join(f"{cell:>{size}}" for cell, size in zip(cells, _WIDTHS, strict=False))
        parts: list[Span | str] = []
        for rank, share in row.ranks[:_NAMES]:
            parts += [
                Span(f" {process_text(self.dataset, [rank])}", "bad" if rank in self.analysis.culprits else "text"),
                f" {100 * share:.0f}%",
            ]
        return cut(line(f" {text} ", *parts), width)

    def entry_text(self, at: int, width: int) -> list[Line]:
        """The path of the step over time, its longest parts, and where one rank waits for another."""
        row = self._shown[at]
        strip = path_strip(self.traces.path.filter(path=row.path), max(width - _LABEL, 1))
        marks = NO_RANK if self.dataset.is_rankless else rank_marks([rank for _, rank in strip])
        letters = [Span(LETTERS[kind], _ROLES.get(kind, "text")) for kind, _ in strip]
        lines = [
            line(Span(f"{'path':<{_LABEL}}", "dim"), *letters),
            line(Span(f"{'rank':<{_LABEL}}", "dim"), marks),
            line(*(Span(f"{LETTERS[kind]} {kind}  ", _ROLES.get(kind, "text")) for kind in PATH_KINDS)),
        ]
        names = top_names(self.traces.path_names.filter(path=row.path)).head(_NAMES)
        told = [
            f"{part_phrase(kind, name)} ({process_text(self.dataset, [rank])}) {duration(total)}"
            for rank, kind, name, total in names.select("rank", "kind", "name", "total_ns").iter_rows()
        ]
        met = self.traces.handovers.filter(path=row.path).sort("waited_ns", descending=True).head(_NAMES)
        out = []
        for one in met.iter_rows(named=True):
            of = plain(group_label(self.dataset.group_list, one["group"], self.dataset.world_size))
            text = f"rank {one['rank']} for rank {one['for_rank']} in {plain(one['op'])} of {of}"
            out.append(line(Span("waits ", "dim"), f"{text} {duration(one['waited_ns'])}"))
        return wrapped([*lines, line(Span("most  ", "dim"), ", ".join(told)), *out], width, 2)

    def action_sort(self) -> None:
        """Sorts by length, or again by time."""
        self._by_length = not self._by_length
        self.fill()
        self.draw_bars()

    def choose(self, at: int) -> None:
        """Goes to the longest part in the lanes."""
        parts = self.traces.path.filter(path=self._shown[at].path)
        longest = parts.row(int(np.argmax((parts["end_ns"] - parts["start_ns"]).to_numpy())), named=True)
        self.dismiss(Moment(longest["rank"], longest["start_ns"], longest["end_ns"]))


class PatternScreen(ListPage):
    """Kernels that operators launch again and again, and below them counters; dismisses with a rank."""

    VIEW = "patterns"
    ENTER = "go to rank"
    FIND_HINT = "part of an operator or kernel: gemm"

    def __init__(self, dataset: Dataset, analysis: Analysis, options: ViewOptions | None = None) -> None:
        super().__init__(options or ViewOptions())
        self.dataset, self.analysis = dataset, analysis
        self.traces = TRACE_RESULTS.find(analysis) or TraceAnalysis()
        self._all = [*_pattern_rows(dataset, self.traces), *_counter_rows(self.traces)]
        self._shown: list[PatternRow] = []

    @classmethod
    def lacks_data(cls, dataset: Dataset, analysis: Analysis) -> bool:
        """Whether no kernels were launched again and again, and no counter was read."""
        traces = TRACE_RESULTS.find(analysis) or TraceAnalysis()
        return not (_pattern_rows(dataset, traces) or _counter_rows(traces))

    def heading(self) -> list[Line]:
        """The meaning of the rows, and the names of the columns."""
        title = Span(" kernel patterns", "head")
        if not self._all:
            why = "  none yet" if self.is_early else "  none: no operator launches the same two kernels or more twice"
            return [line(title, Span(why, "dim"))]
        how = Span("  what operators launch again and again, over all ranks; then counters", "dim")
        return [line(title, how), line(Span(f" {'times':>7} {'time':>8} {'kernels':>7}  operator", "bold"))]

    def search(self, text: str) -> int:
        """Lists patterns and counters."""
        self._shown = [row for row in self._all if text in f"{row.head} {row.text}".lower()]
        return len(self._shown)

    def entry_line(self, at: int, width: int) -> Line:
        """A pattern, or the counters of a kernel."""
        return cut(line(f" {plain(self._shown[at].head)}"), width)

    def entry_text(self, at: int, width: int) -> list[Line]:
        """All kernels of the pattern in their order, or all counters."""
        return wrapped([line(plain(self._shown[at].text))], width, 2)

    def choose(self, at: int) -> None:
        """Goes to the lanes of the first rank with it."""
        self.dismiss(Selection(self._shown[at].rank))


class PatternRow(NamedTuple):
    """A row of the list, and the text below it."""

    rank: int
    head: str
    text: str


def _pattern_rows(dataset: Dataset, traces: TraceAnalysis) -> list[PatternRow]:
    return [
        PatternRow(
            ranks[0],
            f"{count:>7,} {duration(total):>8} {length:>7}  {operator_name(operator)}",
            f"{process_text(dataset, ranks, 40)}: {kernel_names(kernels, length, length)}",
        )
        for operator, kernels, length, count, total, ranks in pattern_table(traces).iter_rows()
    ]


def _counter_rows(traces: TraceAnalysis) -> list[PatternRow]:
    return [PatternRow(rank, f"counter  {what}", amounts) for rank, what, amounts in counter_rows(traces)]


# Rows and strips of paths. No widget, no terminal.


class PathRow(NamedTuple):
    """The path of one step."""

    path: int
    step: int
    length_ns: int
    kinds: tuple[float, ...]
    """Shares of the step, by PATH_KINDS."""
    ranks: tuple[tuple[int, float], ...]
    """Ranks with their shares, the most first."""


def path_rows(traces: TraceAnalysis) -> list[PathRow]:
    """A row for each path, by time."""
    totals = traces.path.group_by("path", "rank", "kind").agg(ns=(pl.col("end_ns") - pl.col("start_ns")).sum())
    by_path = totals.partition_by("path", as_dict=True)
    return [
        _path_row(path, step, length, by_path[(path,)])
        for path, step, length in step_lengths(traces.path).select("path", "step", "length_ns").iter_rows()
    ]


def _path_row(path: int, step: int, length: int, totals: pl.DataFrame) -> PathRow:
    kinds = dict(totals.group_by("kind").agg(pl.col("ns").sum()).iter_rows())
    ranks = totals.group_by("rank").agg(pl.col("ns").sum()).sort(["ns", "rank"], descending=[True, False])
    shares = tuple(kinds.get(kind, 0) / max(length, 1) for kind in PATH_KINDS)
    return PathRow(path, step, length, shares, tuple((rank, ns / max(length, 1)) for rank, ns in ranks.iter_rows()))


def path_strip(parts: pl.DataFrame, cells: int) -> list[tuple[str, int]]:
    """The kind and rank of the path in the middle of each cell; `parts` of one path, by time."""
    begin, end = parts["start_ns"].to_numpy(), parts["end_ns"].to_numpy()
    middles = begin[0] + (end[-1] - begin[0]) * (2 * np.arange(cells) + 1) // (2 * cells)
    at = np.minimum(np.searchsorted(end, middles, side="right"), len(end) - 1)
    return list(zip(parts["kind"].gather(at), parts["rank"].gather(at), strict=True))


def rank_marks(ranks: list[int]) -> str:
    """The number of a rank where the path comes to it, as far as there is room."""
    out = [" "] * len(ranks)
    free = 0
    for at, rank in enumerate(ranks):
        if (at == 0 or ranks[at - 1] != rank) and at >= free:
            text = str(rank)
            out[at : at + len(text)] = text
            free = at + len(text) + 1
    return "".join(out)[: len(ranks)]
