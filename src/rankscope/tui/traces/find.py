"""Finds spans by what is written in them: name, operation, group, number, rank."""

from __future__ import annotations

import re

import numpy as np
import polars as pl
from numpy.typing import NDArray

from rankscope.tui.search import Hits
from rankscope.tui.traces.activity import NOTHING
from rankscope.tui.traces.lanes import TraceLanes

Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]
_RANK = re.compile(r"rank\s*(\d+)", re.IGNORECASE | re.ASCII)
_SEQ = re.compile(r"#\s*(\d{1,18})", re.ASCII)


def search_spans(lanes: TraceLanes, text: str) -> Hits:
    """Spans with every word of `text` in their name, operation or group, letters of either case alike.

    "rank 3" keeps to one rank, "#12" to collectives of that number.
    """
    ranks = {int(number) for number in _RANK.findall(text)}
    numbers = [int(number) for number in _SEQ.findall(text)]
    words = _SEQ.sub(" ", _RANK.sub(" ", text)).lower().split()
    masks = [_numbered(lanes, number) for number in numbers] + [_worded(lanes, word) for word in words]
    if not masks and not ranks:
        return Hits(np.empty(0, np.int64), 0)
    # what a filter hides is not found
    shown = (lanes.spans.op < 0) | (lanes.spans.activity != NOTHING)
    found: Ints = np.flatnonzero(np.logical_and.reduce([shown, *masks])).astype(np.int64)
    if ranks:
        found = found[np.isin(_ranks(lanes, found), list(ranks))]
    starts = lanes.spans.start[found] + lanes.spans.shift[_tracks(lanes, found)]
    return Hits(found[np.argsort(starts, kind="stable")], 0)


def _worded(lanes: TraceLanes, word: str) -> Mask:
    names = lanes.dataset.spans["name"]
    table = pl.DataFrame({"code": names.to_physical(), "name": names}).unique("code")
    lowered = pl.col("name").cast(pl.String).str.to_lowercase()
    codes = table.filter(lowered.str.contains(word, literal=True))["code"]
    named: Mask = names.to_physical().is_in(codes.implode()).fill_null(False).to_numpy()
    return named | _of_rows(lanes, _rows_worded(lanes, word))


def _rows_worded(lanes: TraceLanes, word: str) -> Mask:
    """Rows of `traced` with the word in their operation or in the description of their group, or that name it."""
    described = pl.col("description").str.to_lowercase().str.contains(word, literal=True)
    groups = lanes.dataset.groups.filter(described | (pl.col("name") == word))["group"]
    ops = lanes.dataset.traced.select("op").unique().drop_nulls()["op"].cast(pl.String)
    fitting = ops.filter(ops.str.to_lowercase().str.contains(word, literal=True)).to_list()
    fits = pl.col("op").cast(pl.String).is_in(fitting) | pl.col("group").is_in(groups.implode())
    return lanes.dataset.traced.select(fits.fill_null(False).alias("fits"))["fits"].to_numpy()


def _numbered(lanes: TraceLanes, number: int) -> Mask:
    """Spans of matched collectives of that number; of what was not matched, the number that the trace tells."""
    fits = (lanes.dataset.traced["seq"] == number).fill_null(False).to_numpy().copy()
    matched = lanes.traces.matched.select(pl.col("row").cast(pl.Int64), "seq")
    fits[matched["row"].to_numpy()] = (matched["seq"] == number).fill_null(False).to_numpy()
    return _of_rows(lanes, fits)


def _of_rows(lanes: TraceLanes, fits: Mask) -> Mask:
    """The spans that execute these rows of `traced`."""
    op = lanes.spans.op
    found: Mask = (op >= 0) & np.append(fits, False)[op]
    return found


def _tracks(lanes: TraceLanes, spans: Ints) -> Ints:
    return np.searchsorted(lanes.spans.bounds, spans, side="right").astype(np.int64) - 1


def _ranks(lanes: TraceLanes, spans: Ints) -> Ints:
    of_track = np.full(len(lanes.spans.numbers), -1, np.int64)
    for strand in lanes.strands:
        of_track[list(strand.tracks)] = lanes.ranks[strand.lane]
    return of_track[_tracks(lanes, spans)]


def first_after(lanes: TraceLanes, hits: Ints, moment: int) -> int:
    """The index of the first hit that starts no earlier than an aligned time; 0 where none does."""
    starts = lanes.spans.start[hits] + lanes.spans.shift[_tracks(lanes, hits)]
    later = np.flatnonzero(starts >= moment)
    return int(later[0]) if len(later) else 0
