"""The app on a comparison: both runs are read in a thread, then the answer is shown."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib import import_module
from typing import TYPE_CHECKING, TypeAlias

from textual import on, work
from textual.message import Message

from rankscope.text.escaping import plain
from rankscope.text.secrets import hide
from rankscope.tui.actions import Scope
from rankscope.tui.app import ProgressThrottle, RankscopeApp
from rankscope.tui.options import Progress, ProgressLike, ViewOptions
from rankscope.tui.worker_messages import Progressed

if TYPE_CHECKING:
    from rankscope.features.comparison.page.compared_view import ComparedView, Saving, TargetPage
    from rankscope.features.comparison.rules.run_sides import WholeComparison
    from rankscope.tui.detail.screens.page import Page

Comparing: TypeAlias = "Callable[[Callable[[ProgressLike], None]], WholeComparison]"
"""Reads and compares the runs, and reports its progress; runs in a thread."""


@dataclass
class Compared(Message):
    """The comparison is ready to show."""

    view: ComparedView


class ComparisonApp(RankscopeApp):
    """Shows the comparison of two runs; `compare` reads them."""

    def __init__(self, compare: Comparing, title: str, options: ViewOptions, save: Saving | None = None) -> None:
        super().__init__(None, title, options)
        self._compare, self._save = compare, save
        self.view: ComparedView | None = None
        """The comparison on the screen; None while the runs are read."""

    @property
    def last_words(self) -> str:
        """The headline at the end, and the command for the report; "" if nothing was compared."""
        if self.view is None:
            return ""
        return f"{plain(hide(self.view.found.headline))}\nfull report: {plain(self.view.text_command)}"

    def on_mount(self) -> None:
        """Starts to read after the first screen is drawn."""
        self.set_keymap(dict(self.options.keys))
        self.call_after_refresh(self._read)

    @work(thread=True, exit_on_error=False, group="load")
    def _read(self) -> None:
        whole = self._compare(ProgressThrottle(self))
        import_module("rankscope.features.comparison.page.answer_page")  # here it takes no time from the keys
        from rankscope.features.comparison.page.aligned_lanes import paired_lanes
        from rankscope.features.comparison.page.compared_view import ComparedView

        self.post_message(Progressed(Progress(0, 0, "arranging the lanes")))
        view = ComparedView(whole, paired_lanes(whole), self._save)
        self.post_message(Compared(replace(view, pages=known_pages(view))))

    @on(Compared)
    def _compared(self, event: Compared) -> None:
        from rankscope.features.comparison.page.answer_page import AnswerPage

        self.view = event.view
        self.push_screen(AnswerPage(event.view, self.options))

    @property
    def _page(self) -> Page | None:
        """The page on the screen; None while the runs are read."""
        from rankscope.features.comparison.page.compared_view import ComparedPage

        return self.screen if isinstance(self.screen, ComparedPage) else None

    def action_help(self) -> None:
        """Shows the keys of the page, and those that work on all pages."""
        from rankscope.features.comparison.page.lanes_page import LanesPage
        from rankscope.tui.help_screen import HelpScreen, sections

        page = self._page
        if page is not None:
            scopes: tuple[Scope, ...] = ("app", "lanes") if isinstance(page, LanesPage) else ("app",)
            hints = page.hints(every=True)
            self.push_screen(HelpScreen(self.options, f"This view ({page.title_text})", hints, sections(scopes)))

    def action_open_page(self, name: str, target: str = "") -> None:
        """Opens a page over the answer, in place of the one that is there; `target` is a rank or a series."""
        page, view = self._page, self.view
        if page is None or view is None:
            return
        kind = _page_kind(name)
        problem = kind.missing(view) if kind is not None else ""
        if problem:
            page.note(plain(problem))
            return
        # the opening screen and the answer stay
        while len(self.screen_stack) > 2:
            self.pop_screen()
        if kind is not None:
            self.push_screen(kind(view, self.options, target))


def known_pages(view: ComparedView) -> tuple[str, ...]:
    """The names of the pages for which the runs have data."""
    from rankscope.features.comparison.page.compared_view import VIEW_NAMES

    kinds = ((name, _page_kind(name)) for name in VIEW_NAMES)
    return tuple(name for name, kind in kinds if kind is None or not kind.missing(view))


def _page_kind(name: str) -> type[TargetPage] | None:
    """The class of a page by its name; None for the answer, which is there already."""
    from rankscope.features.comparison.page.difference_map import DifferencePage, ScatterPage
    from rankscope.features.comparison.page.lanes_page import LanesPage
    from rankscope.features.comparison.page.series_page import SeriesPage

    kinds: dict[str, type[TargetPage]] = {
        "lanes": LanesPage,
        "series": SeriesPage,
        "map": DifferencePage,
        "scatter": ScatterPage,
    }
    return kinds.get(name)
