"""Stacks that processes printed into logs, in the form of those that py-spy writes into files of their own."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from rankscope.assemble.logs.log_processes import Log, Scene
from rankscope.assemble.py_spy_ranks import Seen
from rankscope.kinds.event_kinds import EVENTS
from rankscope.parsers.flight_recorder.model import StackFrame
from rankscope.parsers.logs.c10d.thread_dumps import KIND
from rankscope.parsers.logs.event import Event
from rankscope.parsers.py_spy.interning import Collector, clip, pid_of
from rankscope.parsers.py_spy.roles import roles_of

_LOCAL = re.compile(r"^\[[A-Za-z_]\w{0,60}?(\d{1,6})\]: ?$")
"""What torchrun puts in front of lines unless it is told otherwise: role and rank within the node."""


def stacks_in(scene: Scene) -> list[Seen]:
    """The stacks of each log that has any, with the ranks that its lines tell."""
    found = []
    for log in scene.logs:
        dumps = [event for event in log.content.events if event.kind == KIND]
        if dumps:
            found.append(_seen(log, dumps, _only_rank(scene, log)))
    return found


def _seen(log: Log, dumps: list[Event], only: int | None) -> Seen:
    collector = Collector()
    for event in dumps:
        values = event.values
        rank = event.rank if event.rank is not None else only
        local = _LOCAL.match(f"{values.get('label') or ''}")
        pid = pid_of(values.get("pid"))
        within = int(local[1]) if local and rank is None else None
        process = collector.process(pid, None, "", "", rank, within, values["tool"])
        for number, name, gil, frames in values["threads"]:
            collector.thread(process, name, number, (None, gil), _frames(frames))
    snapshot = collector.done([])
    snapshot.roles = roles_of(snapshot)
    alone = not log.speakers and all(EVENTS[event.kind].of_stacks for event in log.content.events)
    return Seen(log.source, snapshot, in_log=not alone)


def _frames(rows: list[Any]) -> Iterator[StackFrame]:
    for function, file, line in rows:
        yield StackFrame(clip(function), clip(file), line)


def _only_rank(scene: Scene, log: Log) -> int | None:
    """The rank of a log in which one process alone speaks, where that is known."""
    ranks = {scene.speakers[at].rank for at in log.speakers}
    return ranks.pop() if len(ranks) == 1 else None
