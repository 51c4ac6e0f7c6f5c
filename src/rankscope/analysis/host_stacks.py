"""Where the host of each rank was when a tool looked: one stack per rank, and who held the interpreter lock."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import groupby
from typing import NamedTuple

import polars as pl

from rankscope.analysis.activities import AWAY, COMMUNICATION, ELSEWHERE, Activity, classify
from rankscope.analysis.stack_frames import own_frames
from rankscope.schema import Dataset, Frame
from rankscope.text.wording import ranks_text

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
    gil: bool | None
    stack: tuple[Frame, ...]
    """Innermost first."""
    own: tuple[Frame, ...]
    """The frames of the job's own code, innermost first."""
    activity: Activity
    """What it was doing."""

    @property
    def label(self) -> str:
        """What to call it."""
        return self.name or (f"thread {self.thread_id}" if self.thread_id is not None else "an unnamed thread")


class _Row(NamedTuple):
    """What is needed of a row of `threads`."""

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


class _Maker:
    """Makes threads of rows, and looks at each stack once however many ranks were in it."""

    def __init__(self, dataset: Dataset, table: pl.DataFrame) -> None:
        self._dataset, self._table = dataset, table
        self._known: dict[tuple[int | None, bool | None], tuple[tuple[Frame, ...], Activity]] = {}

    def thread(self, row: _Row) -> HostThread:
        """The thread of a row."""
        stack = self._dataset.stack(row.stack_id)
        key = (row.stack_id, row.active)
        if key not in self._known:
            self._known[key] = (own_frames(stack), classify(stack, row.active))
        return HostThread(row.thread or "", row.thread_id, bool(row.is_main), row.gil, stack, *self._known[key])

    def process(self, row: _Row) -> list[_Row]:
        """All threads of the process of a row, in the order of the dump."""
        first = int(self._table["rank"].search_sorted(row.rank, "left"))
        after = int(self._table["rank"].search_sorted(row.rank, "right"))
        rows = map(_Row._make, self._table[first:after].iter_rows())
        return [other for other in rows if (other.file, other.pid) == (row.file, row.pid)]


@dataclass(frozen=True)
class HostStack:
    """The stacks of one rank."""

    rank: int
    pid: int | None
    path: str
    """The dump of py-spy, or the log in which they stand."""
    written_ns: int | None
    trains: HostThread
    """The main thread, or the one that works where the main thread waits for it."""
    holder: HostThread | None
    """The thread that held the interpreter lock, where it is another one than `trains`."""
    _row: _Row = field(repr=False, compare=False)
    _maker: _Maker = field(repr=False, compare=False)

    @cached_property
    def threads(self) -> tuple[HostThread, ...]:
        """All of the process, in the order of the dump."""
        return tuple(map(self._maker.thread, self._maker.process(self._row)))

    @property
    def tool(self) -> str:
        """What looked: "py-spy", "faulthandler", "pystack"."""
        return self._row.tool or "py-spy"

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


def host_stacks(dataset: Dataset, ranks: Collection[int] | None = None) -> dict[int, HostStack]:
    """The newest look at each rank, or at each of `ranks`; workers of a data loader and the like are left out."""
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
    own = own.select(_Row._fields)
    maker, paths = _Maker(dataset, own), dict(dataset.files.select("file", "path").iter_rows())
    telling = pl.col("is_main") | pl.col("gil") | pl.struct("rank", "file", "pid").is_first_distinct()
    rows = map(_Row._make, own.filter(telling).iter_rows())
    return {rank: _of_rank(maker, list(found), paths) for rank, found in groupby(rows, lambda row: row.rank)}


def _of_rank(maker: _Maker, rows: list[_Row], paths: dict[int, str]) -> HostStack:
    """Of several processes of a rank the one that communicates, or has got furthest into the job's own code."""
    processes = [list(found) for _, found in groupby(rows, lambda row: (row.file, row.pid))]
    made = [(own, *_trains(maker, own)) for own in processes]
    own, row, trains = max(made, key=lambda one: (one[2].activity.doing in COMMUNICATION, len(one[2].own)))
    holder = next((maker.thread(r) for r in own if r.gil and r != row), None)
    return HostStack(row.rank, row.pid, paths.get(row.file) or "", row.written_ns, trains, holder, row, maker)


def _trains(maker: _Maker, rows: Sequence[_Row]) -> tuple[_Row, HostThread]:
    """The main thread; where that waits for another one, the other that works."""
    main = next((row for row in rows if row.is_main), rows[0])
    thread = maker.thread(main)
    if thread.activity.doing in ELSEWHERE:
        for row in maker.process(main):
            other = maker.thread(row)
            if row != main and other.activity.doing in _TRAINS and not _BACKGROUND.search(other.name):
                return row, other
    return main, thread


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


# Which host to look at next, as a command.

MOST = 3
"""Ranks that are named one by one."""


def host_steps(dataset: Dataset, ranks: Sequence[int], question: str = "", native: bool = False) -> tuple[str, ...]:
    """What to collect of `ranks`: of those of which no py-spy dump is there; nothing where all have one."""
    seen = set(dataset.threads["rank"].drop_nulls().unique())
    left = [rank for rank in ranks if rank not in seen]
    if not left:
        return ()
    pids = [_process(dataset, rank) for rank in left[:MOST]]
    more = f"; the same of {ranks_text(left[MOST:])}" if left[MOST:] else ""
    command = f"py-spy dump {'--native ' if native else ''}--pid {' and '.join(pids)}{more}"
    return (f"{command}: {question}" if question else command,)


def _process(dataset: Dataset, rank: int) -> str:
    """The process of a rank: its id where a sidecar tells it, and whose it is."""
    mine = dataset.files.filter(pl.col("used") & (pl.col("rank") == rank))
    host, pid = (next(iter(mine[name].drop_nulls()), None) for name in ("host", "pid"))
    who = f"rank {rank}" + (f" on {host}" if host is not None else "")
    return f"{'PID' if pid is None else pid} ({who})"
