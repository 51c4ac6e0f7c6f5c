"""The page of numbers: operations by ranks, each cell with the state of the rules or the distance from a reference."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import polars as pl
from textual import on, work
from textual.binding import BindingType
from textual.message import Message

from rankscope.analysis.model import Analysis
from rankscope.features.numbers.page.number_grid import (
    FIRST,
    FOLLOWS,
    LOOKS,
    SUSPICIOUS,
    WRONG,
    Codes,
    Ints,
    NumberGrid,
    binned_line,
    cell_text,
    legend,
    line_text,
    lines_off,
    number_grid,
    reference_codes,
    rule_codes,
    worst_cell,
)
from rankscope.features.numbers.rules.model import number_results
from rankscope.kinds.finding_kinds import STATUSES
from rankscope.schema import Dataset
from rankscope.text.escaping import plain
from rankscope.text.wording import plural, ranks_text
from rankscope.tui.actions import bound
from rankscope.tui.detail.screens.grid_page import BinnedPage
from rankscope.tui.detail.screens.page import Way
from rankscope.tui.options import ViewOptions
from rankscope.tui.selection import Selection
from rankscope.tui.styled_text import Line, Span, cut, line, wrapped

VERDICT_LINES = 2
"""Most lines of the verdict."""
NARROW = 34
"""Fewest cells for the name of an operation."""


@dataclass
class Arranged(Message):
    """The operations are arranged."""

    grid: NumberGrid
    codes: list[Codes]
    """The codes of cells by the rules, and those beside a reference, as far as there are any."""


class NumbersScreen(BinnedPage):
    """Operations by ranks; dismisses with the chosen collective of a rank."""

    BINDINGS: ClassVar[list[BindingType]] = [
        bound("right", "cell(1)", "rank", "left right"),
        bound("next_finding", "off(1)", "next that is off", "n N"),
        bound("previous_finding", "off(-1)"),
    ]
    WAYS = (
        Way("o", "only", "only what is off, or all"),
        Way("m", "mode", "rules, or the reference"),
    )
    DEFAULT_CSS = "NumbersScreen #text { height: 40%; max-height: 14; }"
    VIEW = "numbers"
    LOOKS = LOOKS
    ENTER = "go there"
    FIND_HINT = "an operation, a module, a group, step 3; or a rank: 12"
    RULED = "rank"

    def __init__(self, dataset: Dataset, analysis: Analysis, options: ViewOptions | None = None) -> None:
        super().__init__(options or ViewOptions())
        self.dataset, self.analysis = dataset, analysis
        self.grid: NumberGrid | None = None
        """None while the operations are arranged."""
        self._modes: list[Codes] = []
        self._mode = 0
        self._only = False
        self._shown = np.zeros(0, np.int64)
        """The listed lines of the grid."""

    @property
    def is_reference(self) -> bool:
        """Whether the cells show distances from a reference."""
        return number_results(self.analysis).distances is not None and self._mode == len(self._modes) - 1

    @property
    def codes(self) -> Codes:
        """The codes of the cells."""
        return self._modes[self._mode]

    @property
    def label_width(self) -> int:
        """Cells for the name of a line."""
        return max(NARROW, self.size.width // 3)

    @property
    def axis(self) -> Ints:
        """The ranks."""
        return np.zeros(0, np.int64) if self.grid is None else self.grid.ranks

    # The arrangement, in a thread

    def begin(self) -> None:
        """Starts to arrange the operations."""
        super().begin()
        if self.dataset.has_tensors:
            self._arrange()

    @work(thread=True)
    def _arrange(self) -> None:
        """Arranges the operations: a second for a million tensors, for which no key should wait."""
        grid, results = number_grid(self.dataset), number_results(self.analysis)
        modes = [
            *([rule_codes(results.marks)] if results.marks is not None else []),
            *([reference_codes(results.distances)] if results.distances is not None else []),
        ]
        blank = np.ones(self.dataset.tensors.height, np.uint8)
        self.post_message(Arranged(grid, [grid.cells(codes) for codes in modes or [blank]]))

    @on(Arranged)
    def _arranged(self, event: Arranged) -> None:
        self.grid, self._modes = event.grid, event.codes
        self._mode = len(self._modes) - 1
        self.per = self.fitting
        self.fill()
        # the list gets its height first
        self.call_after_refresh(self._begin)

    def _begin(self) -> None:
        """Puts the cursor on the first root, else on the first line that is off, else on the first line."""
        results = number_results(self.analysis)
        marks = results.distances if self.is_reference else results.marks
        places = [self.grid.place_of(row) for row in (marks.roots if marks else ())] if self.grid else []
        place = next((place for place in places if place is not None), None)
        if self.grid is not None and place is not None:
            at = int(np.searchsorted(self._shown, place[0]))
            self._go(at, int(self.grid.columns[place[1]]) // self.per)
        else:
            self._cell = 0
            self.draw_bars()
            self.action_off(1, from_start=True)

    # Drawing

    def heading(self) -> list[Line]:
        """The verdict, the counts, the legend and the ranks."""
        if self.grid is None:
            return [line(Span(" numbers", "head"), Span("  arranging" if self.dataset.has_tensors else "", "dim"))]
        badge = STATUSES[self.analysis.status]
        verdict = line(" ", Span(f" {badge.badge} ", badge.face), f" {plain(self.analysis.verdict)}")
        what = " against the reference" if self.is_reference else " numbers"
        counts = line(
            Span(what, "head"),
            f"  {self._counts()}",
            Span(f"  {self.per} ranks a cell" if self.per > 1 else "", "dim"),
        )
        key = line(" ", *legend(is_reference=self.is_reference))
        width = self.size.width
        head = [cut(parts, width) for parts in wrapped([verdict], width - 1, 1)[:VERDICT_LINES]]
        return [*head, *(cut(parts, width) for parts in (counts, key)), self._ruler()]

    def _counts(self) -> str:
        """The numbers of operations, steps and ranks, and of cells that are off."""
        assert self.grid is not None
        steps = self.grid.lines["step"].n_unique()
        sizes = [plural(len(self.grid.lines), "operation"), plural(steps, "step"), plural(len(self.grid.ranks), "rank")]
        named = (
            ((FIRST, "first to differ"),)
            if self.is_reference
            else ((WRONG, "wrong"), (SUSPICIOUS, "odd"), (FOLLOWS, "following"))
        )
        counts = [(int((self.codes == code).sum()), word) for code, word in named]
        off = ", ".join(f"{count:,} {word}" for count, word in counts if count)
        return f"{off or 'nothing is off'}; {', '.join(sizes)}"

    def search(self, text: str) -> int:
        """Lists the lines with `text` in their operation, group or step; of a rank those that it has."""
        if self.grid is None:
            return 0
        kept = np.ones(len(self.grid.lines), np.bool_)
        if text.isascii() and text.isdigit() and len(text) < 10:
            is_of_rank = self.grid.ranks[self.grid.columns] == int(text)
            kept = np.logical_or.reduceat(is_of_rank, self.grid.ends[:-1])
        elif text:
            kept = self.grid.lines.select(pl.col("words").str.contains(text, literal=True)).to_series().to_numpy()
        if self._only:
            kept = kept & np.isin(np.arange(len(kept)), lines_off(self.grid, self.codes))
        self._shown = np.flatnonzero(kept).astype(np.int64)
        return len(self._shown)

    def find(self, text: str) -> None:
        """Shows only lines with `text`; goes to the column of a rank."""
        super().find(text)
        if self.grid is not None and text.isascii() and text.isdigit() and len(text) < 10:
            self.go_step(int(np.searchsorted(self.grid.ranks, int(text))) // self.per)

    @property
    def _chars(self) -> int:
        """Characters of a cell: few ranks have a number over each."""
        return 4 if len(self.columns) * 4 <= self._room else super()._chars

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Whether a key has a use here: without a reference there is one view."""
        return len(self._modes) > 1 if action.startswith("mode") else super().check_action(action, parameters)

    def head(self, at: int) -> Span:
        """The step and the operation of a line."""
        assert self.grid is not None
        operation, width = self.grid.lines.row(int(self._shown[at]), named=True), self.label_width
        digits = len(str(self.grid.lines["step"].max()))
        step = "" if operation["step"] < 0 else str(operation["step"])
        return Span(f"{step:>{digits}} {line_text(operation, width - digits - 2):<{width - digits - 1}}")

    def codes_of(self, at: int) -> Codes:
        """The highest code of each column of a line."""
        assert self.grid is not None
        return binned_line(self.grid, self.codes, int(self._shown[at]), self.per)

    def entry_text(self, at: int, width: int) -> list[Line]:
        """The tensors of the cell under the cursor; of several ranks those of the worst."""
        if self.grid is None:
            return []
        cell = self._cell_at(at)
        low, high = self.bin.start, self.bin.stop
        who = ranks_text(self.grid.ranks[low:high].tolist(), 30)
        if cell is None:
            return [line(Span(who, "head"), Span("  recorded no such operation", "dim"))]
        lines = cell_text(self.dataset, self.analysis, self.grid, cell, width)
        if high - low > 1:
            lines[0] = line(lines[0], Span(f"  (the worst of {who})", "dim"))
        return wrapped(lines, width, 2)

    def _cell_at(self, at: int) -> int | None:
        """The worst cell under the cursor."""
        assert self.grid is not None
        return worst_cell(self.grid, self.codes, int(self._shown[at]), self._cell, self.per)

    # Keys

    def _go(self, at: int, column: int) -> None:
        """Puts the cursor on a line and a column, with lines around it."""
        self.listing.move_to(at)
        self.go_step(column)
        # a list that was empty has its height with the next layout: that of the page is known
        self.listing.scroll_to_line(at - self.size.height // 8)

    def action_off(self, by: int, from_start: bool = False) -> None:
        """Goes to the next or previous line with a cell that is off, and to its first such cell."""
        if self.grid is None or not len(self._shown):
            return
        off = np.flatnonzero(np.isin(self._shown, lines_off(self.grid, self.codes)))
        here = -1 if from_start else self.listing.cursor
        left = off[off > here] if by > 0 else off[off < here][::-1]
        if not len(left):
            self.note("" if from_start else f"nothing is off {'below' if by > 0 else 'above'} this line")
            return
        at = int(left[0])
        self._go(at, int(self.codes_of(at).argmax()))

    def action_only(self) -> None:
        """Lists only the lines with a cell that is off, or all."""
        self._only = not self._only
        self._relist()

    def action_mode(self) -> None:
        """Changes between the rules and the reference."""
        self._mode = (self._mode + 1) % len(self._modes)
        self._relist()

    def _relist(self) -> None:
        """Lists the lines anew, with the cursor on the same one or the next that is left."""
        line_ = int(self._shown[self.listing.cursor]) if len(self._shown) else 0
        self.fill()
        self._go(int(np.searchsorted(self._shown, line_)), self._cell)

    @property
    def unit(self) -> int:
        """The column of the worst rank under the cursor."""
        cell = self._cell_at(self.listing.cursor) if len(self._shown) else None
        return super().unit if cell is None or self.grid is None else int(self.grid.columns[cell])

    @property
    def most_per(self) -> int:
        """All ranks."""
        return len(self.axis)

    def limits(self) -> list[str]:
        """Limits of the list, in words."""
        return [*super().limits(), *(["what is off"] if self._only else [])]

    def action_back(self) -> None:
        """Ends the search and the limit to what is off, then closes the screen."""
        if self._only and not self.wanted:
            self.action_only()
        else:
            super().action_back()

    def choose(self, at: int) -> None:
        """Goes to the collective in the lanes, where a dump has it."""
        if self.grid is None or (cell := self._cell_at(at)) is None:
            return
        row = self.dataset.tensors.row(int(self.grid.tensors_of(cell)[0]), named=True)
        ops, group, seq = self.dataset.ops, row["group"], row["seq"]
        if row["site"] != "collective" or group is None or seq is None:
            self.note("the lanes show collectives; this is none, or it has no number")
        elif ops.filter((pl.col("group") == group) & (pl.col("seq") == seq) & ~pl.col("is_p2p")).is_empty():
            self.note("no dump holds this collective: the lanes need flight recorder dumps of the same job")
        else:
            self.dismiss(Selection(row["rank"], group=group, seq=seq))

    def nothing(self) -> list[Line]:
        """The text for an empty list: what to record, what was looked for, or that nothing is off."""
        if self.grid is None and self.dataset.has_tensors:
            return [line(Span("arranging the operations", "dim"))]
        if self._only and not self.wanted:
            return [line(Span("nothing is off", "good"), "; ", Span("g o", "bold"), " lists all")]
        return super().nothing()
