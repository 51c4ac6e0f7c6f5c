"""Worker processes that are used again: most tests read a few small files, and to start a process takes longer."""

from __future__ import annotations

import os
import subprocess
from collections import defaultdict
from collections.abc import Mapping

from rankscope.parsers.workers import pool

MOST_IDLE = 3
"""Most idle processes with one environment."""
_PATIENCE_S = 600.0
_Surroundings = tuple[str, frozenset[tuple[str, str]]]
_idle: dict[_Surroundings, list[subprocess.Popen[bytes]]] = defaultdict(list)


class WarmThread(pool.WorkerThread):
    """Takes a process that waits for its next file, and leaves such a one behind."""

    asking = False

    def _process(self) -> subprocess.Popen[bytes]:
        self.surroundings = _surroundings(self.environment)
        waiting = _idle[self.surroundings]
        while waiting:
            process = waiting.pop()
            if process.poll() is None:
                self.ready = True
                return process
        return super()._process()

    def _ask(self, task: pool.Task) -> None:
        self.asking = True
        super()._ask(task)
        self.asking = False

    def stop(self) -> None:
        """Keeps the process if the thread has ended and nothing is asked of it."""
        self.stopped.set()
        if self.is_alive() and self.ready and not self.asking:
            self.tasks.put(None)
            self.join(_PATIENCE_S)
        others = _idle[self.surroundings]
        if self.is_alive() or self.asking or not self.ready or len(others) >= MOST_IDLE:
            super().stop()
        elif self.process.poll() is None and self.process not in others:
            others.append(self.process)


def _surroundings(more: Mapping[str, str]) -> _Surroundings:
    names = {**os.environ, **more}
    names.pop("PYTEST_CURRENT_TEST", None)
    return os.getcwd(), frozenset(names.items())  # noqa: PTH109 - as cheap as possible
