"""The device mesh laid out in rows of cells, one cell for each rank, as wide as the screen allows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import groupby
from math import prod

from rankscope.analysis.mesh import Mesh
from rankscope.analysis.model import Analysis
from rankscope.schema import Dataset
from rankscope.tui.detail.format import clipped, plain
from rankscope.tui.detail.line import Line, Role, Span, line

MARKS: dict[str, tuple[str, Role]] = {
    "C": ("culprit", "bad"), "m": ("misfit", "warn"), "?": ("no dump", "warn"), "w": ("waits", "warn"),
    ".": ("other", "dim"),
}  # fmt: skip
"""Letters of the cells, what they mean and how they look; the first that fits counts."""
_NAME = 8
"""Characters of the name of a dimension in the label of a row."""
_EIGHT = 8
"""Cells between gaps where a row does not hold the innermost dimension."""
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
    """All rows, and what runs along them."""

    rows: tuple[MeshRow, ...]
    along: str
    """The dimensions within a row, outermost first: "dp, tp"."""
    label: int
    """Characters of the labels."""
    digits: int
    """Characters of the first rank of a row."""


def lay_out(mesh: Mesh, outside: tuple[int, ...], width: int) -> Layout:
    """The grid in rows of at most `width` characters: as many of the inner dimensions as fit run along a row."""
    sizes = [d.size for d in mesh.dimensions]
    digits = len(str(max([*mesh.places, *outside], default=0)))
    for outer in range(1, len(sizes)):
        room = width - _label_width(mesh, outer) - digits - 2
        if _characters(prod(sizes[outer:]), sizes[-1]) <= room:
            break
    rows = [part for label, ranks in _lines(mesh, outer) for part in _parted(label, ranks, sizes[-1], room)]
    rows += _parted(OUTSIDE, outside, _EIGHT, room) if outside else []
    along = ", ".join(plain(d.name) for d in mesh.dimensions[outer:])
    return Layout(tuple(rows), along, max((len(row.label) for row in rows), default=0), digits)


def _characters(cells: int, block: int) -> int:
    """Characters of a row: its cells, and a gap between blocks of them."""
    return cells + (cells - 1) // block


def _label_width(mesh: Mesh, outer: int) -> int:
    return sum(min(len(plain(d.name)), _NAME) + len(str(d.size - 1)) + 2 for d in mesh.dimensions[:outer])


def _lines(mesh: Mesh, outer: int) -> list[tuple[str, tuple[int, ...]]]:
    """(label, ranks) of every line of the grid, its first `outer` dimensions told by the label."""
    ordered = sorted((place, rank) for rank, place in mesh.places.items())
    names = [clipped(plain(d.name), _NAME) for d in mesh.dimensions]
    widths = [len(str(d.size - 1)) for d in mesh.dimensions]
    out = []
    for key, members in groupby(ordered, key=lambda item: item[0][:outer]):
        parts = [f"{name} {at:>{width}}" for name, at, width in zip(names, key, widths, strict=False)]
        out.append((" ".join(parts), tuple(rank for _, rank in members)))
    return out


def _parted(label: str, ranks: tuple[int, ...], block: int, room: int) -> list[MeshRow]:
    """A line of the grid as one row, or as many as it needs."""
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
    parts += [Span("".join(c for c, _ in run), role) for role, run in _runs(cells)]
    return line(*parts)


def _runs(cells: list[tuple[str, Role]]) -> list[tuple[Role, list[tuple[str, Role]]]]:
    return [(role, list(run)) for role, run in groupby(cells, key=lambda cell: cell[1])]


def legend(of: Mapping[int, str], ranks: int) -> Line:
    """What the letters mean, and how many ranks have each."""
    parts: list[Span | str] = []
    for letter, (meaning, role) in MARKS.items():
        count = sum(1 for known in of.values() if known == letter) if letter != "." else ranks - len(of)
        if count:
            parts += [Span(f"  {letter}", role), f" {meaning} {count}"]
    return line(*parts)
