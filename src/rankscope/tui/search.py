"""Typed text: operations with it by name, group, rank, function, file or log message, and places that it names."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime, timedelta, tzinfo
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
    hits = np.union1d(np.flatnonzero(mask), said).astype(np.int64) if text.strip() else np.zeros(0, np.int64)
    order = np.lexsort((model.items.lane[hits], model.items.col[hits]))
    return Hits(hits[order], len(said))


def _words(text: str) -> list[str]:
    """The words of a query; "rank 12" is one word."""
    return re.findall(r"rank\s+\d+|\S+", text.strip(), re.IGNORECASE)


def _word_mask(model: Model, word: str) -> NDArray[np.bool_]:
    items = model.items
    if rank := _RANK.fullmatch(word):
        return np.equal(model.ranks, int(rank[1]))[items.lane]
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
    hits = dataset.ops.select((by_name | pl.col("stack_id").is_in(stacks.to_list())).fill_null(False).alias("hit"))
    return hits["hit"].to_numpy()


def _message_items(model: Model, text: str) -> Ints:
    """For each log message with the text, the last item its rank had issued by then."""
    messages = model.dataset.messages.filter(_contains("text", text.strip()) & pl.col("rank").is_not_null())
    items: list[int] = []
    for rank, time_ns in messages.select("rank", "time_ns").head(1000).iter_rows():
        lane = model.lane_of.get(rank)
        if lane is None or model.bounds[lane] == model.bounds[lane + 1]:
            continue
        first, last = int(model.bounds[lane]), int(model.bounds[lane + 1])
        before = np.flatnonzero(model.items.created[first:last] <= (2**62 if time_ns is None else time_ns))
        items.append(first + int(before[-1]) if len(before) else last - 1)
    return np.unique(np.array(items, np.int64))


_TYPED_RANK = re.compile(r"(?:r|rank)?\s*(\d{1,18})", re.IGNORECASE | re.ASCII)
_TYPED_SEQ = re.compile(r"(?:#|s|seq)\s*(\d{1,18})", re.IGNORECASE | re.ASCII)
_STEP = re.compile(r"(?:@|step)\s*(\d{1,18})", re.IGNORECASE | re.ASCII)
_CLOCK = re.compile(r"(\d{1,2}):(\d{2})(?::(\d{2})(?:\.(\d{1,9}))?)?", re.ASCII)
_SPAN = re.compile(r"([+-])\s*(\d{1,18}(?:\.\d+)?)\s*(ns|us|ms|s|min|m|h)?", re.IGNORECASE | re.ASCII)
_UNITS = {"ns": 1, "us": 1e3, "ms": 1e6, "s": 1e9, "min": 60e9, "m": 60e9, "h": 3600e9}

HINT = "12 rank   #1121 sequence number   @40 step   14:02:11 or -3s time"
"""The forms that can be typed, for the prompt."""


@dataclass(frozen=True)
class Target:
    """A typed place; only one field is set."""

    rank: int | None = None
    seq: int | None = None
    step: int | None = None
    time_ns: int | None = None
    span_ns: int | None = None
    """Relative to the cursor."""


def parse(text: str, day_ns: int, zone: tzinfo | None = None) -> Target:
    """The target of `text`. A time of day is on the day of `day_ns`, in `zone` (None: the local one).

    ValueError tells the possible forms.
    """
    text = text.strip()
    if match := _TYPED_RANK.fullmatch(text):
        return Target(rank=int(match[1]))
    if match := _TYPED_SEQ.fullmatch(text):
        return Target(seq=int(match[1]))
    if match := _STEP.fullmatch(text):
        return Target(step=int(match[1]))
    if match := _CLOCK.fullmatch(text):
        return Target(time_ns=_clock(match, day_ns, zone))
    if match := _SPAN.fullmatch(text):
        size = float(match[2]) * _UNITS[(match[3] or "s").lower()]
        return Target(span_ns=round(size if match[1] == "+" else -size))
    raise ValueError(f"type {HINT}")


def _clock(match: re.Match[str], day_ns: int, zone: tzinfo | None) -> int:
    hour, minute, second = int(match[1]), int(match[2]), int(match[3] or 0)
    if hour > 23 or minute > 59 or second > 59:
        raise ValueError(f"no time of day: {match[0]}")
    try:
        moment = datetime.fromtimestamp(day_ns // 1_000_000_000, zone)
    except (OverflowError, OSError) as error:
        raise ValueError("the times of this run are no dates") from error
    wanted = moment.replace(hour=hour, minute=minute, second=second, microsecond=0)
    # A run may cross midnight: take the day on which the time is nearest.
    nearest = min(
        (wanted + timedelta(days=shift) for shift in (-1, 0, 1)), key=lambda t: abs((t - moment).total_seconds())
    )
    return round(nearest.timestamp()) * 1_000_000_000 + int((match[4] or "").ljust(9, "0"))
