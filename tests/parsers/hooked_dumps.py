"""Builds dumps as the hook of torch 2.15 leaves them: counted from 0, batches done at issue, no starts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rankscope.assemble.assembly import assemble
from rankscope.assemble.sources import SourceFile
from rankscope.parsers.flight_recorder.decode import decode_dump
from rankscope.schema import Dataset
from tests.parsers.dumps import START_NS, Groups, Recorder

SECOND_NS = 1_000_000_000
ANY = "?"


class Hook(Recorder):
    """What the hook notes of one process; `blind` of a backend that tells of no completion."""

    def __init__(self, rank: int, groups: Groups, library: str = "nccl2", blind: bool = False) -> None:
        super().__init__(rank, groups, library)
        self.blind = blind

    def batch(self, group: str, ops: Sequence[tuple[str, int]], state: str = "completed", closed: bool = True) -> None:
        """Sends and receives, each complete at its issue, whatever `state` says of them."""
        del state, closed
        for op, peer in ops:
            self.p2p(group, op, peer)

    def from_any(self, group: str) -> None:
        """A receive from any source."""
        self.counters[group][1] += 1
        own = list(self.groups[group][1]).index(self.rank)
        self._record(group, f"{self.library}:recv {own}<-{ANY}", "completed", True, {})

    def _record(self, group: str, name: str, state: str, is_p2p: bool, more: dict[str, Any]) -> None:
        super()._record(group, name, state, is_p2p, more)
        entry, op_id = self.entries[-1], self.counters[group][2] - 1
        done = entry["state"] == "completed"
        ended = entry["time_created_ns"] + (1_000 if is_p2p else 20_000_000)
        own = {
            "op_id": op_id,
            "time_discovered_started_ns": ended if done else None,
            "time_discovered_completed_ns": ended if done else None,
        }
        if self.blind:
            own |= {"state": "scheduled", "retired": True}
            own |= {"time_discovered_started_ns": None, "time_discovered_completed_ns": None}
        entry.update({**own, **more})
        told = self.status[str(entry["pg_id"])]
        told[:] = [op_id, -1, op_id if done and not self.blind else told[2]]

    def document(self, version: str = "2.10", ring: int = 2000, only_active: bool = False, stacks: bool = True) -> Any:
        """The dump; nothing is told of the library's version."""
        return {**super().document(version, ring, only_active, stacks), "comm_lib_version": ""}


def hooks(world: int, groups: Groups | None = None, **options: Any) -> list[Hook]:
    """A hook for each rank, each with the groups that it is in."""
    groups = groups or {"0": ("default_pg", list(range(world)))}
    return [Hook(r, {n: g for n, g in groups.items() if r in g[1]}, **options) for r in range(world)]


def dumped(recorders: Sequence[Recorder], after_s: float | None = None, **options: Any) -> Dataset:
    """What is made of their dumps; all are written `after_s` behind the newest event, without it nothing tells when."""
    newest = max([START_NS, *(recorder.clock for recorder in recorders)])
    written = None if after_s is None else newest + int(after_s * SECOND_NS)
    sources = []
    for recorder in recorders:
        data = recorder.pickle(**options)
        name = f"{recorder.library}_trace_rank_{recorder.rank}"
        sources.append(SourceFile(name, "flight-recorder", len(data), written, None, decode_dump(data)))
    return assemble(sources, "dumps", None, None, None)
