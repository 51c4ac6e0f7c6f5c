"""All actions with their keys, and keys in a line at the bottom. Bindings, help, footer and command palette are made
from them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from rich.style import Style
from rich.text import Text
from textual.binding import Binding, BindingType

from rankscope.kinds.view_kinds import TABS

Scope = Literal["lanes", "screen", "page", "app"]


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
        """The keys as a person reads them: the user's own, or the default ones."""
        if self.id in _USERS:
            return " ".join(map(_displayed, _USERS[self.id].split(",")))
        return self.shown or " ".join(map(_displayed, self.keys))


_USERS: dict[str, str] = {}
"""The user's own keys by the id of their action; one app runs in a process."""


def use_keys(keys: Mapping[str, str]) -> None:
    """Shows these keys of actions in lines of keys, help and tabs from now on, by the id of the action."""
    _USERS.clear()
    _USERS.update(keys)


def _displayed(key: str) -> str:
    return _DISPLAY.get(key.strip(), key.strip())


_DISPLAY = {
    "question_mark": "?", "slash": "/", "colon": ":", "plus": "+", "minus": "-", "equals_sign": "=",
    "escape": "esc", "pageup": "pgup", "pagedown": "pgdn",
}  # fmt: skip

ACTIONS: tuple[Action, ...] = (
    Action("verdict", ("1",), "the verdict and its card: back to the finding", "Tabs", "screen",
           also="finding root cause summary home"),
    Action("lanes", ("2",), "the lanes, and the operation under the cursor", "Tabs", "screen",
           also="operations timeline explorer"),
    *(Action(f"tab_{number}", (str(number),), tab.meaning, "Tabs", "screen", also=tab.also)
      for number, tab in TABS.items()),
    Action("next_finding", ("n",), "next finding, hit of the search, or marked place", "Findings", "screen", "next"),
    Action("previous_finding", ("N",), "previous finding, hit of the search, or marked place", "Findings", "screen"),
    Action("why", ("w",), "why the rank is accused, or why it is not", "Findings", "screen", "why",
           also="explain reason evidence culprit"),
    Action("chain", ("c",), "one step along the chain: to the rank that this one waits for", "Findings", "screen",
           "chain", also="blocked by wait"),
    Action("open", ("enter",), "open what is under the cursor", "Findings", "screen", "open",
           also="details members stacks double click"),
    Action("back", ("escape",), "back: close the page, end the search, drop the filter", "Findings", "screen",
           also="undo cancel clear reset show all"),
    Action("up", ("up", "k"), "lane or line above", "Move", "lanes"),
    Action("down", ("down", "j"), "lane or line below", "Move", "lanes"),
    Action("left", ("left", "h"), "a cell to the left", "Move", "lanes"),
    Action("right", ("right", "l"), "a cell to the right", "Move", "lanes"),
    Action("page_up", ("pageup",), "a page up", "Move", "lanes"),
    Action("page_down", ("pagedown",), "a page down", "Move", "lanes"),
    Action("page_left", ("shift+left",), "a page to the left", "Move", "lanes"),
    Action("page_right", ("shift+right",), "a page to the right", "Move", "lanes"),
    Action("previous_op", ("ctrl+left",), "previous operation of the lane", "Move", "lanes"),
    Action("next_op", ("ctrl+right",), "next operation of the lane", "Move", "lanes"),
    Action("begin", ("home",), "start of the run, or of the list", "Move", "lanes", also="first start"),
    Action("end", ("end",), "end of the run, or of the list", "Move", "lanes", also="last newest"),
    Action("top", ("ctrl+home",), "first lane", "Move", "lanes"),
    Action("bottom", ("ctrl+end",), "last lane", "Move", "lanes"),
    Action("goto", ("colon",), "go to a rank, sequence number, step or time", "Move", "screen", "go to",
           also="jump find seq"),
    Action("next_pane", ("tab",), "next pane", "Move", "screen", also="focus detail scroll"),
    Action("search", ("slash",), "search: operation, group, rank, function, file, message", "Find", "screen", "find",
           also="find grep look for"),
    Action("filter", ("f",), "filter: ranks, a group, an operation, a state", "Find", "screen", "filter",
           also="limit select only"),
    Action("zoom_in", ("plus", "equals_sign"), "zoom in", "Show", "lanes", shown="+", also="larger"),
    Action("zoom_out", ("minus",), "zoom out", "Show", "lanes", also="smaller"),
    Action("zoom_fit", ("0",), "zoom out to all", "Show", "lanes", also="fit everything reset"),
    Action("axis", ("t",), "axis: sequence or time", "Show", "screen", "time", also="clock wall scale"),
    Action("unfold", ("u",), "unfold or fold the row", "Show", "lanes", "unfold", also="expand collapse"),
    Action("rows", ("g",), "choose what is shown: rows, order, colours", "Show", "screen", "show",
           also="order sort columns metric memory call site"),
    Action("follow", ("F",), "follow the newest operations of a watched job, or pause", "Show", "screen",
           also="live tail freeze stop resume"),
    Action("export", ("e",), "write the report: Markdown, HTML or JSON", "Out", "screen", "export",
           also="export save report share"),
    Action("copy", ("y",), "copy what is under the cursor, and add it to a file", "Out", "screen",
           also="yank clipboard save"),
    Action("copy_command", ("Y",), "copy the commands to do now, and add them to a file", "Out", "screen",
           "copy command", also="yank clipboard py-spy next step"),
    Action("source", ("o",), "open the source of a frame in your editor", "Out", "page", also="edit file line"),
    Action("command_palette", ("ctrl+p",), "do anything by its name", "Out", "app", shown="ctrl+p",
           also="commands palette"),
    Action("help", ("question_mark",), "all keys and marks", "Out", "app", "keys",
           also="help usage manual legend letters"),
    Action("quit", ("q", "ctrl+c"), "quit", "Out", "app", "quit", shown="q", also="exit leave close"),
    Action("redraw", ("ctrl+l",), "redraw the screen", "Out", "app", also="refresh repaint"),
    # by name alone
    Action("zoom_selection", (), "zoom to the collective under the cursor, or to what the marker spans", "By name",
           "lanes", also="drag window selection"),
    Action("zoom_undo", (), "undo the last zoom", "By name", "lanes", also="back"),
    Action("marker", (), "set or remove a marker, to measure distances", "By name", "lanes", also="measure duration"),
    Action("unfold_all", (), "unfold or fold all rows", "By name", "lanes", also="expand collapse"),
    Action("line_up", (), "line up this collective on all ranks; again: on the next rank", "By name", "screen",
           also="align"),
    Action("line_up_back", (), "line up this collective on the previous rank", "By name", "screen", also="align"),
    Action("memory", (), "memory of each rank below its lane, on the axis of time", "By name", "screen",
           also="bytes allocated reserved gpu samples"),
    Action("sites", (), "colour by call site: ranks that take different branches", "By name", "screen",
           also="colours stack code line branch diverge spmd function file"),
    Action("theme", (), "theme: dark, light, high contrast, the terminal's own", "By name", "app",
           also="theme colours colors dark light contrast appearance"),
    Action("export_traces", (), "write all traces as one, on one clock, for Perfetto", "By name", "screen",
           also="export save merge"),
    Action("export_repro", (), "write a script that replays the job", "By name", "screen",
           also="repro reproduce again minimal"),
    Action("pause", (), "pause the view of a watched job at its place, or go on", "By name", "screen",
           also="freeze stop resume"),
    Action("ask_dumps", (), "ask the running job for dumps, through its trigger pipes", "By name", "screen",
           also="collect flight recorder"),
    Action("step", (), "let each rank of a replay begin its next operation", "By name", "screen",
           also="replay single further"),
)  # fmt: skip
"""All actions, in the order in which the help lists them. A key has one meaning, on the lanes and on every page."""

BY_ID: dict[str, Action] = {action.id: action for action in ACTIONS}
"""The actions by their id."""
FOOTER = (
    "help", "quit", "next_finding", "why", "open", "copy_command", "export", "search", "chain", "axis", "goto",
    "filter", "unfold", "rows",
)  # fmt: skip
"""Actions in the footer, the most important first."""
TRACED_FOOTER = (
    "help", "quit", "next_finding", "why", "rows", "axis", "export", "search", "goto", "unfold", "open", "filter",
)  # fmt: skip
"""Actions in the footer over the lanes of traces, the most important first."""
ALONE_FOOTER = ("help", "quit", "next_finding", "open", "export", "copy_command", "search")
"""Actions in the footer where no lanes can be drawn, the most important first."""


TAB_KEYS: tuple[tuple[int, str], ...] = ((1, "verdict"), (2, "lanes"), *((number, f"tab_{number}") for number in TABS))
"""The number of each tab, and the id of its action."""


def bound(name: str, does: str, what: str = "", display: str = "") -> Binding:
    """The keys of an action for a page, where they do the same kind of thing.

    `does` is the page's action, `what` its effect in one or two words; without it the keys stand in no line of keys.
    """
    action = BY_ID[name]
    shown = display or action.display
    return Binding(",".join(action.keys), does, what, show=bool(what), key_display=shown, id=name)


def bindings_for(scope: Scope) -> list[BindingType]:
    """The bindings of a widget or screen; an action without a key gets those of the user's configuration."""
    return [
        Binding(",".join(action.keys) or f"no_key_{action.id}", call_of(action), action.help, show=False, id=action.id)
        for action in ACTIONS
        if action.scope == scope and action.id != "command_palette"
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


_OWNERS = {key: action for action in ACTIONS for key in action.keys}
"""The action of each default key."""


def present(hint: Hint) -> Hint:
    """The hint with the key that the user has given its action, if any."""
    action = _OWNERS.get(hint.key)
    if action is None or action.id not in _USERS:
        return hint
    return Hint(_USERS[action.id].split(",")[0].strip(), action.display, hint.what)


HELP = Hint("question_mark", "?", "keys")
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
    for hint in map(present, fitting(list(hints), width, important)):
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
