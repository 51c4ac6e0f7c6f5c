"""How dumps are taken and written."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tests.simulator.instructions import MS, SECOND

Moment = Literal["timeout", "own", "apart", "live", "live-apart", "ended"]
"""When the ranks dump: at the first time-out of any; each at its own; some seconds apart; while the job runs, all at
once or moments apart; after its end."""


@dataclass(frozen=True)
class DumpOptions:
    """What the recorder is set to, and what is asked of a dump."""

    version: str = "2.10"
    json: bool = False
    timing: bool = True
    stacks: bool = True
    only_active: bool = False
    ring: int = 2000
    prefix: str = "nccl_trace_rank_"
    suffix: str = ""
    timeout_ns: int = 600 * SECOND
    poll_ns: int = 100 * MS

    @property
    def release(self) -> tuple[int, int]:
        """The version as numbers."""
        major, minor = self.version.split(".")
        return int(major), int(minor)


MODES: dict[str, DumpOptions] = {
    "full": DumpOptions(),
    "no-timing": DumpOptions(timing=False),
    "only-active": DumpOptions(timing=False, only_active=True, stacks=False, version="2.9"),
    "wrapped": DumpOptions(timing=False, ring=60),
    "no-stacks": DumpOptions(stacks=False),
    "old": DumpOptions(version="2.2", timing=False),
    "json": DumpOptions(json=True, stacks=False, timing=False),
}
"""Kinds of dump a job may leave, by name."""
