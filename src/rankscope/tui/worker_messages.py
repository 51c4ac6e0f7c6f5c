"""What the threads that load and compute tell the screen."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from textual.message import Message

if TYPE_CHECKING:
    from rankscope.tui.detail.operation_index import OpIndex
    from rankscope.tui.letters import Codes
    from rankscope.tui.live.prepared import Marks
    from rankscope.tui.model import Model
    from rankscope.tui.options import ProgressLike
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
class Updated(Message):
    """A job that is watched is now like this."""

    update: JobUpdate
    model: Model
    overview: Codes
    marks: Marks
    index: OpIndex


@dataclass
class ReadingChanged(Message):
    """Following goes otherwise than before."""

    reading: FollowProgress


@dataclass
class WorkedOut(Message):
    """A thread of the screen has made something; `show` shows it."""

    show: Callable[[], None]
