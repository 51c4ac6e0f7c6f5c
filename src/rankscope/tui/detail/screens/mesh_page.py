"""The device mesh: a cell for each rank in rows of the outer dimensions; culprits and waiting ranks are marked."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from math import prod
from typing import ClassVar

from textual.binding import BindingType
from textual.containers import Container
from textual.widget import Widget

from rankscope.analysis.model import Analysis, Mesh
from rankscope.analysis.places import Places
from rankscope.schema import Dataset
from rankscope.text.escaping import plain
from rankscope.text.wording import clipped, rank_ranges
from rankscope.tui.actions import bound
from rankscope.tui.detail import operation_text
from rankscope.tui.detail.line_widgets import CellList, Lines
from rankscope.tui.detail.operation_index import index_of
from rankscope.tui.detail.screens.page import ListPage
from rankscope.tui.options import ViewOptions
from rankscope.tui.selection import Selection
from rankscope.tui.styled_text import Line, Role, Span, cut, line, wrapped

MARKS: dict[str, tuple[str, Role]] = {
    "C": ("culprit", "bad"), "m": ("misfit", "warn"), "?": ("no dump", "warn"), "w": ("waits", "warn"),
    ".": ("other", "dim"),
}  # fmt: skip
"""Letters of the cells, their meaning and style; the first that fits counts."""
_NAME = 8
"""Characters of the name of a dimension in the label of a row."""
_EIGHT = 8
"""Cells between gaps if a row does not hold the innermost dimension."""
OUTSIDE = "outside"
"""The label of ranks that are not on the grid."""


@dataclass(frozen=True)
class MeshRow:
    """A row of the grid."""

    label: str
    ranks: tuple[int, ...]
    block: int
    """Cells between two gaps."""


@dataclass(frozen=True)
class Layout:
    """All rows, and the dimensions along them."""

    rows: tuple[MeshRow, ...]
    along: str
    """The dimensions within a row, outermost first: "dp, tp"."""
    label: int
    """Characters of the labels."""
    digits: int
    """Characters of the first rank of a row."""


def lay_out(mesh: Mesh, outside: tuple[int, ...], width: int) -> Layout:
    """The grid in rows of at most `width` characters: as many inner dimensions as fit run along a row."""
    sizes = [d.size for d in mesh.dimensions]
    digits = len(str(max([*mesh.places, *outside], default=0)))
    for outer in range(1, len(sizes)):
        label_width = sum(min(len(plain(d.name)), _NAME) + len(str(d.size - 1)) + 2 for d in mesh.dimensions[:outer])
        room = width - label_width - digits - 2
        if _characters(prod(sizes[outer:]), sizes[-1]) <= room:
            break
    rows = [part for label, ranks in _lines(mesh, outer) for part in _parted(label, ranks, sizes[-1], room)]
    rows += _parted(OUTSIDE, outside, _EIGHT, room) if outside else []
    along = ", ".join(plain(d.name) for d in mesh.dimensions[outer:])
    return Layout(tuple(rows), along, max((len(row.label) for row in rows), default=0), digits)


def _characters(cells: int, block: int) -> int:
    """Characters of a row: its cells, and a gap between blocks of them."""
    return cells + (cells - 1) // block


def _lines(mesh: Mesh, outer: int) -> list[tuple[str, tuple[int, ...]]]:
    """(label, ranks) of every line of the grid; the label tells the first `outer` dimensions."""
    ordered = sorted((place, rank) for rank, place in mesh.places.items())
    names = [clipped(plain(d.name), _NAME) for d in mesh.dimensions]
    widths = [len(str(d.size - 1)) for d in mesh.dimensions]
    out = []
    for key, members in groupby(ordered, key=lambda item: item[0][:outer]):
        parts = [f"{name} {at:>{width}}" for name, at, width in zip(names, key, widths, strict=False)]
        out.append((" ".join(parts), tuple(rank for _, rank in members)))
    return out


def _parted(label: str, ranks: tuple[int, ...], block: int, room: int) -> list[MeshRow]:
    """A line of the grid as one row, or as several if it is too long."""
    if _characters(len(ranks), block) <= room:
        return [MeshRow(label, ranks, block)]
    most = max((room + 1) // (_EIGHT + 1), 1) * _EIGHT
    return [MeshRow(label, ranks[at : at + most], _EIGHT) for at in range(0, len(ranks), most)]


def letters(dataset: Dataset, analysis: Analysis) -> dict[int, str]:
    """The letter of each rank that has one."""
    waiting = set(analysis.waits).union(*(f.waiting_ranks for f in analysis.findings if f.root_cause))
    odd = {rank for misfit in analysis.mesh.misfits for rank in misfit.ranks} if analysis.mesh else set()
    sets = {"w": waiting, "?": dataset.missing_ranks, "m": odd, "C": analysis.culprits}
    return {rank: letter for letter, ranks in sets.items() for rank in ranks}


def row_line(row: MeshRow, layout: Layout, of: Mapping[int, str], cursor: int | None) -> Line:
    """A row of the grid; the cell at `cursor` is marked."""
    parts: list[Span | str] = [f"{row.label:<{layout.label}} ", Span(f"{row.ranks[0]:>{layout.digits}} ", "dim")]
    cells: list[tuple[str, Role]] = []
    for at, rank in enumerate(row.ranks):
        if at and at % row.block == 0:
            cells.append((" ", "text"))
        letter = of.get(rank, ".")
        cells.append((letter, "mark" if at == cursor else MARKS[letter][1]))
    runs = [(role, list(run)) for role, run in groupby(cells, key=lambda cell: cell[1])]
    parts += [Span("".join(c for c, _ in run), role) for role, run in runs]
    return line(*parts)


def legend(of: Mapping[int, str], ranks: int) -> Line:
    """The meaning of the letters, and the number of ranks with each."""
    parts: list[Span | str] = []
    for letter, (meaning, role) in MARKS.items():
        count = sum(1 for known in of.values() if known == letter) if letter != "." else ranks - len(of)
        if count:
            parts += [Span(f"  {letter}", role), f" {meaning} {count}"]
    return line(*parts)


_EMPTY = Layout((), "", 0, 0)


class MeshScreen(ListPage):
    """The grid of ranks; dismisses with the chosen rank."""

    BINDINGS: ClassVar[list[BindingType]] = [
        bound("right", "cell(1)", "rank", "left right"),
        bound("left", "cell(-1)"),
        bound("next_finding", "culprit(1)", "culprit", "n N"),
        bound("previous_finding", "culprit(-1)"),
    ]
    VIEW = "mesh"
    ENTER = "go to rank"
    FIND_HINT = "a rank, or a place: pp 1"

    def __init__(self, dataset: Dataset, analysis: Analysis, options: ViewOptions | None = None) -> None:
        super().__init__(options or ViewOptions())
        self.dataset, self.analysis, self.mesh = dataset, analysis, analysis.mesh
        self.letters = letters(dataset, analysis)
        self._hosts = Places(dataset).hosts
        self._layout = _EMPTY
        self._shown: list[MeshRow] = []
        self._cell = 0

    @classmethod
    def lacks_data(cls, dataset: Dataset, analysis: Analysis) -> bool:
        """Whether the groups form no grid."""
        del dataset
        return analysis.mesh is None

    def body(self) -> Iterable[Widget]:
        """The grid, and the known facts of the rank under the cursor."""
        yield Container(CellList(self.options, id="list"), Lines(self.options, id="text"), id="body")

    def heading(self) -> list[Line]:
        """The dimensions, the meaning of the letters, and the dimensions along the rows."""
        if self.mesh is None:
            return [line(Span(" mesh", "head"), "  none")]
        title = line(Span(" mesh", "head"), "  ", Span(plain(str(self.mesh)), "bold"))
        rows = Span(f"   first rank, rows along {self._layout.along}", "dim")
        return [title, line(legend(self.letters, self.dataset.world_size), rows)]

    @cached_property
    def _rank_at(self) -> dict[tuple[int, ...], int]:
        return {place: rank for rank, place in self.mesh.places.items()} if self.mesh else {}

    @property
    def rank(self) -> int | None:
        """The rank under the cursor."""
        return self._rank_in(self.listing.cursor) if self._shown else None

    def _rank_in(self, at: int) -> int:
        ranks = self._shown[at].ranks
        return ranks[min(self._cell, len(ranks) - 1)]

    def on_resize(self) -> None:
        """Lays the grid out for the new width; the cursor stays on its rank."""
        rank = self.rank
        self.fill()
        if rank is not None:
            self.go(rank)
        super().on_resize()

    def begin(self) -> None:
        """Puts the cursor on the first culprit."""
        self.fill()
        if self.analysis.culprits:
            self.call_after_refresh(self.go, self.analysis.culprits[0])

    def search(self, text: str) -> int:
        """Lists the rows with a rank, or at a place."""
        if self.mesh is not None:
            outside = tuple(r for r in range(self.dataset.world_size) if r not in self.mesh.places)
            self._layout = lay_out(self.mesh, outside, max(self.size.width - 2, 20))
        rank = int(text) if text.isascii() and text.isdigit() and len(text) < 10 else None
        rows = self._layout.rows
        if rank is not None:
            self._shown = [row for row in rows if rank in row.ranks]
        else:
            self._shown = [row for row in rows if text in " ".join(row.label.lower().split())]
        if rank is not None and self._shown:
            self._cell = self._shown[0].ranks.index(rank)
        return len(self._shown)

    def entry_line(self, at: int, width: int) -> Line:
        """A row of the grid."""
        row = self._shown[at]
        cursor = min(self._cell, len(row.ranks) - 1) if at == self.listing.cursor else None
        return cut(row_line(row, self._layout, self.letters, cursor), width)

    def entry_text(self, at: int, width: int) -> list[Line]:
        """The known facts of the rank under the cursor."""
        return wrapped(self._about(self._rank_in(at)), width, 2)

    def _about(self, rank: int) -> list[Line]:
        host = f"  on {plain(self._hosts[rank])}" if rank in self._hosts else ""
        letter = self.letters.get(rank, ".")
        meaning = Span(f"  {MARKS[letter][0]}", MARKS[letter][1]) if letter != "." else ""
        where = (plain(self.mesh.where(rank)) if self.mesh else "") or "not on the grid"
        lines = [line(Span(f"rank {rank}", "head"), "  ", where, host, meaning)]
        about = [f for f in self.analysis.findings if rank in f.culprit_ranks]
        lines += [line(Span(plain(f.title), "bad" if f.root_cause else "warn")) for f in about]
        chain = self.analysis.waits.get(rank, ())
        if chain:
            names = index_of(self.dataset).descriptions
            lines.append(line(Span("waits ", "dim"), operation_text.chain_line(chain, names)))
        return [*lines, *self._alike(rank)]

    def _alike(self, rank: int) -> list[Line]:
        """The ranks along each dimension through this one."""
        mesh = self.mesh
        place = mesh.place(rank) if mesh else None
        if mesh is None or place is None:
            return []
        parts: list[Span | str] = []
        for axis, dimension in enumerate(mesh.dimensions):
            along = [(*place[:axis], at, *place[axis + 1 :]) for at in range(dimension.size)]
            ranks = [self._rank_at[at] for at in along if at in self._rank_at]
            parts += [Span(f"{', ' if parts else ''}{plain(dimension.name)} ", "dim"), rank_ranges(ranks, 24)]
        return [line(Span("along ", "dim"), *parts)]

    def go(self, rank: int) -> None:
        """Puts the cursor on a rank, if it is listed."""
        for at, row in enumerate(self._shown):
            if rank in row.ranks:
                self._cell = row.ranks.index(rank)
                self.listing.move_to(at)
                return

    def action_cell(self, by: int) -> None:
        """Moves along the row, and at its end to the next one."""
        if not self._shown:
            return
        at, row = self.listing.cursor, self._shown[self.listing.cursor]
        self._cell = min(self._cell, len(row.ranks) - 1) + by
        if not 0 <= self._cell < len(row.ranks) and 0 <= at + by < len(self._shown):
            at += by
            self._cell = 0 if by > 0 else len(self._shown[at].ranks) - 1
        self._cell = max(0, min(self._cell, len(self._shown[at].ranks) - 1))
        self.listing.move_to(at)

    def action_culprit(self, by: int) -> None:
        """Goes to the next rank that is a culprit or a misfit."""
        marked = sorted(rank for rank, letter in self.letters.items() if letter in "Cm")
        if not marked or self.rank is None:
            self.note("no rank is marked as a culprit")
            return
        later = [r for r in marked if r > self.rank] if by > 0 else [r for r in reversed(marked) if r < self.rank]
        self.go(later[0] if later else marked[0 if by > 0 else -1])

    def choose(self, at: int) -> None:
        """Goes to the lane of the rank."""
        self.dismiss(Selection(self._rank_in(at)))
