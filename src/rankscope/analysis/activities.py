"""What a thread was doing, told from the frames of its stack."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from rankscope.analysis.activity_table import CALLED_BACK, TABLE, Doing, Row
from rankscope.analysis.frames import is_native, kind_of
from rankscope.schema import Frame

COMMUNICATION: frozenset[Doing] = frozenset({"setup", "collective", "p2p"})
"""It waits for other ranks, or may."""
AWAY: frozenset[Doing] = frozenset(
    {
        "exit", "data", "storage", "network", "compile", "import", "thread", "process", "lock", "gc", "sleep",
        "debugger", "running",
    }
)  # fmt: skip
"""It waits for no other rank. "device", "backward" and "blocked" are not among them: these may wait for a kernel."""
ELSEWHERE: frozenset[Doing] = frozenset({"thread", "backward", "none"})
"""Another thread of the process may do the work."""

_PATTERNS = tuple((row, re.compile(row.function), re.compile(row.file)) for row in TABLE)
_CLASS = re.compile(r"^[\w.<>]*\.(?=[^.<>]+$)")
"""What stands before the name of a method: "Queue.get", "f.<locals>.g"; not the namespaces of C++."""
_LONGEST = 200
"""Characters looked at of a name: one of a megabyte is an attack or a mistake."""


@dataclass(frozen=True)
class Activity:
    """What a stack shows."""

    doing: Doing
    words: str
    """As it follows "rank 3 is": "in barrier", "waiting for the data loader"."""
    frame: Frame | None = None
    """The frame that tells it; None where none does."""


def classify(stack: Sequence[Frame], active: bool | None = None) -> Activity:
    """What the stack of a thread shows, innermost frame first; `active` is whether it was running."""
    if not stack:
        return Activity("none", "without a frame")
    own = next((depth for depth, frame in enumerate(stack) if kind_of(frame) == "user"), len(stack))
    rows = [(row, depth) for depth, frame in enumerate(stack) if (row := _row(frame)) is not None]
    hits = [(row.tier, row.native, depth, row) for row, depth in rows if row.tier < CALLED_BACK or depth < own]
    if hits:
        *_, depth, row = min(hits, key=lambda hit: hit[:3])
        return Activity(row.doing, row.words.format(name_of(stack[depth])), stack[depth])
    if active:
        return Activity("running", "running")
    # of a stack alone nobody knows whether the thread ran
    return Activity("blocked", "busy or waiting" if active is None else "in a call that the stack does not name")


def name_of(frame: Frame) -> str:
    """The function without the class it belongs to, bounded."""
    return _CLASS.sub("", frame.function[:_LONGEST])


@lru_cache(1 << 16)
def _row(frame: Frame) -> Row | None:
    """The row of the table that fits a frame."""
    name, file, native = name_of(frame), frame.file.replace("\\", "/"), is_native(frame)
    fits = (
        row
        for row, function, path in _PATTERNS
        if row.native == native and function.fullmatch(name) and path.search(file)
    )
    return min(fits, key=lambda row: row.tier, default=None)
