"""What the threads that load and compute tell the screen."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from textual.message import Message

if TYPE_CHECKING:
    from rankscope.analysis.model import Analysis
    from rankscope.tui.detail.operation_index import OpIndex
    from rankscope.tui.detail.selection_facts import Detail
    from rankscope.tui.filters import Filter
    from rankscope.tui.letters import Codes
    from rankscope.tui.live.prepared import Marks
    from rankscope.tui.model import Model
    from rankscope.tui.options import ProgressLike
    from rankscope.tui.times import Times
    from rankscope.watching.update import FollowProgress, JobUpdate


@dataclass
class Progressed(Message):
    """Loading has come this far."""

    progress: ProgressLike


@dataclass
class Loaded(Message):
    """Everything is there to be shown."""

    model: Model
    overview: Codes


@dataclass
class Completed(Message):
    """What was there only in part is there as a whole; None where reading the rest failed, with the reason."""

    model: Model | None
    overview: Codes | None
    problem: str = ""


@dataclass
class Exported(Message):
    """The merged trace was written, or why not."""

    text: str


@dataclass
class Updated(Message):
    """A job that is watched is now like this."""

    update: JobUpdate
    model: Model
    overview: Codes
    marks: Marks
    index: OpIndex


@dataclass
class UpdateTimed(Message):
    """The starts and ends of an update are known."""

    update: Updated
    wanted: Filter
    model: Model
    """With the filter `wanted`."""
    times: Times


@dataclass
class ReadingChanged(Message):
    """Following goes otherwise than before."""

    reading: FollowProgress


@dataclass
class LookedUp(Message):
    """What there is to say of a selection is known."""

    detail: Detail
    analysis: Analysis


@dataclass
class Asked(Message):
    """The job was asked for dumps."""

    said: str


@dataclass
class TimesReady(Message):
    """The starts and ends of a model are known."""

    model: Model
    times: Times
