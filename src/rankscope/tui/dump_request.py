"""Asks the job for dumps, after asking whoever sits before the screen.

Trigger pipes belong to the recorder that NCCL has of its own. No other backend makes any: not nccl2, which torch 2.15
calls "nccl", and not gloo.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import polars as pl

from rankscope.schema import Dataset
from rankscope.text.wording import plural
from rankscope.tui.lanes_frame import LanesFrame
from rankscope.tui.worker_messages import Asked

NONE_FOUND = "no trigger pipe here: set TORCH_NCCL_DEBUG_INFO_PIPE_FILE for the next run"
NONE_MADE = "{} makes no trigger pipes: run rankscope.capture in the job"
NCCL = "nccl"


class Choosing(Protocol):
    """Offers choices, and calls back with the number of the one that is taken."""

    def __call__(self, title: str, choices: Sequence[str], then: Callable[[int], None]) -> None: ...


def ask_for_dumps(screen: LanesFrame, choose: Choosing) -> None:
    """Offers to write to the trigger pipes there are."""
    pipes = screen.options.pipes
    ranks = pipes.ranks() if pipes is not None else []
    without = _without_pipes(screen.board.model.dataset)
    if pipes is None or not ranks:
        screen.note(NONE_MADE.format(" and ".join(without)) if without else NONE_FOUND)
        return
    rest = f"NCCL's own recorder only, not {' and '.join(without)}" if without else "the job goes on"
    choices = [f"ask {plural(len(ranks), 'rank')}: {rest}", "do not ask"]

    def chosen(index: int) -> None:
        if index == 0:
            screen.run_worker(lambda: screen.post_message(Asked(pipes.ask())), thread=True, group="ask")

    choose("write flight recorder dumps now", choices, chosen)


def _without_pipes(dataset: Dataset) -> list[str]:
    """The backends whose operations are shown and that make no pipes."""
    return sorted(set(dataset.ops["library"].cast(pl.String).drop_nulls()) - {NCCL, ""})
