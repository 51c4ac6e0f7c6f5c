"""Files of a job that is watched: what a newer version cannot change about whose they are is not decided again."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from rankscope.kinds.input_kinds import LOG, TRACE, UNKNOWN
from rankscope.parsers.assemble import copies, ranks
from rankscope.parsers.assemble.attempts import Attempt
from rankscope.parsers.assemble.sources import Source
from rankscope.parsers.sidecar.model import Card

if TYPE_CHECKING:
    from rankscope.parsers.logs.model import LogContent

Asked = tuple[re.Pattern[str] | None, int | None, int | None]
"""Pattern for ranks, number of ranks and attempt, as the user gives them."""
_GIVEN = ("rank", "rank_source", "attempt", "used", "named", "card")
"""What placing a file tells of it."""
_OF_A_RUN = ("rank", "world_size", "host", "pid", "job", "attempt", "started_ns", "dumps", "groups")
"""What a sidecar says of its dumps and their place; the rest is news of the process."""
_Places = dict[int, list[int]]


@dataclass(frozen=True)
class Placed:
    """All files, and which of them are dumps of the attempt that is looked at."""

    asked: Asked
    given: list[Source]
    """As they were before."""
    sources: list[Source]
    runs: list[Attempt]
    used: list[Source]
    """In order of rank."""
    fresh: list[int] | None = None
    """Places of the sources that are not those of the time before; None: all were placed anew."""
    peers: _Places = field(default_factory=dict)
    """For each dump all dumps of its rank, and for each sidecar its dumps; empty where times tell dumps apart."""

    plain: bool = False
    """There is nothing but these, and files that tell nothing."""
    rest_stays: bool = False
    """Nothing else was placed anew, for it says what it said."""


def with_peers(placed: Placed) -> Placed:
    """The same, fit to be placed again: where there is one run, and each recorder in one file or in copies of it."""
    dumps = [(place, source) for place, source in enumerate(placed.sources) if source.dump is not None]
    copied = sum(source.newer is not None for _, source in dumps)
    tags = {source.tag for source in placed.used} - {None}
    if len(placed.runs) != 1 or len(placed.used) + copied < len(dumps) or len(tags) > 1:
        return placed
    of_rank: dict[int | None, list[int]] = defaultdict(list)
    of_card: _Places = defaultdict(list)
    for place, source in dumps:
        of_rank[source.rank].append(place)
        of_card[id(source.card)].append(place)
    peers = {place: of_rank[source.rank] for place, source in dumps}
    for place, source in enumerate(placed.sources):
        if isinstance(source.content, Card):
            peers[place] = of_card.get(id(source.content), [])
    plain = bool(peers) and _are_plain(peers, enumerate(placed.sources))
    return replace(placed, peers=peers, plain=plain)


def place_again(before: Placed, asked: Asked, given: Sequence[Source], *, rest_stays: bool = False) -> Placed | None:
    """The same files with what is new in them; None if that may change the place of any of them.

    `rest_stays`: whatever is no dump and no sidecar is not placed anew; None if any of it says something new.
    """
    if asked != before.asked or len(given) != len(before.given) or not before.peers:
        return None
    pairs = enumerate(zip(before.given, given, strict=True))
    if rest_stays and not all(place in before.peers or only_grew(*pair) for place, pair in pairs):
        return None
    changed = _changed(before, given, rest_stays)
    news = _news(before, given, changed, rest_stays) if changed is not None else None
    if news is None:
        return None
    sources = list(before.sources)
    for place, source in news.items():
        sources[place] = source
    instead = {id(before.sources[place]): source for place, source in news.items()}
    runs = [Attempt([instead.get(id(source), source) for source in run.sources]) for run in before.runs]
    used = [instead.get(id(source), source) for source in before.used]
    plain = before.plain and _are_plain(before.peers, news.items())
    return Placed(asked, list(given), sources, runs, used, sorted(news), before.peers, plain, rest_stays)


def only_grew(last: Source, now: Source) -> bool:
    """Whether a log or another text says what it said, though it may be longer; the very same file of any kind does."""
    if last is now:
        return True
    return _says_what_it_said(last, now) and last.more is now.more and now.kind in (LOG.name, UNKNOWN.name)


def more_of(last: Source, now: Source) -> LogContent | None:
    """The operations that a log has told since it was put together with the rest; None if something else is new."""
    fits = _says_what_it_said(last, now) and last.more is None and now.kind == LOG.name
    return now.more if fits else None


def _says_what_it_said(last: Source, now: Source) -> bool:
    same = (last.shown, last.kind, last.problem) == (now.shown, now.kind, now.problem)
    return same and last.content is now.content


def _changed(before: Placed, given: Sequence[Source], rest_stays: bool) -> list[int] | None:
    """Places of files that say something new, and of those that are placed anew each time; None if that cannot be."""
    out = []
    for place, (last, now) in enumerate(zip(before.given, given, strict=True)):
        lasting = place in before.peers
        if last is now and (rest_stays or _tells_nothing(before.sources[place])):
            continue
        if lasting and (last is now or (last.content is now.content and _about(last) == _about(now))):
            continue
        if last.shown != now.shown or lasting != _is_lasting(now) or (lasting and not _stays(last, now)):
            return None
        out.append(place)
    return out


def _news(
    before: Placed, given: Sequence[Source], changed: Sequence[int], rest_stays: bool
) -> dict[int, Source] | None:
    """By place the sources of these files, and of all others that they touch; None if another dump is the newest."""
    news: dict[int, Source] = {}
    cards: dict[int, Card] = {}
    for place in changed:
        old, now = before.sources[place], given[place]
        if rest_stays and place not in before.peers:
            news[place] = replace(old, size=now.size, mtime_ns=now.mtime_ns)
        elif not _is_lasting(now):
            news[place] = now.renewed()
            claim([news[place]], before.asked[0])
        elif isinstance(old.content, Card) and isinstance(now.content, Card):
            news[place] = _moved(old, now)
            cards[id(old.content)] = now.content
    touched = {peer for place in changed for peer in before.peers.get(place, ())}
    touched |= {peer for place in touched for peer in before.peers[place]}
    for place in sorted(touched):
        news[place] = _moved(before.sources[place], given[place])
        news[place].card = cards.get(id(news[place].card), news[place].card)
    copied = [news[place] for place in sorted(touched) if len(before.peers[place]) > 1]
    kept = {id(source) for source in copies.set_aside(copied)}
    return news if all((id(source) in kept) == source.used for source in copied) else None


def _is_lasting(source: Source) -> bool:
    """Whether it is a dump or a sidecar: these are placed together, everything else after them."""
    return source.dump is not None or isinstance(source.content, Card)


def _are_plain(peers: _Places, sources: Iterable[tuple[int, Source]]) -> bool:
    return all(place in peers or _tells_nothing(source) for place, source in sources)


def _tells_nothing(source: Source) -> bool:
    """Whether it is a file that nobody asks about anything."""
    return source.kind == UNKNOWN.name and source.content is None


def _about(source: Source) -> tuple[str, str, int, int | None, str | None]:
    return source.shown, source.kind, source.size, source.mtime_ns, source.problem


def _stays(old: Source, new: Source) -> bool:
    """Whether a newer version of a file has the same place."""
    if old.kind != new.kind:
        return False
    if isinstance(old.content, Card) and isinstance(new.content, Card):
        return all(getattr(old.content, name) == getattr(new.content, name) for name in _OF_A_RUN)
    if old.dump is None or new.dump is None:
        return False
    return (
        bool(old.dump.rows) == bool(new.dump.rows)
        and (old.span is None) == (new.span is None)
        and (old.candidates, old.libraries, old.highest) == (new.candidates, new.libraries, new.highest)
    )


def _moved(old: Source, new: Source) -> Source:
    """The newer version in the place of the older one."""
    moved = new.renewed()
    moved.__dict__.update({name: getattr(old, name) for name in _GIVEN})
    return moved


def claim(sources: Iterable[Source], pattern: re.Pattern[str] | None) -> None:
    """Gives every file but logs, stacks and traces the rank that its name or its content says."""
    for source in sources:
        if source.snapshot is None and source.kind not in (LOG.name, TRACE.name):
            ranks.claim(source, pattern)
