"""The Dataset of a job that is watched once more, where only operations in its logs are new: behind those of before."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from rankscope.parsers.assemble.placed import more_of, only_grew
from rankscope.parsers.assemble.sources import Source
from rankscope.parsers.assemble.tables import Memory
from rankscope.schema import Dataset

if TYPE_CHECKING:
    from rankscope.parsers.logs.model import LogContent


@dataclass(frozen=True)
class Longer:
    """A dataset with more operations."""

    before: Dataset
    """As it was put together last, of all there was."""
    dataset: Dataset
    ops: pl.DataFrame
    """The operations that are more, sorted by rank: each rank's stand behind those it had."""

    @property
    def ranks(self) -> list[int]:
        """Whose they are; rising."""
        return self.ops["rank"].unique().sort().to_list()


def with_more(memory: Memory, sources: Sequence[Source]) -> Longer | None:
    """The last Dataset with more operations of its logs; None if that is not all that is new."""
    pairs, before = _pairs(memory, sources), memory.dataset
    if before is None or memory.partly or before.attempts.height > 1:
        return None
    told = _told(pairs)
    if not told or not all(place in told or only_grew(*pair) for place, pair in enumerate(pairs)):
        return None
    return _longer(memory, before, told)


def without_what_dumps_tell(memory: Memory, sources: Sequence[Source]) -> list[Source]:
    """The sources; logs without what is more in them, if all of that are operations that dumps have."""
    told = _told(_pairs(memory, sources))
    found = _longer(memory, memory.dataset, told) if told and memory.dataset is not None else None
    if found is None or not found.ops.is_empty():
        return list(sources)
    return [replace(now, more=None) if place in told else now for place, now in enumerate(sources)]


def _pairs(memory: Memory, sources: Sequence[Source]) -> list[tuple[Source, Source]]:
    """Each file as it was put together with all the rest, and as it is now; none if there are others."""
    given = memory.placed.given if memory.placed is not None else []
    return list(zip(given, sources, strict=True)) if len(given) == len(sources) else []


def _told(pairs: Sequence[tuple[Source, Source]]) -> dict[int, LogContent]:
    """What is more in logs, by their places."""
    more = ((place, more_of(*pair)) for place, pair in enumerate(pairs))
    return {place: content for place, content in more if content is not None}


def _longer(memory: Memory, before: Dataset, told: dict[int, LogContent]) -> Longer | None:
    from rankscope.parsers.assemble.logs.more import more_rows

    more = more_rows(memory.lines, told) if memory.lines is not None else None
    if more is None or before.ops["rank"].null_count():
        return None
    ops = _behind(before.ops, more.ops)
    return Longer(before, replace(before, ops=ops, frontiers=more.frontiers), more.ops)


def _behind(ops: pl.DataFrame, more: pl.DataFrame) -> pl.DataFrame:
    """The operations of all ranks, both sorted by rank, with more of some behind what these have."""
    if more.is_empty():
        return ops
    ranks = more["rank"].to_numpy()
    starts = np.flatnonzero(np.diff(ranks, prepend=-1))
    ends = ops["rank"].search_sorted(pl.Series(ranks[starts], dtype=ops.schema["rank"]), "right").to_list()
    parts, last = [], 0
    for start, stop, end in zip(starts.tolist(), [*starts[1:].tolist(), len(ranks)], ends, strict=True):
        parts += [ops[last:end], more[start:stop]]
        last = end
    return pl.concat([*parts, ops[last:]], rechunk=True)
