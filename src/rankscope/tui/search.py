"""Finds operations by text: operation, group, rank, function, file, or a log message."""

from __future__ import annotations

import re
from typing import NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from rankscope.schema import Dataset
from rankscope.tui.model import Model

Ints = NDArray[np.int64]

_RANK = re.compile(r"(?:rank\s*)(\d+)", re.IGNORECASE)
_SEQ = re.compile(r"#\s*(\d+)")


class Hits(NamedTuple):
    """Items that match, in the order in which n and N walk them: by column, then by lane."""

    items: Ints
    messages: int
    """Number of matching log messages; each stands for the operation of its rank at that time."""


def search(model: Model, text: str) -> Hits:
    """Items that contain every word of `text`, in either case of letters."""
    mask = np.ones(len(model.items.col), np.bool_)
    for word in _words(text):
        mask &= _word_mask(model, word)
    said = _message_items(model, text)
    found = np.union1d(np.flatnonzero(mask), said).astype(np.int64) if text.strip() else np.zeros(0, np.int64)
    order = np.lexsort((model.items.lane[found], model.items.col[found]))
    return Hits(found[order], len(said))


def _words(text: str) -> list[str]:
    """The words of a query; "rank 12" is one word."""
    return re.findall(r"rank\s+\d+|\S+", text.strip(), re.IGNORECASE)


def _word_mask(model: Model, word: str) -> NDArray[np.bool_]:
    items = model.items
    if rank := _RANK.fullmatch(word):
        return np.equal(items.lane, model.lane_of.get(int(rank[1]), -1))
    if seq := _SEQ.fullmatch(word):
        return np.equal(items.seq, int(seq[1]))
    groups = _groups(model.dataset, word)
    mask: NDArray[np.bool_] = np.isin(items.group, groups) if groups else np.zeros(len(items.col), np.bool_)
    rows = _rows(model.dataset, word)
    mask |= (items.row >= 0) & rows[np.maximum(items.row, 0)] if len(rows) else False
    return mask


def _contains(column: str, word: str) -> pl.Expr:
    return pl.col(column).cast(pl.String).str.to_lowercase().str.contains(word.lower(), literal=True).fill_null(False)


def _groups(dataset: Dataset, word: str) -> list[int]:
    """Groups with the word in their description, or with this word as name."""
    named = pl.col("name") == word
    return dataset.groups.filter(_contains("description", word) | named)["group"].to_list()


def _rows(dataset: Dataset, word: str) -> NDArray[np.bool_]:
    """Rows of ops with the word in their operation or in a frame of their stack."""
    names = dataset.ops.select("op").unique().filter(_contains("op", word))["op"].cast(pl.String).to_list()
    stacks = dataset.stacks.filter(_contains("function", word) | _contains("file", word))["stack_id"].unique()
    by_name = pl.col("op").cast(pl.String).is_in(names)
    found = dataset.ops.select((by_name | pl.col("stack_id").is_in(stacks.to_list())).fill_null(False).alias("hit"))
    return found["hit"].to_numpy()


def _message_items(model: Model, text: str) -> Ints:
    """For each log message with the text, the last item its rank had issued by then."""
    messages = model.dataset.messages.filter(_contains("text", text.strip()) & pl.col("rank").is_not_null())
    found: list[int] = []
    for rank, time_ns in messages.select("rank", "time_ns").head(1000).iter_rows():
        lane = model.lane_of.get(rank)
        if lane is None or model.bounds[lane] == model.bounds[lane + 1]:
            continue
        first, last = int(model.bounds[lane]), int(model.bounds[lane + 1])
        before = np.flatnonzero(model.items.created[first:last] <= (2**62 if time_ns is None else time_ns))
        found.append(first + int(before[-1]) if len(before) else last - 1)
    return np.unique(np.array(found, np.int64))
