"""Sidecar: the file beside the dumps with their writer, because the recorder notes neither rank, host nor members.

docs/capture.md describes its form; it is only rewritten after a change.
"""

from __future__ import annotations

import contextlib
import json
import time
from typing import Any

from . import identity, recorder
from .code_record import process_record
from .lineage import lineage, meeting

VERSION = 1
_SINCE = "__rankscope_since_ns__"
"""Attribute of exceptions that were seen before they ended the process."""
ERROR_LIMIT = 2000
"""Characters of an exception that are kept."""


class SidecarRecord:
    """The facts of this process for its sidecar."""

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
        """The reason why no recorder holds anything; None if one does, or if it is too early to know."""
        self.ended: dict[str, Any] | None = None
        self._left_ns: int | None = None
        self.run: str | None = None
        """What tells this run of the job from others, the same on all ranks; None if the launcher does not tell."""
        self.interval_s: float | None = None
        self.delay_s = 0.0
        self.code = process_record()

    @property
    def writer(self) -> tuple[object, ...]:
        """The key of this process, which differs from an earlier process of the same rank."""
        return self._fixed["host"], self._fixed["pid"], self.started_ns

    @property
    def process(self) -> dict[str, Any]:
        """The facts that tell this process from others."""
        facts = {"rank": self.rank, "world_size": self.world_size, **self._fixed}
        return {**facts, "run": self.run, "started_ns": self.started_ns}

    def update(self) -> None:
        """Updates rank, world and groups; keeps the facts of a removed process group."""
        rank, world = identity.rank_and_world()
        self.rank = rank if rank is not None else self.rank
        self.world_size = world if world is not None else self.world_size
        joined = identity.initialized()
        if not self.groups:
            # a program may name other meeting places later, for groups of its own
            self.run = meeting() or self.run
        lineage(joined).renew_mark(joined or bool(self.groups))
        if joined:
            try:
                self.groups = identity.groups() or self.groups
                self.backends = identity.backends() or self.backends
            except Exception as error:  # noqa: BLE001 - private tables of any version of torch, which may change meanwhile
                self.problem(f"members of process groups unknown: {type(error).__name__}: {error}")

    @property
    def joined(self) -> bool:
        """Whether the process has, or had, a process group."""
        return bool(self.groups) or identity.initialized()

    def problem(self, text: str) -> bool:
        """Notes a problem, once; returns whether it is new."""
        new = text not in self.problems and len(self.problems) < 16
        if new:
            self.problems.append(text)
        return new

    def delayed(self, seconds: float) -> None:
        """Notes the delay or duration of a dump, if it is the longest so far; a machine under load is slow."""
        self.delay_s = max(self.delay_s, round(seconds, 1))

    def leave(self) -> None:
        """Notes that the process destroys all groups: others lose their connection now, not at its exit."""
        self._left_ns = time.time_ns()

    def end(self, reason: str, error: BaseException | None = None) -> None:
        """Notes how the process ends; the first reason is the cause."""
        if self.ended is None:
            since = getattr(error, _SINCE, None)
            if reason == "exit" and not identity.initialized():
                since = self._left_ns
            errors = {"error": _text(error), "cause": _text(_oldest(error))}
            self.ended = {"reason": reason, "time_ns": since or time.time_ns(), **errors}

    def content(self) -> bytes:
        """The bytes of the sidecar."""
        document = {
            "rankscope_capture": VERSION,
            **self.process,
            "versions": identity.versions(),
            "code": self.code.facts(self._is_first),
            "dumps": sorted(self.dumps),
            "interval_s": self.interval_s,
            "delay_s": self.delay_s,
            "ended": self.ended,
            "problems": self.problems + [text for text in (self.nothing,) if text and text not in self.problems],
            "backends": [self._backend(backend) for backend in self.backends],
            "groups": [group._asdict() for group in self.groups],
        }
        return (json.dumps(document) + "\n").encode("utf-8", "replace")

    @property
    def _is_first(self) -> bool:
        """Whether this is the first process of its host; without a launcher each is."""
        return not self._fixed["local_rank"]

    def _backend(self, backend: identity.Backend) -> dict[str, Any]:
        ring = recorder.of_backend(backend)
        file = None if ring is None else f"{ring.file}{self.rank}"
        facts = {"name": backend.name, "recorder": backend.recorder, "completion": backend.completion}
        return {**facts, "dump": file if file in self.dumps else None}


def is_passing(error: BaseException | None) -> None:
    """Notes the time of an exception: a clean-up may delay it, and other ranks may fail because of it first."""
    if error is not None and not hasattr(error, _SINCE):
        with contextlib.suppress(AttributeError, TypeError):
            setattr(error, _SINCE, time.time_ns())


def _text(error: BaseException | None) -> str | None:
    return None if error is None else f"{type(error).__name__}: {error}"[:ERROR_LIMIT]


def _oldest(error: BaseException | None) -> BaseException | None:
    """The first cause of an exception, even if `from None` hides it in the traceback; None without one."""
    seen = [] if error is None else [error]
    while seen and (before := seen[-1].__cause__ or seen[-1].__context__) is not None:
        if any(before is one for one in seen):
            break
        seen.append(before)
    return seen[-1] if len(seen) > 1 else None
