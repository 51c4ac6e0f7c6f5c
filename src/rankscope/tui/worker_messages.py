"""Messages from the threads that load and compute to the screen."""

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
    """Progress of loading."""

    progress: ProgressLike


@dataclass
class Loaded(Message):
    """All data is ready to show."""

    model: Model
    overview: Codes


@dataclass
class Completed(Message):
    """All data instead of a part; None if reading the rest failed, with the reason."""

    model: Model | None
    overview: Codes | None
    problem: str = ""


@dataclass
class Updated(Message):
    """The new state of a watched job."""

    update: JobUpdate
    model: Model
    overview: Codes
    marks: Marks
    index: OpIndex


@dataclass
class ReadingChanged(Message):
    """The state of following has changed."""

    reading: FollowProgress


@dataclass
class WorkedOut(Message):
    """The result of a thread of the screen; `show` shows it."""

    show: Callable[[], None]
