"""The rest of a job that is read once, after its first part."""

from __future__ import annotations

from dataclasses import replace

from rich.text import Text

from rankscope.analysis.model import Analysis
from rankscope.text.escaping import plain
from rankscope.tui.controllers.board_set import BoardSet
from rankscope.tui.controllers.findings_walk import FindingsWalk
from rankscope.tui.controllers.main_view import MainView
from rankscope.tui.controllers.search_walk import SearchWalk
from rankscope.tui.header import title_line
from rankscope.tui.letters import Codes
from rankscope.tui.model import Model

STILL_LOADING = "reading the rest ..."
"""Text while a part of the job is shown, and the rest is being read."""


class JobNews:
    """Sends later data of a job to the screen, and tells the state of the job."""

    def __init__(self, view: MainView, boards: BoardSet, search: SearchWalk, findings: FindingsWalk) -> None:
        self._view, self._boards, self._search, self._findings = view, boards, search, findings
        self._touched = False
        """Whether any key was pressed: then later data does not move the view."""
        self._whole: tuple[Model, Codes] | None = None
        """All data while another screen lies over the lanes: what that one chooses is meant in the part."""

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
        """Shows all data instead of a part; the lanes keep their place, and a view over them is opened anew."""
        self._whole = model, overview
        if not self._view.is_covered:
            self._show_whole()
        elif self._view.has_view:
            self._show_whole()
            self._view.renew_view()

    def _show_whole(self) -> None:
        if self._whole is None:
            return
        (model, overview), self._whole = self._whole, None
        before, at_verdict = self.analysis, self._findings.at_verdict
        at = self._boards.take(model, overview)
        at = 0 if at is None and self._boards.shown.finding is None and model.analysis.findings else at
        self._boards.blame(at)
        self._findings.stay(at_verdict)
        self._search.end()
        self._view.show_board()
        if not self._touched:
            self._findings.show(at)
        self._view.draw_head()
        # a line for the user if all files give another verdict than the first part did; else ""
        if _answer(before) == _answer(model.analysis):
            news = ""
        else:
            news = f"all files are read, and the verdict is another one; before: {plain(before.verdict)}"
        self._view.note(news)

    def give_up(self, problem: str) -> None:
        """Says why the rest was not read; the part stays."""
        whole = self._boards.whole
        parts = whole.dataset.parts._replace(whole_follows=False)
        self._boards.take(replace(whole, dataset=replace(whole.dataset, parts=parts)), self._boards.overview)
        self._view.show_board()
        self._view.draw_head()
        self._view.note(f"the rest of the files was not read: {plain(problem)}")

    def moved(self) -> None:
        """Notes that the cursor or the window of the lanes has moved."""

    def pressed(self) -> None:
        """Notes that a key was pressed."""
        self._touched = True

    def resumed(self) -> None:
        """Shows the data that came while another screen lay over the lanes."""
        self._view.call_after_refresh(self._complete_later)

    def _complete_later(self) -> None:
        # another page may lie over the lanes by now
        if self._whole is not None:
            self.complete(*self._whole)

    def follow(self) -> None:
        """Follows the newest operations of a watched job, or pauses it."""
        self._view.note("nothing is followed: start with --watch")

    def pause(self) -> None:
        """Pauses a watched job."""
        self._view.note("nothing is followed: start with --watch")

    # Lines

    @property
    def analysis(self) -> Analysis:
        """The analysis for the verdict."""
        return self._boards.whole.analysis

    def title(self, width: int, finding: int | None = None) -> Text:
        """The line at the top."""
        whole = self._boards.whole
        return title_line(whole.dataset, whole.analysis, width, finding)

    def trouble(self) -> str:
        """The trouble in the bottom line until the next key; "" if there is none."""
        return ""

    def state(self) -> Text:
        """The text before the keys: the part of the job that is shown; empty for all of it."""
        parts = self._boards.whole.dataset.parts
        told = [*([f"only {parts.words}"] if parts.words else []), *([STILL_LOADING] if parts.whole_follows else [])]
        return Text(f" {', '.join(told)}  ", "dim") if told else Text()


def _answer(analysis: Analysis) -> tuple[object, ...]:
    cause = analysis.cause
    return (analysis.status, None if cause is None else (cause.kind, cause.culprit_ranks))
