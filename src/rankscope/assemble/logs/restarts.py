"""Consecutive runs of a job in one log: torchrun reports them, or other processes make communicators anew."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from rankscope.assemble.attempts import Attempt, NoSuchAttemptError
from rankscope.assemble.file_names import attempt_of
from rankscope.assemble.sources import SourceFile
from rankscope.kinds.event_kinds import EVENTS
from rankscope.parsers.logs.model import CODES, Comm, LogContent


def run_offsets(content: LogContent) -> list[int]:
    """The offsets at which each run but the first begins."""
    told = _by_torchrun(content)
    return told or _by_processes(content)


def _by_torchrun(content: LogContent) -> list[int]:
    """Offsets of restarts that torchrun reports: every node's agent prints each number, and its first line counts.

    If agents only announce a restart, lines of the old workers may follow.
    """
    first: dict[int, int] = {}
    told = [event for event in content.events if event.kind == "restart"]
    for event in [event for event in told if event.values["begun"]] or told:
        first.setdefault(event.values["count"], event.offset)
    offsets = [first[count] for count in sorted(first)]
    return offsets if offsets == sorted(offsets) else []


def _by_processes(content: LogContent) -> list[int]:
    """Offsets at which, after a failure, other processes take all places of an earlier communicator.

    No earlier process may print about a communicator from there on.
    """
    largest = max((row.nranks or 0 for row in content.comms), default=0)
    lives = sorted((row for row in content.comms if row.init and row.nranks == largest > 1), key=lambda row: row.offset)
    starts: list[int] = []
    current: dict[int, int] = {}
    for at, row in enumerate(lives):
        if row.rank is None:
            continue
        if current.get(row.rank, row.process) != row.process:
            where = _sound(content, current, lives[at:], starts[-1] if starts else 0)
            if where is None:
                return starts
            starts.append(where)
            current = {}
        current[row.rank] = row.process
    return starts


def _sound(content: LogContent, before: dict[int, int], lives: Sequence[Comm], since: int) -> int | None:
    """The beginning of the run of these communicators; None if they may be of the same run."""
    old = set(before.values())
    new = {row.process for row in lives}
    where = min(content.processes[at].offset for at in new - old) if new - old else 0
    ends = _ends(content)
    later = [at for at, row in enumerate(content.comms) if row.process in old and ends[at] >= where]
    failed = any(EVENTS[event.kind].is_failure and since <= event.offset < where for event in content.events)
    return where if not later and not new & old and failed else None


def _ends(content: LogContent) -> list[int]:
    """By communicator, the offset of its last line."""
    ends = np.array(
        [max(row.offset, row.complete_offset or 0, row.end_offset or 0) for row in content.comms] or [0], np.int64
    )
    np.maximum.at(ends, content.code("comm"), content.column("offset"))
    found: list[int] = ends.tolist()
    return found


def only_run(content: LogContent, number: int) -> LogContent:
    """One of the runs in a log, -1 for the last: its events and processes."""
    starts = [0, *run_offsets(content)]
    if len(starts) == 1:
        return content
    number = max(number, -len(starts)) if number < 0 else min(number, len(starts) - 1)
    start, end = starts[number], [*starts[1:], None][number]

    def inside(offset: int) -> bool:
        return offset >= start and (end is None or offset < end)

    kept = [at for at, row in enumerate(content.comms) if inside(row.offset)]
    warnings = [row for row in content.warnings if inside(row.offset)]
    settings = [row for row in content.settings if inside(row.offset)]
    users = {content.comms[at].process for at in kept}
    users |= {row.process for row in warnings} | {row.process for row in settings}
    here = [at for at, row in enumerate(content.processes) if inside(row.offset) or at in users]
    place, moved = {at: i for i, at in enumerate(here)} | {-1: -1}, {at: i for i, at in enumerate(kept)}
    cut = replace(
        content, processes=[content.processes[at] for at in here],
        comms=[
            row._replace(
                process=place[row.process], parent_comm=None if row.parent_comm is None else moved.get(row.parent_comm)
            )
            for row in (content.comms[at] for at in kept)
        ],
        settings=[row._replace(process=place[row.process]) for row in settings],
        warnings=[row._replace(process=place[row.process]) for row in warnings],
        events=[event for event in content.events if inside(event.offset)],
        ras=[row for row in content.ras if inside(row.offset)],
    )  # fmt: skip
    return _with_rows(cut, content, moved)


def _with_rows(cut: LogContent, content: LogContent, moved: dict[int, int]) -> LogContent:
    index = np.array([moved.get(at, -1) for at in range(len(content.comms))] or [-1], np.int32)
    comm = index[content.codes[CODES.index("comm")]]
    cut.numbers, cut.codes = content.numbers[:, comm >= 0], content.codes[:, comm >= 0]
    cut.codes[CODES.index("comm")] = comm[comm >= 0]
    return cut


# The attempt of a log: from its directory, else from its write time.

COPIED_NS = 86_400 * 1_000_000_000
"""Time after the last event beyond which a file is a copy: its write time then proves nothing."""


def settle_log_attempts(logs: Sequence[SourceFile], runs: Sequence[Attempt]) -> None:
    """Gives each log the number of its attempt; the newest if unknown."""
    # logs outside of all attempts, as torchrun's own output, belong to the newest too
    told = [s for s in logs if attempt_of(s.shown) is not None]
    newest = max(told, key=lambda s: (s.mtime_ns or 0, s.shown), default=None)
    tags = {attempt_of(s.shown): i for i, run in enumerate(runs) for s in run.files}
    homes: dict[str, set[int]] = defaultdict(set)
    for i, run in enumerate(runs):
        for file in run.files:
            homes[file.directory].add(i)
    for source in logs:
        tag, home = attempt_of(source.shown), homes.get(source.directory, set())
        if not runs:
            own = newest is None or tag in (None, attempt_of(newest.shown))
            source.attempt, source.note = (0, None) if own else (None, "of an earlier attempt")
        elif tag is not None and tag in tags:
            source.attempt = tags[tag]
        else:
            source.attempt = next(iter(home)) if len(home) == 1 else _by_time(source, runs)


def run_at(logs: Sequence[SourceFile], runs: Sequence[Attempt], chosen: int, asked: bool) -> int:
    """The run to read from a log with several; -1 for the last.

    With dumps, runs are counted back from the newest attempt; without dumps, `chosen` counts the runs of the logs, if
    the user `asked` for it. Raises NoSuchAttemptError.
    """
    if runs or not asked:
        return chosen - len(runs) if runs else -1
    count = 1 + max((len(run_offsets(s.log)) for s in logs if s.log is not None), default=0)
    if not 0 <= chosen < count:
        raise NoSuchAttemptError(chosen, count)
    return chosen


def _by_time(source: SourceFile, runs: Sequence[Attempt]) -> int:
    """The last attempt that had begun at the last write of the log."""
    last, written = runs[-1].newest_ns, source.mtime_ns
    if written is None or (last is not None and written > last + COPIED_NS):
        return len(runs) - 1
    begun = [i for i, run in enumerate(runs) if (run.started_ns or 0) <= written]
    return begun[-1] if begun else len(runs) - 1
