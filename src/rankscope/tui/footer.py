"""The line between lanes and detail, and the line of keys at the bottom."""

from __future__ import annotations

from dataclasses import dataclass

from rich.style import Style
from rich.text import Text

from rankscope.text.wording import duration, plural
from rankscope.tui.board import Board
from rankscope.tui.filters import Filter, describe
from rankscope.tui.order import ORDERINGS

DIM = Style(dim=True)
"""The style of secondary text: beside the lanes, grey comes from the terminal and not from the palette."""


@dataclass(frozen=True)
class Found:
    """A search in progress."""

    text: str
    at: int
    """The hit under the cursor, counted from 0."""
    count: int
    messages: int


def status_line(board: Board, wanted: Filter, found: Found | None, width: int, *, ascii_only: bool) -> Text:
    """A rule with the state of the lanes: rows, order, filter, search, marker, clocks, and the meaning of letters."""
    rule = "-" if ascii_only else "\u2500"
    pieces = [_rows_text(board)]
    if wanted:
        pieces.append(f"only {describe(wanted, board.model)}")
    if found is not None:
        pieces.append(found_text(found))
    if board.marker is not None:
        pieces.append(f"marker {distance(board)}")
    if board.ordering != "rank":
        pieces.append(ORDERINGS[board.ordering])
    if board.view.kind == "time" and board.times is not None:
        pieces.append(board.times.note)
    text = f"{rule} " + f" {rule} ".join(pieces) + " "
    if len(text) > width:
        text = text[: width - 4] + "... "
    key = board.model.legend
    room = width - len(text) - 3
    key = key if len(key) <= room else key[: max(room, 0)].rpartition("  ")[0]
    tail = f" {key} {rule}" if key else ""
    return Text.assemble(text, (rule * (width - len(text) - len(tail)) + tail, DIM))


def _rows_text(board: Board) -> str:
    lanes, rows = len(board.model.ranks), len(board.rows)
    text = plural(lanes, "rank") if lanes else "no rank is known"
    if rows < lanes:
        text += f" in {plural(rows, 'row')}"
    if rows > board.height:
        counted = "" if rows < lanes else "rows "
        text += f", {counted}{board.top + 1}-{min(board.top + board.height, rows)} shown"
    return text


def found_text(found: Found) -> str:
    """A search in a few words: its text, and the hit under the cursor."""
    where = f"{found.at + 1}/{found.count}" if found.count else "nothing"
    said = f", {found.messages} in messages" if found.messages else ""
    return f"find {found.text!r}: {where}{said}"


def distance(board: Board) -> str:
    """Distance of the cursor from the marker."""
    if board.marker is None:
        return ""
    units = board.unit - board.marker
    sign = "+" if units >= 0 else "-"
    if board.view.kind == "time":
        return sign + duration(abs(units))
    return sign + plural(abs(units), "step")


def overview_line(text: str, window: tuple[int, int]) -> Text:
    """The overview with the window between brackets."""
    first, last = window
    return Text.assemble((text[:first], DIM), (f"[{text[first:last]}]", "bold"), (text[last:], DIM))
