"""The boards there are: lanes of operations, and lanes of traces. What both can do, the keys can do."""

from __future__ import annotations

from typing import TypeAlias

from rankscope.tui.board import Board
from rankscope.tui.traces.board import TraceBoard

AnyBoard: TypeAlias = Board | TraceBoard
"""A board that the screen shows."""
