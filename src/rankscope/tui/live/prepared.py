"""An update with all that the screen shows of it: worked out where no key has to wait for it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rankscope.tui.live.progress import marks_of
from rankscope.tui.model import build_model
from rankscope.tui.overview import worst_by_column

if TYPE_CHECKING:
    from rankscope.tui.letters import Codes
    from rankscope.tui.live.progress import Marks
    from rankscope.tui.model import Model
    from rankscope.watching.update import Update


@dataclass(frozen=True)
class Prepared:
    """An update of a job, and its lanes."""

    update: Update
    model: Model
    overview: Codes
    marks: Marks


def prepare(update: Update) -> Prepared:
    """Makes what the screen shows of an update."""
    model = build_model(update.dataset, update.analysis)
    return Prepared(update, model, worst_by_column(model), marks_of(update.dataset))
