"""The line of numbered tabs, on the lanes and on every page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.style import Style
from rich.text import Text

from rankscope.kinds.view_kinds import TABS
from rankscope.tui.actions import TAB_KEYS, Hint, present
from rankscope.tui.styled_text import Line, cut

VERDICT, LANES = 1, 2
"""Numbers of the tabs of the main screen."""
MEMBERS = "members"
"""The page of tab 3 about the collective under the cursor."""


@dataclass(frozen=True)
class Tab:
    """A tab that has something to show."""

    number: int
    title: str
    views: tuple[str, ...] = ()
    """Names of its pages that have data, in their order."""


def main_tabs(*, has_lanes: bool) -> list[Tab]:
    """The tabs of the main screen; without lanes, the verdict alone."""
    return [Tab(VERDICT, "verdict"), *([Tab(LANES, "lanes")] if has_lanes else [])]


def tabs_of(views: Sequence[tuple[str, int]], *, has_lanes: bool) -> list[Tab]:
    """All tabs: those of the main screen, and those of these views, pairs of a name and its tab."""
    by_number = {number: tuple(name for name, tab in views if tab == number) for number in TABS}
    return [
        *main_tabs(has_lanes=has_lanes),
        *(Tab(number, TABS[number].title, names) for number, names in by_number.items() if names),
    ]


def next_view(tab: Tab, now: str) -> str:
    """The view that the key of a tab opens: its first, or the one after `now`."""
    at = tab.views.index(now) + 1 if now in tab.views else 0
    return tab.views[at % len(tab.views)]


def tabs_line(tabs: Sequence[Tab], current: int, view: str, width: int) -> Line:
    """The tabs in a line; the current one stands out and names its pages, the one on the screen in brackets.

    Where the names do not fit, it names the page on the screen alone, and counts.
    """
    out = Text(" ")
    keys = {number: present(Hint(str(number), str(number), "")) for number, _ in TAB_KEYS}
    room = width - sum(len(f" {keys[tab.number].display} {tab.title}  ") for tab in tabs) - 1
    for tab in tabs:
        begin = len(out)
        lit = tab.number == current
        key = keys[tab.number]
        out.append(f" {key.display} {tab.title} ", "focus" if lit else "")
        if not lit:
            out.stylize("key", begin + 1, begin + 1 + len(key.display))
        out.stylize(Style(meta={"@click": f"app.press({key.key!r})"}), begin)
        if lit and len(tab.views) > 1:
            out.append(f" {_pages(tab.views, view, room)}".rstrip(), "dim")
            out.append(" ")
        out.append(" ")
    out.rstrip()
    return cut(out, width)


def _pages(views: Sequence[str], view: str, room: int) -> str:
    """The pages of a tab in at most `room` cells, if that is possible."""
    names = " ".join(f"[{name}]" if name == view else name for name in views)
    if len(names) + 2 <= room:
        return names
    if view not in views:
        return f"{len(views)} pages"
    count = f"{views.index(view) + 1}/{len(views)}"
    return f"[{view}] {count}" if len(view) + len(count) + 5 <= room else count
