"""Runs of a job by their sidecars: which processes ran together.

Numbers of the launcher decide: another job or another attempt is another run, however near in time; the same ones are
one run, however far its processes began from each other. A rank is one process in a run: where it comes again under
the same numbers, or where there are no numbers, times decide.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from rankscope.assemble.sources import SourceFile
from rankscope.parsers.sidecar import Sidecar
from rankscope.text.wording import plural

QUIET_NS = 600 * 1_000_000_000
"""Without an id of a job: time after the last sign of any process after which others are of another run."""
REPLACED_NS = 60 * 1_000_000_000
"""The same after the end of all processes of one host, whose ranks start together."""
Numbers = tuple[str, int | None]
"""Job and attempt; "" and None where the launcher tells none."""
Spans = Mapping[int, tuple[int, int]]
"""Times of the first and the last event of a process, in nanoseconds, by the id of the content of its sidecar."""


class RunProcess(NamedTuple):
    """A process, as its sidecar tells it."""

    source: SourceFile
    card: Sidecar
    started_ns: int
    """Its start, else its first event; 0 if neither is known."""
    last_ns: int
    """Its end, or its last event, or its start, whichever is latest; 0 if none is known."""

    @property
    def numbers(self) -> Numbers:
        """The numbers that its launcher gave it."""
        return self.card.job, self.card.attempt


Run = list[RunProcess]


def sidecar_runs(cards: Sequence[SourceFile], spans: Spans) -> list[Run]:
    """The processes of each run, in the order of their starts."""
    numbered: dict[Numbers, Run] = defaultdict(list)
    for process in sorted((_process(source, spans) for source in cards), key=lambda p: (p.started_ns, p.source.shown)):
        numbered[process.numbers].append(process)
    return [part for numbers, run in _with_unnumbered(numbered).items() for part in _parts(numbers, run)]


def _process(source: SourceFile, spans: Spans) -> RunProcess:
    card = source.content
    assert isinstance(card, Sidecar)
    first, last = spans.get(id(card), (0, 0))
    return RunProcess(source, card, card.started_ns or first, max(card.ended_ns or 0, last, card.started_ns or 0))


def _with_unnumbered(numbered: Mapping[Numbers, Run]) -> dict[Numbers, Run]:
    """The runs by numbers; processes that know less of them join the only run that they fit."""
    found = {numbers: list(run) for numbers, run in numbered.items()}
    for numbers in sorted(numbered, key=_known):
        fitting = [one for one in found if _known(one) > _known(numbers) and _fit(numbers, one)]
        if len(fitting) == 1 and _may_join(found[numbers], found[fitting[0]]):
            found[fitting[0]] = sorted([*found[fitting[0]], *found.pop(numbers)], key=lambda p: p.started_ns)
    return found


def _known(numbers: Numbers) -> int:
    return bool(numbers[0]) + (numbers[1] is not None)


def _fit(numbers: Numbers, other: Numbers) -> bool:
    return numbers[0] in ("", other[0]) and numbers[1] in (None, other[1])


def _may_join(one: Run, other: Run) -> bool:
    """Whether two runs have no rank in common, and no pause lies between them."""
    if not {process.card.rank for process in one}.isdisjoint(process.card.rank for process in other):
        return False
    return len(_by_pauses(sorted([*one, *other], key=lambda p: p.started_ns))) == 1


def _parts(numbers: Numbers, run: Run) -> Iterator[Run]:
    """The runs of one job and attempt."""
    for part in _without_repeats(run):
        yield from [part] if numbers[0] else _by_pauses(part)


def _without_repeats(run: Run) -> Iterator[Run]:
    """Runs in which no rank comes twice: by the meeting place of the ranks where all tell it, and by starts."""
    meetings: dict[str, Run] = defaultdict(list)
    if len({process.card.rank for process in run}) < len(run) and all(process.card.run for process in run):
        for process in run:
            meetings[process.card.run].append(process)
    for part in meetings.values() if meetings else [run]:
        yield from _by_starts(part)


def _by_starts(run: Run) -> list[Run]:
    """Begins a run at the longest pause between the starts of two processes of one rank."""
    found: list[Run] = [[]]
    places: dict[int, int] = {}
    for process in run:
        last = found[-1]
        if process.card.rank in places:
            begin = places[process.card.rank]
            starts = [*(one.started_ns for one in last[begin:]), process.started_ns]
            cut = begin + max(range(1, len(starts)), key=lambda at: starts[at] - starts[at - 1])
            found.append(last[cut:])
            del last[cut:]
            places = {one.card.rank: at for at, one in enumerate(found[-1])}
        places[process.card.rank] = len(found[-1])
        found[-1].append(process)
    return found


def _by_pauses(run: Run) -> list[Run]:
    """Begins a run after a long time without a sign of the processes before."""
    found: list[Run] = []
    until: dict[str, int] = {}
    for process in run:
        host = process.card.host
        limit = until[host] if host in until else max(until.values(), default=0) + QUIET_NS
        if not found or (limit and process.started_ns > limit):
            found.append([])
            until = {}
        found[-1].append(process)
        quiet = REPLACED_NS if process.card.ended else QUIET_NS
        until[host] = max(until.get(host, 0), process.last_ns + quiet if process.last_ns else 0)
    return found


def disagreements(runs: Iterable[Run]) -> Iterator[tuple[SourceFile, str]]:
    """Sidecars that contradict others, each with what is wrong."""
    lives: dict[tuple[Numbers, int], RunProcess] = {}
    for run in runs:
        yield from _other_sizes(run)
        for process in run:
            before = lives.get((process.numbers, process.card.rank))
            lives[process.numbers, process.card.rank] = process
            if process.card.job and before is not None and 0 < process.started_ns < before.last_ns:
                told = f"rank {process.card.rank} of job {process.card.job} is another process at the same time"
                yield process.source, f"{told}, in {before.source.shown}: two jobs have one id"


def _other_sizes(run: Run) -> Iterator[tuple[SourceFile, str]]:
    sizes = Counter(process.card.world_size for process in run if process.card.world_size is not None)
    (usual, count), *others = sizes.most_common() or [(0, 0)]
    for size, _ in others:
        source = next(process.source for process in run if process.card.world_size == size)
        known = f"{count} others of its run know" if count > 1 else "another of its run knows"
        yield source, f"its process knows {plural(size or 0, 'rank')}, while {known} {usual}"
