"""Stacks of the hosts, one for each rank, and the thread that held the interpreter lock."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import groupby
from typing import NamedTuple

import polars as pl

from rankscope.analysis.activities import (
    COMMUNICATION_ACTIVITIES,
    LOCAL_ACTIVITIES,
    OTHER_THREAD_ACTIVITIES,
    StackActivity,
    classify_stack,
)
from rankscope.analysis.stack_frames import own_frames
from rankscope.schema import Dataset, Frame

_HELPER_THREADS = re.compile(
    r"pin_memory|QueueFeeder|tqdm|monitor|heartbeat|tensorboard|wandb|MsgRouter|asyncio_|profil|watchdog|InductorSubproc",
    re.IGNORECASE,
)
"""Names of helper threads, which never train."""
_TITLE = re.compile(r"[A-Za-z]{2,12}::[\w.:\-]{1,80}")
"""The title that a server gives to a process: `VLLM::Worker_PP0_TP1`."""
_TRAINING_ACTIVITIES = COMMUNICATION_ACTIVITIES | {"exit", "data", "storage", "device", "compile"}
"""Activities of the training thread if the main thread waits for it."""


@dataclass(frozen=True)
class HostThread:
    """A thread of a process that belongs to a rank."""

    name: str
    """ "MainThread", "Thread-3 (pin_memory)"; "" if it has none."""
    thread_id: int | None
    is_main: bool
    gil: bool | None
    stack: tuple[Frame, ...]
    """Innermost first."""
    own: tuple[Frame, ...]
    """The frames of the job's own code, innermost first."""
    activity: StackActivity
    """The activity of the thread."""

    @property
    def label(self) -> str:
        """The name of the thread for people."""
        return self.name or (f"thread {self.thread_id}" if self.thread_id is not None else "an unnamed thread")


class _ThreadRow(NamedTuple):
    """The needed columns of a row of `threads`."""

    rank: int
    file: int
    pid: int | None
    thread: str | None
    thread_id: int | None
    is_main: bool | None
    active: bool | None
    gil: bool | None
    stack_id: int | None
    written_ns: int | None
    tool: str | None


class _ThreadFactory:
    """Builds threads from rows; analyses each distinct stack once, however many ranks share it."""

    def __init__(self, dataset: Dataset, table: pl.DataFrame) -> None:
        self._dataset, self._table = dataset, table
        self._known: dict[tuple[int | None, bool | None], tuple[tuple[Frame, ...], StackActivity]] = {}

    def thread(self, row: _ThreadRow) -> HostThread:
        """The thread of a row."""
        stack = self._dataset.stack(row.stack_id)
        key = (row.stack_id, row.active)
        if key not in self._known:
            self._known[key] = (own_frames(stack), classify_stack(stack, row.active))
        return HostThread(row.thread or "", row.thread_id, bool(row.is_main), row.gil, stack, *self._known[key])

    def process(self, row: _ThreadRow) -> list[_ThreadRow]:
        """All threads of the process of a row, in the order of the dump."""
        first = int(self._table["rank"].search_sorted(row.rank, "left"))
        after = int(self._table["rank"].search_sorted(row.rank, "right"))
        rows = map(_ThreadRow._make, self._table[first:after].iter_rows())
        return [other for other in rows if (other.file, other.pid) == (row.file, row.pid)]


@dataclass(frozen=True)
class HostStack:
    """The stacks of one rank."""

    rank: int
    pid: int | None
    path: str
    """The dump of py-spy, or the log that holds the stacks."""
    written_ns: int | None
    trains: HostThread
    """The main thread, or the thread that works while the main thread waits for it."""
    holder: HostThread | None
    """The thread that held the interpreter lock, unless it is `trains`."""
    _row: _ThreadRow = field(repr=False, compare=False)
    _maker: _ThreadFactory = field(repr=False, compare=False)

    @cached_property
    def threads(self) -> tuple[HostThread, ...]:
        """All threads of the process, in the order of the dump."""
        return tuple(map(self._maker.thread, self._maker.process(self._row)))

    @property
    def tool(self) -> str:
        """The tool that took the stack: "py-spy", "faulthandler", "pystack"."""
        return self._row.tool or "py-spy"

    @property
    def activity(self) -> StackActivity:
        """The activity of the rank."""
        return self.trains.activity

    @property
    def is_away(self) -> bool:
        """Whether its stack shows that it waits for no other rank."""
        return self.activity.doing in LOCAL_ACTIVITIES

    @property
    def communicates(self) -> bool:
        """Whether it was in a call that waits for other ranks."""
        return self.activity.doing in COMMUNICATION_ACTIVITIES


def host_stacks(dataset: Dataset, ranks: Collection[int] | None = None) -> dict[int, HostStack]:
    """The newest stacks of each rank, or of each of `ranks`; without worker processes such as those of a data
    loader."""
    threads = dataset.threads
    if threads.is_empty():
        return {}
    own = threads.filter(pl.col("rank").is_not_null() & pl.col("parent_pid").is_null())
    if ranks is not None:
        own = own.filter(pl.col("rank").is_in(list(ranks)))
    newest = pl.col("written_ns").max().over("rank")
    own = own.filter(newest.is_null() | (pl.col("written_ns") == newest)).sort(
        "rank", "file", "pid", maintain_order=True
    )
    own = own.select(_ThreadRow._fields)
    maker, paths = _ThreadFactory(dataset, own), dict(dataset.files.select("file", "path").iter_rows())
    telling = pl.col("is_main") | pl.col("gil") | pl.struct("rank", "file", "pid").is_first_distinct()
    rows = map(_ThreadRow._make, own.filter(telling).iter_rows())
    return {rank: _of_rank(maker, list(found), paths) for rank, found in groupby(rows, lambda row: row.rank)}


class UnrankedStack(NamedTuple):
    """The stacks of a process whose rank is not known."""

    name: str
    """Its title with its process id: "VLLM::Worker_PP0_TP1 (process 4711)", "process 4711", or its file."""
    pid: int | None
    host: HostStack
    """Its stacks; the rank in it is only a number of these processes."""


def unranked_stacks(dataset: Dataset) -> list[UnrankedStack]:
    """The newest stacks of processes that may be ranks, of which nothing tells the rank."""
    paths = dict(dataset.files.select("file", "path").iter_rows())
    own = dataset.threads.filter(pl.col("rank").is_null() & pl.col("process").is_not_null())
    if own.is_empty():
        return []
    places = {file: path.rpartition("/")[0] for file, path in paths.items()}
    # a process without an id is another one in each dump
    unnamed = pl.struct("file", "process").rank("dense").cast(pl.Int64)
    process = [pl.col("file").replace_strict(places, return_dtype=pl.String), "command", pl.coalesce("pid", -unnamed)]
    newest = pl.col("written_ns").max().over(process)
    own = own.filter(newest.is_null() | (pl.col("written_ns") == newest))
    own = own.with_columns(rank=(pl.struct("file", "process").rank("dense") - 1).cast(pl.Int32))
    commands = dict(own.select("rank", "command").iter_rows())
    own = own.sort("rank", maintain_order=True).select(_ThreadRow._fields)
    maker, rows = _ThreadFactory(dataset, own), map(_ThreadRow._make, own.iter_rows())
    hosts = [_of_rank(maker, list(found), paths) for _, found in groupby(rows, lambda row: row.rank)]
    return [UnrankedStack(_process_name(commands[host.rank], host), host.pid, host) for host in hosts]


def _process_name(command: str, host: HostStack) -> str:
    title = command.strip() if _TITLE.fullmatch(command.strip()) else ""
    own = f"process {host.pid}" if host.pid is not None else f"the process of {host.path}"
    return f"{title} ({own})" if title else own


def _of_rank(maker: _ThreadFactory, rows: list[_ThreadRow], paths: dict[int, str]) -> HostStack:
    """The process of a rank that communicates, or has the deepest stack in the job's own code."""
    processes = [list(found) for _, found in groupby(rows, lambda row: (row.file, row.pid))]
    made = [(own, *_trains(maker, own)) for own in processes]
    own, row, trains = max(made, key=lambda one: (one[2].activity.doing in COMMUNICATION_ACTIVITIES, len(one[2].own)))
    holder = next((maker.thread(r) for r in own if r.gil and r != row), None)
    return HostStack(row.rank, row.pid, paths.get(row.file) or "", row.written_ns, trains, holder, row, maker)


def _trains(maker: _ThreadFactory, rows: Sequence[_ThreadRow]) -> tuple[_ThreadRow, HostThread]:
    """The main thread; if it waits for another thread, the one that works."""
    main = next((row for row in rows if row.is_main), rows[0])
    thread = maker.thread(main)
    if thread.activity.doing in OTHER_THREAD_ACTIVITIES:
        for row in maker.process(main):
            other = maker.thread(row)
            if row != main and other.activity.doing in _TRAINING_ACTIVITIES and not _HELPER_THREADS.search(other.name):
                return row, other
    return main, thread


@dataclass(frozen=True)
class StackSite:
    """Ranks whose hosts were at one place with one activity."""

    ranks: tuple[int, ...]
    first: HostStack
    """The stack of the lowest rank."""

    @property
    def activity(self) -> StackActivity:
        """The activity of these hosts."""
        return self.first.activity


def stack_sites(hosts: Iterable[HostStack]) -> list[StackSite]:
    """The hosts grouped by place, the place of most ranks first."""
    found: dict[tuple[str, tuple[Frame, ...]], list[HostStack]] = {}
    for host in hosts:
        found.setdefault((host.activity.words, host.trains.own), []).append(host)
    made = [StackSite(tuple(h.rank for h in same), same[0]) for same in found.values()]
    return sorted(made, key=lambda site: (-len(site.ranks), site.ranks))


# Commands that collect stacks of further hosts.

MOST_NAMED_RANKS = 3
"""Most ranks that are named one by one."""
