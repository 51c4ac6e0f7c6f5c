"""Dumps of a small job as it goes on, put down beside the directory that is watched."""

from __future__ import annotations

import time
from pathlib import Path

from tests.parsers.dumps import Recorder, job

RANKS = 4


class Running:
    """A job of four ranks that does one all_reduce after the other, with times of now."""

    def __init__(self, drafts: Path, name: str = "run", ranks: int = RANKS, start_ns: int | None = None) -> None:
        drafts.mkdir(exist_ok=True)
        self.drafts, self.name = drafts, name
        now = time.time_ns() - 1_000_000_000 if start_ns is None else start_ns
        self.ranks: list[Recorder] = job(ranks, start_ns=now)
        self._turn = 0

    def step(self, count: int = 1, without: int | None = None) -> None:
        """Collectives of all ranks, pending where one does not come."""
        state = "completed" if without is None else "started"
        for _ in range(count):
            for recorder in self.ranks:
                if recorder.rank != without:
                    recorder.collective(state=state)

    def draft(self, rank: int) -> Path:
        """A file with the dump of a rank as it is now; not where it is looked for."""
        self._turn += 1
        path = self.drafts / f"{self.name}_{self._turn}_{rank}"
        path.write_bytes(self.ranks[rank].pickle())
        return path


def target(directory: Path, rank: int) -> Path:
    """Where a rank writes its dump."""
    return directory / f"nccl_trace_rank_{rank}"
