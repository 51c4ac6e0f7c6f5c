"""Launchers in logs: the prefixes that they put before lines.

Prefixes hold role and rank within the node (torchrun by --tee, by a template), job and rank (mpirun --tag-output:
`[1,3]<stderr>:` of Open MPI 4, and more forms of 5) or a task (srun --label). Where the role is "rank", those of --tee
look like those of torch itself, which hold the rank in the job.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from rankscope.features.logs.read.log_record import Event
from rankscope.features.logs.rows.log_processes import LogFile, LogScene
from rankscope.kinds.event_kinds import EVENTS
from rankscope.parsers.safe_values import RANK_LIMIT

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
