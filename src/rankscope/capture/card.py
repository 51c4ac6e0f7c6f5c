"""The file beside the dumps that says who wrote them: the recorder notes neither rank nor host nor who is in a group.

Its form is described in docs/capture.md; it is rewritten only when something in it changed.
"""

from __future__ import annotations

import contextlib
import json
import time
from typing import Any

from . import identity, recorder

VERSION = 1
_SINCE = "__rankscope_since_ns__"
"""An attribute of exceptions that were seen before they ended the process."""
ERROR_LIMIT = 2000
"""Characters of an exception that are kept."""


class SidecarRecord:
    """What is known of this process."""

    def __init__(self) -> None:
        self.started_ns = time.time_ns()
        self._fixed = identity.environment()
        self.rank: int | None = None
        self.world_size: int | None = None
        self.groups: list[identity.ProcessGroup] = []
        self.backends: list[identity.Backend] = []
        self.dumps: set[str] = set()
        self.problems: list[str] = []
        self.nothing: str | None = None
        """Why no recorder holds anything; None where one does, or where it is too early to say."""
        self.ended: dict[str, Any] | None = None
        self._left_ns: int | None = None
        self.interval_s: float | None = None
        self.delay_s = 0.0

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
                self.backends = identity.backends() or self.backends
            except Exception as error:  # noqa: BLE001 - private tables of any version of torch, changing meanwhile
                self.problem(f"members of process groups unknown: {type(error).__name__}: {error}")

    def problem(self, text: str) -> bool:
        """Notes what went wrong, once; whether that is new."""
        new = text not in self.problems and len(self.problems) < 16
        if new:
            self.problems.append(text)
        return new

    def delayed(self, seconds: float) -> None:
        """Notes how late a dump came, or how long one took, if none was ever as slow; a machine under load is slow."""
        self.delay_s = max(self.delay_s, round(seconds, 1))

    def leave(self) -> None:
        """Notes that the process takes all groups down: others lose their connection then, and not when it exits."""
        self._left_ns = time.time_ns()

    def end(self, reason: str, error: BaseException | None = None) -> None:
        """Notes how the process ends; the first one told is the cause."""
        if self.ended is None:
            since = getattr(error, _SINCE, None)
            if reason == "exit" and not identity.initialized():
                since = self._left_ns
            told = {"error": _text(error), "cause": _text(_oldest(error))}
            self.ended = {"reason": reason, "time_ns": since or time.time_ns(), **told}

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
            "interval_s": self.interval_s,
            "delay_s": self.delay_s,
            "ended": self.ended,
            "problems": self.problems + [text for text in (self.nothing,) if text and text not in self.problems],
            "backends": [self._backend(backend) for backend in self.backends],
            "groups": [group._asdict() for group in self.groups],
        }
        return (json.dumps(told) + "\n").encode("utf-8", "replace")

    def _backend(self, backend: identity.Backend) -> dict[str, Any]:
        one = recorder.of_backend(backend)
        file = None if one is None else f"{one.file}{self.rank}"
        told = {"name": backend.name, "recorder": backend.recorder, "completion": backend.completion}
        return {**told, "dump": file if file in self.dumps else None}


def is_passing(error: BaseException | None) -> None:
    """Notes when an exception was on its way: what cleans up may hold it up, and others may fail of that first."""
    if error is not None and not hasattr(error, _SINCE):
        with contextlib.suppress(AttributeError, TypeError):
            setattr(error, _SINCE, time.time_ns())


def _text(error: BaseException | None) -> str | None:
    return None if error is None else f"{type(error).__name__}: {error}"[:ERROR_LIMIT]


def _oldest(error: BaseException | None) -> BaseException | None:
    """What an exception came of in the end, also where `from None` has its traceback hide that; None if of nothing."""
    seen = [] if error is None else [error]
    while seen and (before := seen[-1].__cause__ or seen[-1].__context__) is not None:
        if any(before is one for one in seen):
            break
        seen.append(before)
    return seen[-1] if len(seen) > 1 else None
