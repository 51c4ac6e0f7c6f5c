"""The rank of each trace: from its content, its name, or a numbering; and its run of the job."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import combinations

import polars as pl

from rankscope.assemble import file_names
from rankscope.assemble.attempts import Attempt, NoSuchAttemptError
from rankscope.assemble.op_names import P2P_OPS
from rankscope.features.traces.rows.trace_window import ABSOLUTE_NS, TraceWindow
from rankscope.parsers.safe_values import RANK_LIMIT
from rankscope.schema.tables import ATTEMPTS
from rankscope.text.wording import moment, plural

DEFAULT_GROUP = "default_pg"
MOST_COMPARED = 64
"""Most windows of one rank that are compared for overlaps."""
_RANK = re.compile(r"(?<![a-z])(?<!local.)rank[_.\-\[]?(\d{1,7})(?!\d)", re.IGNORECASE)
_OWN_FORMS = (
    _RANK,
    re.compile(r"^r(\d{1,7})-\d{4}"),  # torchtune
    re.compile(r"(?<![a-z])worker[_\-]?(\d{1,7})(?=[_.\-]|$)", re.IGNORECASE),  # param
)
_PLACE = re.compile(r"-(TP|DP|PP|EP)-(\d{1,6})")


def rank_in(shown: str) -> int | None:
    """The rank in the path of a trace, in the forms of trainers and servers."""
    name, *above = reversed(shown.replace("!", "/").split("/"))
    for pattern in _OWN_FORMS:
        if found := pattern.findall(name):
            return _checked(int(found[-1]))
    places = {kind: int(number) for kind, number in _PLACE.findall(name)}
    if "TP" in places and not any(number for kind, number in places.items() if kind != "TP"):
        return places["TP"]
    found = [match for directory in above[:2] for match in _RANK.findall(directory)]
    return _checked(int(found[0])) if found else None


def _checked(rank: int) -> int | None:
    return rank if rank < RANK_LIMIT else None


def settle_trace_ranks(windows: Sequence[TraceWindow]) -> None:
    """Gives every window of a run its rank; those that claim one have it."""
    _settle_contradictions(windows)
    _drop_shared(windows)
    known = {(w.host, w.pid): w.source.rank for w in windows if w.source.rank is not None and w.host}
    for window in windows:
        if window.source.rank is None and (window.host, window.pid) in known:
            window.source.rank, window.source.rank_source = known[window.host, window.pid], "content"
    _number_all(windows)


def claim_trace_rank(window: TraceWindow, pattern: re.Pattern[str] | None) -> None:
    """Gives a window the rank in its content, if any."""
    source = window.source
    told = file_names.rank_by(pattern, source.shown) if pattern is not None else None
    said = window.content.about.rank if told is None else None
    own = _own_rank(window) if said is None else None
    named = rank_in(source.shown)
    for rank, how in ((told, "option"), (said, "content"), (own, "content"), (named, "name")):
        if rank is not None:
            source.rank, source.rank_source = rank, how
            return


def _own_rank(window: TraceWindow) -> int | None:
    """The rank in the default group that its operations name."""
    ranks = {
        call.rank
        for call in window.content.calls
        if call.rank is not None and call.description == DEFAULT_GROUP and call.collective not in P2P_OPS
    }
    return _checked(next(iter(ranks))) if len(ranks) == 1 else None


def _settle_contradictions(windows: Sequence[TraceWindow]) -> None:
    """Takes the ranks of file names if simultaneous traces contain the same rank: one of them is wrong."""
    by_rank: dict[int | None, list[TraceWindow]] = defaultdict(list)
    for window in windows:
        if window.source.rank_source == "content":
            by_rank[window.source.rank].append(window)
    for same in by_rank.values():
        named = {id(window): rank_in(window.source.shown) for window in same}
        at_once = [pair for pair in combinations(same[:MOST_COMPARED], 2) if _overlap(*pair)]
        differ = all(named[id(one)] != named[id(other)] for one, other in at_once)
        if at_once and differ and None not in named.values():
            for window in same:
                window.source.rank, window.source.rank_source = named[id(window)], "name"


def _drop_shared(windows: Sequence[TraceWindow]) -> None:
    """Removes ranks that names claim for several simultaneous windows: each node counts its own."""
    by_rank: dict[int | None, list[TraceWindow]] = defaultdict(list)
    for window in windows:
        by_rank[window.source.rank].append(window)
    shared = [
        window
        for window in windows
        if window.source.rank_source == "name"
        and any(rival is not window and _overlap(window, rival) for rival in by_rank[window.source.rank])
    ]
    for window in shared:
        window.source.rank, window.source.rank_source = None, None


def _overlap(one: TraceWindow, other: TraceWindow) -> bool:
    return one.bounds[0] < other.bounds[1] and other.bounds[0] < one.bounds[1]


UNTOLD = "has no rank, and others have: left out (--rank-from reads ranks from paths)"
NUMBERED = "has no rank: ranks are numbered by host and process, and may be wrong (--rank-from)"


def _number_all(windows: Sequence[TraceWindow]) -> None:
    """Numbers windows in order of host and process if none of several tells a rank; those of one process get the same.

    A lone process has no number, and windows beside others that tell their ranks have none.
    """
    untold = [window for window in windows if window.source.rank is None]
    told = len(untold) < len(windows)
    keys = sorted({_process(window) for window in untold})
    for window in untold:
        if told:
            window.source.note = _noted(window, UNTOLD)
        elif len(keys) > 1:
            window.source.rank, window.source.rank_source = keys.index(_process(window)), "guess"
            window.source.note = _noted(window, NUMBERED)


def _process(window: TraceWindow) -> tuple[str, str, int]:
    pid = -1 if window.pid is None else window.pid
    return window.host, "" if window.host else window.source.directory, pid


def _noted(window: TraceWindow, note: str) -> str:
    return "; ".join(filter(None, (window.source.note, note)))


# Groups of gloo's run loops: a trace lacks them, but threads are numbered in order of creation.

LOOP = "pt_gloo_runloop"
LOOPS = 2
"""Default number of threads of a group."""


def settle_loops(windows: Sequence[TraceWindow]) -> None:
    """Notes the group of each loop in each window; in none, if it is unknown for any window with loops."""
    told = [(window, group_of_loop(window)) for window in windows if uses_loops(window)]
    if all(groups for _, groups in told):
        for window, groups in told:
            window.loops = groups


def group_of_loop(window: TraceWindow) -> dict[int, str]:
    """The name of the group for each run loop's thread; empty if unknown."""
    # a thread seen before it got its name has two
    titles = [(label.tid, label.text) for label in window.content.labels if label.kind == "thread_name"]
    threads = sorted({tid for tid, title in titles if tid is not None and LOOP in title})
    groups = [group.name for group in window.content.about.groups if group.ranks and group.name]
    # a number below the process's own was reused
    ordered = bool(threads) and window.pid is not None and threads[0] > window.pid
    if not ordered or len(threads) != LOOPS * len(groups):
        return {}
    return {thread: groups[i // LOOPS] for i, thread in enumerate(threads)}


def uses_loops(window: TraceWindow) -> bool:
    """Whether anything ran in a loop: sends and receives run where they are issued."""
    runs = (name.partition(":")[2] for name in window.content.names if name.startswith("gloo:"))
    return any(not run.startswith(("send", "recv")) for run in runs)


# Runs of the job whose traces are in one tree: the same ranks, traced again by other processes at a later time. Traces
# of another size of the job, or of other ranks and processes hours apart, are of another run, too.

LONGEST_PAUSE_NS = 3600 * 10**9
"""Longest time between two traces of one run by different processes: clocks of hosts differ by far less."""


@dataclass
class TraceRun:
    """The traces of one run."""

    windows: list[TraceWindow] = field(default_factory=list)

    @property
    def bounds(self) -> tuple[int, int]:
        """Begin of its first and end of its last window."""
        return min(w.bounds[0] for w in self.windows), max(w.bounds[1] for w in self.windows)

    @property
    def label(self) -> str:
        """The directory that names the attempt, if all have one, else the time of its end."""
        tags = {w.source.tag for w in self.windows}
        return (tags.pop() if len(tags) == 1 else None) or moment(self.bounds[1])

    @property
    def world_sizes(self) -> set[int]:
        """The sizes of the job that its traces tell."""
        return {w.content.about.world_size for w in self.windows if w.content.about.world_size}

    @property
    def all_processes(self) -> set[tuple[str, int | None]]:
        """The processes of all ranks."""
        return {(w.host, w.pid) for w in self.windows}

    def processes(self, rank: int | None) -> set[tuple[str, int | None]]:
        """The processes of a rank."""
        return {(w.host, w.pid) for w in self.windows if w.source.rank == rank}


def split_trace_runs(windows: Sequence[TraceWindow]) -> list[TraceRun]:
    """The runs, oldest first; windows whose ranks are claimed, and whose clocks are settled.

    Windows that overlap in time are of one run, and so are those of one process of a job of one size. Windows without
    a date are of the newest run.
    """
    dated = sorted((w for w in windows if w.bounds[0] >= ABSOLUTE_NS), key=lambda w: (w.bounds, w.source.shown))
    runs: list[TraceRun] = []
    for cluster in _clusters(dated):
        if runs and not _restarted(runs[-1], cluster):
            runs[-1].windows += cluster.windows
        else:
            runs.append(cluster)
    undated = [w for w in windows if w.bounds[0] < ABSOLUTE_NS]
    if undated and not runs:
        runs.append(TraceRun())
    for run in runs[-1:]:
        run.windows += undated
    for run in runs:
        run.windows.sort(key=lambda w: w.place)
    return runs


def _clusters(windows: Sequence[TraceWindow]) -> list[TraceRun]:
    """Windows with times between them in which none runs."""
    found: list[TraceRun] = []
    end = 0
    for window in windows:
        if not found or window.bounds[0] > end:
            found.append(TraceRun())
        found[-1].windows.append(window)
        end = max(end, window.bounds[1])
    return found


def _restarted(before: TraceRun, after: TraceRun) -> bool:
    """Whether the later windows are of another run: a rank has other processes than before."""
    tags = [{w.source.tag for w in run.windows} - {None} for run in (before, after)]
    if all(tags) and tags[0].isdisjoint(tags[1]):
        return True
    worlds = [run.world_sizes for run in (before, after)]
    if all(worlds) and worlds[0].isdisjoint(worlds[1]):
        return True
    claimed = [{w.source.rank for w in run.windows} for run in (before, after)]
    # no collective is in two traces that far apart
    if after.bounds[0] - before.bounds[1] > LONGEST_PAUSE_NS and None not in claimed[0] | claimed[1]:
        return not before.all_processes & after.all_processes
    if claimed[0] == claimed[1] == {None} and len(before.windows) != len(after.windows):
        return False
    shared = [(before.processes(rank), after.processes(rank)) for rank in claimed[0] & claimed[1]]
    known = [pair for pair in shared if not any(pid is None for processes in pair for _, pid in processes)]
    return any(one.isdisjoint(other) for one, other in known)


def chosen_run(runs: Sequence[TraceRun], dumped: Sequence[Attempt], chosen: int, *, asked: bool, alone: bool) -> int:
    """The number of the run to show: the newest, or with dumps the one nearest to those of the `chosen` attempt.

    If the user `asked` for an attempt and there are no dumps, it is that run. Raises NoSuchAttemptError if there is
    none, and no log either (`alone`).
    """
    if dumped:
        begin, end = dumped[chosen].started_ns, dumped[chosen].newest_ns
        if begin is None or end is None:
            return len(runs) - 1
        return max(range(len(runs)), key=lambda i: (_common(runs[i].bounds, (begin, end)), i))
    if asked and not 0 <= chosen < len(runs) and alone:
        raise NoSuchAttemptError(chosen, len(runs))
    return chosen if asked and 0 <= chosen < len(runs) else len(runs) - 1


def _common(one: tuple[int, int], other: tuple[int, int]) -> int:
    """How long two stretches overlap; below 0 how far they are apart."""
    return min(one[1], other[1]) - max(one[0], other[0])


def trace_attempts(runs: Sequence[TraceRun]) -> pl.DataFrame:
    """A row for each run, columns of ATTEMPTS; none for a single run. Runs of several sizes are of several jobs."""
    worlds = [max(run.world_sizes, default=None) for run in runs]
    several = len(set(worlds) - {None}) > 1
    rows = [
        {"attempt": i, "label": run.label, "newest_ns": run.bounds[1], "dumps": len(run.windows),
         "job": f"of {plural(world, 'rank')}" if several and world else None}
        for i, (run, world) in enumerate(zip(runs, worlds, strict=True))
    ]  # fmt: skip
    return pl.DataFrame(rows if len(rows) > 1 else [], schema=ATTEMPTS)
