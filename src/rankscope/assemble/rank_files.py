"""Files of one kind that ranks wrote: whose each is, whether it is of the attempt, and which of them is the newest."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

from rankscope.assemble import file_names
from rankscope.assemble.sources import SourceFile
from rankscope.parsers.sidecar import Sidecar

OLDER = "of an earlier process of the rank: not used"
Content = TypeVar("Content")


class FileOwner(NamedTuple):
    """Who wrote a file, as its content tells."""

    rank: int | None = None
    host: str = ""
    pid: int | None = None
    told_by: str = "content"


class RankFile(NamedTuple, Generic[Content]):
    """A file of the attempt, with its row of `files`."""

    place: int
    source: SourceFile
    content: Content


def attempts_by_directory(sources: Iterable[SourceFile]) -> dict[str, int]:
    """The attempt to which the files in a directory belong, by those whose attempt is known."""
    return {source.directory: source.attempt for source in sources if source.attempt is not None}


def _attempts_by_process(sources: Iterable[SourceFile]) -> dict[tuple[int | None, str, int | None], int]:
    """The attempt of the process of a rank, host and process id, by the sidecars whose attempt is known."""
    cards = ((source, source.content) for source in sources if source.attempt is not None)
    return {
        (card.rank, card.host, card.pid): source.attempt
        for source, card in cards
        if isinstance(card, Sidecar) and source.attempt is not None
    }


def rank_files(
    sources: Sequence[SourceFile],
    kind: type[Content],
    chosen: int,
    pattern: re.Pattern[str] | None,
    owner_of: Callable[[SourceFile, Content], FileOwner | None],
) -> Iterator[RankFile[Content]]:
    """The files of a kind in the chosen attempt; all files of the kind get their rank, writer and attempt.

    The rank is that of the option, else of the content, else of a name that calls it so. Where `owner_of` is None the
    file holds nothing.
    """
    attempts, of_processes = attempts_by_directory(sources), _attempts_by_process(sources)
    for place, source in enumerate(sources):
        content = source.content
        owner = owner_of(source, content) if isinstance(content, kind) else None
        if owner is None or not isinstance(content, kind):
            continue
        _settle_rank(source, owner, pattern)
        source.writer = owner.host, owner.pid
        process = source.rank, owner.host, owner.pid
        source.attempt = of_processes.get(process, attempts.get(source.directory, max(0, chosen)))
        if source.attempt == max(0, chosen):
            yield RankFile(place, source, content)


def _settle_rank(source: SourceFile, owner: FileOwner, pattern: re.Pattern[str] | None) -> None:
    option = file_names.rank_by(pattern, source.shown) if pattern is not None else None
    named = file_names.rank_of(source.shown) if file_names.says_rank(source.shown) else None
    told = ((option, "option"), (owner.rank, owner.told_by), (named, "name"))
    source.rank, source.rank_source = next((one for one in told if one[0] is not None), (None, None))


def newest_files(
    files: Iterable[RankFile[Content]], written: Callable[[RankFile[Content]], Any]
) -> list[RankFile[Content]]:
    """The file of each rank that was written last, and all without a rank, in their order; the others get a note."""
    newest: dict[int, RankFile[Content]] = {}
    known, kept = list(files), []
    for one in known:
        rank = one.source.rank
        if rank is not None and (rank not in newest or written(newest[rank]) <= written(one)):
            newest[rank] = one
    for one in known:
        if one.source.rank is None or newest[one.source.rank] is one:
            kept.append(one)
        else:
            one.source.note = OLDER
    return kept
