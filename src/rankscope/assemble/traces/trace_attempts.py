"""Runs of the job whose traces are in one tree: the same ranks, traced again by other processes at a later time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import polars as pl

from rankscope import schema
from rankscope.assemble.attempts import Attempt, NoSuchAttemptError
from rankscope.assemble.traces.trace_window import ABSOLUTE_NS, TraceWindow
from rankscope.text.wording import moment


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

    def processes(self, rank: int | None) -> set[tuple[str, int | None]]:
        """The processes of a rank."""
        return {(w.host, w.pid) for w in self.windows if w.source.rank == rank}


def split_trace_runs(windows: Sequence[TraceWindow]) -> list[TraceRun]:
    """The runs, oldest first; windows whose ranks are claimed, and whose clocks are settled.

    Windows that overlap in time are of one run, and so are those of one process. Windows without a date are of the
    newest run.
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
    claimed = [{w.source.rank for w in run.windows} for run in (before, after)]
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
    """A row for each run, columns of schema.ATTEMPTS; none for a single run."""
    rows = [
        {"attempt": i, "label": run.label, "newest_ns": run.bounds[1], "dumps": len(run.windows)}
        for i, run in enumerate(runs)
    ]
    return pl.DataFrame(rows if len(rows) > 1 else [], schema=dict(schema.ATTEMPTS))
