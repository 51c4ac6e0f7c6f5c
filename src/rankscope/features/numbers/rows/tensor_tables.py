"""Rows of `tensors` from summaries of tensors, joined with the groups and stacks of the dumps."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import polars as pl

from rankscope import schema
from rankscope.assemble.gathering import RunChoice
from rankscope.assemble.operations import LaterStacks
from rankscope.assemble.rank_files import OLDER, FileOwner, rank_files
from rankscope.assemble.sources import SourceFile
from rankscope.features.numbers.read.model import CODES, DEFAULT_GROUP, FLOATS, PLAIN, SIZES, NumbersContent
from rankscope.features.numbers.rows import record_places
from rankscope.features.numbers.rows.number_settings import NumbersFile, with_number_settings
from rankscope.kinds.input_kinds import TENSOR_RECORD
from rankscope.parsers.matrices import NULL


def add_tensors(tables: dict[str, pl.DataFrame], sources: Sequence[SourceFile], run: RunChoice) -> int:
    """Adds the summaries of the newest run of the chosen attempt to `tensors`, and its groups, stacks and settings to
    their tables; returns the number of ranks, 0 for none."""
    chosen, pattern = run.attempt, run.pattern
    if any(source.kind == TENSOR_RECORD.name for source in sources):
        record_places.place_records(sources)
    used = _newest_run(list(rank_files(sources, NumbersContent, chosen, pattern, _owner)))
    if not used:
        return 0
    used.sort(key=lambda file: (file.source.rank or 0, file.source.shown))
    for file in used:
        file.source.used = True
    groups, stacks = _GroupRows(tables), LaterStacks(tables)
    contents = [file.content for file in used]
    tables["tensors"] = _tensor_table(contents, [file.place for file in used], max(0, chosen), groups, stacks)
    tables["groups"], tables["stacks"] = groups.table(), stacks.table()
    tables["settings"] = with_number_settings(tables.get("settings"), used, tables["tensors"])
    highest = tables["groups"]["ranks"].explode().max()
    told = [max(header.world_size or 0, 1 + (header.rank or 0)) for content in contents for header in content.headers]
    return max([*told, 1 + highest if isinstance(highest, int) else 0])


def _owner(source: SourceFile, content: NumbersContent) -> FileOwner | None:
    """Who wrote a file; of another tool's the path may have told the rank. None without summaries."""
    if not content.headers:
        return None
    first = content.headers[0]
    told = (source.rank_source or "content") if content.tool else "content"
    return FileOwner(first.rank, first.host, first.pid, told)


def _newest_run(used: list[NumbersFile]) -> list[NumbersFile]:
    """The files of each rank that its last process wrote; the others get a note. Each process names a run of its
    own."""
    newest: dict[tuple[int | None, str, str], int] = {}
    last: dict[int | None, tuple[int, str, str]] = {}
    for file in used:
        source = file.source
        key = source.rank, *_run_of(file)
        newest[key] = max(newest.get(key, 0), _written_ns(file))
        last[source.rank] = max(last.get(source.rank, (0, "", "")), (newest[key], *key[1:]))
    kept = []
    for file in used:
        if last[file.source.rank][1:] == _run_of(file):
            kept.append(file)
        else:
            file.source.note = OLDER
    return kept


def _run_of(file: NumbersFile) -> tuple[str, str]:
    """The run that a file names, and its directory; other tools make one for each step and rank."""
    _, source, content = file
    return content.headers[0].run, record_places.root_of_record(source) if content.tool else source.directory


def _written_ns(file: NumbersFile) -> int:
    """The time of its first header, else of the file, in nanoseconds since the epoch."""
    return file.content.headers[0].time_ns or file.source.mtime_ns or 0


class _GroupRows:
    """The table of groups, with those that only summaries name behind the others."""

    def __init__(self, tables: dict[str, pl.DataFrame]) -> None:
        self._before = tables["groups"] if "groups" in tables else schema.empty(schema.GROUPS)
        rows = self._before.select("group", "name", "ranks").iter_rows()
        self._by_name: dict[tuple[str, tuple[int, ...]], int] = {}
        self._by_ranks: dict[tuple[int, ...], list[int]] = {}
        for number, name, ranks in rows:
            self._by_name[name, tuple(ranks)] = number
            self._by_ranks.setdefault(tuple(ranks), []).append(number)
        self._new: list[dict[str, object]] = []

    def places(self, content: NumbersContent) -> dict[str, int]:
        """The row of each group of a file, by its name in the file."""
        return {one.name: self._place(one.name, one.description, tuple(one.ranks)) for one in content.groups}

    def _place(self, name: str, description: str, ranks: tuple[int, ...]) -> int:
        known = self._by_name.get((name, ranks))
        alike = self._by_ranks.get(ranks, [])
        if known is None and len(alike) == 1 and alike[0] < self._before.height:
            known = alike[0]
        if known is None:
            known = self._before.height + len(self._new)
            self._new.append({
                "group": known, "name": name, "description": description, "ranks": list(ranks),
                "membership": "inferred" if name == DEFAULT_GROUP else "config", "has_p2p": False,
            })  # fmt: skip
            self._by_ranks.setdefault(ranks, []).append(known)
        self._by_name[name, ranks] = known
        return known

    def table(self) -> pl.DataFrame:
        """All groups."""
        return pl.concat([self._before, pl.DataFrame(self._new, schema=dict(schema.GROUPS))])


def _tensor_table(
    contents: Sequence[NumbersContent], places: Sequence[int], attempt: int, groups: _GroupRows, stacks: LaterStacks
) -> pl.DataFrame:
    """The rows of all files, each with the place of its file; a column at a time, for a job has thousands of files."""

    def column(name: str) -> npt.NDArray[np.int64]:
        return np.concatenate([content.column(name) for content in contents])

    told = column("told")
    counts = [content.rows for content in contents]
    stack = np.concatenate([_stack_ids(content, stacks) for content in contents])
    columns: dict[str, pl.Series] = {
        "rank": pl.Series(np.concatenate([_ranks(content) for content in contents])),
        "attempt": pl.repeat(attempt, len(told), dtype=pl.UInt16, eager=True),
        "file": pl.Series(np.repeat(np.array(places, np.uint32), counts)),
        "hash": _where(pl.Series(column("hash").view(np.uint64)), told & 1 > 0),
        "held": pl.Series(column("held").view(np.uint64)),
        "recompute": pl.Series(column("recompute") == 1),
        "samples": pl.concat([pl.Series(_samples(content), dtype=pl.Binary) for content in contents]),
        "line": pl.Series(column("line")),
        "tool": pl.Series(
            np.repeat(np.array([content.tool or None for content in contents], object), counts), dtype=pl.String
        ),
        "stack_id": _where(pl.Series(stack), stack != NULL),
        **dict(_coded(contents, groups)),
    }
    for name in PLAIN:
        own = column(name)
        columns[name] = _where(pl.Series(own).cast(schema.TENSORS[name], strict=False), own != NULL)
    for bit, name in enumerate(FLOATS, 1):
        own = np.concatenate([content.floats[bit - 1] for content in contents])
        columns[name] = _where(pl.Series(own), (told >> bit) & 1 > 0)
    return pl.DataFrame([columns[name].cast(kind, strict=False).alias(name) for name, kind in schema.TENSORS.items()])


def _ranks(content: NumbersContent) -> npt.NDArray[np.int32]:
    """The rank of each row, by the header above it."""
    ranks = np.array([header.rank for header in content.headers], np.int32)
    return ranks[content.column("header")]


def _stack_ids(content: NumbersContent, stacks: LaterStacks) -> npt.NDArray[np.int64]:
    """The id of the stack of each row, `NULL` for none."""
    ids = {own: stacks.number(frames) for own, frames in content.stacks.items()}
    numbers, place = np.unique(content.column("stack"), return_inverse=True)
    return np.array([ids.get(number, NULL) for number in numbers.tolist()], np.int64)[place]


def _where(column: pl.Series, told: npt.NDArray[np.bool_]) -> pl.Series:
    """The column with null where nothing is told."""
    return column if told.all() else column.to_frame("v").select(pl.when(pl.Series(told)).then("v")).to_series()


def _coded(contents: Sequence[NumbersContent], groups: _GroupRows) -> Iterator[tuple[str, pl.Series]]:
    """Columns of texts, sizes and groups, of which all files together have few."""
    texts = _joined(content.texts for content in contents)
    sizes = _joined(map(tuple, content.sizes) for content in contents)
    numbers = _joined(map(groups.places(content).get, content.texts) for content in contents)
    for name in CODES:
        values, places = sizes if name in SIZES else numbers if name == "group" else texts
        kind = pl.List(pl.Int64) if name in SIZES else pl.UInt32() if name == "group" else pl.String()
        code = np.concatenate([own[content.code(name)] for own, content in zip(places, contents, strict=True)])
        yield name, pl.Series(values, dtype=kind).cast(schema.TENSORS[name], strict=False).gather(code)


def _joined(tables: Iterable[Iterable[Hashable]]) -> tuple[list[Hashable], list[npt.NDArray[np.int64]]]:
    """The different values of tables, None first, and for each table the places of its values among them; the place of
    None is the last one, at which -1 points."""
    places: dict[Hashable, int] = {None: 0}
    own = [np.array([*(places.setdefault(value, len(places)) for value in table), 0], np.int64) for table in tables]
    return list(places), own


def _samples(content: NumbersContent) -> list[bytes]:
    """The samples of each row."""
    ends = np.cumsum(content.column("sampled")).tolist()
    held = content.samples
    return [bytes(held[begin:end]) for begin, end in pairwise([0, *ends])]
