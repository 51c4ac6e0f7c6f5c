"""The operations of each rank of a replay, and its record of them: a part of every script that replays a job."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

# record: begin
Groups = dict[str, tuple[str, list[int]]]
"""Name and members of each process group, by its key."""


class ScheduledCall:
    """One line of the schedule."""

    def __init__(self, line: str) -> None:
        words = line.split()
        self.together = words[0] == "+"
        self.group, self.number, self.name, size, self.type = words[self.together : self.together + 5]
        self.splits = [[int(n) for n in side.split(",")] for side in size.split("/")] if "/" in size else []
        self.size = 1 if self.splits else int(size)
        self.marks = set(words[self.together + 5 :])

    def place(self, groups: Groups) -> list[str]:
        """The place as a rank tells it: name of the group, operation, number or pair."""
        return [groups[self.group][0], self.name, self.number]

    @property
    def is_pair(self) -> bool:
        """Whether it is a send or a receive."""
        return self.name in ("send", "recv")

    @property
    def pair(self) -> tuple[int, int]:
        """Sender and receiver, ranks of the job."""
        sender, receiver = self.number.split(":")[0].split(">")
        return int(sender), int(receiver)

    @property
    def line(self) -> tuple[str, ...]:
        """Operations of one line follow each other: those of a group, or of one direction of a pair."""
        return (self.group, self.number.split(":")[0]) if self.is_pair else (self.group,)

    def times(self, members: int) -> tuple[int, int]:
        """How often its size goes into its input and its output."""
        return {"all_gather": (1, members), "reduce_scatter": (members, 1)}.get(self.name, (1, 1))


def operations_of(rank: int, schedule: str) -> list[ScheduledCall]:
    """The operations of a rank of the job."""
    mine: list[ScheduledCall] = []
    is_mine = False
    for line in filter(None, map(str.strip, schedule.splitlines())):
        if line.startswith("#"):
            continue
        if line.startswith("ranks "):
            is_mine = str(rank) in line.split()[1:]
        elif is_mine:
            mine.append(ScheduledCall(line))
    return mine


class Recording:
    """The record of one rank: what it issued, what began and what ended, in the form of a flight recorder's dump."""

    def __init__(
        self, rank: int, operations: list[ScheduledCall], groups: Groups, ranks: list[int], starts: bool
    ) -> None:
        self.rank, self.groups, self.ranks, self.starts = rank, groups, ranks, starts
        self.entries: list[dict[str, Any]] = []
        self.count: dict[tuple[str, bool], int] = {}
        self.of = {id(operation): self._entry(operation) for operation in operations}

    def _entry(self, operation: ScheduledCall) -> dict[str, Any]:
        name, members = self.groups[operation.group]
        told = operation.name
        if operation.is_pair:
            sender, receiver = (members.index(rank) for rank in operation.pair)
            told += f" {sender}->{receiver}" if told == "send" else f" {receiver}<-{sender}"
        number = 0 if operation.is_pair else int(operation.number[1:])
        kind = (operation.group, operation.is_pair)
        self.count[kind] = self.count.get(kind, 0) + 1
        pairs = self.count.get((operation.group, True), 0)
        counts = operation.splits or [[operation.size * times] for times in operation.times(len(members))]
        sizes: dict[str, Any] = {}
        for side, each in zip(("input", "output"), counts, strict=True):
            sizes[f"{side}_sizes"], sizes[f"{side}_dtypes"] = [[count] for count in each], [operation.type] * len(each)
        return {
            "pg_id": list(self.groups).index(operation.group), "process_group": [operation.group, name],
            "collective_seq_id": number, "p2p_seq_id": pairs,
            "op_id": pairs + self.count.get((operation.group, False), 0),
            "is_p2p": operation.is_pair, "profiling_name": f"replay:{told}", "timeout_ms": 1_800_000,
            "retired": False, "state": "scheduled", "time_discovered_started_ns": None,
            "time_discovered_completed_ns": None, **sizes,
        }  # fmt: skip

    def issued(self, operation: ScheduledCall) -> None:
        """The rank comes to an operation."""
        entry = self.of[id(operation)]
        entry.update(time_created_ns=time.time_ns(), record_id=len(self.entries))
        self.entries.append(entry)

    def began(self, operation: ScheduledCall) -> None:
        """The operation is under way."""
        if self.starts:
            self.of[id(operation)].update(state="started", time_discovered_started_ns=time.time_ns())

    def ended(self, operation: ScheduledCall) -> None:
        """The operation has ended."""
        self.of[id(operation)].update(state="completed", time_discovered_completed_ns=time.time_ns(), retired=True)

    def dump(self) -> str:
        """The text of the dump of the rank."""
        config = {
            key: {"name": key, "desc": name, "ranks": str(members)}
            for key, (name, members) in self.groups.items()
            if self.rank in members
        }
        # others of the job are not in the replay, so they left no dump
        about = {"version": "2.10", "replayed_ranks": self.ranks, "pg_config": config, "pg_status": {}}
        return json.dumps({**about, "entries": self.entries})

    def write(self, folder: Path) -> None:
        """Replaces the file of the rank."""
        folder.mkdir(parents=True, exist_ok=True)
        part = folder / f".fr_trace_rank_{self.rank}.part"
        part.write_text(self.dump())
        part.replace(folder / f"fr_trace_rank_{self.rank}")
