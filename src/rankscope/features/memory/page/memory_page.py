"""The page of memory: ranks by steps or times, each cell in tenths of the device or of the most that a rank holds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from textual import on, work
from textual.binding import BindingType
from textual.message import Message

from rankscope.analysis.model import Analysis
from rankscope.features.memory.page.memory_grid import (
    GROWTH,
    SECOND_NS,
    Codes,
    Ints,
    MemoryGrid,
    held_name,
    memory_grids,
    row_bounds,
)
from rankscope.features.memory.page.memory_text import (
    LOOKS,
    MemoryMark,
    mark_line,
    marked_series,
    memory_marks,
    place_text,
    sample_text,
    scale_line,
    slope_line,
    verdict_line,
)
from rankscope.features.memory.rules.memory_growth import slope_of
from rankscope.features.memory.rules.memory_peers import kind_of
from rankscope.features.memory.rules.model import MEMORY_RESULTS, MemoryGrowth
from rankscope.schema import Dataset
from rankscope.text.wording import clock, ranks_text
from rankscope.tui.actions import bound
from rankscope.tui.detail.screens.grid_page import BinnedPage, row_head
from rankscope.tui.detail.screens.page import Way
from rankscope.tui.options import ViewOptions
from rankscope.tui.selection import Moment
from rankscope.tui.styled_text import Line, Span, cut, line, wrapped

LABEL_WIDTH = 18
"""Cells for the ranks of a row and their number."""
AROUND = 12
"""Lines of the screen that are no rows: heading, text and keys."""
MOST_ALONE = 64
"""Most marked series with rows of their own."""


@dataclass
class Sampled(Message):
    """The samples are arranged."""

    grids: list[MemoryGrid]


@dataclass
class Sloped(Message):
    """The slope of a series is known."""

    key: tuple[int, int]
    """The grid and the series."""
    slope: MemoryGrowth | None


class MemoryScreen(BinnedPage):
    """Ranks by steps or times; dismisses with the chosen rank and the time of its sample."""

    BINDINGS: ClassVar[list[BindingType]] = [
        bound("right", "cell(1)", "step", "left right"),
        bound("next_finding", "marked(1)", "next marked", "n N"),
        bound("previous_finding", "marked(-1)"),
        bound("unfold", "unfold", "unfold"),
    ]
    WAYS = (
        Way("m", "size(1)", "the next kind of size"),
        Way("p", "size(-1)", "the kind of size before"),
        Way("d", "device", "host or device"),
        Way("a", "snapshots", "memory snapshots"),
    )
    VIEW = "memory"
    LOOKS = LOOKS
    ENTER = "go there"
    FIND_HINT = "a rank: 12"

    def __init__(self, dataset: Dataset, analysis: Analysis, options: ViewOptions | None = None) -> None:
        super().__init__(options or ViewOptions())
        self.dataset, self.analysis = dataset, analysis
        self.marks = memory_marks(dataset, analysis)
        self.grids: list[MemoryGrid] = []
        """Empty while the samples are arranged."""
        self.size_shown = ""
        """The name of the bytes in the cells."""
        self._kind = 0
        self._folded = True
        self._marked: dict[int, MemoryMark] = {}
        """The marks by series."""
        self._lows = self._highs = np.zeros(0, np.int64)
        """The series of each row."""
        self._slopes: dict[tuple[int, int], MemoryGrowth | None] = {}

    @classmethod
    def lacks_data(cls, dataset: Dataset, analysis: Analysis) -> bool:
        """Whether there is no sample of memory: messages of allocators are none."""
        del analysis
        return not (dataset.memory["source"] != "log").any()

    @property
    def grid(self) -> MemoryGrid:
        """The shown kind of device."""
        return self.grids[self._kind]

    @property
    def axis(self) -> Ints:
        """The first step or time of each column of the grid."""
        return self.grid.starts if self.grids else np.zeros(0, np.int64)

    @property
    def ruled(self) -> str:
        """Noun of the columns."""
        return "step" if not self.grids or self.grid.by_step else "time"

    def column_label(self, column: int) -> str:
        """The step or the time of a column."""
        return place_text(self.grid, column * self.per)

    @property
    def label_width(self) -> int:
        """Cells for the label of a row."""
        return LABEL_WIDTH

    # The arrangement, in a thread

    def begin(self) -> None:
        """Starts to arrange the samples."""
        super().begin()
        if not self.lacks_data(self.dataset, self.analysis):
            self._arrange()

    @work(thread=True)
    def _arrange(self) -> None:
        """Arranges the samples: a second for millions, for which no key should wait."""
        mesh = self.analysis.mesh
        stages = (mesh.along("pp") if mesh is not None else None) or {}
        self.post_message(Sampled(memory_grids(self.dataset.memory, stages)))

    @on(Sampled)
    def _sampled(self, event: Sampled) -> None:
        self.grids = event.grids
        if not self.grids:
            return
        kinds = [at for mark in self.marks for at, grid in enumerate(self.grids) if marked_series(grid, mark)]
        self._show_kind(kinds[0] if kinds else 0)
        # the list gets its height first
        self.call_after_refresh(self._begin)

    def _show_kind(self, kind: int) -> None:
        """Shows a kind of device; of a leak its growth, else what is held."""
        self._kind = kind
        self._marked = {}
        for mark in self.marks:
            for series in marked_series(self.grid, mark):
                self._marked.setdefault(series, mark)
        memory, held = MEMORY_RESULTS.find(self.analysis), held_name(self.grid.kind)
        grows = memory is not None and any(kind_of(growth.device) == self.grid.kind for growth in memory.growths)
        wanted = next((mark.size for mark in self._marked.values()), GROWTH if grows else held)
        self.size_shown = wanted if wanted in self.grid.bytes else next(iter(self.grid.bytes))
        self.per = self.fitting
        self.fill()

    def _begin(self) -> None:
        """Puts the cursor on the worst mark, else on the fullest cell."""
        series = next(iter(self._marked), None)
        if series is None:
            all_columns = slice(0, len(self.grid.starts))
            series = self.grid.worst_series(self.size_shown, 0, len(self.grid.ranks), all_columns)
        self._go(series)

    # Drawing

    def heading(self) -> list[Line]:
        """The first mark, the scale, and the columns."""
        if not self.grids:
            waits = not self.lacks_data(self.dataset, self.analysis)
            return [line(Span(" memory", "head"), Span("  arranging" if waits else "", "dim"))]
        width = self.size.width
        head = verdict_line(self.marks, self.analysis), scale_line(self.grid, self.size_shown)
        return [*(cut(parts, width) for parts in head), self._ruler()]

    def search(self, text: str) -> int:
        """Lists the rows, of a rank only its own."""
        if not self.grids:
            return 0
        ranks = self.grid.ranks
        if text:
            is_rank = text.isascii() and text.isdigit() and len(text) < 10
            self._lows = np.flatnonzero(ranks == int(text)) if is_rank else np.zeros(0, np.int64)
            self._highs = self._lows + 1
        else:
            alone = np.zeros(len(ranks), np.bool_)
            alone[list(self._marked)[:MOST_ALONE]] = True
            bounds = row_bounds(ranks, alone if self._folded else ~np.zeros_like(alone), self._sharing)
            self._lows, self._highs = bounds[:-1], bounds[1:]
        return len(self._lows)

    @property
    def _sharing(self) -> int:
        """Ranks that share a row, so that all rows fit: a power of two."""
        rows = max(self.size.height - AROUND, 1)
        per = 1
        while len(self.grid.ranks) > rows * per:
            per *= 2
        return per

    def head(self, at: int) -> Span:
        """The ranks of a row, and the mark of one of them."""
        low, high = int(self._lows[at]), int(self._highs[at])
        marks = [self._marked[series] for series in range(low, high) if series in self._marked]
        role = marks[0].role if marks else "text"
        return row_head(self.grid.ranks[low:high].tolist(), "!" if marks else " ", role, LABEL_WIDTH)

    def codes_of(self, at: int) -> Codes:
        """The codes of the cells of a row."""
        return self.grid.codes(self.size_shown, int(self._lows[at]), int(self._highs[at]), self.per)

    def _worst(self, at: int) -> int:
        """The worst series of a row in the columns under the cursor."""
        return self.grid.worst_series(self.size_shown, int(self._lows[at]), int(self._highs[at]), self.bin)

    def entry_text(self, at: int, width: int) -> list[Line]:
        """The sizes of the worst rank of the cell under the cursor, its mark, and its slope."""
        if not self.grids:
            return []
        series = self._worst(at)
        lines = sample_text(self.grid, series, self.bin, self.size_shown)
        low, high = int(self._lows[at]), int(self._highs[at])
        if high - low > 1:
            who = ranks_text(self.grid.ranks[low:high].tolist(), 30)
            lines[0] = line(lines[0], Span(f"  (the most of {who})", "dim"))
        mark = self._marked.get(series)
        about = [mark_line(mark)] if mark is not None else []
        if mark is None or mark.word != "LEAKS":
            about += self._slope(series)
        return wrapped([*lines, *about], width, 2)

    def _slope(self, series: int) -> list[Line]:
        """The slope of a series; nothing until a thread knows it."""
        key = self._kind, series
        if key not in self._slopes:
            self._look_up(key, self.grid)
            return []
        device = self.grid.samples["device"][int(self.grid.ends[series])]
        return [slope_line(self.analysis, int(self.grid.ranks[series]), device, self._slopes[key])]

    @work(thread=True, exclusive=True, group="slope")
    def _look_up(self, key: tuple[int, int], grid: MemoryGrid) -> None:
        self.post_message(Sloped(key, slope_of(grid.samples_of(key[1]))))

    @on(Sloped)
    def _sloped(self, event: Sloped) -> None:
        self._slopes[event.key] = event.slope
        self.draw_text()

    # Keys

    def _go(self, series: int, column: int | None = None) -> None:
        """Puts the cursor on a series, and on a column; without one, on its highest cell."""
        at = max(int(np.searchsorted(self._lows, series, "right")) - 1, 0)
        self.listing.move_to(at)
        if column is None:
            rows = int(self._lows[at]), int(self._highs[at])
            column = self.grid.worst_column(self.size_shown, *rows) // self.per
        self.go_step(column)
        self.listing.scroll_to_line(at - self.size.height // 4)

    def action_marked(self, by: int) -> None:
        """Goes to the next or previous marked rank."""
        if not self.grids or not len(self._lows):
            return
        rows = sorted({int(np.searchsorted(self._lows, series, "right")) - 1 for series in self._marked})
        here = self.listing.cursor
        left = [at for at in rows if at > here] if by > 0 else [at for at in rows[::-1] if 0 <= at < here]
        if left:
            series = next(
                marked for marked in sorted(self._marked) if self._lows[left[0]] <= marked < self._highs[left[0]]
            )
            self._go(series)
        else:
            self.note(f"no rank is marked {'below' if by > 0 else 'above'} this one")

    def action_size(self, by: int) -> None:
        """Shows the next sizes in the cells."""
        if self.grids:
            names = list(self.grid.bytes)
            self.size_shown = names[(names.index(self.size_shown) + by) % len(names)]
            self.draw_bars()
            self.listing.move_to(self.listing.cursor)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Whether a key has a use here: one kind of device leaves no other."""
        if action == "snapshots":
            return not self.dataset.snapshots.is_empty()
        return len(self.grids) > 1 if action.startswith("device") else super().check_action(action, parameters)

    def action_snapshots(self) -> None:
        """Opens the page of snapshots over this one; a rank chosen there is one chosen here."""
        from rankscope.features.memory.page.snapshots_page import SnapshotsScreen

        self.open_over(SnapshotsScreen(self.dataset, self.analysis, self.options))

    def action_device(self) -> None:
        """Shows the next kind of device, and the same rank there."""
        rank, cell = int(self.grid.ranks[self._worst(self.listing.cursor)]) if len(self._lows) else 0, self._cell
        self._show_kind((self._kind + 1) % len(self.grids))
        self._go(int(np.searchsorted(self.grid.ranks, rank)), cell)

    def action_unfold(self) -> None:
        """Gives each rank a row, or lets neighbours share rows."""
        if self.grids and len(self._lows):
            series = self._worst(self.listing.cursor)
            self._folded = not self._folded
            self.fill()
            self._go(series, self._cell)

    def choose(self, at: int) -> None:
        """Goes to the time of the sample in the lanes, if they have it."""
        series = self._worst(at)
        sample = self.grid.sample_at(series, self.bin, self.size_shown)
        start = None if sample is None else self.grid.samples["time_ns"][sample]
        created = self.dataset.ops["created_ns"]
        low, high = created.min(), created.max()
        if start is None:
            self.note("this sample has no time")
        elif not isinstance(low, int) or not isinstance(high, int):
            self.note("the lanes have no times: give flight recorder dumps or traces, too")
        elif not low - SECOND_NS <= start <= high + SECOND_NS:
            held = f"{clock(low, digits=0)} to {clock(high, digits=0)}"
            self.note(f"the lanes hold {held}, and nothing at {clock(start, digits=0)}")
        else:
            self.dismiss(Moment(int(self.grid.ranks[series]), start, start + self.grid.column_ns))

    def nothing(self) -> list[Line]:
        """The text for an empty list: what to record, or what was looked for."""
        if not self.grids and not self.lacks_data(self.dataset, self.analysis):
            return [line(Span("arranging the samples", "dim"))]
        if not self.grids and not self.dataset.snapshots.is_empty():
            return [line(Span("no samples of memory", "warn"), "; ", Span("g a", "bold"), " shows the snapshots")]
        return super().nothing()
