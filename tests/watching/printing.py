"""Logs of a job that is watched in tests, and what is said of them."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

from rankscope.assemble.assembly import assemble
from rankscope.assemble.sources import SourceFile
from rankscope.features.logs.read.model import LogContent
from rankscope.features.logs.read.stretches import GrowingLog
from rankscope.parsers.files.reader import follow_log
from rankscope.schema import Dataset
from rankscope.watching.update import FollowProgress, JobUpdate
from rankscope.watching.watched_job import WatchedJob
from tests.features.logs.read.lines import read
from tests.features.logs.rows.job import SPLIT, init, said, split, step
from tests.features.logs.rows.test_reports import printed
from tests.parsers.dumps import START_NS

RANKS, STEPS, SECOND = 4, 60, 10**9
SEND = "{0}: opCount 0 sendbuff 0x1 recvbuff 0x1 count {1} datatype 7 op 0 root {2} comm {3} [nranks=2] stream 0x2"
Names = Callable[[int], str]


def in_one(rank: int) -> str:
    """All ranks print into one log."""
    return "job.log"


def apart(rank: int) -> str:
    """Each has its own."""
    return f"nccl_{rank}.log"


class Logs:
    """Logs of four ranks, as they are read while they grow, and dumps beside them."""

    def __init__(
        self,
        folder: Path,
        name_of: Names,
        seed: int = 0,
        *,
        sends: bool = True,
        dated: bool = False,
        prints: bool = False,
        colls: bool = True,
    ) -> None:
        self.folder, self.name_of, self.chance, self.sends = folder, name_of, random.Random(seed), sends
        self.dated, self.prints, self.colls, self.clock = dated, prints, colls, START_NS
        self.steps = [0] * RANKS
        self.growing: dict[str, GrowingLog] = {}
        self.dumps: dict[str, SourceFile] = {}
        for rank in range(RANKS):
            self.say(rank, [init(rank), split(rank)])
        for _ in range(STEPS):
            for rank in range(RANKS):
                self.step(rank)

    def say(self, rank: int, lines: list[str]) -> None:
        """A rank prints."""
        with (self.folder / self.name_of(rank)).open("a") as file:
            for line in lines:
                self.clock += 1_234_567
                day = (self.clock - START_NS) / 1e9
                file.write(
                    f"2026-05-28T10:{int(day) // 60:02d}:{day % 60:09.6f}Z {line}\n" if self.dated else f"{line}\n"
                )

    def step(self, rank: int, op: str = "AllReduce") -> None:
        """A rank issues a collective of all, one of its pair, and a send or receive in it."""
        number = self.steps[rank]
        self.steps[rank] += 1
        s = (self.clock - START_NS) / 1e9
        moment = f"10:{int(s) // 60:02d}:{s % 60:09.6f}000"
        lines = [printed(rank, number + 1).replace(f"19:13:12.{number + 1:03d}015644", moment)] if self.prints else []
        if self.colls:
            lines += [step(rank, number, op), step(rank, 50 + number, "AllGather", SPLIT, 2)]
        if self.sends and self.colls:
            place = rank // 2
            lines.append(said(rank, SEND.format(("Send", "Recv")[place], number, 1 - place, SPLIT)))
        self.say(rank, lines)

    def rotate(self, name: str) -> None:
        """A log gets another name, and the next lines go into a new one."""
        (self.folder / name).rename(self.folder / f"{name}.1")
        self.growing[f"{name}.1"] = self.growing.pop(name)

    def sources(self) -> list[SourceFile]:
        """All files, as a watcher has them."""
        return [*(self._source(path, path.name) for path in sorted(self.folder.glob("*.log*"))), *self.dumps.values()]

    def _source(self, path: Path, name: str) -> SourceFile:
        growing = self.growing.setdefault(name, GrowingLog())
        for one in follow_log(str(path), growing.start, growing.mark, False):
            if one.stretch is not None:
                assert isinstance(one.decoded, LogContent)
                growing.add(one.decoded, one.stretch)
        return SourceFile(name, "log", path.stat().st_size, self.clock, None, growing.content())

    def anew(self) -> Dataset:
        """The same put together by somebody who sees them for the first time."""
        paths = sorted(self.folder.glob("*.log*"))
        logs = [SourceFile(p.name, "log", p.stat().st_size, self.clock, None, read(p.read_bytes())) for p in paths]
        return assemble([*logs, *(one.renewed() for one in self.dumps.values())], "dumps", None, None, None)


class Watched:
    """What is said of them."""

    def __init__(self, logs: Logs) -> None:
        self.logs, self.job, self.number = logs, WatchedJob("dumps", None, None, None), 0
        for _ in range(3):
            for rank in range(RANKS):
                logs.step(rank)
            last = self.look()
        assert last.live.state == "progressing"

    def look(self, *, after_ns: int = SECOND, written: bool = True) -> JobUpdate:
        """What is said so much later, where files were `written`."""
        self.number += 1
        self.logs.clock += after_ns
        if written:
            self.job.take(self.logs.sources(), self.logs.clock)
        said = self.job.judge(self.logs.clock, unread=False)
        return JobUpdate(self.number, self.job.dataset, *said, FollowProgress(), 1)
