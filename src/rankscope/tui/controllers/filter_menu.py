"""The filter of the lanes, and the question for it."""

from __future__ import annotations

from rankscope.text.wording import plural
from rankscope.tui.controllers.board_set import BoardSet
from rankscope.tui.controllers.main_view import MainView
from rankscope.tui.controllers.search_walk import SearchWalk
from rankscope.tui.controllers.time_axis import TimeAxis
from rankscope.tui.filters import FILTER_HINT, Filter, apply, describe, parse_filter
from rankscope.tui.model import Model


class FilterMenu:
    """Limits the lanes to some ranks, a group, an operation or a state."""

    def __init__(self, view: MainView, boards: BoardSet, search: SearchWalk, times: TimeAxis) -> None:
        self._view, self._boards, self._search, self._times = view, boards, search, times

    def set(self, wanted: Filter) -> None:
        """Shows only the lanes and items that pass the filter; refuses a filter that nothing passes."""
        model = apply(self._boards.whole, wanted)
        whole = self._boards.whole
        if not len(model.ranks):
            self._view.note(f"nothing is left with {describe(wanted, whole)}: the lanes stay as they are")
            return
        on_time = self._boards.on_time
        self._boards.narrow(wanted, model)
        self._search.end()
        self._view.board_moved()
        if on_time:
            self._times.bring(model)
        self._view.note(self._outcome(model) if wanted else f"all {plural(len(whole.ranks), 'rank')} shown")

    def _outcome(self, model: Model) -> str:
        shown, total = len(model.ranks), len(self._boards.whole.ranks)
        return f"{shown:,} of {plural(total, 'rank')} shown; esc shows all"

    def ask(self) -> None:
        """Asks which ranks, group, operation and state to show."""
        self._view.ask("filter", f"{FILTER_HINT}   empty: all", self._answered)

    def _answered(self, text: str) -> None:
        self.set(parse_filter(text, self._boards.whole))
