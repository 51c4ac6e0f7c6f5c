"""Worker processes that are used again: most tests read a few small files, and to start a process takes longer."""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence

from rankscope.parsers.workers import pool

MOST_IDLE = 6
"""Most idle processes; with more, the one that waits longest ends: its environment may never come again."""
_PATIENCE_S = 600.0
_Surroundings = tuple[str, frozenset[tuple[str, str]]]
_idle: list[tuple[_Surroundings, subprocess.Popen[bytes]]] = []
"""The newest stand last."""
_lock = threading.Lock()


class WarmThread(pool.WorkerThread):
    """Takes a process that waits for its next file, and leaves such a one behind."""

    asking = False

    def _process(self) -> subprocess.Popen[bytes]:
        self.surroundings = _surroundings(self.environment)
        with _lock:
            waiting = next((one for one in reversed(_idle) if one[0] == self.surroundings), None)
            if waiting is not None:
                _idle.remove(waiting)
        if waiting is None or waiting[1].poll() is not None:
            return super()._process()
        self.ready = True
        return waiting[1]

    def _ask(self, batch: Sequence[pool.Task], put: Callable[[pool.Result], None]) -> None:
        self.asking = True
        super()._ask(batch, put)
        self.asking = False

    def stop(self) -> None:
        """Keeps the process if nothing is asked of it. Once only: afterwards another thread may use the process."""
        if self.stopped.is_set():
            return
        self.stopped.set()
        if self.is_alive() and self.ready and not self.asking:
            self.tasks.put(None)
            self.join(_PATIENCE_S)
        if self.is_alive() or self.asking or not self.ready or self.process.poll() is not None:
            super().stop()
        else:
            _keep(self.surroundings, self.process)


def _keep(surroundings: _Surroundings, process: subprocess.Popen[bytes]) -> None:
    with _lock:
        _idle.append((surroundings, process))
        oldest = _idle.pop(0)[1] if len(_idle) > MOST_IDLE else None
    if oldest is not None:
        oldest.kill()
        oldest.communicate()


def _surroundings(more: Mapping[str, str]) -> _Surroundings:
    names = {**os.environ, **more}
    names.pop("PYTEST_CURRENT_TEST", None)
    return os.getcwd(), frozenset(names.items())  # noqa: PTH109 - as cheap as possible
