"""Launchers in logs: the prefixes that they put before lines, their restarts of a job, and the attempts of logs.

Prefixes hold role and rank within the node (torchrun by --tee, by a template), job and rank (mpirun --tag-output:
`[1,3]<stderr>:` of Open MPI 4, and more forms of 5) or a task (srun --label). Where the role is "rank", those of --tee
look like those of torch itself, which hold the rank in the job.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import NamedTuple

import numpy as np

from rankscope.assemble.attempts import Attempt, NoSuchAttemptError
from rankscope.assemble.file_names import attempt_of
from rankscope.assemble.sources import SourceFile
from rankscope.features.logs.read.log_record import Event
from rankscope.features.logs.read.model import CODES, Comm, LogContent
from rankscope.features.logs.rows.log_processes import LogFile, LogScene
from rankscope.features.logs.rows.process_ends import TRACEBACK
from rankscope.kinds.event_kinds import EVENTS
from rankscope.parsers.safe_values import RANK_LIMIT
from rankscope.parsers.sidecar import Sidecar

_LOCAL = re.compile(r"^\[([A-Za-z_][\w\-]{0,40}?)(\d{1,6})\]:")
_RANK_ROLE = "rank"


def settle_local_prefixes(scene: LogScene) -> None:
    """Gives lines with such a prefix alone the rank that stands behind it in other lines of their log.

    Logs of several nodes have the same prefixes for different ranks.
    """
    behind = [_ranks_behind_prefixes(log) for log in scene.logs]
    pairs = {(front, rank) for of_log in behind for front, ranks in of_log.items() for rank in ranks}
    local = {role for role, number, rank in ((*_role(front), rank) for front, rank in pairs) if number != rank}
    if not pairs:
        return
    for number, log in enumerate(scene.logs):
        prefixes = _LocalPrefixes(behind[number], _offset(log, behind[number]), _RANK_ROLE in local)
        events = [prefixes.settled(event) for event in log.content.events]
        processes = [
            row._replace(rank=prefixes.rank(row.rank)) if row.rank is not None and _LOCAL.match(row.label) else row
            for row in log.content.processes
        ]
        scene.logs[number] = log._replace(content=replace(log.content, events=events, processes=processes))


@dataclass(frozen=True)
class _LocalPrefixes:
    """The prefixes of one log."""

    told: dict[str, set[int]]
    """The ranks behind each."""
    offset: int | None
    """The first rank of the node, if known."""
    is_local: bool
    """Whether `[rank3]:` is the rank within the node."""

    def settled(self, event: Event) -> Event:
        """An event with the rank of its process; without one, if its prefix may be of several."""
        if "outer" in event.values or event.kind == "torchrun-failure":
            return event
        label = _LOCAL.match(str(event.values.get("label") or ""))
        if event.rank is None and label is not None:
            found = self._of(label[1], int(label[2]))
            rest = {name: value for name, value in event.values.items() if name != "label"}
            return event if found is None else event._replace(rank=found, values=rest)
        if event.rank is None or not self.is_local:
            return event
        found = self._of(_RANK_ROLE, event.rank)
        values = event.values if found is not None else {**event.values, "label": f"[rank{event.rank}]:"}
        return event._replace(rank=found, values=values)

    def rank(self, printed: int) -> int | None:
        """The rank of a process behind `[rankN]:`."""
        return self._of(_RANK_ROLE, printed) if self.is_local else printed

    def _of(self, role: str, number: int) -> int | None:
        ranks = self.told.get(f"[{role}{number}]:", set())
        if len(ranks) == 1:
            return next(iter(ranks))
        return None if ranks or self.offset is None else number + self.offset


def _ranks_behind_prefixes(log: LogFile) -> dict[str, set[int]]:
    """The ranks behind each prefix."""
    behind: defaultdict[str, set[int]] = defaultdict(set)
    for event in log.content.events:
        if "outer" in event.values and event.rank is not None:
            behind[event.values["outer"]].add(event.rank)
    return dict(behind)


def _role(front: str) -> tuple[str, int]:
    found = _LOCAL.match(front)
    return (found[1], int(found[2])) if found is not None else ("", -1)


def _offset(log: LogFile, behind: dict[str, set[int]]) -> int | None:
    """The first rank of the node of a log, if all its lines agree."""
    firsts = {rank - _role(front)[1] for front, ranks in behind.items() for rank in ranks}
    for event in log.content.events:
        local = event.values.get("local_rank") if event.kind == "torchrun-failure" else None
        firsts |= {event.rank - local} if isinstance(local, int) and event.rank is not None else set()
    return firsts.pop() if len(firsts) == 1 and min(firsts) >= 0 else None


TEMPLATE, MPIRUN, SRUN = "template", "mpirun", "srun"
_FORMS = {
    MPIRUN: re.compile(r"^\[(?:[\w.@\-]+,)?(?P<number>\d{1,7})\](?:\[(?P<host>[\w.\-]+):\w+\])?<std"),
    SRUN: re.compile(r"^ *(?P<number>\d{1,6}): ?"),
    TEMPLATE: re.compile(r"^\[?(?:(?P<host>[A-Za-z][\w.\-]*):)?(?P<number>\d{1,6})(?:\]:?|:|$)"),
}
_ASSUMED = "numbers before the lines are taken for ranks: so it is where srun starts one task a rank"


class Front(NamedTuple):
    """A number of a process before its lines."""

    form: str
    host: str
    number: int


def read_front(text: str) -> Front | None:
    """The number at the beginning of a launcher's prefix; None for another form."""
    for form, pattern in _FORMS.items():
        found = pattern.match(text)
        if found is not None:
            host, number = found.groupdict().get("host") or "", int(found["number"])
            return Front(form, host, number) if number < RANK_LIMIT else None
    return None


def settle_labels(scene: LogScene, world: int) -> None:
    """Gives events the rank before them; `world` is the size of the job from elsewhere, else 0."""
    fronts: defaultdict[str, list[tuple[Front, Event]]] = defaultdict(list)
    for log in scene.logs:
        for event in log.content.events:
            front = read_front(event.values["front"]) if "front" in event.values else None
            if front is not None:
                fronts[front.form].append((front, event))
    judges = [_FrontJudge(scene, form, own, world) for form, own in fronts.items()]
    proven = {judge.form: judge.proven for judge in judges if judge.are_ranks}
    if not proven:
        return
    for number, log in enumerate(scene.logs):
        events = [_ranked(event, proven) for event in log.content.events]
        scene.logs[number] = log._replace(content=replace(log.content, events=events))


@dataclass(frozen=True)
class _FrontJudge:
    """The numbers of one form in all logs."""

    scene: LogScene
    form: str
    fronts: Sequence[tuple[Front, Event]]
    world: int

    @property
    def proven(self) -> bool:
        """Whether nothing is assumed: srun may start one task a node instead."""
        count = 1 + max(front.number for front, _ in self.fronts)
        return self.form != SRUN or count == self.world or len({e.rank for _, e in self.fronts} - {None}) > 1

    @property
    def are_ranks(self) -> bool:
        """Whether the numbers can be ranks, by all that the logs tell."""
        numbers = {front.number for front, _ in self.fronts}
        known = [front.number == event.rank for front, event in self.fronts if event.rank is not None]
        if not all(known) or (self.world and max(numbers) >= self.world) or self._several_each():
            return False
        if known or self.form == MPIRUN:
            return True
        events = (event for log in self.scene.logs for event in log.content.events)
        highest = max((event.rank for event in events if event.rank is not None), default=-1)
        several = len({front.host for front, _ in self.fronts}) > 1
        # numbers of one host, from 0 on, are the ranks of a job on that host only
        return several or min(numbers) > 0 or max(self.world - 1, highest) <= max(numbers)

    def _several_each(self) -> bool:
        """Whether several processes have one number: it is counted on each host, or of a launcher of its own."""
        hosts: defaultdict[int, set[str]] = defaultdict(set)
        for front, event in self.fronts:
            hosts[front.number].add(front.host)
            if self.form != TEMPLATE and (EVENTS[event.kind].by_launcher or event.values.get("launcher")):
                return True
        speakers = [set(map(read_front, speaker.labels)) for speaker in self.scene.speakers]
        counts = Counter(
            shown.number for numbered in speakers for shown in numbered if shown and shown.form == self.form
        )
        return any(len(numbered) > 1 for numbered in hosts.values()) or max(counts.values(), default=0) > 1


def _ranked(event: Event, proven: Mapping[str, bool]) -> Event:
    front = read_front(event.values.get("front", ""))
    if event.rank is not None or front is None or front.form not in proven:
        return event
    values = {name: value for name, value in event.values.items() if name != "label"}
    if front.host and values.get("host") is None:
        values["host"] = front.host
    if not proven[front.form]:
        values["doubt"] = _ASSUMED
    return event._replace(rank=front.number, values=values)


def run_offsets(content: LogContent) -> list[int]:
    """The offsets at which each run but the first begins."""
    restarts = _by_torchrun(content)
    return restarts or _by_processes(content)


def _by_torchrun(content: LogContent) -> list[int]:
    """Offsets of restarts that torchrun reports: every node's agent prints each number, and its first line counts.

    If agents only announce a restart, lines of the old workers may follow.
    """
    first: dict[int, int] = {}
    restarts = [event for event in content.events if event.kind == "restart"]
    for event in [event for event in restarts if event.values["begun"]] or restarts:
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
    )
    index = np.array([moved.get(at, -1) for at in range(len(content.comms))] or [-1], np.int32)
    comm = index[content.codes[CODES.index("comm")]]
    cut.numbers, cut.codes = content.numbers[:, comm >= 0], content.codes[:, comm >= 0]
    cut.codes[CODES.index("comm")] = comm[comm >= 0]
    return cut


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


def run_at(logs: Sequence[SourceFile], runs: Sequence[Attempt], chosen: int, asked: bool) -> int:
    """The run to read from a log with several; -1 for the last.

    With dumps, runs are counted back from the newest attempt; without dumps, `chosen` counts the runs of the logs, if
    the user `asked` for it. Raises NoSuchAttemptError.
    """
    if runs or not asked:
        return chosen - len(runs) if runs else -1
    count = 1 + max((len(run_offsets(s.content)) for s in logs if isinstance(s.content, LogContent)), default=0)
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
