"""Keys in a line at the bottom: those of the lanes, of the pane with the focus, of a page; a click presses them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from rich.style import Style
from rich.text import Text

from rankscope.tui.actions import ACTIONS, Action, footer_keys


class Hint(NamedTuple):
    """A key and its effect."""

    key: str
    """Name of the key in Textual; "" for a text that is no key."""
    display: str
    """The key as a person reads it."""
    what: str
    """The effect in one or two words."""


HELP = Hint("question_mark", "?", "help")
SCROLLING: tuple[Hint, ...] = (
    Hint("down", "up down", "scroll"), Hint("pagedown", "pgup pgdn", "page"), Hint("end", "home end", "edges"),
)  # fmt: skip
"""Keys of any pane of lines."""
DETAIL_PANE: tuple[Hint, ...] = (
    Hint("tab", "tab", "lanes"), *SCROLLING, Hint("enter", "enter", "open"), Hint("y", "y", "copy"), HELP,
    Hint("q", "q", "quit"),
)  # fmt: skip
"""Keys while the pane of the detail has the focus."""
SEARCHING: tuple[Hint, ...] = (
    Hint("n", "n", "next hit"), Hint("N", "N", "hit before"), Hint("escape", "esc", "end search"),
    Hint("slash", "/", "find"), Hint("enter", "enter", "open"), HELP, Hint("q", "q", "quit"),
)  # fmt: skip
"""Keys of the lanes during a search."""
FILTERED = Hint("escape", "esc", "show all")
"""The key that ends a filter."""


def hint_of(action: Action) -> Hint:
    """The hint for an action of the lanes."""
    return Hint(action.keys[0], action.display, action.short or action.help)


def lane_hints(width: int, names: Sequence[str], before: Sequence[Hint] = ()) -> list[Hint]:
    """The hints `before`, and those for the actions that fit beside them, in the order of the help."""
    left = width - sum(map(_length, before))
    return [*before, *(hint_of(action) for action in footer_keys(left, tuple(names)))]


def fitting(hints: Sequence[Hint], width: int, important: Iterable[str] = ()) -> list[Hint]:
    """The hints that fit into `width` characters; the keys in `important` are the last to be left out."""
    first = [hint for key in important for hint in hints if hint.key == key]
    left, kept = width - 1, set()
    for hint in [*first, *(hint for hint in hints if hint not in first)]:
        if _length(hint) - 2 <= left:
            left -= _length(hint)
            kept.add(hint)
    return [hint for hint in hints if hint in kept]


def _length(hint: Hint) -> int:
    return len(hint.display) + len(hint.what) + 3


def hint_line(hints: Iterable[Hint], width: int, important: Iterable[str] = ()) -> Text:
    """The hints that fit, in one line; a click on one presses its key."""
    out = Text(" ")
    for hint in fitting(list(hints), width, important):
        start = len(out)
        out.append(hint.display, "key").append(f" {hint.what}", "dim")
        if hint.key:
            out.stylize(Style(meta={"@click": f"app.press({hint.key!r})"}), start)
        out.append("  ")
    # blanks at the end would be too many where the last hint just fits
    out.rstrip()
    return out


def known_hints(names: Iterable[str]) -> list[Hint]:
    """The hints for actions by their ids, each with its whole help, in the order of the help."""
    known = set(names)
    return [Hint(action.keys[0], action.display, action.help) for action in ACTIONS if action.id in known]
