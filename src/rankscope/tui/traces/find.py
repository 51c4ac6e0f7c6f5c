"""Finds spans by what is written in their names."""

from __future__ import annotations

import re

import numpy as np
import polars as pl
from numpy.typing import NDArray

from rankscope.tui.search import Hits
from rankscope.tui.traces.lanes import TraceLanes

Ints = NDArray[np.int64]
_RANK = re.compile(r"rank\s*(\d+)", re.IGNORECASE | re.ASCII)


def search_spans(lanes: TraceLanes, text: str) -> Hits:
    """Spans with every word of `text` in their name, letters of either case alike; "rank 3" keeps to one rank."""
    ranks = {int(number) for number in _RANK.findall(text)}
    words = _RANK.sub(" ", text).lower().split()
    names = lanes.dataset.spans["name"]
    table = pl.DataFrame({"code": names.to_physical(), "name": names}).unique("code")
    lowered = pl.col("name").cast(pl.String).str.to_lowercase()
    fits = [lowered.str.contains(word, literal=True) for word in words] or [pl.lit(bool(ranks))]
    codes = table.filter(pl.all_horizontal(fits))["code"]
    found = names.to_physical().is_in(codes.implode()).arg_true().to_numpy().astype(np.int64)
    if ranks:
        found = found[np.isin(_ranks(lanes, found), list(ranks))]
    starts = lanes.spans.start[found] + lanes.spans.shift[_tracks(lanes, found)]
    return Hits(found[np.argsort(starts, kind="stable")], 0)


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
