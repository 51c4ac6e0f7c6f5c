"""The thread that writes how the process ends: the one that dumps may be at a dump that takes seconds just then."""

from __future__ import annotations

import contextlib
import queue
import threading

from .sampler import DumpRequest, Sampler


class Teller(threading.Thread):
    """One for each process, begun with it: some versions of Python begin no thread at the end of one."""

    def __init__(self, sampler: Sampler) -> None:
        super().__init__(name="rankscope-end", daemon=True)
        self._sampler = sampler
        self._requests: queue.Queue[DumpRequest] = queue.Queue(1)
        self.told = threading.Event()

    def end(self, request: DumpRequest) -> None:
        """Has it written; only the first time."""
        with contextlib.suppress(queue.Full):
            self._requests.put_nowait(request)

    def run(self) -> None:
        """Until it was told once."""
        request = self._requests.get()
        try:
            self._sampler.tell(request)
        except Exception as error:  # noqa: BLE001 - nothing that goes wrong here may reach the job
            self._sampler.card.problem(f"{type(error).__name__}: {error}")
        self.told.set()
