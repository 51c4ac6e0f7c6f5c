"""Dumps of a small job as it goes on, put down beside the directory that is watched."""

from __future__ import annotations

import os
from pathlib import Path

from rankscope.watching.clock import CLOCK, Clock
from tests.parsers.dumps import STEP_NS, Recorder, job

RANKS = 4


class Running:
    """A job of four ranks that does one all_reduce after the other, with times of now."""

    def __init__(
        self, drafts: Path, name: str = "run", ranks: int = RANKS, start_ns: int | None = None, clock: Clock = CLOCK
    ) -> None:
        drafts.mkdir(exist_ok=True)
        self.drafts, self.name, self._clock = drafts, name, clock
        now = clock.unix_ns() - 1_000_000_000 if start_ns is None else start_ns
        self.ranks: list[Recorder] = job(ranks, start_ns=now)
        self._turn = 0

    def step(self, count: int = 1, without: int | None = None) -> None:
        """Collectives of all ranks, pending where one does not come."""
        state = "completed" if without is None else "started"
        self.come_to_now(count)
        for _ in range(count):
            for recorder in self.ranks:
                if recorder.rank != without:
                    recorder.collective(state=state)

    def come_to_now(self, count: int = 1) -> None:
        """The next so many operations are issued by now, or after those that were, if these are later."""
        for recorder in self.ranks:
            recorder.clock = max(recorder.clock, self._clock.unix_ns() - count * STEP_NS)

    def draft(self, rank: int, ahead_s: float = 0.0) -> Path:
        """A file with the dump of a rank as it is now; not where it is looked for.

        No two have one time: they are told apart by it. The clock of the file system may be ahead.
        """
        self._turn += 1
        path = self.drafts / f"{self.name}_{self._turn}_{rank}"
        path.write_bytes(self.ranks[rank].pickle())
        at = self._clock.unix_ns() + round(ahead_s * 1e9) + self._turn
        os.utime(path, ns=(at, at))
        return path


def target(directory: Path, rank: int) -> Path:
    """Where a rank writes its dump."""
    return directory / f"nccl_trace_rank_{rank}"
