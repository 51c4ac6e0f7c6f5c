"""The pages over the lanes: how they open, and where they lead."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from rankscope.analysis.model import Analysis
from rankscope.kinds.finding_kinds import FINDINGS
from rankscope.kinds.functions import PackageError, function
from rankscope.kinds.view_kinds import TABS, VIEWS, ViewKind
from rankscope.schema import Dataset
from rankscope.tui.cell_selection import place_of_selection
from rankscope.tui.controllers.board_set import BoardSet
from rankscope.tui.controllers.board_switch import BoardSwitch
from rankscope.tui.controllers.filter_menu import FilterMenu
from rankscope.tui.controllers.findings_walk import FindingsWalk
from rankscope.tui.controllers.job_news import STILL_LOADING
from rankscope.tui.controllers.main_view import MainView
from rankscope.tui.model import Model
from rankscope.tui.selection import GroupFilter, Moment, Selection
from rankscope.tui.tabs import MEMBERS, Tab, main_tabs, next_view, tabs_of

if TYPE_CHECKING:
    from rankscope.tui.detail.screens.page import Page, Result

# modules of pages are imported when one is opened: the lanes are there earlier without them


TELLING = ("logs", "stacks", "numbers", "memory", "snapshots", "model", "settings")
"""Views that tell most of an input without operations, the fullest first."""


class Pages:
    """Opens pages, and goes to the chosen place in the lanes."""

    def __init__(
        self, view: MainView, boards: BoardSet, findings: FindingsWalk, switch: BoardSwitch, filters: FilterMenu
    ) -> None:
        self._view, self._boards, self._findings, self._switch = view, boards, findings, switch
        self._filters = filters
        self._tabs: tuple[Model, list[Tab]] | None = None
        """The tabs, and the state of the job that they are of."""
        self._asked: Model | None = None
        """The state of the job of which a thread finds out the tabs."""

    # Tabs

    def tabs(self) -> list[Tab]:
        """The tabs that have data, with the names of their pages; a thread finds those out for each state of the job.

        Until then they are those of the state before; at the start, those of the main screen.
        """
        return self._tabs[1] if self._tabs is not None else main_tabs(has_lanes=self._boards.has_lanes)

    def find_tabs(self) -> None:
        """Finds out in a thread which pages have data, and draws the tabs."""
        whole = self._boards.whole
        is_known = self._tabs is not None and self._tabs[0] is whole
        if not is_known and self._asked is None:
            self._asked = whole
            self._view.work_out(partial(_filled_views, whole), partial(self._keep_tabs, whole))

    def _keep_tabs(self, whole: Model, views: list[tuple[str, int]]) -> None:
        self._asked = None
        if whole is not self._boards.whole:
            self.find_tabs()
        else:
            members = [(MEMBERS, 3)] if self._boards.has_lanes else []
            self._tabs = whole, tabs_of([*members, *views], has_lanes=self._boards.has_lanes)
            self._view.draw_head()

    def open_tab(self, number: int) -> None:
        """Opens the first page of a tab, or its next one if one of them is on the screen."""
        whole = self._boards.whole
        tab = next((tab for tab in self.tabs() if tab.number == number), None) or self._tab_now(number)
        if not tab.views:
            missing = f"no data for {TABS[number].title}"
            self._say(f"{missing} yet: {STILL_LOADING}" if whole.is_partial else missing)
            return
        now = self.page
        self.leave()
        self.open_named(next_view(tab, now.title_text if now is not None else ""))

    def _tab_now(self, number: int) -> Tab:
        """A tab that is not known yet, with the pages of it that have data."""
        members = [MEMBERS] if number == VIEWS["stacks"].tab and self._boards.has_lanes else []
        names = [name for name, _ in _filled_views(self._boards.whole, number)]
        return Tab(number, TABS[number].title, (*members, *names))

    def open_named(self, name: str) -> None:
        """Opens a page by its name."""
        if name == MEMBERS:
            self.open_members()
        else:
            self._open(VIEWS[name])

    def leave(self) -> None:
        """Closes the pages over the lanes."""
        while self.page is not None:
            self._view.app.pop_screen()

    def _say(self, text: str) -> None:
        page = self.page
        (self._view if page is None else page).note(text)

    def open(self) -> None:
        """Opens what is under the cursor: the finding in full at its card, else the members of the collective."""
        if not self._boards.has_lanes:
            self._open(VIEWS[self._fullest() or "files"])
        elif self._findings.at_finding and self._boards.shown.CARD:
            self._open_findings()
        else:
            self.open_members()

    def _open_findings(self) -> None:
        """Opens all findings, at the one on the screen."""
        from rankscope.tui.detail.screens.findings_page import FindingsScreen

        whole, at = self._boards.whole, self._boards.shown.finding
        self._push(FindingsScreen(whole.dataset, whole.analysis, self._view.options, at or 0))

    def open_members(self) -> None:
        """Opens all members of the collective under the cursor."""
        from rankscope.tui.detail.screens.member_page import MemberScreen

        whole, selection = self._boards.whole, self._boards.shown.selection
        if selection is not None:
            self._push(MemberScreen(whole.dataset, whole.analysis, selection, self._view.options))

    def open_why(self) -> None:
        """Explains why the rank under the cursor is accused or not."""
        from rankscope.tui.detail.screens.why_page import WhyScreen

        whole, selection = self._boards.whole, self._boards.shown.selection
        if selection is not None:
            self._push(WhyScreen(whole.dataset, whole.analysis, selection.rank, self._view.options))

    def open_first(self) -> None:
        """Opens the view of the options; without one, the fullest view of an input with neither lanes nor causes."""
        whole, name = self._boards.whole, self._view.options.view
        telling = next((finding for finding in whole.analysis.findings if finding.severity != "info"), None)
        if not name and not self._boards.has_lanes:
            name = self._fullest() if telling is None else FINDINGS[telling.kind].view
        if name:
            self._open(VIEWS[name])

    def _fullest(self) -> str:
        """The name of the fullest view of an input without operations; "" if all are empty."""
        whole, rows = self._boards.whole, (VIEWS[one] for one in TELLING)
        return next((r.name for r in rows if not _lacks_data(r, whole.dataset, whole.analysis)), "")

    @property
    def page(self) -> Page | None:
        """The page on the screen; None while there is another screen."""
        from rankscope.tui.detail.screens.page import Page

        screen = self._view.app.screen
        return screen if isinstance(screen, Page) else None

    @property
    def on_top(self) -> Page | None:
        """The view on the screen; None while there is another screen, or while a line of text is typed on the view."""
        page = self.page
        return page if page is not None and page.VIEW and not page.asks else None

    def renew(self) -> None:
        """Opens the view on the screen anew, on the data that is there now."""
        before = self.on_top
        if before is not None:
            self._view.app.pop_screen()
            self._open(VIEWS[before.VIEW], before.wanted)

    def _open(self, view: ViewKind, wanted: str = "") -> None:
        """Opens a view; of one whose package failed, says so."""
        whole = self._boards.whole
        try:
            page: Page = _page_class(view)(whole.dataset, whole.analysis, self._view.options)
        except PackageError as error:
            self._view.note(str(error))
        else:
            page.wanted = wanted
            self._push(page)

    def _push(self, page: Page) -> None:
        page.is_early = self._boards.whole.is_partial
        page.surroundings = self._view.surroundings()
        self._view.app.push_screen(page, self._jump)

    def _go(self, selection: Selection) -> None:
        place = place_of_selection(self._boards.whole, selection)
        if place is not None:
            self._findings.go(place)

    def _jump(self, result: Result) -> None:
        """Goes to the result of a closed page."""
        if result is None:
            return
        if isinstance(result, int):
            self._findings.show(result)
        elif isinstance(result, Moment):
            self._switch.go_moment(result)
        elif isinstance(result, GroupFilter):
            self._filters.set(replace(self._boards.wanted, group=result.group))
            if result.selection is not None and self._boards.wanted.group == result.group:
                self._go(result.selection)
        else:
            self._go(result)


def _page_class(view: ViewKind) -> Any:
    """The class of the page of a view; its module is imported now. Raises PackageError."""
    found: Any = function(view.page)
    package, _, place = view.page.rpartition("/")
    if not package:
        return found
    # imported only where a package is installed
    from rankscope.tui.detail.screens.site_page import guarded_page

    return guarded_page(found, package, place, view.name)


def _filled_views(whole: Model, number: int | None = None) -> list[tuple[str, int]]:
    """The views that have data, each with its tab; those of one tab, or all."""
    rows = [row for row in VIEWS.values() if number in (None, row.tab)]
    return [(row.name, row.tab) for row in rows if not _lacks_data(row, whole.dataset, whole.analysis)]


def _lacks_data(view: ViewKind, dataset: Dataset, analysis: Analysis) -> bool:
    """Whether an input holds nothing for a view; one whose package failed has something to say."""
    try:
        return bool(_page_class(view).lacks_data(dataset, analysis))
    except PackageError:
        return False
