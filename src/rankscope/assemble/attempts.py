"""Attempts: runs of the job whose dumps are in one tree. A restarted job writes the same ranks again, later."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

import polars as pl

from rankscope.assemble import file_names
from rankscope.assemble.sources import SourceFile, config_world
from rankscope.parsers.sidecar import Sidecar
from rankscope.schema.tables import ATTEMPTS
from rankscope.text.wording import moment

if TYPE_CHECKING:
    from rankscope.assemble.sidecar_runs import Run

SAME_RUN_NS = 600 * 1_000_000_000
"""Longest time between the ends of nodes in one run; only used if names of ranks repeat from node to node."""


class NoSuchAttemptError(Exception):
    """The chosen attempt does not exist; the message lists the attempts."""

    def __init__(self, number: int, count: int) -> None:
        super().__init__(f"there is no attempt {number}: they are numbered from 0 to {count - 1}")


@dataclass
class Attempt:
    """One run of the job."""

    sources: list[SourceFile] = field(default_factory=list)
    """Its dumps."""
    cards: list[SourceFile] = field(default_factory=list)
    """Sidecars without dumps; some attempts left nothing else."""

    @property
    def files(self) -> list[SourceFile]:
        """All files of the attempt."""
        return [*self.sources, *self.cards]

    @property
    def started_ns(self) -> int | None:
        """Start of its first process, from sidecars, else its first event."""
        begun = [card.started_ns for card in self._told if card.started_ns is not None]
        return min(begun or [s.span[0] for s in self.sources if s.span], default=None)

    @property
    def job(self) -> str:
        """The id of its job, from sidecars; empty if unknown."""
        return next((card.job for card in self._told if card.job), "")

    @property
    def newest_ns(self) -> int | None:
        """Its last event; without dumps, the last end or start of a process."""
        if self.sources:
            return max((s.span[1] for s in self.sources if s.span), default=None)
        return max((card.ended_ns or card.started_ns or 0 for card in self._told), default=None)

    @property
    def _told(self) -> list[Sidecar]:
        dumped = [source.card for source in self.sources if source.card is not None]
        return dumped + [source.content for source in self.cards if isinstance(source.content, Sidecar)]


def job_attempts(dumps: Sequence[SourceFile], sources: Sequence[SourceFile]) -> list[Attempt]:
    """The runs, oldest first, of these dumps and of all sidecars in `sources`.

    Sidecars tell runs apart, and the run of their dumps. Dumps without one are told apart by times. A single run
    without any dumps is left out.
    """
    clusters = _clusters(dumps)
    cards = [source for source in sources if isinstance(source.content, Sidecar)]
    if not cards:
        return clusters
    # most jobs left none
    from rankscope.assemble.sidecar_runs import disagreements, sidecar_runs

    spans: dict[int, tuple[int, int]] = {}
    for dump in dumps:
        if dump.card is not None and dump.span is not None:
            known = spans.get(id(dump.card), dump.span)
            spans[id(dump.card)] = min(known[0], dump.span[0]), max(known[1], dump.span[1])
    runs = sidecar_runs(cards, spans)
    for source, problem in disagreements(runs):
        source.note = problem
    found, bare = _by_sidecars(clusters, runs)
    for attempt, run in zip(found, runs, strict=True):
        if not attempt.sources:
            _join_dumps(attempt, run, bare)
    every = [*(attempt for attempt in found if attempt.files), *bare]
    if len(every) == 1 and not every[0].sources:
        return []
    return sorted(every, key=lambda attempt: attempt.started_ns or 0)


def _by_sidecars(clusters: Sequence[Attempt], runs: Sequence[Run]) -> tuple[list[Attempt], list[Attempt]]:
    """The attempts of the runs, and attempts of dumps near which no dump has a sidecar."""
    numbers = {id(process.card): number for number, run in enumerate(runs) for process in run}
    found, bare = [Attempt() for _ in runs], []
    telling = set()
    for cluster in clusters:
        homes = Counter((s.directory, numbers[id(s.card)]) for s in cluster.sources if s.card is not None)
        if not homes:
            bare.append(cluster)
            continue
        for source in cluster.sources:
            if source.card is not None:
                number = numbers[id(source.card)]
                telling.add(id(source.card))
            else:
                _, number = max(homes, key=lambda home: (home[0] == source.directory, homes[home], home[1]))
            found[number].sources.append(source)
    for attempt, run in zip(found, runs, strict=True):
        attempt.cards = [process.source for process in run if id(process.card) not in telling]
    return found, bare


def _join_dumps(silent: Attempt, run: Run, bare: Sequence[Attempt]) -> None:
    """Gives sidecars without dumps to the only attempt of dumps without sidecars at their time, if there is one.

    Those that tell neither a time nor an attempt make none.
    """
    started = min(process.started_ns for process in run)
    ended = max(process.last_ns for process in run) if all(process.card.ended for process in run) else 0
    near = [attempt for attempt in bare if _is_near(attempt, started, ended)]
    if len(near) == 1:
        near[0].cards += silent.cards
    if len(near) == 1 or (not started and all(process.card.attempt is None for process in run)):
        silent.cards = []


def _is_near(attempt: Attempt, started_ns: int, ended_ns: int) -> bool:
    """Whether processes may have left the dumps; times are 0 if unknown."""
    spans = [source.span for source in attempt.sources if source.span]
    if not spans or not started_ns:
        return True
    after = started_ns > max(span[1] for span in spans) + SAME_RUN_NS
    return not after and not 0 < ended_ns < min(span[0] for span in spans)


def _clusters(sources: Sequence[SourceFile]) -> list[Attempt]:
    """Runs of dumps by times, oldest first. Between two runs is a time without events, after which a rank repeats."""
    timed = sorted((s for s in sources if s.span), key=lambda s: (s.span or (0, 0), s.shown))
    attempts: list[Attempt] = []
    end = 0
    for source in timed:
        start, last = source.span or (0, 0)
        if not attempts or start > end:
            attempts.append(Attempt())
        attempts[-1].sources.append(source)
        end = max(end, last)
    attempts = _joined_clusters(attempts, sources)
    for source in sources:
        if source.span is None:
            _place(source, attempts)
    return attempts


def _joined_clusters(clusters: list[Attempt], sources: Sequence[SourceFile]) -> list[Attempt]:
    """Joins clusters again if nothing shows a restart between them."""
    world = config_world(sources)
    joined: list[Attempt] = []
    for cluster in clusters:
        if joined and not _restarted(joined[-1], cluster, world):
            joined[-1].sources.extend(cluster.sources)
        else:
            joined.append(cluster)
    return joined


def _restarted(before: Attempt, after: Attempt, world: int) -> bool:
    tags = [{s.tag for s in attempt.sources} - {None} for attempt in (before, after)]
    if all(tags) and tags[0].isdisjoint(tags[1]):
        return True
    again = [(a, b) for a in before.sources for b in after.sources if a.rank == b.rank is not None and _rivals(a, b)]
    return bool(again) and not _local_names(before, after, world)


def _rivals(one: SourceFile, other: SourceFile) -> bool:
    """Whether two dumps of a rank cannot come from two recorders of one process."""
    return not one.libraries or not other.libraries or not one.libraries.isdisjoint(other.libraries)


def _local_names(before: Attempt, after: Attempt, world: int) -> bool:
    """Whether ranks repeat only because each node counts its own: as many files as ranks, no directory complete."""
    names: dict[str, set[int | None]] = defaultdict(set)
    for source in (*before.sources, *after.sources):
        names[source.directory].add(source.rank)
    files = len(before.sources) + len(after.sources)
    starts = min(s.span[0] for s in after.sources if s.span)
    near = before.newest_ns is not None and starts - before.newest_ns < SAME_RUN_NS
    return near and len(names) > 1 and files <= world and all(len(ranks) < world for ranks in names.values())


def _place(source: SourceFile, attempts: list[Attempt]) -> None:
    """Puts a dump without events to its neighbours: those of its directory, else those with the nearest write time."""
    if not attempts:
        attempts.append(Attempt())
    fitting = [a for a in attempts if all(s.rank != source.rank or s.rank is None for s in a.sources)]
    beside = [a for a in attempts if any(s.directory == source.directory and s.span for s in a.sources)]
    both = [a for a in beside if a in fitting]
    choice = both or beside or fitting or attempts
    tag = source.tag
    tagged = [a for a in attempts if tag is not None and any(s.tag == tag for s in a.sources)]
    (tagged or choice)[-1].sources.append(source)


def attempt_table(runs: list[Attempt]) -> pl.DataFrame:
    """A row for each run, columns of ATTEMPTS."""
    rows = [
        {
            "attempt": i,
            "label": attempt_label(run, runs),
            "job": run.job or None,
            "started_ns": run.started_ns,
            "newest_ns": run.newest_ns,
            "dumps": len(run.sources),
        }
        for i, run in enumerate(runs)
    ]
    return pl.DataFrame(rows, schema=ATTEMPTS)


def attempt_label(attempt: Attempt, others: list[Attempt]) -> str:
    """The label of a run: its directory, if no other run has it, else the time of its end."""
    own = {_top(s) for s in attempt.files}
    taken = {_top(s) for other in others if other is not attempt for s in other.files}
    if others and len(own) == 1 and own.isdisjoint(taken) and own != {"."}:
        return own.pop()
    newest = attempt.newest_ns
    return "no events" if newest is None else moment(newest)


def _top(source: SourceFile) -> str:
    return source.tag or source.directory


def newest_attempt(runs: Sequence[Attempt]) -> int:
    """The default attempt, -1 without any: the newest with something to read.

    If other attempts have dumps, one without them counts only if an exception ended a process: else it may have just
    begun.
    """
    if not any(run.sources for run in runs):
        return len(runs) - 1
    told = (i for i in reversed(range(len(runs))) if runs[i].sources or _failed(runs[i]))
    return next(told)


def _failed(run: Attempt) -> bool:
    return any(isinstance(source.content, Sidecar) and source.content.ended == "exception" for source in run.cards)


# Sidecars with the dumps that they name: rank, host, and members of groups are then certain.

HISTORY = "history"
"""The directory with earlier dumps, below the directory of the newest dump and the sidecar."""
_NUMBERED = re.compile(r"^\d+_")


def attach_sidecars(sources: Sequence[SourceFile]) -> None:
    """Gives every dump the card that names it; a rank from the user's option has priority."""
    cards = {}
    for source in sources:
        if isinstance(source.content, Sidecar):
            source.rank, source.rank_source = source.content.rank, "sidecar"
            source.used = True
            cards.update({(source.directory, name): source.content for name in source.content.dumps})
    for source in sources if cards else ():
        card = cards.get(_place_card(source)) if source.dump is not None else None
        if card is not None and (source.rank_source != "option" or source.rank == card.rank):
            source.card = card
            source.rank, source.rank_source = card.rank, "sidecar"


def place_sidecars(sources: Sequence[SourceFile]) -> None:
    """Gives sidecars the attempt of their dumps, and marks the history of a dump as harmless."""
    attempts = {id(s.card): s.attempt for s in sources if s.card is not None and s.attempt is not None}
    for source in sources:
        if isinstance(source.content, Sidecar):
            source.attempt = attempts.get(id(source.content), source.attempt)
        if source.note is not None and source.card is not None and source.newer is not None and _is_history(source):
            source.note = None


def _is_history(source: SourceFile) -> bool:
    return PurePosixPath(source.directory).name == HISTORY


def _place_card(source: SourceFile) -> tuple[str, str]:
    """(directory of the sidecar of a dump, name of the dump there)."""
    name = PurePosixPath(source.shown.replace("!", "/")).name
    if not _is_history(source):
        return source.directory, name
    return file_names.directory_of(source.directory), _NUMBERED.sub("", name)
