"""Pictures in rows: lanes of both runs around the place where they part, and heat maps of the difference."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import groupby

from htpy import Node

from rankscope.features.comparison.rules.model import HeatMap, LaneCell, LanePair, MapRow
from rankscope.features.comparison.rules.series_comparison import REAL, ROUNDING
from rankscope.report.blocks import Picture
from rankscope.report.svg_marks import WIDTH, area, group, rule, words
from rankscope.text.wording import clipped, duration, plural, ranks_text, sentence

_LEFT = 26
_BOX, _ROW, _PAIR = 46, 52, 154
_CHARACTER = 6.0
"""Width of a character in a box."""


# Lanes around the first difference.


def lanes_picture(pairs: Sequence[LanePair]) -> Picture | None:
    """The operations of each rank in A and below them in B; None without any."""
    if not pairs:
        return None
    columns = max(len(one.in_a) for one in pairs)
    width = min(130.0, (WIDTH - _LEFT - 4) / max(columns, 1))
    marks: list[Node] = []
    for number, one in enumerate(pairs):
        marks += _pair(one, 38.0 + _PAIR * number, width)
    title = "Where they part: operations of A above those of B"
    return Picture(title, _lanes_caption(pairs), _PAIR * len(pairs) + 4, marks)


def _lanes_caption(pairs: Sequence[LanePair]) -> str:
    first = pairs[0]
    at = _parting(first)
    ours, theirs = (_cell_words(lane[at]) for lane in (first.in_a, first.in_b))
    return (
        f"{sentence(ranks_text(first.ranks, 60))} at operation {first.operation + at:,}: {ours} in A, {theirs} in B. "
        "A thick frame and \u2260 mark a difference, dashes a gap, and \u2026 an operation that did not end."
    )


def _parting(pair: LanePair) -> int:
    kinds = [{a.kind, b.kind} for a, b in zip(pair.in_a, pair.in_b, strict=False)]
    return next((place for place, kind in enumerate(kinds) if kind != {"equal"}), 0)


def _cell_words(cell: LaneCell) -> str:
    return "nothing" if cell.kind == "absent" else f"{cell.op} {cell.tensors} ({cell.place})".replace("  ", " ")


def _pair(one: LanePair, top: float, width: float) -> Iterator[Node]:
    at = _parting(one)
    yield words(0, top - 24, sentence(ranks_text(one.ranks, 60)), "strong")
    if at:
        yield words(_LEFT, top - 8, f"operation {one.operation:,}", "soft", 16)
    yield words(_LEFT + at * width, top - 8, "\u2193 here they part", "hot")
    for number, (label, lane) in enumerate((("A", one.in_a), ("B", one.in_b))):
        y = top + _ROW * number
        yield words(_LEFT - 8, y + 27, label, f"end strong {label.lower()}")
        for place, cell in enumerate(lane):
            yield _cell(cell, _LEFT + place * width, y, width - 5)
    if one.left_out:
        yield words(WIDTH - 4, top - 8, f"{plural(one.left_out, 'more operation')} not drawn", "end soft")


def _cell(cell: LaneCell, x: float, y: float, width: float) -> Node:
    """A box with operation, tensors and number; a difference and an open end are told by signs, too."""
    most = max(10, int(width / _CHARACTER))
    hint = "no operation" if cell.kind == "absent" else f"{_cell_words(cell)}{', did not end' if cell.is_open else ''}"
    frame = area(x, y, width, _BOX, f"op {cell.kind}{' open' if cell.is_open else ''}", hint)
    if cell.kind == "absent":
        return group[frame, words(x + width / 2, y + 28, "\u2013", "middle soft")]
    op = f"\u2260 {cell.op}" if cell.kind == "differs" else cell.op
    name, _, number = cell.place.rpartition(" #")
    place = f"{clipped(name, most - len(number) - 4)} #{number}" if name else ""
    return group[
        frame, words(x + 5, y + 14, op, "code strong", most), words(x + 5, y + 28, cell.tensors, "code", most),
        words(x + 5, y + 41, f"{place} \u2026" if cell.is_open else place, "code soft", most),
    ]  # fmt: skip


# Heat maps.

_KINDS = {
    "schedule": "Schedules: share of operations that differ, by rank and operation",
    "values": "Values: relative difference, by series and step",
    "times": "Times: B less A, by rank and collective",
}
_LEVELS = ((0.0, "equal"), *((end, f"\u2264 {end:g}") for end in (ROUNDING, 1e-5, REAL, 1e-3, 0.1)))
"""Upper ends of the classes of a relative difference."""
_SHARES = (
    (0.0, "equal"),
    (0.0, ""),
    (0.05, "\u2264 5 %"),
    (0.2, "\u2264 20 %"),
    (0.5, "\u2264 50 %"),
    (0.999, "< all"),
)
"""Upper ends of the classes of a share; the palest colour is left out, so that one operation among many shows."""
_MAP_LEFT, _MAP_RIGHT, _HEIGHT, _HEAD = 190, WIDTH - 14, 17, 12


def heat_picture(found: HeatMap) -> Picture:
    """The rows of a heat map, its axis and its legend."""
    largest = _usual(found)
    marks: list[Node] = []
    for number, row in enumerate(found.rows):
        y = _HEAD + _HEIGHT * number
        marks.append(words(_MAP_LEFT - 8, y + 12, row.label, "end", 28))
        marks += _row(row, found, largest, y)
    bottom = _HEAD + _HEIGHT * len(found.rows)
    noun = {"schedule": "operation", "values": "step", "times": "collective"}[found.kind]
    marks += [rule(_MAP_LEFT, bottom + 2, _MAP_RIGHT, bottom + 2, "axis")]
    marks += [words(_MAP_LEFT, bottom + 18, f"{noun} {found.first:,}", "soft")]
    marks += [words(_MAP_RIGHT, bottom + 18, f"{noun} {found.last:,}", "end soft")]
    marks += _legend(found, largest, bottom + 32)
    return Picture(_KINDS[found.kind], _heat_caption(found), bottom + 56, marks)


def _row(row: MapRow, found: HeatMap, largest: float, y: float) -> Iterator[Node]:
    """Neighbours of one class as one rectangle, with a sign where colour alone would not tell."""
    width = (_MAP_RIGHT - _MAP_LEFT) / len(row.cells)
    place = 0
    for kind, run in groupby(_class(cell, found, largest) for cell in row.cells):
        size = len(list(run))
        x = _MAP_LEFT + place * width
        if kind:
            yield area(x, y, size * width - 0.6, _HEIGHT - 1.5, kind)
        sign = {"less3": "\u2212", "odd": "!"}.get(kind)
        if sign:
            yield words(x + size * width / 2, y + 12, sign, "middle sign")
        place += size


def _class(cell: float | None, found: HeatMap, largest: float) -> str:
    """The class of a cell; "" is blank."""
    if cell is None or math.isnan(cell):
        return ""
    if math.isinf(cell):
        return "odd"
    if found.kind == "times":
        level = min(3, math.floor(abs(cell) / largest * 3.5)) if largest else 0
        return f"{'less' if cell < 0 else 'more'}{level}" if level else "q0"
    levels = _LEVELS if found.kind == "values" else _SHARES
    number = next((place for place, (end, _) in enumerate(levels) if cell <= end), len(levels))
    return f"q{number}" if number < len(levels) else "q6"


def _usual(found: HeatMap) -> float:
    """The size of a difference of times that gets the strongest colour: one of 20 is larger."""
    if found.kind != "times":
        return 1.0
    sizes = sorted(abs(cell) for row in found.rows for cell in row.cells if cell is not None and math.isfinite(cell))
    return sizes[int(0.95 * (len(sizes) - 1))] if sizes else 0.0


def _legend(found: HeatMap, largest: float, y: float) -> Iterator[Node]:
    if found.kind == "times":
        end = duration(round(largest * 1e9))
        between = [("less2", ""), ("less1", ""), ("q0", "0"), ("more1", ""), ("more2", "")]
        entries = [("less3", f"-{end}"), *between, ("more3", f"+{end}")]
    elif found.kind == "values":
        entries = [*_numbered(_LEVELS), ("q6", "> 0.1"), ("odd", "no number")]
    else:
        entries = [*_numbered(_SHARES), ("q6", "all")]
    x = float(_LEFT)
    for kind, name in entries:
        yield area(x, y, 14, 12, kind)
        yield words(x + 18, y + 11, name, "small soft")
        x += 28 + 7 * len(name)
    yield words(x, y + 11, "blank: not in both", "small soft")


def _numbered(levels: Sequence[tuple[float, str]]) -> Iterator[tuple[str, str]]:
    return ((f"q{place}", name) for place, (_, name) in enumerate(levels) if name)


def _heat_caption(found: HeatMap) -> str:
    noun = "series" if found.kind == "values" else "ranks"
    more = f" {found.left_out:,} more {noun} not drawn." if found.left_out else ""
    touched = [row.label for row in found.rows if any(cell for cell in row.cells)]
    if found.kind == "times":
        means = {row.label: [cell for cell in row.cells if cell is not None] for row in found.rows}
        most = max(means, key=lambda label: abs(sum(means[label]) / max(len(means[label]), 1)))
        change = sum(means[most]) / max(len(means[most]), 1)
        return (
            f"Blue with \u2212 means less in B, orange more. On average {most} changes most: "
            f"{'-' if change < 0 else '+'}{duration(round(abs(change) * 1e9))} for a collective.{more}"
        )
    names = "; ".join(touched[:4]) + (f" and {len(touched) - 4} more" if len(touched) > 4 else "")
    return f"Darker cells differ more. Rows with a difference: {names or 'none'}.{more}"
