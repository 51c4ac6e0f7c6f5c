"""Common parts of all screens over the lanes: heading, body, line of keys, finding, going back."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

from rich.text import Text
from textual import on
from textual.app import ComposeResult, SuspendNotSupported
from textual.binding import Binding, BindingType
from textual.containers import Container
from textual.screen import ModalScreen
from textual.widget import Widget

from rankscope.analysis.model import Analysis
from rankscope.kinds.view_kinds import VIEWS
from rankscope.schema import Dataset, Frame
from rankscope.text.escaping import plain
from rankscope.text.given_input import GivenInput, quoted
from rankscope.tui.actions import SCROLLING, TAB_KEYS, Hint, bound, hint_line, present
from rankscope.tui.columns import Columns
from rankscope.tui.copies import copy
from rankscope.tui.detail.line_widgets import LineList, Lines
from rankscope.tui.detail.source_editor import editor_command, locate
from rankscope.tui.options import ViewOptions
from rankscope.tui.popups import Choice, ChoiceScreen, Prompt
from rankscope.tui.selection import GroupFilter, Moment, Selection
from rankscope.tui.styled_text import Line, Role, Span, cut, line, wrapped
from rankscope.tui.text_bars import TextBar

T = TypeVar("T")
Result = Selection | Moment | GroupFilter | int | None
"""The target of a page: an operation, a stretch of time, a group to filter by, a finding by its index, or nothing."""


class Way(NamedTuple):
    """Something else that a page can show, or a place that it leads to."""

    key: str
    """The letter that chooses it from the menu."""
    action: str
    """The action of the page, as in a binding."""
    what: str


@dataclass(frozen=True)
class Surroundings:
    """The main screen as its pages see it."""

    lines: Callable[[Page, int], tuple[Line, Line]]
    """The title and the line of tabs, for a page and a width."""
    open_tab: Callable[[int], object]
    command: Callable[[str], object]
    """Does an action of the main screen by its id."""
    choices: Callable[[Collection[str]], list[tuple[Choice, Callable[[], object]]]]
    """Views and actions that can be chosen by name, each with what does it; without those of these ids."""


class Page(ModalScreen[Result]):
    """A screen of its own over the lanes. Subclasses define its content and the search in it."""

    BINDINGS: ClassVar[list[BindingType]] = [
        bound("search", "find", "find"),
        bound("rows", "show", "show"),
        bound("next_pane", "other_pane", "pane"),
        bound("copy", "copy", "copy"),
        bound("back", "back", "back"),
        *(bound(name, f"tab({number})") for number, name in TAB_KEYS),
        bound("export", "main('export')"),
        bound("copy_command", "main('copy_command')"),
        bound("help", "app.help", "keys"),
        bound("quit", "app.quit", "quit"),
    ]
    DEFAULT_CSS = """
    Page { background: $background; layout: vertical; align: left top; }
    Page > #body { height: 1fr; width: 100%; }
    Page.-empty #list, Page.-empty #tree { height: 1; }
    Page.-empty #text { height: 1fr; border: none; }
    """
    FIND_HINT = "part of a line"
    ENTER = "go there"
    """Effect of enter, for the line of keys."""
    WAYS: ClassVar[tuple[Way, ...]] = ()
    """The entries of the menu of what is shown."""
    VIEW: ClassVar[str] = ""
    """Name of its kind of view; "" for a page about the cursor."""
    TITLE: ClassVar[str] = ""
    """Name of a page about the cursor."""
    TAB: ClassVar[int] = 0
    """The tab of a page about the cursor; a view's stands in its row."""

    def __init__(self, options: ViewOptions) -> None:
        super().__init__(classes="-ascii" if options.ascii_only else None)
        self.options = options
        self.wanted = ""
        """Text of the search; the lists show only entries with it."""
        self.is_early = False
        """Whether only a part of the job is shown, and the rest is being read: then nothing is missing for good."""
        self.surroundings: Surroundings | None = None
        """The lines above the page, and the functions of the main screen; None where there is no main screen."""
        self._asked_from: Widget | None = None
        self._scrolls = False
        """Whether the focus is in a pane of lines to read, beside a list."""

    def compose(self) -> ComposeResult:
        """The lines of the main screen above it, heading, body and keys."""
        if self.surroundings is not None:
            yield TextBar("title", self.options, "panel")
            yield TextBar("tabs", self.options)
        yield TextBar("heading", self.options)
        yield from self.body()
        yield TextBar("hints", self.options, "panel")

    def body(self) -> Iterable[Widget]:
        """The widgets between heading and keys."""
        raise NotImplementedError

    def heading(self) -> list[Line]:
        """The lines at the top."""
        raise NotImplementedError

    def fill(self) -> None:
        """Fills the widgets with the entries that match `wanted`."""
        raise NotImplementedError

    @classmethod
    def lacks_data(cls, dataset: Dataset, analysis: Analysis) -> bool:
        """Whether an input holds nothing for this page."""
        del analysis
        table = VIEWS[cls.VIEW].table if cls.VIEW else ""
        return bool(table) and dataset.table(table).is_empty()

    @property
    def title_text(self) -> str:
        """The name of the page."""
        return self.VIEW or self.TITLE

    def how_to_fill(self) -> list[Line]:
        """Text for an input that holds nothing of it: what is missing, and the command or setting that brings it."""
        kind = VIEWS[self.VIEW]
        if self.is_early:
            return wrapped(
                [line(Span(f"{kind.empty} yet", "warn"), ": the rest of the files is being read")], self.size.width - 1
            )
        fill = _with_paths(kind.fill, self.options.given)
        return wrapped([line(Span(kind.empty, "warn"), f": {fill}" if fill else "")], self.size.width - 1)

    def nothing(self) -> list[Line]:
        """The text for an empty list: how to fill it, or what was looked for and where."""
        if not self.wanted:
            return self.how_to_fill()
        said = line(Span(f"nothing here has {plain(self.wanted)!r}", "warn"), f"; you can look for: {self.FIND_HINT}")
        return wrapped([said, line(Span("esc", "bold"), " shows all again")], max(self.size.width - 1, 1))

    def on_mount(self) -> None:
        """Begins, unless the page was closed while it opened."""
        if self in self.app.screen_stack:
            self.begin()

    def begin(self) -> None:
        """Fills the widgets; pages that arrange data or choose a place start that here."""
        self.fill()

    def on_descendant_focus(self) -> None:
        """Writes the keys of the other pane when the focus goes there."""
        # a prompt is no pane: the message about its answer stays
        scrolls = not isinstance(self.focused, LineList) and bool(self.query(LineList))
        if isinstance(self.focused, Lines) and scrolls != self._scrolls:
            self._scrolls = scrolls
            self.note("")

    def on_resize(self) -> None:
        """Writes heading and keys anew for the new width."""
        self.draw_bars()

    def draw_top(self) -> None:
        """Writes the lines of the main screen anew, for a later state of the job."""
        if self.surroundings is not None and self.is_mounted and self.size.width:
            title, tabs = self.surroundings.lines(self, self.size.width)
            self.query_one("#title", TextBar).put(title)
            self.query_one("#tabs", TextBar).put(tabs)

    def draw_bars(self) -> None:
        """Writes the lines above, heading and keys."""
        self.draw_top()
        self.query_one("#heading", TextBar).put(*self.heading())
        self.note("")

    def note(self, text: str) -> None:
        """Shows a message in the bottom line; without text, shows the keys again."""
        width = self.size.width
        said = line(" " + plain(text)) if text else line(*(Span(f" only {plain(s)} ", "warn") for s in self.limits()))
        if self.is_early and not text:
            said = line(Span(" still loading ", "warn"), said)
        shown = cut(said, width)
        important = ("enter", "tab" if self._scrolls else "", "escape", "question_mark", "g")
        keys = Text() if text else hint_line(self.hints(), width - shown.cell_len, important)
        self.query_one("#hints", TextBar).put(line(shown, keys))

    @property
    def asks(self) -> bool:
        """Whether a line of text is typed."""
        return bool(self.query(Prompt))

    def hints(self, *, every: bool = False) -> list[Hint]:
        """The keys that work here, those of the pane with the focus first; `every` adds what only the help tells."""
        enter = Hint("enter", "enter", self.ENTER)
        # each action once; those of the subclass come first
        hints: dict[str, Hint] = {}
        for binding in (b for kind in type(self).__mro__ for b in vars(kind).get("BINDINGS", ())):
            idle = binding.action == "show" and not self.ways()
            if binding.show and binding.description and not idle and self.check_action(binding.action, ()):
                key = binding.key.split(",")[0]
                hints.setdefault(binding.action, Hint(key, binding.key_display or key, binding.description))
        keys = list(hints.values())
        if self._scrolls and not every:
            return [*SCROLLING, *keys]
        if self.query(LineList) and not every:
            return [enter, *keys]
        return [enter, *(hint for hint in keys if every or hint.key != "tab"), *SCROLLING]

    def ways(self) -> list[Way]:
        """The entries of the menu that have a use here."""
        known = (way for kind in type(self).__mro__ for way in vars(kind).get("WAYS", ()))
        return [way for way in known if self.check_action(way.action.partition("(")[0], ())]

    def action_show(self) -> None:
        """Lets one of the ways to show the page be chosen."""
        ways = self.ways()
        if not ways:
            self.note("this page has one way to show it")
            return

        def chosen(at: int | None) -> None:
            if at is not None:
                self._do(ways[at])

        choices = [Choice(way.what, way.key) for way in ways]
        self.app.push_screen(ChoiceScreen(f"show ({self.title_text})", choices, self.options), chosen)

    def _do(self, way: Way) -> None:
        self.app.call_later(self.run_action, way.action)

    def action_tab(self, number: int) -> None:
        """Opens another tab of the main screen, or the next page of this one."""
        if self.surroundings is not None:
            self.surroundings.open_tab(number)

    def open_over(self, page: Page) -> None:
        """Opens a page over this one; a place that is chosen there is one chosen here."""

        def chosen(result: Result) -> None:
            if result is not None:
                self.dismiss(result)

        page.surroundings, page.is_early = self.surroundings, self.is_early
        self.app.push_screen(page, chosen)

    def action_main(self, name: str) -> None:
        """Does an action of the main screen, which does not change what is on the page."""
        if self.surroundings is not None:
            self.surroundings.command(name)

    def copied(self) -> str:
        """The text that is copied: that of the pane of lines, or of the line under the cursor."""
        return "\n".join(parts.plain.rstrip() for text in self.query(Lines) for parts in text.lines())

    def action_copy(self) -> None:
        """Copies what is under the cursor."""
        self.copy_text(self.copied())

    def copy_text(self, text: str) -> None:
        """Copies a text to the clipboard, and to a file: clipboards often do not work through tmux and SSH."""
        done = f"copied: {plain(text.partition(chr(10))[0])}"
        self.note(copy(self.app, self.options.export_dir, text, done, self.size.width - 1))

    def limits(self) -> list[str]:
        """Limits of the lists, in words."""
        return [repr(self.wanted)] if self.wanted else []

    def choose_key(self) -> None:
        """Lets one of the keys of the page be chosen by its effect, and presses it."""
        hints = [present(hint) for hint in self.hints(every=True) if hint.key]
        doing: list[Callable[[], object]] = [partial(self.app.simulate_key, hint.key) for hint in hints]
        choices = [Choice(f"{hint.what}  ({hint.display})") for hint in hints]
        doing += [partial(self._do, way) for way in self.ways()]
        choices += [Choice(f"show {way.what}  (g {way.key})") for way in self.ways()]
        if self.surroundings is not None:
            more = self.surroundings.choices(self._bound)
            doing += [does for _, does in more]
            choices += [choice for choice, _ in more]

        def chosen(at: int | None) -> None:
            if at is not None:
                doing[at]()

        title = f"what to do in this view ({self.title_text})"
        self.app.push_screen(ChoiceScreen(title, choices, self.options), chosen)

    @property
    def _bound(self) -> set[str]:
        """Ids of the actions whose keys do something of the page's own."""
        return {
            binding.id
            for kind in type(self).__mro__
            for binding in vars(kind).get("BINDINGS", ())
            if isinstance(binding, Binding) and binding.id is not None
        }

    def on_key(self) -> None:
        """Removes the last note when a key is pressed."""
        if not self.asks:
            self.note("")

    def action_back(self) -> None:
        """Ends finding, then closes the screen."""
        if self.wanted:
            self.find("")
        else:
            self.dismiss(None)

    def action_find(self) -> None:
        """Asks for the text to find."""
        self.ask("find", "/", self.FIND_HINT, self.wanted)

    def ask(self, kind: str, label: str, hint: str, text: str = "") -> None:
        """Asks for a line of text; `answered` gets it."""
        if not self.asks:
            self._asked_from = self.focused
            self.mount(Prompt(kind, label, hint, text), before=self.query_one("#hints"))

    @on(Prompt.Answered)
    def _answered(self, event: Prompt.Answered) -> None:
        event.stop()
        self.set_focus(self._asked_from)
        self.query(Prompt).remove()
        if event.text is not None:
            self.answered(event.kind, event.text.strip())

    def answered(self, kind: str, text: str) -> None:
        """Handles the answer to a question; here only to finding."""
        del kind
        self.find(text)

    def find(self, text: str) -> None:
        """Shows only what has `text` in it."""
        self.wanted = text
        self.fill()
        self.draw_bars()

    def action_other_pane(self) -> None:
        """Moves the focus to the other pane."""
        self.focus_next()

    def open_source(self, frame: Frame | None) -> None:
        """Opens the source of a frame in the user's editor, or tells its expected path."""
        if frame is None:
            self.note("no frame here: no stack was recorded")
            return
        source = locate(frame, self.options.path_map)
        if not source.exists:
            self.note(source.missing)
            return
        try:
            command = editor_command(source)
            with self.app.suspend():
                subprocess.run(command, check=False, env=self.options.editor_environment)
        except SuspendNotSupported:
            self.note("this terminal cannot be handed to an editor")
        except (OSError, ValueError) as error:
            self.note(f"the editor did not start: {error}")
        else:
            self.app.refresh()


def _with_paths(text: str, given: GivenInput) -> str:
    """Text with commands on DUMPS, with the paths of the user in its place."""
    if not given.names or given.stands_alone:
        return text
    return text.replace("rankscope DUMPS", f"rankscope {given.words()}").replace(
        "-o DUMPS", f"-o {quoted([given.directory])}" if given.directory else "-o DUMPS"
    )


class ListPage(Page):
    """A page with a list, and whole lines about the entry under the cursor. Subclasses give the number of entries, and
    the text of each.
    """

    DEFAULT_CSS = """
    ListPage #list { height: 1fr; }
    ListPage #text { height: 6; border-top: solid $secondary; }
    ListPage.-ascii #text { border-top: ascii $secondary; }
    """

    def search(self, text: str) -> int:
        """Lists the entries with `text`, in small letters, all if it is empty; returns their number."""
        raise NotImplementedError

    def entry_line(self, at: int, width: int) -> Line:
        """An entry of the list."""
        raise NotImplementedError

    def entry_text(self, at: int, width: int) -> list[Line]:
        """The text of an entry, below or beside the list."""
        raise NotImplementedError

    def choose(self, at: int) -> None:
        """Does the action of enter on an entry."""
        raise NotImplementedError

    @property
    def listing(self) -> LineList:
        """The list."""
        return self.query_one("#list", LineList)

    def body(self) -> Iterable[Widget]:
        """The list and the text."""
        yield Container(LineList(self.options, id="list"), Lines(self.options, id="text"), id="body")

    def fill(self) -> None:
        """Lists the entries that match the search."""
        count = self.search(self.wanted.lower())
        self.set_class(not count, "-empty")
        self.listing.show_rows(count, self.entry_line)

    def on_resize(self) -> None:
        """Writes everything anew for the new width."""
        self.draw_bars()
        self.call_after_refresh(self.draw_text)

    @on(LineList.Moved)
    def draw_text(self) -> None:
        """Shows the text of the entry under the cursor."""
        text = self.query_one("#text", Lines)
        if text.size.width:
            lines = self.entry_text(self.listing.cursor, text.size.width) if self.listing.count else []
            text.show_lines(lines or self.nothing())

    @on(LineList.Chosen)
    def _chosen(self, event: LineList.Chosen) -> None:
        self.choose(event.sender.cursor)


class TablePage(ListPage, Generic[T]):
    """A page with a list in columns. Subclasses give the columns, the rows, and the lines about one."""

    COLUMNS: ClassVar[Columns[Any]]
    """The columns; `table` chooses others where there are several lists."""

    def __init__(self, options: ViewOptions) -> None:
        super().__init__(options)
        self.columns: Columns[T] = self.table()
        self.shown: Sequence[T] = ()
        """The rows in the list."""

    def table(self) -> Columns[T]:
        """The columns of the list."""
        return self.COLUMNS

    def rows(self) -> Sequence[T]:
        """All rows, in their order."""
        raise NotImplementedError

    def has(self, row: T, text: str) -> bool:
        """Whether a row has `text`, in small letters."""
        raise NotImplementedError

    def row(self, at: int) -> T:
        """A row of the list."""
        return self.shown[at]

    def look(self, row: T) -> Role:
        """The role of the texts of a row that have none of their own."""
        del row
        return "text"

    def about(self, row: T, width: int) -> list[Line]:
        """The lines about a row below the list; long ones go on in further lines."""
        raise NotImplementedError

    @property
    def list_width(self) -> int:
        """Cells of the list."""
        return self.size.width

    def titles(self, role: Role = "dim") -> Line:
        """The titles of the columns."""
        return self.columns.titles(self.list_width, role)

    def search(self, text: str) -> int:
        """Lists the rows with `text`."""
        rows = self.rows()
        self.columns = self.table().measured(rows)
        self.shown = [row for row in rows if not text or self.has(row, text)]
        return len(self.shown)

    def entry_line(self, at: int, width: int) -> Line:
        """A row of the list."""
        row = self.row(at)
        return self.columns.line(row, width, self.look(row))

    def entry_text(self, at: int, width: int) -> list[Line]:
        """The lines about a row."""
        return wrapped(self.about(self.row(at), width), width, 2)
