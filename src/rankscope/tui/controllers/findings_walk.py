"""The walk from finding to finding, and along the chain of waiting ranks."""

from __future__ import annotations

from rankscope.analysis.explanations import end_of_chain
from rankscope.analysis.model import ChainStep
from rankscope.report.words import causes_first
from rankscope.text.escaping import plain
from rankscope.tui.cell_selection import Place, place_of_finding, place_of_step
from rankscope.tui.controllers.board_set import BoardSet
from rankscope.tui.controllers.filter_menu import FilterMenu
from rankscope.tui.controllers.main_view import MainView
from rankscope.tui.controllers.search_walk import SearchWalk
from rankscope.tui.filters import Filter
from rankscope.tui.selection import Selection


class FindingsWalk:
    """Moves the lanes to the place of a finding."""

    def __init__(self, view: MainView, boards: BoardSet, search: SearchWalk, filters: FilterMenu) -> None:
        self._view, self._boards, self._search, self._filters = view, boards, search, filters
        self.unvisited = False
        """Whether the finding was shown without a key, and no key has gone there yet."""
        self.explores = False
        """Whether the operation under the cursor is shown where the cursor still stands at the finding."""
        self._landing: Selection | None = None
        """The place where the finding, or the verdict, was shown."""
        self._followed: list[int] = []
        """The ranks along the chain so far."""

    @property
    def at_finding(self) -> bool:
        """Whether the cursor stands where the finding was shown; then its card is shown, too."""
        return self._boards.shown.finding is not None and self.at_verdict

    @property
    def at_verdict(self) -> bool:
        """Whether the screen still shows the verdict, and no operation was gone to since."""
        return not self.explores and _same_place(self._boards.shown.selection, self._landing)

    def show(self, index: int | None) -> None:
        """Moves the lanes to a finding; drops filters that hide it."""
        boards = self._boards
        self.unvisited = self.explores = False
        boards.blame(index)
        finding = boards.whole.analysis.findings[index] if index is not None else None
        place = place_of_finding(boards.whole, finding) if finding is not None else None
        if place is not None:
            self.go(place)
        boards.shown.go_finding(finding)
        self._landing = boards.shown.selection
        self._view.draw_head()
        self._view.board_moved()

    def stay(self, at_verdict: bool) -> None:
        """Takes the cursor for where the finding was shown, if it was before newer data moved what it stands on."""
        if at_verdict:
            self._landing = self._boards.shown.selection

    def again(self) -> None:
        """Moves back to the finding, and shows its card."""
        self.show(self._boards.shown.finding)

    def explore(self) -> None:
        """Shows the operation under the cursor instead of the card."""
        self.explores = True
        self._view.draw_head()
        self._view.board_moved()

    def go(self, place: Place) -> None:
        """Moves the cursor to a place of the whole model; drops filters that hide it."""
        if self._boards.hides(place.rank):
            self._filters.set(Filter())
            self._view.note("filters dropped: they hid it")
        self._boards.go(place)
        self._view.board_moved()

    def walk(self, step: int) -> None:
        """Moves by `step` findings, or hits of a search; goes first to an unvisited finding."""
        now = self._boards.shown.finding
        order = causes_first(self._boards.shown.model.analysis)
        if self._search.found is not None:
            self._search.walk(step)
        elif self.unvisited and now is not None:
            self.show(now)
        elif not order:
            self._view.note("no findings")
        elif order == [now] and self.at_finding:
            self._view.note("this is the only finding")
        else:
            self.show(order[0 if now is None else (order.index(now) + step) % len(order)])

    def chain(self) -> None:
        """Moves from a waiting rank to the rank that it waits for."""
        selection, analysis = self._boards.shown.selection, self._boards.whole.analysis
        if selection is None:
            return
        steps = analysis.waits.get(selection.rank)
        if not steps:
            self._view.note(plain(end_of_chain(self._boards.whole.dataset, analysis, selection.rank)))
            return
        place = place_of_step(self._boards.whole, steps[0])
        if place is not None:
            self.go(place)
            self._view.note(self._followed_by(steps))

    def _followed_by(self, steps: tuple[ChainStep, ...]) -> str:
        """A sentence on the first of these steps, and on the end or the circle that it leads to."""
        step, wait = steps[0], steps[0].waits_in
        number = "" if wait.seq is None else f" #{wait.seq}"
        # without a row the number is only that after the last one of the rank: no source holds it
        inside = "" if wait.row is None else f" in {plain(wait.op)}{number}"
        text = f"rank {step.rank} waits{inside} for rank {step.for_rank}"
        if not self._followed or self._followed[-1] != step.rank:
            self._followed = [step.rank]
        if step.for_rank in self._followed:
            circle = [*self._followed[self._followed.index(step.for_rank) :], step.for_rank]
            self._followed = []
            return f"{text}: a circle, {' -> '.join(map(str, circle))}"
        self._followed.append(step.for_rank)
        last = step.for_rank not in self._boards.whole.analysis.waits
        return f"{text}, where the chain ends" if last else text


def _same_place(one: Selection | None, other: Selection | None) -> bool:
    if one is None or other is None:
        return one is other
    return (one.rank, one.row, one.group, one.seq) == (other.rank, other.row, other.group, other.seq)
