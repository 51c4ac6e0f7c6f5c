"""The filter of the lanes, and the questions for it."""

from __future__ import annotations

from dataclasses import replace

from rankscope.text.wording import plural
from rankscope.tui.controllers.board_set import BoardSet
from rankscope.tui.controllers.main_view import MainView
from rankscope.tui.controllers.search_walk import SearchWalk
from rankscope.tui.controllers.time_axis import TimeAxis
from rankscope.tui.filters import STATES, Filter, apply, describe, parse_ranks
from rankscope.tui.letters import LETTERS
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

    def ask_ranks(self) -> None:
        """Asks which ranks to show."""
        self._view.ask("ranks", "0-7,64   8- to the end   0-255/8 each eighth   nothing for all", self._ranks)

    def _ranks(self, text: str) -> None:
        ranks = parse_ranks(text, int(self._boards.whole.ranks.max())) if text.strip() else None
        self.set(replace(self._boards.wanted, ranks=ranks))

    def choose_operation(self) -> None:
        """Lets an operation or a state be chosen."""
        names = [f"state {state}" for state in STATES] + [f"operation {name}" for _, name, _ in LETTERS]
        self._view.choose("operation or state", ["all operations and states", *names], self._operation)

    def _operation(self, index: int) -> None:
        wanted, states = self._boards.wanted, list(STATES)
        if index == 0:
            self.set(replace(wanted, letter=None, state=None))
        elif index <= len(states):
            self.set(replace(wanted, state=states[index - 1]))
        else:
            self.set(replace(wanted, letter=index - 1 - len(states)))
