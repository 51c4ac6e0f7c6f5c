"""Rows of `tensors` from summaries of tensors, joined with the groups and stacks of the dumps."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import polars as pl

from rankscope import schema
from rankscope.assemble import file_names
from rankscope.assemble.operations import StackIds
from rankscope.assemble.sources import SourceFile
from rankscope.parsers.contents import StackFrame
from rankscope.parsers.matrices import NULL
from rankscope.parsers.numbers.model import CODES, FLOATS, SIZES, NumbersContent

_PLAIN = (
    "step", "micro", "order", "occurrence", "slice", "seq", "root", "peer", "numel", "nan", "inf", "zeros", "line",
)  # fmt: skip
_OLDER = "of an earlier process of the rank: not used"


def add_tensors(
    tables: dict[str, pl.DataFrame], sources: Sequence[SourceFile], chosen: int, pattern: re.Pattern[str] | None
) -> int:
    """Adds the summaries of the newest run of the chosen attempt to `tensors`, and groups and stacks that only they
    know; returns the number of ranks, 0 for none."""
    used = [(place, source) for place, source in enumerate(sources) if _is_of(source, sources, chosen, pattern)]
    used = _newest_run(used)
    if not used:
        return 0
    groups, stacks = _GroupRows(tables), _StackRows(tables)
    frames = []
    for place, source in sorted(used, key=lambda row: (row[1].rank or 0, row[1].shown)):
        assert isinstance(source.content, NumbersContent)
        source.used = True
        frames.append(_frame(source.content, place, max(0, chosen), groups, stacks))
    tables["groups"], tables["stacks"] = groups.table(), stacks.table()
    tables["tensors"] = pl.concat(frames)
    known = [header.world_size or 0 for _, source in used for header in _content(source).headers]
    highest = tables["groups"]["ranks"].explode().max()
    ranks = [1 + header.rank for _, source in used for header in _content(source).headers]
    return max([*known, *ranks, 1 + highest if isinstance(highest, int) else 0])


def _content(source: SourceFile) -> NumbersContent:
    assert isinstance(source.content, NumbersContent)
    return source.content


def _is_of(source: SourceFile, sources: Sequence[SourceFile], chosen: int, pattern: re.Pattern[str] | None) -> bool:
    """Whether a source holds summaries of the attempt; settles its rank and attempt."""
    if not isinstance(source.content, NumbersContent) or not source.content.headers:
        return False
    option = file_names.rank_by(pattern, source.shown) if pattern is not None else None
    source.rank, source.rank_source = (
        (option, "option") if option is not None else (source.content.headers[0].rank, "content")
    )
    source.writer = source.content.headers[0].host, source.content.headers[0].pid
    attempts = {s.directory: s.attempt for s in sources if s.attempt is not None and s is not source}
    source.attempt = attempts.get(source.directory, max(0, chosen))
    return source.attempt == max(0, chosen)


def _newest_run(used: list[tuple[int, SourceFile]]) -> list[tuple[int, SourceFile]]:
    """The files of each rank that its last process wrote; the others get a note. Each process names a run of its
    own."""
    newest: dict[tuple[int | None, str, str], int] = {}
    last: dict[int | None, tuple[int, str, str]] = {}
    for _, source in used:
        key = source.rank, _content(source).headers[0].run, source.directory
        newest[key] = max(newest.get(key, 0), _written_ns(source))
        last[source.rank] = max(last.get(source.rank, (0, "", "")), (newest[key], *key[1:]))
    kept = []
    for place, source in used:
        if last[source.rank][1:] == (_content(source).headers[0].run, source.directory):
            kept.append((place, source))
        else:
            source.note = _OLDER
    return kept


def _written_ns(source: SourceFile) -> int:
    """The time of its first header, else of the file, in nanoseconds since the epoch."""
    return _content(source).headers[0].time_ns or source.mtime_ns or 0


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
                "membership": "config", "has_p2p": False,
            })  # fmt: skip
            self._by_ranks.setdefault(ranks, []).append(known)
        self._by_name[name, ranks] = known
        return known

    def table(self) -> pl.DataFrame:
        """All groups."""
        return pl.concat([self._before, pl.DataFrame(self._new, schema=dict(schema.GROUPS))])


class _StackRows:
    """The table of stacks, with those of summaries behind the others."""

    def __init__(self, tables: dict[str, pl.DataFrame]) -> None:
        self._before = tables.get("stacks", StackIds().table())
        highest = self._before["stack_id"].max()
        self._first = 1 + highest if isinstance(highest, int) else 0
        self._stacks: dict[tuple[StackFrame, ...], int] = {}

    def places(self, content: NumbersContent) -> dict[int, int]:
        """The id of each stack of a file, by its number in the file."""
        number = self._first
        return {
            own: number + self._stacks.setdefault(tuple(frames), len(self._stacks))
            for own, frames in content.stacks.items()
        }

    def table(self) -> pl.DataFrame:
        """All stacks."""
        rows = [
            (self._first + number, depth, *frame)
            for frames, number in self._stacks.items()
            for depth, frame in enumerate(frames)
        ]
        return pl.concat([self._before, pl.DataFrame(rows, schema=dict(schema.STACKS), orient="row")])


def _frame(content: NumbersContent, place: int, attempt: int, groups: _GroupRows, stacks: _StackRows) -> pl.DataFrame:
    """The rows of one file."""
    ranks = np.array([header.rank for header in content.headers], np.int32)
    told = content.column("told")
    columns: dict[str, pl.Series] = {
        "rank": pl.Series(ranks[content.column("header")]),
        "attempt": pl.repeat(attempt, content.rows, dtype=pl.UInt16, eager=True),
        "file": pl.repeat(place, content.rows, dtype=pl.UInt32, eager=True),
        "hash": _where(pl.Series(content.column("hash").view(np.uint64)), told & 1 > 0),
        "held": pl.Series(content.column("held").view(np.uint64)),
        "recompute": pl.Series(content.column("recompute") == 1),
        "samples": _samples(content),
        **dict(_coded(content, groups)),
    }
    for name in _PLAIN:
        own = content.column(name)
        columns[name] = _where(pl.Series(own).cast(schema.TENSORS[name], strict=False), own != NULL)
    for bit, name in enumerate(FLOATS, 1):
        columns[name] = _where(pl.Series(content.floats[bit - 1]), (told >> bit) & 1 > 0)
    by_stack = stacks.places(content)
    columns["stack_id"] = pl.Series(content.column("stack")).replace_strict(
        by_stack, default=None, return_dtype=pl.UInt32
    )
    return pl.DataFrame([columns[name].cast(kind, strict=False).alias(name) for name, kind in schema.TENSORS.items()])


def _where(column: pl.Series, told: npt.NDArray[np.bool_]) -> pl.Series:
    """The column with null where nothing is told."""
    return column if told.all() else column.to_frame("v").select(pl.when(pl.Series(told)).then("v")).to_series()


def _coded(content: NumbersContent, groups: _GroupRows) -> Iterator[tuple[str, pl.Series]]:
    """Columns of texts and sizes, of which a file has few."""
    texts = pl.Series(content.texts, dtype=pl.String)
    sizes = pl.Series(content.sizes, dtype=pl.List(pl.Int64))
    by_name = groups.places(content)
    numbers = pl.Series([by_name.get(text) for text in content.texts], dtype=pl.UInt32)
    for name in CODES:
        values = sizes if name in SIZES else numbers if name == "group" else texts
        values = values.cast(schema.TENSORS[name], strict=False)
        code = pl.Series(content.code(name))
        yield (
            name,
            values.gather(_where(code, content.code(name) >= 0))
            if len(values)
            else pl.repeat(None, content.rows, dtype=schema.TENSORS[name], eager=True),
        )


def _samples(content: NumbersContent) -> pl.Series:
    """The samples of all rows, without a copy if each row has some."""
    parts = [part for part in content.samples if len(part)]
    own = parts[0] if len(parts) == 1 else np.concatenate([np.empty((0, schema.MOST_SAMPLES)), *parts])
    if len(own) < content.rows:
        place = content.column("sampled")
        spread = np.full((content.rows, schema.MOST_SAMPLES), np.nan)
        spread[place >= 0] = own[place[place >= 0]]
        own = spread
    flat = pl.Series(own.reshape(-1), dtype=pl.Float64)
    return (
        flat.reshape((content.rows, schema.MOST_SAMPLES)) if content.rows else schema.empty(schema.TENSORS)["samples"]
    )
