"""The rank of each dump: from the user, the name, the content, or a numbering."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Sequence

from rankscope.assemble import file_names
from rankscope.assemble.sources import SourceFile, config_world
from rankscope.kinds.input_kinds import DUMP, EMPTY, INPUTS, PY_SPY, UNKNOWN, UNREADABLE
from rankscope.schema.dataset import sibling_name

FINAL_SOURCES = ("option", "sidecar")
"""Sources of a rank with priority over all others."""
LIKELY_RANKS, LIKELY_SHARE = 64, 16
"""Bounds of a rank if no group gives the size of the job: a bare number in a name is a rank below the first, or below
the second times the number of files."""


def claim_dump_rank(source: SourceFile, pattern: re.Pattern[str] | None) -> None:
    """Gives a file the rank in the user's option or its name, else one that its content proves."""
    told = file_names.rank_by(pattern, source.shown) if pattern is not None else None
    if not INPUTS[source.kind].is_ranked:
        return
    if told is not None:
        source.named, source.rank_source = told, "option"
    elif (named := file_names.rank_of(source.shown)) is not None:
        source.named, source.rank_source = named, "name"
    elif source.candidates is not None and len(source.candidates) == 1:
        source.rank, source.rank_source = min(source.candidates), "content"
        return
    source.rank = source.named


def settle_dump_ranks(sources: list[SourceFile]) -> None:
    """Gives every dump of one run its rank. It decides anew on ranks that two dumps claim or that its groups
    contradict."""
    world = config_world(sources)
    _forget_numbers(sources, world or max(LIKELY_RANKS, LIKELY_SHARE * len(sources)))
    claims = Counter((s.rank, library) for s in sources for library in s.libraries or {""})
    open_sources = [
        s for s in sources if s.rank_source not in FINAL_SOURCES and (_doubtful(s, world) or _contested(s, claims))
    ]
    opened = {id(s) for s in open_sources}
    taken: set[int | None] = {s.rank for s in sources if id(s) not in opened and s.rank is not None}
    order = {directory: i for i, directory in enumerate(sorted({s.directory for s in open_sources}))}
    for source in sorted(open_sources, key=lambda s: s.shown):
        if source.candidates is not None and len(source.candidates) == 1 and not source.candidates & taken:
            _give_rank(source, min(source.candidates), "content", taken)
        else:
            source.rank = None
    size = 1 + max((s.named for s in open_sources if s.named is not None), default=0)
    for source in sorted((s for s in open_sources if s.rank is None), key=_order):
        local = order[source.directory] * size + (source.named or 0)
        _give_rank(source, _guess(source, local, taken), "guess", taken)


def _order(source: SourceFile) -> tuple[str, int, str]:
    return source.directory, -1 if source.named is None else source.named, source.shown


def _forget_numbers(sources: list[SourceFile], most: int) -> None:
    """Drops claims from a bare number that is too large for a rank."""
    for source in sources:
        bare = source.rank_source == "name" and not file_names.says_rank(source.shown)
        if bare and source.named is not None and source.named >= most:
            source.named = source.rank = source.rank_source = None


def _doubtful(source: SourceFile, world: int) -> bool:
    """Whether there is no claim, or the dump's own groups exclude it."""
    if source.rank is None:
        return True
    # a rank beyond all groups belongs to a job whose groups count within replicas: they prove nothing
    return source.candidates is not None and source.rank < world and source.rank not in source.candidates


def _contested(source: SourceFile, claims: Counter[tuple[int | None, str]]) -> bool:
    return any(claims[source.rank, library] > 1 for library in source.libraries or {""})


def _guess(source: SourceFile, local: int, taken: set[int | None]) -> int:
    """The rank on a node that counts its own ranks, else the lowest free and allowed one."""
    allowed = source.candidates
    if source.named is not None and local not in taken and (allowed is None or local in allowed):
        return local
    free: Iterable[int] = sorted(allowed - taken) if allowed is not None else ()
    return next(iter(free), next(r for r in range(len(taken) + 1) if r not in taken))


def _give_rank(source: SourceFile, rank: int, how: str, taken: set[int | None]) -> None:
    source.rank, source.rank_source = rank, how
    taken.add(rank)


def place_undecoded(sources: Sequence[SourceFile], newest: int) -> None:
    """Takes files that could not be decoded as dumps if their name holds a rank, in the run of their directory.

    A file that could not even be opened is one if dumps of other ranks have its name.
    """
    by_directory: dict[str, int] = {}
    for source in sources:
        if source.attempt is not None:
            by_directory[source.directory] = max(source.attempt, by_directory.get(source.directory, 0))
    unopened = any(source.kind == UNREADABLE.name for source in sources)
    dumps = [s for s in sources if s.dump is not None] if unopened else []
    names = {_sibling_name(source.shown, source.named) for source in dumps if source.named is not None}
    for source in sources:
        if not INPUTS[source.kind].may_be_dump and not _is_unopened(source, names):
            continue
        if source.kind == EMPTY.name and file_names.of_py_spy(source.shown):
            # an empty file of py-spy says nothing about the rank's own files
            source.kind, source.rank, source.rank_source = PY_SPY.name, None, None
            continue
        # the capture may have been writing it when its process ended, or still is
        unfinished = file_names.is_part(source.shown)
        source.kind = (DUMP if source.named is not None and not unfinished else UNKNOWN).name
        if source.named is not None:
            source.attempt = by_directory.get(source.directory, newest if by_directory else None)


def _sibling_name(shown: str, rank: int) -> str:
    """The pattern of the name in its directory: hosts may have directories of their own."""
    return sibling_name(shown.rpartition("/")[2], rank)


def _is_unopened(source: SourceFile, names: Collection[str]) -> bool:
    return (
        source.kind == UNREADABLE.name
        and source.named is not None
        and _sibling_name(source.shown, source.named) in names
    )
