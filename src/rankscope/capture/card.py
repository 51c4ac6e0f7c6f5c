"""The file beside the dumps that says who wrote them: the recorder notes neither rank nor host nor who is in a group.

Its form is described in docs/capture.md; it is rewritten only when something in it changed.
"""

from __future__ import annotations

import json
import time
from typing import Any

from . import identity

VERSION = 1


class Card:
    """What is known of this process."""

    def __init__(self) -> None:
        self.started_ns = time.time_ns()
        self._fixed = identity.environment()
        self.rank: int | None = None
        self.world_size: int | None = None
        self.groups: list[identity.Group] = []
        self.dumps: set[str] = set()
        self.problems: list[str] = []
        self.ended: dict[str, Any] | None = None

    @property
    def writer(self) -> tuple[object, ...]:
        """What tells this process from an earlier one of the same rank."""
        return self._fixed["host"], self._fixed["pid"], self.started_ns

    def look(self) -> None:
        """Brings rank, world and groups up to date; what was known of a process group that is gone stays."""
        rank, world = identity.rank_and_world()
        self.rank = rank if rank is not None else self.rank
        self.world_size = world if world is not None else self.world_size
        if identity.initialized():
            try:
                self.groups = identity.groups() or self.groups
            except Exception as error:  # noqa: BLE001 - private tables of any version of torch, changing meanwhile
                self.problem(f"members of process groups unknown: {type(error).__name__}: {error}")

    def problem(self, text: str) -> None:
        """Notes what went wrong, once."""
        if text not in self.problems and len(self.problems) < 16:
            self.problems.append(text)

    def end(self, reason: str, error: str | None = None) -> None:
        """Notes how the process ends; the first one told is the cause."""
        if self.ended is None:
            self.ended = {"reason": reason, "time_ns": time.time_ns(), "error": error}

    def content(self) -> bytes:
        """As it is written."""
        told = {
            "rankscope_capture": VERSION,
            "rank": self.rank,
            "world_size": self.world_size,
            **self._fixed,
            "started_ns": self.started_ns,
            "versions": identity.versions(),
            "dumps": sorted(self.dumps),
            "ended": self.ended,
            "problems": self.problems,
            "groups": [group._asdict() for group in self.groups],
        }
        return (json.dumps(told) + "\n").encode("utf-8", "replace")
