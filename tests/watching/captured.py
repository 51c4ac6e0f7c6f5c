"""A job with a capture in each of its ranks, for tests of what is watched."""

from __future__ import annotations

from typing import Any

from rankscope.assemble.sources import SourceFile
from rankscope.parsers.flight_recorder.decode import decode_dump
from rankscope.parsers.members import shared_members
from rankscope.parsers.sidecar import Sidecar, SidecarGroup
from tests.parsers.dumps import START_NS, Recorder, job

RANKS = 4
WORLD = SidecarGroup("0", "default_pg", "gloo", shared_members(range(RANKS)))


class Captured:
    """The files that the capture leaves of a job: of each rank the newest dump, two before it, and a sidecar."""

    def __init__(self) -> None:
        self.recorders = job(RANKS, library="gloo")
        self.files: dict[str, SourceFile] = {}
        self.turns = [0] * RANKS
        for rank in range(RANKS):
            for _ in range(3):
                self.write(rank)
        self.files["notes.txt"] = SourceFile("notes.txt", "unknown", 3, 1, "nothing that is read")
        self.files["fr_trace_rank_9"] = SourceFile("fr_trace_rank_9", "empty", 0, 1, "empty file")

    def write(self, rank: int, **told: Any) -> None:
        """A rank goes on by one operation and dumps."""
        recorder, name = self.recorders[rank], f"fr_trace_rank_{rank}"
        before = self.files.get(name)
        if before is not None:
            slot = f"history/{1 + self.turns[rank] % 2}_{name}"
            self.files[slot] = SourceFile(slot, before.kind, before.size, before.mtime_ns, None, before.content)
        recorder.collective("0")
        self.turns[rank] += 1
        self.files[name] = self.dump(name, recorder)
        self.card(rank, **told)

    def dump(self, name: str, recorder: Recorder) -> SourceFile:
        data, turn = recorder.pickle(), self.turns[recorder.rank]
        return SourceFile(name, "flight-recorder", len(data), START_NS + turn * 10**9, None, decode_dump(data))

    def card(self, rank: int, **told: Any) -> None:
        """A rank writes its sidecar anew."""
        given = {"world_size": RANKS, "host": "node", "pid": 7 + rank, "delay_ns": self.turns[rank], **told}
        name = f"capture_rank_{rank}.json"
        content = Sidecar(rank, dumps=[f"fr_trace_rank_{rank}"], groups=[WORLD], **given)
        self.files[name] = SourceFile(name, "sidecar", 1, self.turns[rank], None, content)

    @property
    def sources(self) -> list[SourceFile]:
        return [self.files[name] for name in sorted(self.files)]
