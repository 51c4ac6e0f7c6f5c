"""The overview, and the rule between lanes and detail."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.text import Text

from rankscope.text.wording import duration, plural
from rankscope.tui.boards import LaneBoard
from rankscope.tui.filters import Filter, describe
from rankscope.tui.order import ORDERINGS
from rankscope.tui.row_window import RankWindow
from rankscope.tui.styled_text import BLANK, cut, line
from rankscope.tui.text_bars import pane_title, rule


@dataclass(frozen=True)
class Found:
    """A search in progress."""

    text: str
    at: int
    """The hit under the cursor, counted from 0."""
    count: int
    messages: int


def lane_words(board: LaneBoard, wanted: Filter, found: Found | None) -> list[str]:
    """The state of the lanes: rows, filter, search, marker, order, clocks."""
    pieces = board.row_words
    if wanted:
        pieces.append(f"only {describe(wanted, board.model)}")
    if found is not None:
        pieces.append(found_text(found))
    if board.marker is not None:
        pieces.append(f"marker {distance(board)}")
    if board.ordering != "rank":
        pieces.append(ORDERINGS[board.ordering])
    return [*pieces, *board.clock_words]


def joined(words: Sequence[str], *, ascii_only: bool) -> Text:
    """Words about the lanes, between short lines."""
    return Text((" - " if ascii_only else " \u2500 ").join(words))


def in_lines(words: Sequence[str], width: int) -> list[str]:
    """Words with two blanks between them, in lines of at most `width` characters; a word that is longer has its own."""
    lines = [""]
    for word in words:
        longer = f"{lines[-1]}  {word}" if lines[-1] else word
        if len(longer) <= width or not lines[-1]:
            lines[-1] = longer
        else:
            lines.append(word)
    return lines


def status_line(title: str, words: Text, width: int, *, lit: bool, ascii_only: bool) -> Text:
    """The rule below the lanes: the title of the pane below it, and words about the lanes."""
    left = line(pane_title(title, lit=lit)) if title else BLANK
    words = cut(words, max(width - left.cell_len - 6, 0))
    return rule(left, line(" ", words, " "), width, ascii_only=ascii_only, lit=lit)


def found_text(found: Found) -> str:
    """A search in a few words: its text, and the hit under the cursor."""
    where = f"{found.at + 1}/{found.count}" if found.count else "nothing"
    said = f", {found.messages} in messages" if found.messages else ""
    return f"find {found.text!r}: {where}{said}"


def distance(board: RankWindow) -> str:
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
    return Text.assemble((text[:first], "dim"), (f"[{text[first:last]}]", "bold"), (text[last:], "dim"))
