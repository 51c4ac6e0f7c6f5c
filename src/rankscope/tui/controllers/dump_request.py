"""Asks the job for dumps, after asking whoever sits before the screen.

Trigger pipes belong to the recorder that NCCL has of its own. No other backend makes any: not nccl2, which torch 2.15
calls "nccl", and not gloo.
"""

from __future__ import annotations

import polars as pl

from rankscope.analysis.wording import plural
from rankscope.schema import Dataset
from rankscope.tui.controllers.board_set import BoardSet
from rankscope.tui.controllers.main_view import MainView

NONE_FOUND = "no trigger pipe here: set TORCH_NCCL_DEBUG_INFO_PIPE_FILE for the next run"
NONE_MADE = "{} makes no trigger pipes: run rankscope.capture in the job"
NCCL = "nccl"


class DumpRequest:
    """Writes to the trigger pipes of the job."""

    def __init__(self, view: MainView, boards: BoardSet) -> None:
        self._view, self._boards = view, boards

    def offer(self) -> None:
        """Offers to write to the pipes there are."""
        pipes = self._view.options.pipes
        ranks = pipes.ranks() if pipes is not None else []
        without = _without_pipes(self._boards.shown.model.dataset)
        if pipes is None or not ranks:
            self._view.note(NONE_MADE.format(" and ".join(without)) if without else NONE_FOUND)
            return
        rest = f"NCCL's own recorder only, not {' and '.join(without)}" if without else "the job goes on"
        choices = [f"ask {plural(len(ranks), 'rank')}: {rest}", "do not ask"]

        def chosen(index: int) -> None:
            if index == 0:
                self._view.work_out(pipes.ask, self._view.note)

        self._view.choose("write flight recorder dumps now", choices, chosen)


def _without_pipes(dataset: Dataset) -> list[str]:
    """The backends whose operations are shown and that make no pipes."""
    return sorted(set(dataset.ops["library"].cast(pl.String).drop_nulls()) - {NCCL, ""})
