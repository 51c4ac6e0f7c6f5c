"""A replay that is played in memory: its records, read as those of any job, must lead to the original's verdict."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, tee
from pathlib import Path

from rankscope.analysis import analyse
from rankscope.analysis.model import Analysis
from rankscope.assemble.assembly import assemble
from rankscope.assemble.sources import SourceFile
from rankscope.capture.replay_record import Recording, ScheduledCall, operations_of
from rankscope.features.replay.replay_source import SchedulePart
from rankscope.features.replay.repro_script import replay_job, repro_script
from rankscope.features.replay.schedule import Schedule, replay_operations
from rankscope.features.replay.schedule_fit import MOVING, Fit, fit_job, keeps_places, restricted, shrunk
from rankscope.features.replay.simulator import simulate
from rankscope.kinds.input_kinds import DUMP
from rankscope.parsers.flight_recorder.decode import decode_dump
from rankscope.schema import Dataset

MOST_RANKS = 64
"""Ranks up to which all are replayed, unless fewer are asked for."""
CONTEXTS = (16, 64, 256, 1024)
"""Logical columns of completed operations that are put in front until the verdict is the same."""
LONGEST = 80_000
"""Characters of a schedule with such a front."""
MOST_REPLICAS = 2
"""Groups that do the same as the one in question, and are kept beside it."""
MOST_LEFT_OUT = 24
"""Ranks of a smaller schedule of which each is tried whether it is needed."""
MOST_FILES = 100
"""Scripts of one name in one directory."""
STILL_NS = 20_000_000_000
"""So long the records are older than their files: a replay that has come to stand still."""


@dataclass(frozen=True)
class Rehearsal:
    """A schedule with the verdict on its replay."""

    fit: Fit
    schedule: Schedule
    """That of the fit, or a smaller one."""
    analysis: Analysis
    same: bool
    """Whether the verdict is that of the original: the same kind of finding, and the same ranks."""


def chosen(dataset: Dataset, analysis: Analysis, minimize: bool | None, part: SchedulePart | None = None) -> Rehearsal:
    """The schedule to replay: of all ranks, or of the few that matter; None takes these above MOST_RANKS.

    `part` asks for other operations than those around the failure. ValueError if there is none, or if a replay would
    mislead.
    """
    fits = _fits(dataset, analysis, part)
    first = next(fits)
    if not first.is_sound:
        raise ValueError(f"only {first.agreement} when the schedule is simulated: a replay would mislead")
    small = len(first.schedule.steps) > MOST_RANKS if minimize is None else minimize
    found = smallest if small and analysis.status not in MOVING else whole
    return found(dataset, analysis, chain([first], fits))


def write_script(dataset: Dataset, analysis: Analysis, directory: Path) -> Path:
    """Writes `repro.py`, or repro-2.py where that exists, with the ranks that matter; raises ValueError and OSError."""
    found = chosen(dataset, analysis, None)
    text = repro_script(dataset, analysis, found.fit, found.schedule)
    for name in ("repro.py", *(f"repro-{at}.py" for at in range(2, MOST_FILES))):
        with contextlib.suppress(FileExistsError), (directory / name).open("x") as file:
            file.write(text)
            return directory / name
    raise OSError(f"{directory} holds {MOST_FILES} such scripts")


def _fits(dataset: Dataset, analysis: Analysis, part: SchedulePart | None) -> Iterator[Fit]:
    """The schedule, and those with longer and longer fronts that agree as well with the dumps."""
    operations = replay_operations(dataset)
    first = fit_job(operations, analysis, part=part)
    yield first
    for context in CONTEXTS if part is None else ():
        longer = fit_job(operations, analysis, context)
        if len(longer.equal) >= len(first.equal):
            yield longer


def whole(dataset: Dataset, analysis: Analysis, fits: Iterable[Fit]) -> Rehearsal:
    """All ranks with the shortest front that leads to the verdict of the job; without any, if none does."""
    return _first_same(dataset, analysis, ((fit, fit.schedule) for fit in fits))


def smallest(dataset: Dataset, analysis: Analysis, fits: Iterable[Fit]) -> Rehearsal:
    """As few ranks as stop where they stop among all, and lead to the verdict of the job."""
    near, far = tee(fits)
    few = ((fit, schedule) for fit in near for schedule in _smaller(dataset, fit, analysis))
    more = ((fit, schedule) for fit in far for schedule in _larger(fit, analysis))
    small = _first_same(dataset, analysis, chain(few, more))
    for rank in sorted(set(small.schedule.steps) - set(analysis.culprits))[:MOST_LEFT_OUT] if small.same else ():
        fewer = restricted(small.schedule, frozenset(small.schedule.steps) - {rank})
        if keeps_places(small.fit, fewer) and (found := _played(dataset, analysis, small.fit, fewer)).same:
            small = found
    return small


def _first_same(dataset: Dataset, analysis: Analysis, tried: Iterable[tuple[Fit, Schedule]]) -> Rehearsal:
    """The first one that leads to the verdict of the job; the first of all if none does."""
    first: Rehearsal | None = None
    for fit, schedule in tried:
        if first is not None and len(replay_job(dataset, fit, schedule).schedule) > LONGEST:
            continue
        found = _played(dataset, analysis, fit, schedule)
        first = first or found
        if found.same:
            return found
    if first is None:
        raise ValueError("there is nothing to replay")
    return first


def _smaller(dataset: Dataset, fit: Fit, analysis: Analysis) -> Iterator[Schedule]:
    """Schedules of few ranks: those that hold each other, and with replicas of their group."""
    yield shrunk(fit, analysis)
    if more := _replicas(dataset, fit.schedule, analysis):
        yield shrunk(fit, analysis, more)


def _larger(fit: Fit, analysis: Analysis) -> Iterator[Schedule]:
    """Schedules of more ranks: all groups of those that hold each other, the groups of these, and all ranks."""
    every, ranks = fit.schedule, set(shrunk(fit, analysis).steps)
    for _ in range(2):
        more = ranks | _groups_of(every, ranks)
        if ranks < more < set(every.steps):
            ranks = more
            yield shrunk(fit, analysis, ranks)
    if len(every.steps) <= MOST_RANKS:
        yield every


def _replicas(dataset: Dataset, schedule: Schedule, analysis: Analysis) -> set[int]:
    """Members of a few groups that do the same as the one in question: a verdict may rest on what these did."""
    cause = next((f.group for f in analysis.findings if f.root_cause and f.group is not None), None)
    if cause is None:
        return set()
    alike = [g for g in dataset.group_list if g.description == cause.description and len(g.ranks) == len(cause.ranks)]
    others = [g.ranks for g in alike if g.id in schedule.groups and g.id != cause.key]
    return set().union(*others[:MOST_REPLICAS])


def _groups_of(schedule: Schedule, ranks: set[int]) -> set[int]:
    """The members of all groups of some ranks, but for groups of all."""
    used = [members for members in schedule.groups.values() if ranks & set(members)]
    return set().union(*(members for members in used if len(members) < len(schedule.steps)))


def same_verdict(original: Analysis, replay: Analysis) -> bool:
    """Whether two verdicts name the same kind and the same ranks; of jobs that move times are not replayed."""
    if original.status in MOVING:
        return replay.status in MOVING
    return _told(original) == _told(replay)


def _told(analysis: Analysis) -> tuple[str, tuple[int, ...]]:
    return analysis.cause.kind if analysis.cause else analysis.status, analysis.suspects


def _played(dataset: Dataset, analysis: Analysis, fit: Fit, schedule: Schedule) -> Rehearsal:
    found = analyse(assemble(list(_dumps(dataset, fit, schedule)), "replay", None, None, None))
    return Rehearsal(fit, schedule, found, same_verdict(analysis, found))


def _dumps(dataset: Dataset, fit: Fit, schedule: Schedule) -> Iterator[SourceFile]:
    """The records that the script writes if every rank stops as simulated, read as dumps are."""
    job, outcome = replay_job(dataset, fit, schedule), simulate(schedule, fit.setting)
    for rank in job.ranks:
        if rank in job.silent:
            continue
        operations = operations_of(rank, job.schedule)
        recording = Recording(rank, operations, dict(job.groups), list(job.ranks), job.starts)
        _record(recording, operations, set(outcome.pending[rank]), serial=job.serial)
        data = recording.dump().encode()
        shown, until = f"fr_trace_rank_{rank}", time.time_ns() + STILL_NS
        yield SourceFile(shown, DUMP.name, len(data), until, None, decode_dump(data))


def _record(recording: Recording, operations: list[ScheduledCall], pending: set[int], *, serial: bool) -> None:
    for operation in operations:
        recording.issued(operation)
    blocked: set[tuple[str, ...]] = set()
    deaf = False
    for at, operation in enumerate(operations):
        line = operation.line if not serial else ()
        together = operation.together and serial and at - 1 in pending
        if line in blocked and not together:
            continue
        if "stop" in operation.marks:
            blocked.add(line)
            continue
        recording.began(operation)
        deaf |= "deaf" in operation.marks
        if at not in pending:
            recording.ended(operation)
        elif not deaf:
            blocked.add(line)
