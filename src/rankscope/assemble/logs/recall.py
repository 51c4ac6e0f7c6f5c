"""What is known of the communicators of a job that is watched, for logs that have lost the lines that told it.

A log that is emptied (copytruncate), or of which the oldest file is deleted, goes on with operations alone.
"""

from __future__ import annotations

from typing import NamedTuple

from rankscope.assemble.logs.log_processes import Life, Scene
from rankscope.assemble.logs.pieces import filled
from rankscope.parsers.logs.model import Comm
from rankscope.parsers.logs.nccl.init import ENDED

MOST = 200_000
"""More communicators are not remembered; those that were seen longest ago are forgotten."""
_Key = tuple[str, int, str]


class _Known(NamedTuple):
    comm: Comm
    identity: str


class Recall:
    """Communicators by host, process id and address."""

    def __init__(self) -> None:
        self._known: dict[_Key, _Known] = {}

    def remind(self, scene: Scene) -> None:
        """Gives those of which no line of their initialisation is left what was known of them."""
        for life in scene.lives:
            known = self._known.get(_key(scene, life))
            if known is not None and life.stands and not life.comm.init and _fits(life.comm, known.comm):
                state = known.comm.state if life.comm.state == "seen" else life.comm.state
                life.comm = filled(life.comm, known.comm)._replace(state=state)
                life.recalled = known.identity

    def take(self, scene: Scene) -> None:
        """Remembers those that live and can be told from others."""
        for life in scene.lives:
            if not life.stands:
                continue
            key = _key(scene, life)
            if life.comm.init or life.comm.state in ENDED:
                self._known.pop(key, None)
            if life.identity and life.comm.state not in ENDED:
                self._known.pop(key, None)
                self._known[key] = _Known(life.comm, life.identity)
        for key in list(self._known)[: max(0, len(self._known) - MOST)]:
            del self._known[key]


def _key(scene: Scene, life: Life) -> _Key:
    speaker = scene.speakers[life.speaker]
    return speaker.host, speaker.pid, life.comm.pointer


def _fits(comm: Comm, known: Comm) -> bool:
    return comm.nranks in (None, known.nranks) and comm.rank in (None, known.rank)
