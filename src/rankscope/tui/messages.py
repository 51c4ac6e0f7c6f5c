"""What the threads that load and compute tell the screen."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from textual.message import Message

if TYPE_CHECKING:
    from rankscope.tui.letters import Codes
    from rankscope.tui.model import Model
    from rankscope.tui.options import ProgressLike
    from rankscope.tui.times import Times


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
class TimesReady(Message):
    """The starts and ends of a model are known."""

    model: Model
    times: Times
