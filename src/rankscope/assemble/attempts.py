"""Runs of the job whose dumps lie in one tree: a job that is restarted writes the same ranks again, later."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from datetime import UTC, datetime

import polars as pl

from rankscope import schema
from rankscope.assemble.sources import Source, config_world
from rankscope.parsers.sidecar.model import Card

SAME_RUN_NS = 600 * 1_000_000_000
"""Nodes of one run stop within this time of each other; only asked where names of ranks repeat from node to node."""


class NoSuchAttemptError(Exception):
    """The attempt that was asked for is not there; the message says which are."""

    def __init__(self, number: int, count: int) -> None:
        super().__init__(f"there is no attempt {number}: they are numbered from 0 to {count - 1}")


@dataclass
class Attempt:
    """One run."""

    sources: list[Source] = field(default_factory=list)
    """Its dumps."""
    cards: list[Source] = field(default_factory=list)
    """Sidecars without dumps; of some attempts nothing else is left."""

    @property
    def files(self) -> list[Source]:
        """All that it left of itself."""
        return [*self.sources, *self.cards]

    @property
    def started_ns(self) -> int | None:
        """When its first process began, as sidecars say, else its first event."""
        begun = [card.started_ns for card in self._told if card.started_ns is not None]
        return min(begun or [s.span[0] for s in self.sources if s.span], default=None)

    @property
    def newest_ns(self) -> int | None:
        """Its last event; without dumps, when the last of its processes ended or began."""
        if self.sources:
            return max((s.span[1] for s in self.sources if s.span), default=None)
        return max((card.ended_ns or card.started_ns or 0 for card in self._told), default=None)

    @property
    def _told(self) -> list[Card]:
        dumped = [source.card for source in self.sources if source.card is not None]
        return dumped + [source.content for source in self.cards if isinstance(source.content, Card)]


def split(sources: list[Source]) -> list[Attempt]:
    """The runs, oldest first. Between two there is a time without events, after which a rank comes again."""
    timed = sorted((s for s in sources if s.span), key=lambda s: (s.span or (0, 0), s.shown))
    attempts: list[Attempt] = []
    end = 0
    for source in timed:
        start, last = source.span or (0, 0)
        if not attempts or start > end:
            attempts.append(Attempt())
        attempts[-1].sources.append(source)
        end = max(end, last)
    attempts = _joined(attempts, sources)
    for source in sources:
        if source.span is None:
            _place(source, attempts)
    return attempts


def _joined(clusters: list[Attempt], sources: list[Source]) -> list[Attempt]:
    """Puts clusters together again between which nothing tells of a restart."""
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


def _rivals(one: Source, other: Source) -> bool:
    """Whether two dumps of a rank cannot be of two recorders of one process."""
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


def _place(source: Source, attempts: list[Attempt]) -> None:
    """Puts a dump without events to its neighbours: those of its directory, else of the nearest write time."""
    if not attempts:
        attempts.append(Attempt())
    fitting = [a for a in attempts if all(s.rank != source.rank or s.rank is None for s in a.sources)]
    beside = [a for a in attempts if any(s.directory == source.directory and s.span for s in a.sources)]
    both = [a for a in beside if a in fitting]
    choice = both or beside or fitting or attempts
    tag = source.tag
    tagged = [a for a in attempts if tag is not None and any(s.tag == tag for s in a.sources)]
    (tagged or choice)[-1].sources.append(source)


def table(runs: list[Attempt]) -> pl.DataFrame:
    """A row for each run, columns of schema.ATTEMPTS."""
    rows = [
        {"attempt": i, "label": label(run, runs), "newest_ns": run.newest_ns, "dumps": len(run.sources)}
        for i, run in enumerate(runs)
    ]
    return pl.DataFrame(rows, schema=dict(schema.ATTEMPTS))


def label(attempt: Attempt, others: list[Attempt]) -> str:
    """What to call a run: its directory, if that is its own, else when it ended."""
    own = {_top(s) for s in attempt.files}
    taken = {_top(s) for other in others if other is not attempt for s in other.files}
    if others and len(own) == 1 and own.isdisjoint(taken) and own != {"."}:
        return own.pop()
    newest = attempt.newest_ns
    return "no events" if newest is None else _moment(newest)


def _moment(at_ns: int) -> str:
    return datetime.fromtimestamp(at_ns / 1e9, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def _top(source: Source) -> str:
    return source.tag or source.directory
