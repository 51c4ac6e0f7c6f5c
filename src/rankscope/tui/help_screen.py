"""The help: keys of the view on the screen first, then all keys, and the meaning of letters and marks."""

from __future__ import annotations

import textwrap
from collections.abc import Collection, Iterable, Sequence
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen

from rankscope.kinds.board_kinds import BOARDS
from rankscope.kinds.functions import function
from rankscope.tui.actions import ACTIONS, SCROLLING, Hint, Scope, bound, hint_line, present
from rankscope.tui.detail.line_widgets import Lines
from rankscope.tui.letters import LETTERS
from rankscope.tui.options import ViewOptions
from rankscope.tui.styled_text import Line, Span, line
from rankscope.tui.text_bars import TextBar

_MARKS = (
    ("A", "completed"), ("a", "started: its device waits in it"), ("a.", "queued: no device has begun it"),
    ("A'", "over, and its rank issued it late"), ('A"', "very late"),
    ("!", "proven never issued, while others wait in it"),
    ("?", "not known: overwritten, not in the dump, no dump"), ("*", "differs from the operation of the other members"),
    ("%", "its numbers break a rule, or first differ from a reference; 6 shows them"),
    (".", "several completed operations in one cell"), ("-", "an operation goes on (time axis)"),
    ("~", "a pending operation goes on (time axis)"),
)  # fmt: skip
_RANK_MARKS = (
    (">", "the cursor"), ("!", "to blame for what is shown, or for all of it"),
    ("E", "not to blame, but a log of one of them names a root cause"),
)  # fmt: skip
_MOUSE = (
    ("click", "cursor to the cell; on the overview: there; on a key below: as if pressed"),
    ("double click", "as enter"), ("drag", "in the lanes: spans a window to zoom to"),
    ("wheel", "scrolls; with ctrl it zooms"),
)  # fmt: skip
Section = tuple[str, int, Sequence[tuple[str, str]]]
"""A title, the cells for the first column, and rows of two columns."""
KEYS = 15
"""Cells for the keys."""
MARK = 3
COLUMN = 64
"""Fewest cells for a column of the help; screens with room for two show two."""


class HelpScreen(ModalScreen[None]):
    """All keys, those of the view below it first, and the meaning of letters and marks."""

    BINDINGS: ClassVar[list[BindingType]] = [bound("back", "dismiss(None)"), bound("help", "dismiss(None)")]
    DEFAULT_CSS = """
    HelpScreen { align: center middle; }
    HelpScreen > Vertical { width: 100%; height: 100%; border: solid $primary; padding: 0 1; }
    HelpScreen.-ascii > Vertical { border: ascii $primary; }
    """

    def __init__(
        self, options: ViewOptions, title: str = "", hints: Sequence[Hint] = (), rest: Sequence[Section] | None = None
    ) -> None:
        """Shows the `hints` of the view `title` first, then the `rest`, which by default is all that the app knows."""
        super().__init__(classes="-ascii" if options.ascii_only else None)
        self._options = options
        self._all = sections() if rest is None else rest
        self._here: list[Section] = (
            [(title, KEYS, [(hint.display, hint.what) for hint in map(present, hints)])] if hints else []
        )

    def compose(self) -> ComposeResult:
        """The text, and the keys that scroll it."""
        with Vertical():
            yield Lines(self._options, id="text")
            yield TextBar("hints", self._options)

    def on_mount(self) -> None:
        """Takes the keys."""
        text = self.query_one("#text", Lines)
        text.marks_focus = False
        text.focus()

    def on_resize(self) -> None:
        """Writes the help for the new width."""
        self.call_after_refresh(self._write)

    def _write(self) -> None:
        text = self.query_one("#text", Lines)
        if text.size.width:
            # all sections without what is said already
            said = {row for _, _, rows in self._here for row in rows}
            left = [(title, first, [row for row in rows if row not in said]) for title, first, rows in self._all]
            text.show_lines(help_lines([*self._here, *[section for section in left if section[2]]], text.size.width))
            hints = (Hint("escape", "esc", "close"), *SCROLLING)
            self.query_one("#hints", TextBar).put(hint_line(hints, text.size.width))


def sections(scopes: Collection[Scope] = ()) -> list[Section]:
    """The help by sections, made from the actions of these scopes, or of all; without lanes, keys alone."""
    known = [action for action in ACTIONS if not scopes or action.scope in scopes]
    keys: list[Section] = [
        (title, KEYS, [(action.display, action.help) for action in known if action.section == title])
        for title in dict.fromkeys(action.section for action in known)
    ]
    if scopes and "lanes" not in scopes:
        return keys
    letters = [(letter, name) for letter, name, _ in LETTERS]
    return [
        *keys,
        ("Mouse", KEYS, _MOUSE),
        ("Cells", MARK, _MARKS),
        ("Left of the ranks", MARK, _RANK_MARKS),
        ("Letters", MARK, letters),
        *((kind.title, MARK, function(kind.letters)()) for kind in BOARDS),
    ]


def help_lines(parts: Sequence[Section], width: int) -> list[Line]:
    """The sections in lines of `width` cells, side by side in two columns where there is room for them."""
    if width < 2 * COLUMN + 2:
        return [one for part in parts for one in _section(part, width)]
    half = (width - 2) // 2
    blocks = [_section(part, half) for part in parts]
    total, taken, at = sum(map(len, blocks)), 0, 0
    while at < len(blocks) and 2 * taken < total:
        taken += len(blocks[at])
        at += 1
    left, right = _joined(blocks[:at]), _joined(blocks[at:])
    rows = max(len(left), len(right))
    left += [line()] * (rows - len(left))
    right += [line()] * (rows - len(right))
    return [line(one, " " * (half + 2 - one.cell_len), other) for one, other in zip(left, right, strict=True)]


def _joined(blocks: Iterable[list[Line]]) -> list[Line]:
    return [one for block in blocks for one in block]


def _section(part: Section, width: int) -> list[Line]:
    """A section with its title, and an empty line below it; what is too long goes on under its second column."""
    title, first, rows = part
    first = min(first, max(width // 3, MARK))
    lines = [line(Span(title, "head"))]
    for key, meaning in rows:
        room = max(width - first - 3, 8)
        pieces = textwrap.wrap(meaning, room) or [""]
        if len(key) > first:
            lines.append(line("  ", Span(key, "bold")))
        shown = key if len(key) <= first else ""
        lines.append(line("  ", Span(f"{shown:<{first}}", "bold"), f" {pieces[0]}"))
        lines += [line(" " * (first + 3), piece) for piece in pieces[1:]]
    return [*lines, line()]
