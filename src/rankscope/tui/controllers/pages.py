"""The pages over the lanes: how they open, and where they lead."""

from __future__ import annotations

from collections.abc import Callable

from textual.screen import ModalScreen

from rankscope.analysis.model import Analysis
from rankscope.schema import Dataset
from rankscope.tui.controllers.board_set import BoardSet
from rankscope.tui.controllers.board_switch import BoardSwitch
from rankscope.tui.controllers.findings_walk import FindingsWalk
from rankscope.tui.controllers.main_view import MainView
from rankscope.tui.options import ViewOptions
from rankscope.tui.selection import Moment, Selection
from rankscope.tui.target import place_of_selection

# modules of pages are imported when one is opened: the lanes are there earlier without them
Jump = Selection | Moment | int | None
"""The target of a page: an operation, a stretch of time, a finding by its index, or nothing."""
NamedPage = tuple[str, Callable[[Dataset, Analysis, ViewOptions | None], ModalScreen[Jump]]]


class Pages:
    """Opens pages, and goes to the chosen place in the lanes."""

    def __init__(self, view: MainView, boards: BoardSet, findings: FindingsWalk, switch: BoardSwitch) -> None:
        self._view, self._boards, self._findings, self._switch = view, boards, findings, switch

    def open_members(self) -> None:
        """Opens all members of the collective under the cursor."""
        from rankscope.tui.detail.screens.member_page import MemberScreen

        whole, selection = self._boards.whole, self._boards.shown.selection
        if selection is not None:
            screen = MemberScreen(whole.dataset, whole.analysis, selection, self._view.options)
            self._view.app.push_screen(screen, self._jump)

    def open_why(self) -> None:
        """Explains why the rank under the cursor is accused or not."""
        from rankscope.tui.detail.screens.why_page import WhyScreen

        whole, selection = self._boards.whole, self._boards.shown.selection
        if selection is not None:
            screen = WhyScreen(whole.dataset, whole.analysis, selection.rank, self._view.options)
            self._view.app.push_screen(screen, self._jump)

    def choose_view(self) -> None:
        """Offers the other views; views of traces come first if there are any."""
        from rankscope.tui.detail.screens.page_registry import TRACES, VIEWS

        views = VIEWS if self._boards.traced is None else [*TRACES, *VIEWS]
        self._view.choose("view", [name for name, _ in views], lambda index: self._open(views[index]))

    def open_heat(self) -> None:
        """Shows the heat map of ranks and steps."""
        from rankscope.tui.detail.screens.page_registry import TRACES

        if self._boards.traced is None:
            self._view.note("the heat map is made of profiler traces, and there are none")
        else:
            self._open(TRACES[0])

    def _open(self, view: NamedPage) -> None:
        whole = self._boards.whole
        self._view.app.push_screen(view[1](whole.dataset, whole.analysis, self._view.options), self._jump)

    def _jump(self, result: Jump) -> None:
        """Goes to the result of a closed page."""
        if result is None:
            return
        if isinstance(result, int):
            self._findings.show(result)
        elif isinstance(result, Moment):
            self._switch.go_moment(result)
        elif (place := place_of_selection(self._boards.whole, result)) is not None:
            self._findings.go(place)
