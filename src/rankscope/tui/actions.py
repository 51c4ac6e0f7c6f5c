"""All actions with their keys, and keys in a line at the bottom. Bindings, help, footer and command palette are made
from them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from rich.style import Style
from rich.text import Text
from textual.binding import Binding, BindingType

Scope = Literal["lanes", "screen", "app"]


@dataclass(frozen=True)
class Action:
    """An action of a key; its id ends an `action_` method of the app, or is in the screen's `commands` or `MOVES`."""

    id: str
    keys: tuple[str, ...]
    """Names of the keys in Textual; without any, the command palette does it by its name."""
    help: str
    """Effect of the action, for the help and the command palette."""
    section: str
    scope: Scope
    short: str = ""
    """One or two words for the footer; "" keeps the action out of the footer."""
    shown: str = ""
    """Text for the keys in help and footer; "" stands for a plain list of the keys."""
    also: str = ""
    """Further words that find the action in the command palette."""

    @property
    def display(self) -> str:
        """The keys as a person reads them."""
        return self.shown or " ".join(_DISPLAY.get(key, key) for key in self.keys)


_DISPLAY = {
    "question_mark": "?", "slash": "/", "colon": ":", "comma": ",", "full_stop": ".", "plus": "+", "minus": "-",
    "equals_sign": "=", "number_sign": "#", "escape": "esc", "pageup": "pgup", "pagedown": "pgdn",
    "shift+left": "shift+left",
}  # fmt: skip

ACTIONS: tuple[Action, ...] = (
    Action("next_finding", ("n",), "next finding, or next hit while searching", "Findings", "screen", "next"),
    Action("previous_finding", ("N",), "previous finding, or previous hit while searching", "Findings", "screen"),
    Action("finding", ("i",), "back to the finding, and its card", "Findings", "screen", "finding",
           also="root cause verdict summary home"),
    Action("chain", ("c",), "along the chain: to the rank that this one waits for", "Findings", "screen", "chain",
           also="blocked by wait"),
    Action("why", ("W",), "why the rank is accused, or why it is not", "Findings", "screen", "why",
           also="explain reason evidence culprit"),
    Action("open", ("enter",), "open what is under the cursor: members and stacks", "Findings", "screen", "open",
           also="details double click"),
    Action("views", ("v",), "views: findings, logs, settings, groups, mesh, files", "Findings", "screen", "views",
           also="pages menu"),
    Action("heat", ("M",), "heat map of ranks and steps, from traces", "Findings", "screen", "map",
           also="steps profiler slow"),
    Action("numbers", ("number_sign",), "numbers of operations, and which are wrong", "Findings", "screen", "numbers",
           also="tensors gradients nan reference numerics values"),
    Action("up", ("up", "k"), "lane above", "Move", "lanes"),
    Action("down", ("down", "j"), "lane below", "Move", "lanes"),
    Action("page_up", ("pageup",), "a page of lanes up", "Move", "lanes"),
    Action("page_down", ("pagedown",), "a page of lanes down", "Move", "lanes"),
    Action("top", ("g",), "first lane", "Move", "lanes", shown="g g"),
    Action("bottom", ("G",), "last lane", "Move", "lanes"),
    Action("left", ("left", "h"), "one cell to the left", "Move", "lanes"),
    Action("right", ("right", "l"), "one cell to the right", "Move", "lanes"),
    Action("page_left", ("shift+left", "H"), "a page to the left", "Move", "lanes"),
    Action("page_right", ("shift+right", "L"), "a page to the right", "Move", "lanes"),
    Action("previous_op", ("comma",), "previous operation in the lane", "Move", "lanes"),
    Action("next_op", ("full_stop",), "next operation in the lane", "Move", "lanes"),
    Action("begin", ("home",), "start of the run", "Move", "lanes", also="first start"),
    Action("end", ("end",), "end of the run", "Move", "lanes", also="last newest"),
    Action("goto", ("colon",), "go to a rank, sequence number, step or time", "Move", "screen", "go to",
           also="jump find seq"),
    Action("next_pane", ("tab",), "next pane", "Move", "screen", also="focus detail scroll"),
    Action("back", ("escape",), "back: end the search, then the filters", "Move", "screen",
           also="undo cancel clear reset show all"),
    Action("zoom_in", ("w", "plus", "equals_sign"), "zoom in", "Zoom", "lanes", also="larger"),
    Action("zoom_out", ("s", "minus"), "zoom out", "Zoom", "lanes", also="smaller"),
    Action("zoom_fit", ("0",), "zoom out to the whole run", "Zoom", "lanes", also="fit everything reset"),
    Action("zoom_selection", ("z",), "zoom to the collective under the cursor, or to what the marker spans", "Zoom",
           "lanes", also="drag window selection"),
    Action("zoom_undo", ("Z",), "undo the last zoom", "Zoom", "lanes", also="back"),
    Action("axis", ("t",), "axis: logical sequence or time", "Show", "screen", "time", also="clock wall"),
    Action("memory", ("b",), "memory of each rank below its lane, on the axis of time", "Show", "screen",
           also="bytes allocated reserved gpu samples"),
    Action("unfold", ("u",), "unfold or fold the lane", "Show", "lanes", "unfold", also="expand collapse"),
    Action("unfold_all", ("U",), "unfold or fold all lanes", "Show", "lanes", also="expand collapse"),
    Action("line_up", ("a",), "line up this collective on all ranks; again: next one", "Show", "screen", "line up",
           also="align"),
    Action("line_up_back", ("A",), "like a, to the previous rank", "Show", "screen", also="align"),
    Action("order", ("r",), "order by rank, distance, group, host, stage, look; call sites: one group, all", "Show",
           "screen", also="sort arrange"),
    Action("sites", (), "colour by call site: ranks that take different branches", "Show", "screen",
           shown="ctrl+p site", also="colours stack code line branch diverge spmd function file"),
    Action("marker", ("m",), "set or remove a marker, to measure distances", "Show", "lanes", also="measure duration"),
    Action("theme", ("T",), "theme: dark, light, high contrast, the terminal's own", "Show", "app",
           also="theme colours colors dark light contrast appearance"),
    Action("follow", ("F",), "follow the newest operations of a watched job", "Watch", "screen",
           also="live tail"),
    Action("pause", ("space",), "pause the view of a watched job, or go on", "Watch", "screen",
           also="freeze stop resume"),
    Action("ask_dumps", ("D",), "ask the job for dumps, through its trigger pipes", "Watch", "screen",
           also="collect flight recorder"),
    Action("step", ("S",), "let each rank of a replay begin its next operation", "Watch", "screen",
           also="replay single further"),
    Action("search", ("slash",), "search op, group, rank, function, file, message", "Find", "screen", "find",
           also="find grep look for"),
    Action("filter_ranks", ("f",), "show only some ranks: 0-7,64", "Find", "screen", "filter",
           also="filter limit select"),
    Action("filter_group", ("p",), "process groups, the stuck ones first; enter filters", "Find", "screen", "groups",
           also="group communicator members pending missing"),
    Action("filter_op", ("o",), "show only one operation or state", "Find", "screen", also="filter pending state"),
    Action("export", ("e",), "write the findings to a markdown file", "Out", "screen", "export",
           also="export save report share"),
    Action("export_traces", ("E",), "write all traces as one, on one clock, for Perfetto", "Out", "screen",
           also="export save merge"),
    Action("export_repro", ("R",), "write a script that replays the job", "Out", "screen",
           also="repro reproduce again minimal"),
    Action("copy", ("y",), "copy what is under the cursor, and add it to a file", "Out", "screen",
           also="yank clipboard save"),
    Action("copy_command", ("Y",), "copy the command of the next step, and add it to a file", "Out", "screen",
           "copy next", also="yank clipboard py-spy next step"),
    Action("help", ("question_mark",), "all keys", "Out", "app", "help",
           also="help usage manual legend letters"),
    Action("command_palette", ("ctrl+p",), "find an action by its name", "Out", "app", shown="ctrl+p",
           also="commands palette"),
    Action("redraw", ("ctrl+l",), "redraw the screen", "Out", "app", also="refresh repaint"),
    Action("quit", ("q", "ctrl+c"), "quit", "Out", "app", "quit", shown="q", also="exit leave close"),
)  # fmt: skip
"""All actions, in the order in which the help lists them."""

BY_ID: dict[str, Action] = {action.id: action for action in ACTIONS}
"""The actions by their id."""
FOOTER = (
    "help", "quit", "next_finding", "views", "export", "numbers", "open", "copy_command", "why", "chain", "finding",
    "search", "goto", "axis", "unfold", "filter_ranks", "filter_group",
)  # fmt: skip
"""Actions in the footer, the most important first."""
TRACED_FOOTER = (
    "help", "quit", "next_finding", "views", "export", "numbers", "line_up", "heat", "finding", "axis", "search",
    "goto", "why", "unfold", "open",
)  # fmt: skip
"""Actions in the footer over the lanes of traces, the most important first."""
ALONE_FOOTER = ("help", "quit", "next_finding", "views", "export", "numbers", "copy_command", "why", "search", "goto")
"""Actions in the footer where no lanes can be drawn, the most important first."""


def bindings_for(scope: Scope) -> list[BindingType]:
    """The bindings of a widget or screen."""
    return [
        Binding(key, call_of(action), action.help, show=False)
        for action in ACTIONS
        if action.scope == scope and action.id != "command_palette"
        for key in action.keys
    ]


def call_of(action: Action) -> str:
    """How Textual calls the action."""
    calls = {"lanes": f"move('{action.id}')", "screen": f"command('{action.id}')", "app": action.id}
    return calls[action.scope]


def footer_keys(width: int, names: tuple[str, ...] = FOOTER) -> list[Action]:
    """The actions of the footer that fit into `width` characters, in the order of the help."""
    left, kept = width - 1, set()
    for name in names:
        action = BY_ID[name]
        left -= len(action.display) + len(action.short) + 3
        if left < 0:
            break
        kept.add(name)
    return [action for action in ACTIONS if action.id in kept]


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
