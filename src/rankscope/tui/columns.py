"""Columns of lists as data: each has a title, the text of a row, and its cells; heads and rows are drawn from them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from rankscope.text.wording import clipped
from rankscope.tui.styled_text import Line, Role, Span, line

T = TypeVar("T")
Cell = str | Span | Line
MEASURED = 200
"""Rows whose texts give the cells of columns that fit: the first ones are those that matter."""
_WIDEST = 1 << 16


@dataclass(frozen=True, kw_only=True)
class Col(Generic[T]):
    """A column. The last one of a list takes the cells that are left, unless its texts stand at the right."""

    title: str
    cell: Callable[[T], Cell | Callable[[int], Cell]]
    """The text of a row, or a function of the cells that there are for it."""
    width: int | Callable[[int], int] = 0
    """Cells it takes, or the most that it may take; also by the cells of the screen. 0: as many as it needs."""
    fits: bool = False
    """Whether it takes no more cells than its title and its texts need; longer texts are cut."""
    right: bool = False
    """Whether texts stand at its right, as numbers do; then none is cut."""
    since: int = 0
    """Cells of the screen from which it is shown: narrow screens go without it."""
    sort: Callable[[T], Any] | None = None
    """What rows are sorted by; None if the list is not sorted by it."""

    def text(self, row: T, cells: int) -> Cell:
        """The text of a row for so many cells."""
        cell = self.cell(row)
        return cell(cells) if callable(cell) else cell


class Columns(Generic[T]):
    """The columns of a list."""

    def __init__(self, *columns: Col[T], needs: Sequence[int] = ()) -> None:
        self.all = columns
        self._needs = needs or [len(column.title) for column in columns]

    def measured(self, rows: Sequence[T]) -> Columns[T]:
        """The same columns with the cells that the texts of the first rows need."""
        first = rows[:MEASURED]
        needs = [
            max((len(_plain(column.text(row, _cells(column.width, _WIDEST) or _WIDEST))) for row in first), default=0)
            if column.fits
            else 0
            for column in self.all
        ]
        return Columns(*self.all, needs=needs)

    def widths(self, screen: int) -> dict[Col[T], int]:
        """The columns that a screen of so many cells shows, and the cells of each; one cell is for the cursor."""
        left, widths = screen - 1, {}
        for needs, column in zip(self._needs, self.all, strict=True):
            if screen < column.since:
                continue
            most = _cells(column.width, screen) or _WIDEST
            widths[column] = max(min(needs, most), len(column.title)) if column.fits else most
            if column is self.all[-1] and not column.right:
                widths[column] = max(left, 0)
            left -= widths[column] + 1
        return widths

    def titles(self, screen: int, role: Role = "dim") -> Line:
        """The titles over their columns; a long one takes blanks of its neighbours."""
        text, start = "", 1
        for column, width in self.widths(screen).items():
            begin = start + max(width - len(column.title), 0) * column.right
            text = f"{text:<{begin}}{column.title}"
            start += width + 1
        return line(Span(text, role))

    def line(self, row: T, screen: int, look: Role = "text") -> Line:
        """A row; `look` is for texts without a role of their own."""
        parts: list[Span | Line | str] = []
        widths = self.widths(screen)
        for column, width in widths.items():
            cell = column.text(row, width)
            if column is self.all[-1] and not column.right:
                parts.append(Span(cell, look) if isinstance(cell, str) else cell)
                break
            text, style = (cell.text, cell.style) if isinstance(cell, Span) else (_plain(cell), look)
            shown = clipped(text, width) if column.fits and not column.right else text
            blanks = " " * (width - len(shown))
            parts += [blanks, Span(shown, style), " "] if column.right else [Span(shown, style), f"{blanks} "]
        return line(*parts)


def _cells(width: int | Callable[[int], int], screen: int) -> int:
    return width(screen) if callable(width) else width


def _plain(cell: Cell) -> str:
    return cell if isinstance(cell, str) else cell.text if isinstance(cell, Span) else cell.plain
