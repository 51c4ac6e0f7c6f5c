"""Where the host of each rank was when py-spy looked: one stack per rank, and who held the interpreter lock."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from typing import Any

import polars as pl

from rankscope.analysis.activities import AWAY, COMMUNICATION, ELSEWHERE, Activity, classify
from rankscope.analysis.frames import own_frames
from rankscope.schema import Dataset, Frame

_BACKGROUND = re.compile(
    r"pin_memory|QueueFeeder|tqdm|monitor|heartbeat|tensorboard|wandb|MsgRouter|asyncio_|profil|watchdog|InductorSubproc",
    re.IGNORECASE,
)
"""Names of threads that serve others: they are never the one that trains."""
_TRAINS = COMMUNICATION | {"exit", "data", "storage", "device", "compile"}
"""What the thread that trains is doing where the main thread waits for it."""


@dataclass(frozen=True)
class HostThread:
    """A thread of a process that belongs to a rank."""

    name: str
    """ "MainThread", "Thread-3 (pin_memory)"; "" if it has none."""
    thread_id: int | None
    is_main: bool
    active: bool | None
    gil: bool | None
    stack: tuple[Frame, ...]
    """Innermost first."""

    @cached_property
    def activity(self) -> Activity:
        """What it was doing."""
        return classify(self.stack, self.active)

    @cached_property
    def own(self) -> tuple[Frame, ...]:
        """The frames of the job's own code, innermost first."""
        return own_frames(self.stack)

    @property
    def label(self) -> str:
        """What to call it."""
        return self.name or (f"thread {self.thread_id}" if self.thread_id is not None else "an unnamed thread")


@dataclass(frozen=True)
class HostStack:
    """What py-spy saw of one rank."""

    rank: int
    pid: int | None
    path: str
    """The dump of py-spy."""
    written_ns: int | None
    trains: HostThread
    """The main thread, or the one that works where the main thread waits for it."""
    threads: tuple[HostThread, ...]
    """All of the process, in the order of the dump."""

    @cached_property
    def holder(self) -> HostThread | None:
        """The thread that held the interpreter lock, where it is another one than `trains`."""
        return next((t for t in self.threads if t.gil and t is not self.trains), None)

    @property
    def activity(self) -> Activity:
        """What the rank was doing."""
        return self.trains.activity

    @property
    def is_away(self) -> bool:
        """Whether its stack shows that it waits for no other rank."""
        return self.activity.doing in AWAY

    @property
    def communicates(self) -> bool:
        """Whether it was in a call that waits for other ranks."""
        return self.activity.doing in COMMUNICATION


def host_stacks(dataset: Dataset) -> dict[int, HostStack]:
    """The newest look at each rank; subprocesses such as workers of a data loader are left out."""
    threads = dataset.threads
    if threads.is_empty():
        return {}
    own = threads.filter(pl.col("rank").is_not_null() & pl.col("parent_pid").is_null())
    newest = pl.col("written_ns").max().over("rank")
    own = own.filter(newest.is_null() | (pl.col("written_ns") == newest)).sort(
        "rank", "file", "pid", maintain_order=True
    )
    paths = dict(dataset.files.select("file", "path").iter_rows())
    rows = own.iter_rows(named=True)
    return {rank: _of_rank(dataset, rank, list(found), paths) for rank, found in groupby(rows, lambda row: row["rank"])}


def _of_rank(dataset: Dataset, rank: int, rows: list[dict[str, Any]], paths: dict[int, str]) -> HostStack:
    """Of several processes of a rank the one that has got furthest into the job's own code."""
    processes = [list(found) for _, found in groupby(rows, lambda row: (row["file"], row["pid"]))]
    made = [(own, [_thread(dataset, row) for row in own]) for own in processes]
    own, threads = max(made, key=lambda pair: _worth(_trains(pair[1])))
    first = own[0]
    path = paths.get(first["file"]) or ""
    return HostStack(rank, first["pid"], path, first["written_ns"], _trains(threads), tuple(threads))


def _worth(thread: HostThread) -> tuple[bool, int]:
    return thread.activity.doing in COMMUNICATION, len(thread.own)


def _thread(dataset: Dataset, row: dict[str, Any]) -> HostThread:
    stack = dataset.stack(row["stack_id"])
    return HostThread(row["thread"] or "", row["thread_id"], bool(row["is_main"]), row["active"], row["gil"], stack)


def _trains(threads: Sequence[HostThread]) -> HostThread:
    """The main thread; where that waits for another one, the other that works."""
    main = next((t for t in threads if t.is_main), threads[0])
    if main.activity.doing not in ELSEWHERE:
        return main
    others = (t for t in threads if t is not main and not _BACKGROUND.search(t.name) and t.activity.doing in _TRAINS)
    return next(others, main)


@dataclass(frozen=True)
class Site:
    """Ranks whose hosts were at one place, doing one thing."""

    ranks: tuple[int, ...]
    first: HostStack
    """The stack of the lowest of them."""

    @property
    def activity(self) -> Activity:
        """What they were doing."""
        return self.first.activity


def sites(hosts: Iterable[HostStack]) -> list[Site]:
    """The hosts by place, the place of most ranks first."""
    found: dict[tuple[str, tuple[Frame, ...]], list[HostStack]] = {}
    for host in hosts:
        found.setdefault((host.activity.words, host.trains.own), []).append(host)
    made = [Site(tuple(h.rank for h in same), same[0]) for same in found.values()]
    return sorted(made, key=lambda site: (-len(site.ranks), site.ranks))
