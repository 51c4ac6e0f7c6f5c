"""Thread that writes how the process ends: the dumping thread may be in a dump that takes seconds."""

from __future__ import annotations

import contextlib
import queue
import threading

from .sampler import DumpRequest, Sampler


class EndWriter(threading.Thread):
    """The writing thread of the end. A process starts it early: some versions of Python start no thread at exit."""

    def __init__(self, sampler: Sampler) -> None:
        super().__init__(name="rankscope-end", daemon=True)
        self._sampler = sampler
        self._requests: queue.Queue[DumpRequest] = queue.Queue(1)
        self.told = threading.Event()

    def end(self, request: DumpRequest) -> None:
        """Requests the write; only the first request counts."""
        with contextlib.suppress(queue.Full):
            self._requests.put_nowait(request)

    def run(self) -> None:
        """Waits for the first request and serves it."""
        request = self._requests.get()
        try:
            self._sampler.tell(request)
        except Exception as error:  # noqa: BLE001 - no error here may reach the job
            self._sampler.card.problem(f"{type(error).__name__}: {error}")
        self.told.set()
