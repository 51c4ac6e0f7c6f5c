"""Part of a job that the user wants read: some ranks, some groups, the last entries of each rank; or some of its files.

Files whose name says another rank are not opened. Workers leave out entries (see `parsers.flight_recorder.ring_cut`);
here go the rows of other ranks that shared files held, and the facts that keep their absence from being a finding.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from pathlib import Path

import polars as pl

from rankscope.assemble import file_names
from rankscope.assemble.sources import SourceFile
from rankscope.parsers.file_access import is_directory
from rankscope.parsers.files.directory_walk import printable_text
from rankscope.parsers.flight_recorder.ring_cut import RingChoice, cut_ring
from rankscope.schema import Dataset
from rankscope.schema.dataset import DumpsBeside, ReadParts, sibling_name
from rankscope.text.wording import plural, ranks_text

_TABLES = ("ops", "frontiers", "messages", "settings", "comms", "threads")
"""Tables of which no other table names rows, and which files of several ranks fill."""
EARLY_ENTRIES = 64
"""Last entries of each dump for an early verdict: the frontiers, and how the ranks came there."""
FEWEST_EARLY_ROWS = 1 << 20
"""Fewest entries of all dumps for which an early verdict is made; fewer are judged in a second."""
MOST_NAMES = 12
"""Most names of groups in a message."""


class NoSuchPartError(Exception):
    """The job has no such rank or group; the message is for the user."""


def are_long(sources: Sequence[SourceFile]) -> bool:
    """Whether the dumps are so long that the user sees an early verdict from their last entries."""
    return sum(source.dump.rows for source in sources if source.dump is not None) >= FEWEST_EARLY_ROWS


def last_entries(source: SourceFile) -> SourceFile:
    """A file before its assembly with others, with the last entries of its dump."""
    other = source.renewed()
    keep_last(other, EARLY_ENTRIES)
    return other


def keep_last(source: SourceFile, last: int) -> None:
    """Cuts the dump of a file, if it is one, to its last entries."""
    if source.dump is not None and (cut := cut_ring(source.dump, RingChoice(last))) is not source.dump:
        source.replace_dump(cut)


def announced(dataset: Dataset) -> Dataset:
    """The dataset of a part of which the whole follows."""
    return replace(dataset, parts=dataset.parts._replace(whole_follows=True))


def may_tell(ranks: Collection[int], pattern: re.Pattern[str] | None) -> Callable[[str], bool]:
    """A function from a path to whether its file may tell of these ranks: its path says no other one."""
    known = {None, *ranks}
    return lambda shown: _told_rank(shown, pattern) in known


def _told_rank(shown: str, pattern: re.Pattern[str] | None) -> int | None:
    """The rank that the user's expression finds in a path, or that the path calls so; a bare number is none."""
    told = file_names.rank_by(pattern, shown) if pattern is not None else None
    if told is None and file_names.says_rank(shown):
        return file_names.rank_of(shown)
    return told


def narrowed(
    dataset: Dataset, ranks: frozenset[int] | None, groups: tuple[str, ...], last: int | None, room: int | None = None
) -> Dataset:
    """The dataset of the chosen part, which says what was left out. Raises NoSuchPartError.

    `room` is the number of last entries of each dump for which there was memory; None if there was enough.
    """
    chosen = _chosen_groups(dataset, groups) if groups else ()
    words = [
        *([] if ranks is None else [_rank_words(dataset, ranks)]),
        *([f"{len(chosen):,} of {plural(dataset.groups.height, 'group')}"] if groups else []),
        *([] if last is None or room is not None else [_last_words(last)]),
    ]
    known = dataset if ranks is None else _of_ranks(dataset, ranks)
    parts = ReadParts(", ".join(words), cuts_rings=bool(groups) or last is not None, has_gaps=bool(groups))
    return replace(known, parts=parts if room is None else shortened(parts, room))


def _last_words(last: int) -> str:
    return "the last entry of each dump" if last == 1 else f"the last {last:,} entries of each dump"


def shortened(parts: ReadParts, last: int) -> ReadParts:
    """The part of a job, of which only the last entries of each dump were read without a wish of the user."""
    words = f"{_last_words(last)}, as memory is short"
    return parts._replace(words=f"{parts.words}, {words}" if parts.words else words, cuts_rings=True)


def _rank_words(dataset: Dataset, ranks: frozenset[int]) -> str:
    here = [rank for rank in dataset.every_rank if rank in ranks]
    if not here:
        raise NoSuchPartError(f"no file tells of {ranks_text(sorted(ranks))}")
    return f"{ranks_text(here)} of {dataset.world_size:,}"


def _of_ranks(dataset: Dataset, ranks: frozenset[int]) -> Dataset:
    mine = pl.col("rank").is_null() | pl.col("rank").is_in(sorted(ranks))
    tables = {name: getattr(dataset, name).filter(mine) for name in _TABLES}
    used = dataset.files.with_columns(used=pl.col("used") & mine)
    others = tuple(rank for rank in dataset.every_rank if rank not in ranks)
    return replace(dataset, **tables, files=used, beside=DumpsBeside(others))


def _chosen_groups(dataset: Dataset, names: tuple[str, ...]) -> tuple[int, ...]:
    """The groups with these names or descriptions."""
    table = dataset.groups.select("group", "name", "description")
    there = {*table["name"], *table["description"]}
    wrong = [name for name in names if name not in there]
    if wrong:
        known = sorted({text for text in table["description"] if text} or there)
        if not known:
            raise NoSuchPartError(f"no group {wrong[0]}: the files name no group")
        more = f" and {len(known) - MOST_NAMES:,} more" if len(known) > MOST_NAMES else ""
        raise NoSuchPartError(f"no group {wrong[0]}; there are {', '.join(known[:MOST_NAMES])}{more}")
    named = pl.col("name").is_in(names) | pl.col("description").is_in(names)
    return tuple(table.filter(named)["group"])


def with_siblings(dataset: Dataset, paths: Sequence[Path]) -> Dataset:
    """The dataset with the ranks whose dumps lie beside the given ones, if nothing but dumps was given."""
    if any(map(is_directory, paths)):
        return dataset
    own = {printable_text(name): path for path in paths for name in (path.name, str(path))}
    found: dict[int, str] = {}
    for shown, rank in dataset.dumps.select("path", "rank").drop_nulls().iter_rows():
        path = own.get(shown)
        if path is None or str(rank) not in path.name:
            continue
        pattern, there = sibling_name(path.name, rank), _names_in(path.parent)
        found |= {r: str(path.parent) for r in dataset.missing_ranks if pattern.format(r) in there}
    if not found:
        return dataset
    at = printable_text(next(iter(found.values())))
    return replace(dataset, beside=DumpsBeside(tuple(sorted(found)), at))


def _names_in(directory: Path) -> frozenset[str]:
    try:
        return frozenset(path.name for path in directory.iterdir())
    except OSError:
        return frozenset()
