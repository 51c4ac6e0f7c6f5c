"""The content of one profile of stacks, and its form between processes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from rankscope.parsers.contents import StackFrame


class StackCount(NamedTuple):
    """A stack of a thread, and how often it was seen."""

    thread: str
    """ "MainThread"; "" if it has no name."""
    thread_id: int | None
    pid: int | None
    frames: tuple[int, ...]
    """Indices into `frames` of the profile, innermost first."""
    times: int


@dataclass
class StackProfile:
    """One file: the distinct stacks of the threads of one process, or of a few."""

    frames: list[StackFrame] = field(default_factory=list)
    stacks: list[StackCount] = field(default_factory=list)
    problem: str | None = None
    commands: dict[int, str] = field(default_factory=dict)
    """Command lines, or titles, by process id."""

    @property
    def rows(self) -> int:
        """Number of distinct stacks."""
        return len(self.stacks)

    def header(self) -> dict[str, Any]:
        """The whole content, as JSON values."""
        return {
            "frames": list(map(list, self.frames)), "stacks": list(map(list, self.stacks)), "problem": self.problem,
            "commands": list(map(list, self.commands.items())),
        }  # fmt: skip

    def body(self) -> list[memoryview]:
        """Empty: the header holds everything."""
        return []


def profile_from(header: dict[str, Any], *_: object) -> StackProfile:
    """The content whose `header()` this is."""
    stacks = [StackCount(thread, number, pid, tuple(own), n) for thread, number, pid, own, n in header["stacks"]]
    return StackProfile(
        [StackFrame(*frame) for frame in header["frames"]], stacks, header["problem"], dict(header["commands"])
    )
