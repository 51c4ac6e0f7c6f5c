"""The main screen: its widgets, its controllers with one job each, and the owner of each key."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING, ClassVar, TypeVar

from textual import events, on, work
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Container
from textual.screen import Screen

from rankscope.kinds.view_kinds import TABS, VIEWS
from rankscope.text.escaping import plain
from rankscope.tui.actions import ACTIONS, TAB_KEYS, Action, Hint, bindings_for, call_of
from rankscope.tui.controllers.bars import NO_LANES, Bars
from rankscope.tui.controllers.board_set import BoardSet
from rankscope.tui.controllers.board_switch import BoardSwitch
from rankscope.tui.controllers.exports import DumpOffer, Exports
from rankscope.tui.controllers.filter_menu import FilterMenu
from rankscope.tui.controllers.findings_walk import FindingsWalk
from rankscope.tui.controllers.job_news import JobNews
from rankscope.tui.controllers.pages import Pages
from rankscope.tui.controllers.search_walk import Goto, SearchWalk
from rankscope.tui.controllers.time_axis import MemoryToggle, TimeAxis
from rankscope.tui.detail.pane import DetailLookup, DetailPane
from rankscope.tui.filters import Filter
from rankscope.tui.letters import Codes
from rankscope.tui.live.following import Following
from rankscope.tui.model import Model
from rankscope.tui.options import ViewOptions
from rankscope.tui.popups import Choice, ChoiceScreen, Prompt
from rankscope.tui.styled_text import Line
from rankscope.tui.tabs import tabs_line
from rankscope.tui.text_bars import TextBar
from rankscope.tui.timeline import Timeline
from rankscope.tui.worker_messages import Updated, WorkedOut

if TYPE_CHECKING:
    from rankscope.tui.detail.screens.page import Page, Surroundings

T = TypeVar("T")
SHARE = 0.62
"""Most of the height that lanes take above the operation under the cursor."""
FEWEST_ROWS = 4
"""Rows of lanes that a long card leaves."""
WIDE = 120
"""Columns from which the detail may stand beside the lanes."""
BESIDE, BELOW = 0.6, 0.4
"""Share of the height from which lanes fill it, so that the detail goes beside them; and below which it comes back."""


class LanesScreen(Screen[None]):
    """Title, verdict, overview, lanes, detail and keys. Controllers hold the content; this class draws and asks."""

    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (WIDE, "-wide")]
    AUTO_FOCUS = "#lanes"
    BINDINGS: ClassVar[list[BindingType]] = bindings_for("screen")
    DEFAULT_CSS = """
    LanesScreen {
        #body { height: 1fr; width: 100%; layout: vertical; }
        #left { height: 62%; width: 100%; layout: vertical; }
        #lanes { height: 1fr; }
        #right { height: 1fr; width: 100%; }
        #detail { margin-left: 1; }
        &.-told #left { display: none; }
        &.-beside #body { layout: horizontal; }
        &.-beside #left { height: 100%; width: 62%; }
        &.-beside #right { height: 100%; width: 38%; }
    }
    """

    def __init__(self, model: Model, overview: Codes, options: ViewOptions, first: Updated | None = None) -> None:
        """Shows a model; for a watched job it is the model of the `first` update."""
        super().__init__(classes="" if first is None else "-watched")
        self.options = options
        self.boards = BoardSet(model, overview)
        self.lanes, self.detail = Timeline(options), DetailPane(options)
        self.detail.id = "detail"
        self.search = SearchWalk(self, self.boards)
        self.times = TimeAxis(self, self.boards)
        self.filters = FilterMenu(self, self.boards, self.search, self.times)
        self.findings = FindingsWalk(self, self.boards, self.search, self.filters)
        self.switch = BoardSwitch(self, self.boards, self.search, self.times, self.findings)
        self.memory = MemoryToggle(self, self.boards, self.times)
        news = (self, self.boards, self.search, self.findings)
        self.news = JobNews(*news) if first is None else Following(*news, first)
        self.bars = Bars(self, self.boards, self.search, self.findings, self.news)
        self.lookup = DetailLookup(self, self.boards, self.findings, self.detail)
        self.pages = Pages(self, self.boards, self.findings, self.switch, self.filters)
        self._then: Callable[[str], None] = self.note
        """Gets the typed text."""
        self.in_detail = False
        """Whether the pane of the detail has the focus."""

    @cached_property
    def commands(self) -> dict[str, Callable[[], object]]:
        """Functions for the actions of the screen, by their ids."""
        pages = self.pages
        exports = Exports(self, self.boards)
        return {
            "verdict": self._show_verdict,
            "lanes": self._show_lanes,
            **{f"tab_{number}": partial(pages.open_tab, number) for number in TABS},
            "next_finding": partial(self.findings.walk, 1),
            "previous_finding": partial(self.findings.walk, -1),
            "chain": self.findings.chain,
            "why": pages.open_why,
            "open": pages.open,
            "goto": Goto(self, self.boards).ask,
            "next_pane": self.focus_next,
            "back": self._back,
            "axis": self.switch.change_axis,
            "rows": self._choose_rows,
            "line_up": partial(self.switch.line_up, 1),
            "line_up_back": partial(self.switch.line_up, -1),
            "sites": self.switch.change_colours,
            "memory": self.memory.toggle,
            "follow": self.news.follow,
            "pause": self.news.pause,
            "ask_dumps": DumpOffer(self, self.boards).offer,
            "search": self.search.ask,
            "filter": self.filters.ask,
            "export": exports.choose_export,
            "export_traces": exports.export_traces,
            "export_repro": exports.export_repro,
            "step": exports.step_replay,
            "copy": exports.copy,
            "copy_command": exports.copy_command,
        }

    def _show_verdict(self) -> None:
        self.pages.leave()
        self.findings.again()

    def _show_lanes(self) -> None:
        self.pages.leave()
        if self.boards.has_lanes:
            self.findings.explore()
        else:
            self.note(NO_LANES)

    def open_tab(self, number: int) -> None:
        """Opens a tab by its number."""
        self.commands[dict(TAB_KEYS)[number]]()

    def surroundings(self) -> Surroundings:
        """The main screen as its pages see it."""
        from rankscope.tui.detail.screens.page import Surroundings

        return Surroundings(self._lines_above, self.open_tab, self.action_command, self._choices)

    def _lines_above(self, page: Page, width: int) -> tuple[Line, Line]:
        """The title and the tabs over a page."""
        tab = VIEWS[page.VIEW].tab if page.VIEW else page.TAB
        return self.bars.title(width), tabs_line(self.pages.tabs(), tab, page.title_text, width)

    def _choose_rows(self) -> None:
        """Offers what the lanes can show: their order, colours, memory."""
        ways = self.switch.ways()
        if self.boards.whole.dataset.memory.height:
            ways.append(("m", "memory of each rank below its lane", self.memory.toggle))
        self.choose("show", [Choice(what, key) for key, what, _ in ways], lambda at: ways[at][2]())

    def open_view(self, name: str) -> None:
        """Opens a view by its name."""
        self.pages.leave()
        self.pages.open_named(name)

    def choose_action(self) -> None:
        """Lets an action or a view be chosen by its name."""
        choices = self._choices(())
        self.choose("what to do", [choice for choice, _ in choices], lambda index: choices[index][1]())

    def _choices(self, without: Collection[str]) -> list[tuple[Choice, Callable[[], object]]]:
        """All actions but those `without`, and the views that have data, each with what does it."""
        left_out = {"command_palette", *without}
        actions = [action for action in ACTIONS if action.id not in left_out and action.scope != "page"]
        names = [name for tab in self.pages.tabs() for name in tab.views if name in VIEWS]
        rows = [VIEWS[name] for name in names]
        return [
            *((Choice(_named(action), also=action.also), partial(self._do, action)) for action in actions),
            *(
                (
                    Choice(f"view {row.name}: {row.meaning}  ({row.tab})", also=row.also),
                    partial(self.open_view, row.name),
                )
                for row in rows
            ),
        ]

    def _do(self, action: Action) -> None:
        if action.scope != "app":
            # what it changes lies under a page
            self.pages.leave()
        owners = {"app": self.app, "screen": self, "lanes": self.lanes}
        self.app.call_later(self.app.run_action, call_of(action), owners[action.scope])

    def here(self) -> tuple[str, list[Hint]]:
        """A title for the keys of the pane with the focus, and these keys."""
        return self.bars.here()

    def action_command(self, name: str) -> None:
        """Does the action `name` of the scope "screen"."""
        self.commands[name]()

    def _back(self) -> None:
        """Ends the search, else the line-up, else the call sites, else drops the filters."""
        if self.search.found is not None:
            self.search.end()
            self.draw_lines()
        elif not self.switch.end_line_up() and not self.switch.end_sites() and self.boards.wanted:
            self.filters.set(Filter())

    # Widgets

    def compose(self) -> ComposeResult:
        """All widgets from top to bottom."""
        # set before the first layout, which would otherwise be made twice
        self.set_class(self.app.size.width >= WIDE, "-wide")
        self.watch(self.lanes, "moves", self._moved, init=False)
        yield TextBar("title", self.options, "panel")
        yield TextBar("verdict", self.options, "tint")
        yield TextBar("tabs", self.options)
        yield TextBar("overview", self.options)
        with Container(id="body"):
            yield Container(self.lanes, TextBar("legend", self.options), TextBar("status", self.options), id="left")
            yield Container(self.detail, id="right")
        yield TextBar("keys", self.options, "panel")

    def on_mount(self) -> None:
        """Starts the controllers and shows the first data."""
        self.show_board()
        self.news.begin()
        if self.options.view or not self.has_class("-watched"):
            # a page over the lanes holds back the updates of a watched job
            self.call_after_refresh(self.pages.open_first)

    def on_descendant_focus(self) -> None:
        """Writes the keys and the title of the other pane when the focus goes there."""
        in_detail = self.focused is self.detail
        if in_detail != self.in_detail:
            self.in_detail = in_detail
            self.draw_lines()
            self.note("")

    def on_resize(self) -> None:
        """Writes the lines anew for the new width."""
        self.draw_head()
        self.draw_lines()
        self.note("")

    def on_key(self, event: events.Key) -> None:
        """Removes the last note when a key is pressed."""
        self.news.pressed()
        if event.key != "enter" or not self.query(Prompt):
            self.note("")

    @on(events.Click, "#overview")
    def _clicked_overview(self, event: events.Click) -> None:
        """Moves the cursor to the place in the run."""
        unit = self.bars.unit_at(event.x)
        if unit is not None:
            self.boards.shown.go_unit(unit)
            self.boards.shown.centre(0.5)
            self.board_moved()

    @on(events.Click, "#lanes")
    def _clicked_twice(self, event: events.Click) -> None:
        if event.chain == 2 and event.y >= self.lanes.ruled:
            self.commands["open"]()

    @on(Timeline.Spanned)
    def _spanned(self) -> None:
        self.note("ctrl+p, zoom: zooms to this window; ctrl+p, marker: removes it")

    @on(events.ScreenResume)
    def _resumed(self) -> None:
        self.news.resumed()

    def _moved(self) -> None:
        """Tells the controllers that the cursor or the window of the lanes has moved."""
        self.lookup.set_heads()
        self.draw_head()
        # the lanes get what the legend leaves
        self.draw_lines()
        self._fit_lanes()
        self.lookup.moved()
        self.news.moved()

    def _fit_lanes(self) -> None:
        """Gives the lanes the rows that they need, and the rest to the detail; rows that fill the height go beside it.

        The lanes shrink only where a finding is shown, so nothing jumps while one scrolls.
        """
        findings, board = self.findings, self.boards.shown
        fresh = findings.at_finding or board.finding is None
        if not self.boards.has_lanes or not self.body_height:
            return
        self._arrange()
        if fresh and self.room > 0 and board.settle(self.room // self.lanes.lines_of_row):
            self.lanes.changed()
            return
        left = self.query_one("#left").styles.inline
        if self.is_beside:
            # the rows are chosen for the height that is there
            left.clear_rule("height")
            return
        before = left.height.value if left.height is not None else 0
        need = board.most_rows * self.lanes.lines_of_row + self._around_lanes
        height = min(self.room + self._around_lanes, need if findings.at_finding else max(need, int(before)))
        if self.room > 0 and height != before:
            self.query_one("#left").styles.height = height

    def _arrange(self) -> None:
        """Puts the detail beside the lanes where their rows fill the height of a wide screen, else below them."""
        board, height = self.boards.shown, self.body_height
        rows = board.most_rows * self.lanes.lines_of_row
        share = (BELOW if self.is_beside else BESIDE) * height
        self.set_class(self.has_class("-wide") and rows > share, "-beside")

    @property
    def is_beside(self) -> bool:
        """Whether the detail stands beside the lanes."""
        return self.has_class("-beside")

    @property
    def body_height(self) -> int:
        """Lines for lanes and detail; 0 before the first layout."""
        return self.query_one("#body").size.height

    @property
    def room_of_lanes(self) -> int:
        """Columns of the lanes and of the lines below them."""
        return self.query_one("#left").size.width or self.size.width

    @property
    def _around_lanes(self) -> int:
        """Lines of the ruler above the lanes, and of legend and rule below them."""
        return self.lanes.ruled + sum(self.bar(name).count for name in ("legend", "status"))

    @property
    def room(self) -> int:
        """The most rows that lanes may take; 0 before the first layout."""
        if self.is_beside:
            return max(self.query_one("#left").size.height - self._around_lanes, 0)
        whole = self.body_height - self._around_lanes
        if not self.findings.at_finding:
            return max(int(self.body_height * SHARE) - self._around_lanes, 0)
        card = self.detail.card_height(self.size.width - 1)
        return max(whole - card, min(FEWEST_ROWS, self.boards.shown.most_rows), 0)

    @property
    def detail_is_due(self) -> bool:
        """Whether the detail has not yet followed the last move."""
        return self.lookup.is_due

    # Methods for controllers

    @property
    def is_covered(self) -> bool:
        """Whether another screen lies over the lanes."""
        return self.app.screen is not self

    @property
    def has_view(self) -> bool:
        """Whether a view lies over the lanes, and nothing over it."""
        return self.pages.on_top is not None

    def renew_view(self) -> None:
        """Opens the view over the lanes anew, on the data that is there now."""
        self.pages.renew()

    def bar(self, name: str) -> TextBar:
        """One of the lines of text."""
        return self.query_one(f"#{name}", TextBar)

    @property
    def main_pane(self) -> Timeline | DetailPane:
        """The pane with the keys unless another is chosen: the lanes, or the detail where no lanes can be drawn."""
        return self.lanes if self.boards.has_lanes else self.detail

    @property
    def present(self) -> Codes:
        """The codes of the cells in view, each once."""
        return self.lanes.present

    def show_board(self) -> None:
        """Draws the board, after a change to another one."""
        alone = not self.boards.has_lanes
        changes = alone != self.has_class("-told")
        self.call_after_refresh(self.pages.find_tabs)
        self.set_class(alone, "-told")
        self.detail.stands_alone(alone)
        self.lanes.show(self.boards.shown)
        self.memory.renew()
        self._fit_lanes()
        if changes:
            self.set_focus(self.main_pane)

    def board_moved(self) -> None:
        """Draws the same board again, and the parts that follow its cursor."""
        self.lanes.changed()

    def draw_head(self) -> None:
        """Writes title, verdict and tabs anew, also over a page."""
        self.bars.draw_head(self.pages.tabs())
        page = self.pages.page
        if page is not None:
            page.draw_top()

    def draw_lines(self) -> None:
        """Writes overview and status anew."""
        self.bars.draw_lines()

    def note(self, text: str) -> None:
        """Shows a message in the bottom line, also of a page; without text, shows the keys again."""
        self.bars.note(text)
        page = self.pages.page
        # the last page's result may come while the next page is still being made
        if page is not None and page.is_mounted and text:
            page.note(text)

    def choose(self, title: str, choices: Sequence[Choice | str], then: Callable[[int], object]) -> None:
        """Asks the user to choose one of these for `then`."""

        def chosen(index: int | None) -> None:
            if index is not None:
                then(index)

        self.app.push_screen(ChoiceScreen(title, choices, self.options), chosen)

    def ask(self, label: str, hint: str, then: Callable[[str], None]) -> None:
        """Asks for a line of text for `then`; the bottom line shows a ValueError of `then`."""
        if not self.query(Prompt):
            self._then = then
            self.mount(Prompt("line", label, hint), after=self.bar("keys"))
            self.bar("keys").display = False

    @on(Prompt.Answered)
    def _answered(self, event: Prompt.Answered) -> None:
        self.bar("keys").display = True
        self.set_focus(self.main_pane)
        self.query(Prompt).remove()
        if event.text is None:
            return
        try:
            self._then(event.text)
        except ValueError as error:
            self.note(plain(str(error)))

    def work_out(self, make: Callable[[], T], then: Callable[[T], None]) -> None:
        """Calls `make` in a thread; `then` gets the result in the thread of the screen."""
        self._work([lambda: WorkedOut(partial(then, make()))])

    @work(thread=True, description="working")
    def _work(self, made: list[Callable[[], WorkedOut]]) -> None:
        """Posts the result of the one function in a list.

        It removes the function from the list: a worker keeps its arguments until the search for cycles.
        """
        self.post_message(made.pop()())

    @on(WorkedOut)
    def _worked_out(self, event: WorkedOut) -> None:
        event.show()


def _named(action: Action) -> str:
    """The effect of an action, with its keys."""
    return f"{action.help}  ({action.display})" if action.keys else action.help
