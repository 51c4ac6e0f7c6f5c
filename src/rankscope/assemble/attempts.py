"""Attempts: runs of the job whose dumps are in one tree. A restarted job writes the same ranks again, later."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath

import polars as pl

from rankscope import schema
from rankscope.assemble import file_names
from rankscope.assemble.sources import SourceFile, config_world
from rankscope.parsers.sidecar import Sidecar
from rankscope.text.wording import moment

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
    def newest_ns(self) -> int | None:
        """Its last event; without dumps, the last end or start of a process."""
        if self.sources:
            return max((s.span[1] for s in self.sources if s.span), default=None)
        return max((card.ended_ns or card.started_ns or 0 for card in self._told), default=None)

    @property
    def _told(self) -> list[Sidecar]:
        dumped = [source.card for source in self.sources if source.card is not None]
        return dumped + [source.content for source in self.cards if isinstance(source.content, Sidecar)]


def split_attempts(sources: list[SourceFile]) -> list[Attempt]:
    """The runs, oldest first. Between two runs is a time without events, after which a rank repeats."""
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


def _joined_clusters(clusters: list[Attempt], sources: list[SourceFile]) -> list[Attempt]:
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
    """A row for each run, columns of schema.ATTEMPTS."""
    rows = [
        {"attempt": i, "label": attempt_label(run, runs), "newest_ns": run.newest_ns, "dumps": len(run.sources)}
        for i, run in enumerate(runs)
    ]
    return pl.DataFrame(rows, schema=dict(schema.ATTEMPTS))


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


# Attempts with only sidecars: their processes ended before they recorded anything.


class _SidecarSummary:
    """Summary of the sidecars of an attempt."""

    def __init__(self, attempt: Attempt) -> None:
        self.attempt = attempt
        self._jobs: set[str] = set()
        self._attempts: set[int] = set()
        self._ranks: set[int] = set()
        self._started: dict[str, int] = {}
        """By host, the start of its last process."""
        self._ended: dict[str, int] = {}
        """By host, the end of its first process."""
        for source in attempt.sources:
            if source.card is not None:
                self._take(source.card)

    def add(self, source: SourceFile, card: Sidecar) -> None:
        """Adds a sidecar without dumps."""
        self.attempt.cards.append(source)
        self._take(card)

    def _take(self, card: Sidecar) -> None:
        self._jobs |= {card.job} - {""}
        self._attempts |= {card.attempt} if card.attempt is not None else set()
        self._ranks.add(card.rank)
        if card.started_ns is not None:
            self._started[card.host] = max(card.started_ns, self._started.get(card.host, card.started_ns))
        if card.ended_ns is not None:
            self._ended[card.host] = min(card.ended_ns, self._ended.get(card.host, card.ended_ns))

    def fits(self, card: Sidecar) -> bool:
        """Whether its process may belong to the attempt."""
        begun, ended = self._started.get(card.host), self._ended.get(card.host)
        before = card.ended_ns is not None and begun is not None and card.ended_ns < begun
        after = card.started_ns is not None and ended is not None and ended < card.started_ns
        counted = card.attempt is None or self._attempts <= {card.attempt}
        return counted and card.rank not in self._ranks and not (before or after) and self._jobs <= {card.job, ""}


def with_silent_attempts(runs: Sequence[Attempt], sources: Sequence[SourceFile]) -> list[Attempt]:
    """The runs with dumps and the runs without, in order; sidecars without dumps are put to their runs.

    A single run without any dumps is left out.
    """
    waiting = sorted(_without_dumps(sources), key=lambda found: (found[1].started_ns or 0, found[0].shown))
    if not waiting:
        return list(runs)
    known = [_SidecarSummary(run) for run in runs]
    for source, card in waiting:
        fitting = [run for run in known if run.fits(card)]
        if not fitting and card.started_ns is not None:
            known.append(_SidecarSummary(Attempt()))
            fitting = known[-1:]
        if len(fitting) == 1:
            fitting[0].add(source, card)
    if len(known) == 1 and not runs:
        return []
    return _ordered_runs(runs, [run.attempt for run in known[len(runs) :]])


def _without_dumps(sources: Sequence[SourceFile]) -> Iterator[tuple[SourceFile, Sidecar]]:
    telling = {id(source.card) for source in sources if source.card is not None}
    for source in sources:
        if isinstance(source.content, Sidecar) and id(source.content) not in telling:
            yield source, source.content


def _ordered_runs(runs: Sequence[Attempt], silent: Sequence[Attempt]) -> list[Attempt]:
    """Both kinds of runs, each without dumps before the first run that began later."""
    found = list(runs)
    for one in silent:
        later = (i for i, run in enumerate(found) if (run.started_ns or 0) > (one.started_ns or 0))
        found.insert(next(later, len(found)), one)
    return found


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
