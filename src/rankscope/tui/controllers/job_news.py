"""The news of a job that was read once: the rest of its traces."""

from __future__ import annotations

from rich.text import Text

from rankscope.analysis.model import Analysis
from rankscope.tui.controllers.board_set import BoardSet
from rankscope.tui.controllers.findings_walk import FindingsWalk
from rankscope.tui.controllers.main_view import MainView
from rankscope.tui.controllers.search_walk import SearchWalk
from rankscope.tui.header import title_line
from rankscope.tui.letters import Codes
from rankscope.tui.model import Model


class JobNews:
    """Brings to the screen what is read of a job, and tells how the job is."""

    def __init__(self, view: MainView, boards: BoardSet, search: SearchWalk, findings: FindingsWalk) -> None:
        self._view, self._boards, self._search, self._findings = view, boards, search, findings
        self._touched = False
        """Whether any key was pressed: then the view stays where it is when more is read."""

    def begin(self) -> None:
        """Shows the first finding."""
        boards = self._boards
        self._findings.show(0 if boards.whole.analysis.findings else None)
        if boards.shown is boards.operations:
            boards.shown.centre(0.6)
        elif boards.shown.span_of_instance() is None:
            boards.shown.go_neighbour(1)
        self._view.board_moved()
        self._view.note("")

    def complete(self, model: Model, overview: Codes) -> None:
        """Shows all of what was there only in part, in the same place."""
        at = self._boards.take(model, overview)
        at = 0 if at is None and self._boards.shown.finding is None and model.analysis.findings else at
        self._boards.blame(at)
        self._search.end()
        self._view.show_board()
        if not self._touched:
            self._findings.show(at)
        self._view.draw_head()
        self._view.note("")

    def moved(self) -> None:
        """The cursor or the window of the lanes has moved."""

    def pressed(self) -> None:
        """Somebody has pressed a key."""
        self._touched = True

    def resumed(self) -> None:
        """The lanes are in view again."""

    def follow(self) -> None:
        """Follows the newest operations of a job that is watched."""
        self._view.note("nothing is followed: start with --watch")

    def pause(self) -> None:
        """Pauses a job that is watched."""
        self._view.note("nothing is followed: start with --watch")

    # Lines

    @property
    def analysis(self) -> Analysis:
        """The analysis as the verdict tells it."""
        return self._boards.whole.analysis

    def title(self, width: int) -> Text:
        """The line at the top."""
        whole = self._boards.whole
        return title_line(whole.dataset, whole.analysis, width, self._view.options.palette)

    def trouble(self) -> str:
        """What stands in the bottom line until a key is pressed; "" where there is nothing."""
        return ""

    def state(self) -> Text:
        """What stands before the keys."""
        return Text()
