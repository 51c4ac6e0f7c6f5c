"""Attempts of the job in logs: several may follow each other in one, and a log may hold nothing of the newest.

torchrun says that it starts the processes again, or ends all of its processes before it prints which of them failed,
so that what follows is of others; else other processes take all places of an earlier communicator. Which attempt it is
tell process ids that sidecars have, too; without them attempts are counted from the newest.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath

import numpy as np
import polars as pl

from rankscope.assemble.attempts import Attempt, NoSuchAttemptError
from rankscope.assemble.file_names import attempt_of
from rankscope.assemble.sources import SourceFile
from rankscope.features.logs.read.log_record import Event
from rankscope.features.logs.read.model import CODES, Comm, LogContent
from rankscope.features.logs.rows.process_ends import TRACEBACK
from rankscope.kinds.event_kinds import EVENTS
from rankscope.parsers.sidecar import Sidecar
from rankscope.schema.tables import ATTEMPTS


def run_offsets(content: LogContent) -> list[int]:
    """The offsets at which each run but the first begins."""
    return _by_torchrun(content) or _by_agents(content) or _by_processes(content)


def _by_torchrun(content: LogContent) -> list[int]:
    """Offsets of restarts that torchrun reports: every node's agent prints each number, and its first line counts.

    If agents only announce a restart, lines of the old workers may follow. The first header that a script prints is
    that of the first attempt.
    """
    first: dict[int, int] = {}
    restarts = [event for event in content.events if event.kind == "restart"]
    start = min((event.values["count"] for event in restarts if event.values.get("header")), default=0)
    restarts = [event for event in restarts if not event.values.get("header") or event.values["count"] > start]
    for event in [event for event in restarts if event.values["begun"]] or restarts:
        first.setdefault(event.values["count"], event.offset)
    offsets = [first[count] for count in sorted(first)]
    return offsets if offsets == sorted(offsets) else []


@dataclass
class _GroupEnd:
    """The end of all processes that one agent of torchrun had started, as it tells it."""

    offset: int
    pid: int | None
    """Of the process that ended first."""
    agent: int | None = None
    """The process id of the agent."""
    ranks: set[int] = field(default_factory=set)
    """Ranks in the agent's summary; empty if it prints none, because it starts others."""


def _group_ends(content: LogContent) -> list[_GroupEnd]:
    """The ends in the order of the log: of lines `failed (exitcode: ...)`, and of summaries."""
    ends = [_GroupEnd(e.offset, e.values.get("pid"), e.values.get("agent")) for e in _agent_exits(content)]
    summary: list[Event] = []
    for event in sorted(content.events, key=lambda event: event.offset):
        if event.kind != "torchrun-failure":
            continue
        summary.append(event)
        if not event.values.get("first"):
            continue
        # the process that ended first stands at the end of a summary
        pids = {entry.values.get("pid") for entry in summary}
        end = next((end for end in reversed(ends) if end.offset < event.offset and end.pid in pids), None)
        if end is None:
            end = _GroupEnd(event.offset, event.values.get("pid"))
            ends.append(end)
        end.offset = event.offset
        end.ranks |= {entry.rank for entry in summary if entry.rank is not None}
        summary = []
    return sorted(ends, key=lambda end: end.offset)


def _by_agents(content: LogContent) -> list[int]:
    """Offsets behind the lines in which agents of torchrun say that they have ended all of their processes.

    A second one of the same agent is of processes that it started later, a second one of the same ranks of another
    torchrun; and so is what a rank prints behind the last one after it had ended.
    """
    starts: list[int] = []
    agents: set[int | None] = set()
    ranks: set[int] = set()
    last: _GroupEnd | None = None
    for end in _group_ends(content):
        if last is not None and (end.agent in agents or end.ranks & ranks):
            starts.append(last.offset + 1)
            agents, ranks = set(), set()
        agents |= {end.agent} - {None}
        ranks |= end.ranks
        last = end
    if last is not None and not last.ranks and _starts_again(content, last.offset):
        starts.append(last.offset + 1)
    return starts


def _agent_exits(content: LogContent) -> list[Event]:
    return [e for e in content.events if e.kind == "child-exit" and e.values.get("agent") is not None]


def _starts_again(content: LogContent, last: int) -> bool:
    """Whether a rank prints something behind the last end of an agent's processes, though an exception ended it before.

    Others may be of another host, whose agent has not ended them yet.
    """
    ended = {event.rank for event in content.events if event.offset < last and event.kind == "traceback"}
    later = {event.rank for event in content.events if event.offset > last and _of_worker(event)}
    return bool((ended & later) - {None})


def _of_worker(event: Event) -> bool:
    """Whether a process that a launcher started printed a line."""
    kind = EVENTS[event.kind]
    return not (kind.by_launcher or kind.of_others or event.values.get("launcher"))


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


def only_run(content: LogContent, number: int | None) -> LogContent:
    """One of the runs in a log, -1 for the last: its events and processes; nothing of it for None."""
    starts = [0, *run_offsets(content)]
    if len(starts) == 1 and number is not None:
        return content
    if number is None:
        start, end = 1 << 62, None
    else:
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
        content,
        processes=[content.processes[at] for at in here],
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
        training=_steps_between(content.training, start, end),
    )
    index = np.array([moved.get(at, -1) for at in range(len(content.comms))] or [-1], np.int32)
    comm = index[content.codes[CODES.index("comm")]]
    cut.numbers, cut.codes = content.numbers[:, comm >= 0], content.codes[:, comm >= 0]
    cut.codes[CODES.index("comm")] = comm[comm >= 0]
    return cut


def _steps_between(steps: pl.DataFrame | None, start: int, end: int | None) -> pl.DataFrame | None:
    if steps is None:
        return None
    rows = steps.filter(pl.col("offset") >= start)
    rows = rows if end is None else rows.filter(pl.col("offset") < end)
    return None if rows.is_empty() else rows


COPIED_NS = 86_400 * 1_000_000_000
"""Time after the last event beyond which a file is a copy: its write time then proves nothing."""


def settle_log_attempts(logs: Sequence[SourceFile], runs: Sequence[Attempt]) -> None:
    """Gives each log the number of its attempt; the newest if unknown."""
    # logs outside of all attempts, as torchrun's own output, belong to the newest too
    tagged = [s for s in logs if attempt_of(s.shown) is not None]
    newest = max(tagged, key=lambda s: (s.mtime_ns or 0, s.shown), default=None)
    tags = {attempt_of(s.shown): i for i, run in enumerate(runs) for s in run.files}
    homes: dict[str, set[int]] = defaultdict(set)
    told_by: dict[str, int] = {}
    for i, run in enumerate(runs):
        for file in run.files:
            homes[file.directory].add(i)
            card = file.card or (file.content if isinstance(file.content, Sidecar) else None)
            if card is not None:
                told_by[str(PurePosixPath(file.directory) / f"{TRACEBACK}{card.rank}.log")] = i
    for source in logs:
        tag, home = attempt_of(source.shown), homes.get(source.directory, set())
        beside = told_by.get(source.shown.replace("!", "/"))
        if beside is not None:
            source.attempt = beside
        elif not runs:
            is_newest = newest is None or tag in (None, attempt_of(newest.shown))
            source.attempt, source.note = (0, None) if is_newest else (None, "of an earlier attempt")
        elif tag is not None and tag in tags:
            source.attempt = tags[tag]
        else:
            source.attempt = next(iter(home)) if len(home) == 1 else _by_time(source, runs)


def runs_of_attempt(
    logs: Sequence[SourceFile], runs: Sequence[Attempt], chosen: int, asked: bool
) -> list[tuple[SourceFile, int | None]]:
    """The logs of the attempt `chosen`, each with the number of the run to read in it: -1 for the last, None for none.

    Without dumps and sidecars (no `runs`), `chosen` counts the runs of the logs, if the user `asked` for it. Raises
    NoSuchAttemptError.
    """
    if not runs:
        number = chosen if asked else -1
        count = 1 + max((len(run_offsets(s.content)) for s in logs if isinstance(s.content, LogContent)), default=0)
        if not -1 <= number < count or (asked and number < 0):
            raise NoSuchAttemptError(chosen, count)
        return [(source, number) for source in logs if source.attempt == 0]
    found: list[tuple[SourceFile, int | None]] = []
    for source in logs:
        homes = attempts_in(source, runs)
        if homes and chosen in homes:
            source.attempt = chosen
            found.append((source, max(at for at, home in enumerate(homes) if home == chosen)))
        elif source.attempt == chosen:
            found.append((source, None if homes else chosen - len(runs)))
    return found


def attempts_in(source: SourceFile, runs: Sequence[Attempt]) -> list[int]:
    """The attempt of each run in a log; empty if it is not clear, and for a log with one run of the only attempt.

    Without attempts of dumps and sidecars the runs are counted.
    """
    content = source.content
    if not isinstance(content, LogContent):
        return []
    starts = [0, *run_offsets(content)]
    if not runs:
        return list(range(len(starts))) if len(starts) > 1 else []
    owners = _pid_owners(runs)
    homes: list[int | None] = []
    for start, end in zip(starts, [*starts[1:], 1 << 62], strict=True):
        votes = Counter(owners[pid] for pid in _pids(content, start, end) if pid in owners)
        homes.append(votes.most_common(1)[0][0] if votes else None)
    known = [(at, home) for at, home in enumerate(homes) if home is not None]
    if not known:
        ends = [end for end in _group_ends(content) if end.offset >= starts[-1]]
        if ends and len(starts) < len(runs) and not ends[-1].ranks:
            # the agent has started other processes, and the log holds nothing of them
            return list(range(len(runs) - 1 - len(starts), len(runs) - 1))
        return list(range(len(runs) - len(starts), len(runs))) if 1 < len(starts) <= len(runs) else []
    filled = [home if home is not None else _between(at, known) for at, home in enumerate(homes)]
    return [min(max(home, 0), len(runs) - 1) for home in filled]


def _between(at: int, known: Sequence[tuple[int, int]]) -> int:
    """The attempt of a run that tells no process: counted from the last one before it that does, else back."""
    first, attempt = max((row for row in known if row[0] < at), default=known[0])
    return attempt + at - first


def attempt_table(count: int) -> pl.DataFrame:
    """A row for each of several runs in logs, columns of ATTEMPTS."""
    rows = [
        {"attempt": number, "label": f"run {number} in the log", "job": None, "started_ns": None, "newest_ns": None,
         "dumps": 0}
        for number in range(count)
    ]  # fmt: skip
    return pl.DataFrame(rows, schema=ATTEMPTS)


def _pid_owners(runs: Sequence[Attempt]) -> dict[int, int]:
    """The attempt of each process id that sidecars of only one have."""
    owners: dict[int, set[int]] = defaultdict(set)
    for number, run in enumerate(runs):
        for file in run.files:
            card = file.card or (file.content if isinstance(file.content, Sidecar) else None)
            if card is not None and card.pid is not None:
                owners[card.pid].add(number)
    return {pid: numbers.pop() for pid, numbers in owners.items() if len(numbers) == 1}


def _pids(content: LogContent, start: int, end: int) -> set[int]:
    """The process ids in the lines of a run."""
    told = {event.values.get("pid") for event in content.events if start <= event.offset < end}
    spoken = {row.pid for row in content.processes if start <= row.offset < end}
    return {pid for pid in (*told, *spoken) if isinstance(pid, int)}


def _by_time(source: SourceFile, runs: Sequence[Attempt]) -> int:
    """The last attempt that had begun at the last write of the log."""
    last, written = runs[-1].newest_ns, source.mtime_ns
    if written is None or (last is not None and written > last + COPIED_NS):
        return len(runs) - 1
    begun = [i for i, run in enumerate(runs) if (run.started_ns or 0) <= written]
    return begun[-1] if begun else len(runs) - 1
